"""Metrics: counts and durations of requests, in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# name: (type, help)
GAUGES = {
    "driftree_rows_learnt_total": ("counter", "Rows acknowledged since the start."),
    "driftree_snapshots_total": ("counter", "Times the model was saved."),
    "driftree_failed_snapshots_total": ("counter", "Times the model could not be saved."),
    "driftree_rows_seen": ("gauge", "Rows that the model has learnt."),
    "driftree_batches": ("gauge", "Batches that the model has learnt."),
    "driftree_nodes": ("gauge", "Nodes of the tree."),
    "driftree_memory_bytes": ("gauge", "Bytes that the tree's arrays hold."),
    "driftree_journal_bytes": ("gauge", "Size of the journal."),
    "driftree_rows_unsaved": ("gauge", "Rows that are only in the journal."),
    "driftree_learning": ("gauge", "1 if batches can be learnt."),
}


class Metrics:
    """Requests by method, route and status; how long they took, by route.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.observe("POST", "/predict", 200, 0.003)
    >>> print(metrics.to_text({"driftree_nodes": 3}))
    # HELP driftree_requests_total Requests answered.
    # TYPE driftree_requests_total counter
    driftree_requests_total{method="POST",route="/predict",status="200"} 1
    ...
    driftree_request_seconds_bucket{route="/predict",le="0.0025"} 0
    driftree_request_seconds_bucket{route="/predict",le="0.005"} 1
    ...
    # TYPE driftree_nodes gauge
    driftree_nodes 3
    """

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._seconds: dict[str, float] = defaultdict(float)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests[method, route, status] += 1
        self._buckets[route][bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds

    def to_text(self, gauges: Mapping[str, float]) -> str:
        """Return all metrics, with the given figures of the writer and the model."""
        return "\n".join([*self._tell_requests(), *self._tell_seconds(), *_tell(gauges), ""])

    def _tell_requests(self) -> Iterator[str]:
        yield "# HELP driftree_requests_total Requests answered."
        yield "# TYPE driftree_requests_total counter"
        for (method, route, status), n in sorted(self._requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            yield f"driftree_requests_total{{{labels}}} {n}"

    def _tell_seconds(self) -> Iterator[str]:
        name = "driftree_request_seconds"
        yield f"# HELP {name} Time from the headers of a request to the end of its response."
        yield f"# TYPE {name} histogram"
        for route, counts in sorted(self._buckets.items()):
            total = 0
            for bound, n in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                total += n
                yield f'{name}_bucket{{route="{route}",le="{bound}"}} {total}'
            yield f'{name}_sum{{route="{route}"}} {self._seconds[route]!r}'
            yield f'{name}_count{{route="{route}"}} {total}'


def _tell(gauges: Mapping[str, float]) -> Iterator[str]:
    for name, value in gauges.items():
        kind, words = GAUGES[name]
        yield f"# HELP {name} {words}"
        yield f"# TYPE {name} {kind}"
        yield f"{name} {value}"
