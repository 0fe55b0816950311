"""Models in files: JSON and numbers, written atomically, read as untrusted input.

Here are the errors of all modules: what is wrong with a file, and with which one.
"""

from __future__ import annotations

import os


class ModelFileError(ValueError):
    """A model file is damaged, hostile, or from a newer version; the message says which.

    Examples
    --------
    >>> import driftree
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "model.dmt")
    >>> _ = path.write_bytes(b"")
    >>> driftree.load(path)
    Traceback (most recent call last):
    driftree.learn.storage.ModelFileError: ...model.dmt: the file is empty
    """


class name_errors:  # noqa: N801 (a function to who uses it)
    """Add the file's name to errors: `with name_errors(path): ...`."""

    __slots__ = ("_path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Do nothing yet."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ModelFileError):
            raise ModelFileError(f"{os.fsdecode(self._path)}: {error}") from error.__cause__
