"""Downloads that can be killed at any time: they are resumed, and files are never incomplete."""

import hashlib
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from driftree.learn.storage.atomic import put_in_place, replace_text
from driftree.learn.storage.locks import wait_for_lock

Progress = Callable[[int, int | None], object]

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 4  # consecutive attempts without a new byte
BACKOFF_SECONDS = 0.5  # doubles with each attempt
CHUNK_BYTES = 1 << 18
DIGITS = {"md5": 32, "sha256": 64}
TRANSIENT_STATUS = (408, 416, 425, 429, 500, 502, 503, 504)
PERMANENT_CAUSES = (socket.gaierror, ssl.SSLCertVerificationError)


class DownloadError(RuntimeError):
    """A file could not be downloaded, or is not the file that was expected."""


class Bookmark(NamedTuple):
    """The origin of a partial file `<name>.part`; stored in `<name>.part.json`."""

    url: str
    validator: str | None  # strong ETag, else date of the last change
    n_bytes: int | None  # of the whole file


def download(
    url: str, path: Path | str, *, checksum: str | None = None, progress: Progress | None = None
) -> Path:
    """Download a file, or the missing rest of it.

    The bytes go to ``<path>.part``, which is renamed when it is complete, has the right checksum
    and is on the disk. A later call resumes after the last byte if the file on the server has not
    changed, and starts over otherwise. If two processes want the same file, the second waits, then
    finds it. Interrupted connections and busy servers are retried.

    Parameters
    ----------
    url : str
        An http or https address.
    path : path
        The file to write. If it exists (and has the right checksum) nothing is done.
    checksum : str or None, default=None
        ``"md5:<hex>"`` or ``"sha256:<hex>"``.
    progress : callable or None, default=None
        Called with the number of bytes received, and of the whole file, or None if unknown.

    Returns
    -------
    path
        The file.

    Examples
    --------
    >>> download("ftp://example.org/a.csv", "a.csv")
    Traceback (most recent call last):
    ValueError: only http and https can be downloaded, not ftp://example.org/a.csv
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"only http and https can be downloaded, not {url}")
    if checksum is not None:
        _split(checksum)
    path = Path(path)
    with hold(path):
        if path.exists() and _wrong_digest(path, checksum) is None:
            return path
        part = _Part(path)
        resumed = part.read_mark(url) is not None
        _receive_all(url, part, is_checked=checksum is not None, progress=progress)
        wrong = _wrong_digest(part.file, checksum)
        if wrong is not None and resumed:  # the partial file may have been of another version
            part.discard()
            _receive_all(url, part, is_checked=True, progress=progress)
            wrong = _wrong_digest(part.file, checksum)
        if wrong is not None:
            part.discard()
            raise DownloadError(
                f"{url} has the checksum {wrong} instead of {checksum}; it was damaged in transit "
                "or has changed at its source"
            )
        put_in_place(part.file, path)
        part.discard()
    return path


def fetch(url: str) -> bytes:
    """Return a small document, with retries as for a download."""
    n_failures = 0
    while True:
        try:
            with _open(url, {}) as response:
                return response.read()
        except (OSError, HTTPException) as error:
            _raise_if_permanent(url, error)
            n_failures += 1
            if n_failures >= ATTEMPTS:
                raise _failure(url, error) from error
            time.sleep(BACKOFF_SECONDS * 2**n_failures)


class _Part:
    """An unfinished download and its bookmark."""

    def __init__(self, path: Path) -> None:
        self.file = path.with_name(f"{path.name}.part")
        self.mark_file = path.with_name(f"{path.name}.part.json")

    @property
    def n_bytes(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0

    def read_mark(self, url: str) -> Bookmark | None:
        """Return the bookmark if there are bytes of this URL to resume from."""
        try:
            mark = Bookmark(**json.loads(self.mark_file.read_text()))
        except (FileNotFoundError, ValueError, TypeError):  # missing, or truncated
            return None
        return mark if mark.url == url and self.n_bytes else None

    def start(self, mark: Bookmark) -> None:
        """Start over: first an empty file, then its bookmark."""
        self.file.write_bytes(b"")
        replace_text(self.mark_file, json.dumps(mark._asdict()))

    def discard(self) -> None:
        self.file.unlink(missing_ok=True)
        self.mark_file.unlink(missing_ok=True)


def _receive_all(url: str, part: _Part, *, is_checked: bool, progress: Progress | None) -> None:
    """Receive until the file is complete, with retries as long as bytes arrive."""
    n_failures, most_bytes = 0, 0
    while True:
        mark = part.read_mark(url)
        if mark is not None and mark.n_bytes == part.n_bytes:
            return
        try:
            _receive(url, part, mark, is_checked=is_checked, progress=progress)
            return
        except (URLError, HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
            _raise_if_permanent(url, error)
            if isinstance(error, HTTPError) and error.code == 416:  # the file became shorter
                part.discard()
            n_failures = 0 if part.n_bytes > most_bytes else n_failures + 1
            most_bytes = max(most_bytes, part.n_bytes)
            if n_failures >= ATTEMPTS:
                raise _failure(url, error) from error
            time.sleep(BACKOFF_SECONDS * 2**n_failures)


def _receive(
    url: str, part: _Part, mark: Bookmark | None, *, is_checked: bool, progress: Progress | None
) -> None:
    """Request the missing bytes once, and write them as they arrive."""
    headers = {}
    if mark is not None and (mark.validator or is_checked):
        headers["Range"] = f"bytes={part.n_bytes}-"
        if mark.validator:
            headers["If-Range"] = mark.validator
    with _open(url, headers) as response:
        n_bytes = _continued(response, part, mark) if "Range" in headers else None
        if n_bytes is None:
            if response.status == 206:
                part.discard()
                raise ConnectionError("the server sent another range than requested")
            length = response.headers.get("Content-Length")
            n_bytes = int(length) if length else None
            part.start(Bookmark(url, _validator(response), n_bytes))
        with part.file.open("ab") as file:
            while chunk := response.read1(CHUNK_BYTES):
                file.write(chunk)
                if progress is not None:
                    progress(file.tell(), n_bytes)
            file.flush()
            os.fsync(file.fileno())
    if n_bytes is not None and part.n_bytes != n_bytes:
        raise ConnectionError(f"the connection ended after {part.n_bytes:,} of {n_bytes:,} bytes")


def _continued(response: HTTPResponse, part: _Part, mark: Bookmark | None) -> int | None:
    """Return the size of the whole file if the response continues where the part ends."""
    pattern = rf"bytes {part.n_bytes}-\d+/(\d+)"
    match = re.fullmatch(pattern, response.headers.get("Content-Range", ""))
    if response.status != 206 or match is None or mark is None:
        return None
    n_bytes = int(match[1])
    return n_bytes if mark.n_bytes in (n_bytes, None) else None


def _validator(response: HTTPResponse) -> str | None:
    """Return what identifies this version of the file; weak ETags do not."""
    tag: str | None = response.headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return tag
    return response.headers.get("Last-Modified")


def _open(url: str, headers: dict[str, str]) -> HTTPResponse:
    # With compression in transit, lengths and ranges would not match the checksum.
    headers = {"User-Agent": "driftree", "Accept-Encoding": "identity", **headers}
    response: HTTPResponse = urlopen(Request(url, headers=headers), timeout=TIMEOUT_SECONDS)
    return response


def _raise_if_permanent(url: str, error: Exception) -> None:
    cause = error.reason if isinstance(error, URLError) else error
    is_refused = isinstance(error, HTTPError) and error.code not in TRANSIENT_STATUS
    if is_refused or isinstance(cause, PERMANENT_CAUSES):
        raise _failure(url, error) from error


def _failure(url: str, error: Exception) -> DownloadError:
    reason = error if isinstance(error, HTTPError) else getattr(error, "reason", error)
    return DownloadError(f"{url} could not be downloaded: {reason}")


def _split(checksum: str) -> tuple[str, str]:
    """Return algorithm and hex digits of a checksum."""
    algorithm, _, digits = checksum.partition(":")
    if len(digits) != DIGITS.get(algorithm):
        raise ValueError(f"checksum must be md5:<hex> or sha256:<hex>, not {checksum}")
    return algorithm, digits.lower()


def _wrong_digest(file: Path, checksum: str | None) -> str | None:
    """Return the checksum of a file if it is not the expected one."""
    if checksum is None:
        return None
    algorithm, expected = _split(checksum)
    found = digest_of(file, algorithm)
    return None if found == expected else f"{algorithm}:{found}"


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Lock a file against preparation by other processes; the lock ends with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(path.with_name(f".{path.name}.lock")):
        yield


def digest_of(path: Path, algorithm: str) -> str:
    """Return the digest of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.new(algorithm, usedforsecurity=False)
        ).hexdigest()
