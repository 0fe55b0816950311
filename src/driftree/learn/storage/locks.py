"""Locks: files that one process at a time can have. The lock ends with its process."""

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
    """Return a file that nobody else has; to be closed when others may have it.

    Parameters
    ----------
    path : path
        The file of the lock; made if it is not there. It says which process has it.
    advice : str
        What to do if somebody else has it.

    Raises
    ------
    BlockingIOError
        If another process has it, or this one has it already.

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
    """Have the lock for the time of a block, as soon as nobody else has it."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        _sign(fd)
        yield
    finally:
        os.close(fd)


def _open(path: str | os.PathLike[str]) -> int:
    if fcntl is None:
        raise OSError("this needs file locks as Linux and macOS have them")
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def _sign(fd: int) -> None:
    """Say who has it."""
    with contextlib.suppress(OSError):  # on a full disk the lock holds all the same
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode("ascii"))
