"""Follower: a read-only server that reloads the model whenever the learning server saves it.

The file is replaced atomically, so a reader gets one model or the next, never a mixture. A replaced
file has another inode or time; it is then loaded in the background, and the model is swapped
between two requests. If it cannot be read, the old one stays.
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

LOOK_SECONDS = 0.5  # between two checks of the file
logger = logging.getLogger("driftree.serve")


class Follower:
    """Checks a model file regularly, in a thread, within a `with` block.

    Parameters
    ----------
    writer : Writer
        The holder of the model; it must be read-only.
    path : Path
        The file as it was named: it may be a link that later points to another file.
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
        """Load the file if it has changed; return whether its model is served."""
        writer = self.writer
        try:
            status = os.stat(self.path)  # first: a file that changes meanwhile is read once more
            found = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
            if found == self._seen:
                writer.problem = None  # it is back, if it was gone
                return False
            model, note = read_model(self.path)
            check_model(model, writer.limits)
            if predicts_numbers(model) != predicts_numbers(writer.model):
                raise ModelFileError(f"{self.path}: it predicts another kind of target")
        except NOT_SAVED as error:
            self._tell(error)
            return False
        self._seen = found
        writer.replace(model, 0 if note is None else note.sequence)
        return True

    def _tell(self, error: Exception) -> None:
        """Report that the old model stays; it names no paths, as /health needs no token."""
        cause = error.strerror if isinstance(error, OSError) else type(error).__name__
        words = f"the file cannot be read ({cause}); the model read last is served"
        if self.writer.problem != words:
            logger.error("the old model stays: %s", error)
        self.writer.problem = words
