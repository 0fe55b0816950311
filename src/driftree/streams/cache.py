"""Where data are kept: the folders, and who may fill them."""

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftree.learn.storage.locks import wait_for_lock


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
    with wait_for_lock(path.with_name(f".{path.name}.lock")):
        yield


def digest_of(path: Path, algorithm: str) -> str:
    """Return the digest of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.new(algorithm, usedforsecurity=False)
        ).hexdigest()
