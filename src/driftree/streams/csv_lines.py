"""Lines of bounded length: what never ends is noticed before it fills the memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from typing import Any

MAX_LINE = 2**22  # characters: hundreds of thousands of cells, and not yet a burden
MAX_PART = 2**24  # characters of a block of rows


class TooLongError(ValueError):
    """A line, or a row of many lines, has more characters than fit into bounded memory."""


class Room:
    """What a block of rows may still take.

    A row is begun only while there is room. So if more than a line is missing, one row took it.

    Attributes
    ----------
    left : int
        Characters, or bytes where these are read.
    """

    def __init__(self) -> None:
        self.left = MAX_PART

    def renew(self) -> None:
        """Begin another block."""
        self.left = MAX_PART

    def take(self, n_line: int, n: int) -> None:
        """Take `n`; raise if that is too much, or if the line has become too long."""
        self.left -= n
        if n_line > MAX_LINE:
            raise TooLongError(f"has more than {MAX_LINE:,} characters")
        if self.left < -MAX_LINE:
            raise TooLongError(f"begins a row of more than {MAX_LINE:,} characters")


class WatchedBytes(io.BufferedIOBase):
    """A file of bytes, whose lines are measured while it is read in pieces of many lines."""

    def __init__(self, file: Any, room: Room) -> None:
        self.file, self.room = file, room
        self.n_line = 0

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def read1(self, size: int = -1, /) -> bytes:
        """Read what is there, at least a byte before the end."""
        data: bytes = self.file.read1(size)
        end = max(data.rfind(b"\n"), data.rfind(b"\r"))
        is_blank = not data.strip(b"\r\n")  # blank lines are no rows, however many
        n_before = self.n_line + len(data) if end < 0 else 0  # lines that end here come first
        self.n_line = n_before if end < 0 else len(data) - end - 1
        self.room.take(n_before, 0 if is_blank else len(data))
        return data


def watch_text(file: Any, room: Room) -> Iterator[str]:
    """Yield the lines of a file of text."""
    is_own = isinstance(file, io.TextIOBase)  # who looks like a file may read whole lines only
    for line in iter(partial(file.readline, MAX_LINE + 1), "") if is_own else file:
        room.take(len(line), len(line) if len(line) > 2 else 0)
        yield line
