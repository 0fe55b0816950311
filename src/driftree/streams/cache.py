"""Where data are kept: the folders, and files that appear whole or not at all."""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def cache_folder() -> Path:
    """Return the folder where driftree keeps what it downloads, converts and draws.

    ``DRIFTREE_CACHE`` if it is set, else ``driftree`` in the platform's cache folder. The folder
    need not exist yet.

    Examples
    --------
    >>> import os, unittest.mock
    >>> with unittest.mock.patch.dict(os.environ, DRIFTREE_CACHE="kept"):
    ...     str(cache_folder())
    'kept'
    """
    chosen = os.environ.get("DRIFTREE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        variable, default = "LOCALAPPDATA", Path("AppData", "Local")
    elif sys.platform == "darwin":
        variable, default = "", Path("Library", "Caches")
    else:
        variable, default = "XDG_CACHE_HOME", Path(".cache")
    platform_folder = Path(os.environ.get(variable, ""))
    if not platform_folder.is_absolute():  # XDG: a relative path is to be ignored
        platform_folder = Path.home() / default
    return platform_folder / "driftree"


def data_folder() -> Path | None:
    """Return the folder that ``DRIFTREE_DATA`` names, or None where it is not set.

    Examples
    --------
    >>> import os, unittest.mock
    >>> with unittest.mock.patch.dict(os.environ, DRIFTREE_DATA="no/such"):
    ...     data_folder()
    Traceback (most recent call last):
    NotADirectoryError: DRIFTREE_DATA is set to no/such, which is not a folder; ...
    """
    chosen = os.environ.get("DRIFTREE_DATA")
    if not chosen:
        return None
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise NotADirectoryError(
            f"DRIFTREE_DATA is set to {chosen}, which is not a folder; name the folder that holds "
            "files such as electricity.csv.gz, or unset it to use the cache and downloads"
        )
    return folder


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Keep other processes from preparing the same file; the lock ends with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("ab") as lock:
        _wait_for(lock)
        yield  # closing the file releases the lock


@contextmanager
def write_whole(path: Path) -> Iterator[BinaryIO]:
    """Write a file that gets its name only when it is complete and on the disk.

    To be used under `hold`: the unfinished file has a fixed name, so that what a killed process
    left is overwritten by the next one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        put_in_place(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def put_in_place(unfinished: Path, path: Path) -> None:
    """Give a complete file its name, in one step that survives a loss of power."""
    os.replace(unfinished, path)
    if sys.platform != "win32":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def digest_of(path: Path, algorithm: str) -> str:
    """Return the digest of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.new(algorithm, usedforsecurity=False)
        ).hexdigest()


def _wait_for(lock: BinaryIO) -> None:
    if sys.platform == "win32":
        import msvcrt

        while True:
            try:
                msvcrt.locking(lock.fileno(), msvcrt.LK_LOCK, 1)
                return
            except OSError:  # it gives up after ten seconds
                continue
    else:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
