"""Follower: a server that only reads takes over each model that the writer's server saves.

The writer replaces the file as a whole, so whoever opens it reads one model or the next, never a
part of both. A file that is another one has another inode or time; it is then read aside, and takes
the place of the old model between two requests. If it cannot be read, the old one stays.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Self

from driftree.learn.storage import ModelFileError
from driftree.serve.recovery import check_model, read_model
from driftree.serve.writer import NOT_SAVED, predicts_numbers

if TYPE_CHECKING:
    from pathlib import Path

    from driftree.serve.writer import Writer

LOOK_SECONDS = 0.5  # between two looks at the file
logger = logging.getLogger("driftree.serve")


class Follower:
    """Looks at a model's file, in a thread for as long as a `with` block lasts.

    Parameters
    ----------
    writer : Writer
        Who holds the model; it must be one that only reads.
    path : Path
        The file as it was named: it may be a link that is set to another file.
    """

    def __init__(self, writer: Writer, path: Path) -> None:
        self.writer = writer
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="driftree-follower", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> bool:
        """Read the file if it is another one than last time; return whether its model is served."""
        writer = self.writer
        try:
            status = os.stat(self.path)  # first: a file that comes meanwhile is read once more
            found = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
            if found == self._seen:
                writer.problem = None  # it is back, if it was gone
                return False
            model, note = read_model(self.path)
            check_model(model, writer.limits)
            if predicts_numbers(model) != predicts_numbers(writer.model):
                raise ModelFileError(f"{self.path}: it predicts something of another kind")
        except NOT_SAVED as error:
            self._tell(error)
            return False
        self._seen = found
        writer.replace(model, 0 if note is None else note.sequence)
        return True

    def _tell(self, error: Exception) -> None:
        """Say that the old model stays; /health shows it without a token: names no paths."""
        cause = error.strerror if isinstance(error, OSError) else type(error).__name__
        words = f"the file cannot be read ({cause}); the model read last is served"
        if self.writer.problem != words:
            logger.error("the old model stays: %s", error)
        self.writer.problem = words
