"""Metrics: the figures of a stream for Prometheus, over HTTP."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HELP = {
    "driftree_stream_messages_total": "Messages done.",
    "driftree_stream_rows_total": "Rows predicted.",
    "driftree_stream_labels_total": "Labels that came on their own.",
    "driftree_stream_learnt_total": "Rows learnt.",
    "driftree_stream_unlabelled_total": "Rows whose label did not come within the window.",
    "driftree_stream_dead_total": "Messages that could not be used.",
    "driftree_stream_changes_total": "Changes of the tree.",
    "driftree_stream_lag": "Messages that are not done yet.",
    "driftree_stream_waiting_rows": "Rows that wait for their label.",
    "driftree_stream_waiting_labels": "Labels that wait for their row.",
    "driftree_stream_quality": "Share of right labels, or mean absolute error, of all rows.",
    "driftree_stream_recent_quality": "The same of about the last 1,000 rows.",
    "driftree_stream_model_version": "Rows that the model has learnt.",
}


def to_text(figures: Mapping[str, float]) -> str:
    """Return figures in the text format of Prometheus.

    Examples
    --------
    >>> print(to_text({"driftree_stream_lag": 3}))
    # HELP driftree_stream_lag Messages that are not done yet.
    # TYPE driftree_stream_lag gauge
    driftree_stream_lag 3
    <BLANKLINE>
    """
    lines = []
    for name, value in figures.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} {kind}", f"{name} {value}"]
    return "\n".join([*lines, ""])


def serve_metrics(figures: Callable[[], Mapping[str, float]], port: int) -> int:
    """Serve figures on this machine, in a thread that ends with the process; return the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = to_text(figures()).encode("ascii")
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, name="driftree-metrics", daemon=True).start()
    return int(server.server_address[1])
