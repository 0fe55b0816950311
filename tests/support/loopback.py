"""A web server on the loopback interface that can be slow, forgetful or rude."""

import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """Files by path, and how they are served.

    `cuts` holds, per answer, after how many bytes the connection ends; `statuses` the codes of the
    first answers. `requests` records (path, first byte asked for) of every request.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    tag: str | None = '"1"'
    has_ranges: bool = True
    is_chunked: bool = False
    pause: float = 0.0
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    requests: list[tuple[str, int]] = field(default_factory=list)
    address: str = ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        site = self.server.site
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        site.requests.append((self.path, int(wanted[1]) if wanted else 0))
        status = site.statuses.pop(0) if site.statuses else 200
        body = site.files.get(self.path)
        if status != 200 or body is None:
            return self.send_error(404 if body is None else status)
        same = self.headers.get("If-Range") in (None, site.tag)
        start = int(wanted[1]) if wanted and site.has_ranges and same else 0
        if start and start >= len(body):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if site.tag:
            self.send_header("ETag", site.tag)
        if site.is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.send_body(site, body[start:])

    def send_body(self, site, body):
        cut = site.cuts.pop(0) if site.cuts else len(body)
        try:
            for i in range(0, min(cut, len(body)), 4096):
                piece = body[i : min(i + 4096, cut)]
                head, tail = (b"%x\r\n" % len(piece), b"\r\n") if site.is_chunked else (b"", b"")
                self.wfile.write(head + piece + tail)
                time.sleep(site.pause)
            if site.is_chunked and cut >= len(body):
                self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:  # the other side was killed
            cut = 0
        self.close_connection = cut < len(body)


@contextmanager
def serve():
    """Run a site until the end of the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.site = Site(address=f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.site
        finally:
            server.shutdown()
            thread.join()
