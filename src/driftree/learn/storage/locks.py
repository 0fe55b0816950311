"""Locks: file locks, held by one process at a time. A lock ends with its process."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def take_lock(path: str | os.PathLike[str], advice: str) -> int:
    """Take a file lock; return the file, whose closing releases the lock.

    Parameters
    ----------
    path : path
        The lock file, created if necessary. It names the process that holds the lock.
    advice : str
        What to do if the lock is held elsewhere.

    Raises
    ------
    BlockingIOError
        If another process holds it, or this one already does.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "lock")
    >>> fd = take_lock(path, "wait")
    >>> take_lock(path, "wait")
    Traceback (most recent call last):
    BlockingIOError: ... is in use by this process already: wait
    >>> os.close(fd)
    """
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(fd, 20).decode("ascii", "replace").strip()
        os.close(fd)
        who = f"process {owner}" if owner else "another process"
        if owner == str(os.getpid()):
            who = "this process already"
        folder = os.path.dirname(os.fsdecode(path))
        raise BlockingIOError(f"{folder} is in use by {who}: {advice}") from None
    _sign(fd)
    return fd


@contextlib.contextmanager
def wait_for_lock(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a lock within a block; wait until it is free."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        _sign(fd)
        yield
    finally:
        os.close(fd)


def _open(path: str | os.PathLike[str]) -> int:
    if fcntl is None:
        raise OSError("this needs file locks, which exist on Linux and macOS")
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _sign(fd: int) -> None:
    """Write which process holds it."""
    with contextlib.suppress(OSError):  # the lock works even on a full disk
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode("ascii"))
