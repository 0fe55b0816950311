"""Journal: what was learnt since the model was last saved, such that a crash loses none of it.

A journal is a folder with one file per time that the model was saved (a *segment*). A segment is a
row of *frames*: magic, length, sequence number, CRC-32, then one JSON text per line. All that is
made durable by one fsync is one frame, so only the last frame of the last segment can ever be torn.
Such a tail was never acknowledged, and is cut off. A frame that is not whole although others follow
is damage, and is never passed over. The first byte of the magic does not occur in JSON, which is
written as ASCII: nothing that a client sends can look like a frame.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

FORMAT = 1
MAGIC = b"\x89dmt"
HEADER = struct.Struct("<4sIQI")  # magic, bytes of the body, first sequence number, CRC-32
COVERED = struct.Struct("<IQ")  # of the header, by the CRC
SUFFIX = ".log"


class JournalError(ValueError):
    """A journal is damaged, or belongs to another model; the message says which and where."""


class Entry(NamedTuple):
    """One thing that was noted."""

    sequence: int
    data: bytes


class Found(NamedTuple):
    """What a journal holds.

    Attributes
    ----------
    journal_id : str or None
        Which journal it is; None if there is nothing.
    entries : list of Entry
        What was noted, in order.
    n_cut : int
        Bytes at the end that are no whole frame.
    """

    journal_id: str | None
    entries: list[Entry]
    n_cut: int


# ---------------------------------------------------------------------- frames
def to_frame(sequence: int, texts: Sequence[bytes]) -> bytes:
    """Return texts as one frame.

    Examples
    --------
    >>> frame = to_frame(7, [b'{"a":1}', b'{"a":2}'])
    >>> frame_at(frame, 0)
    (7, [b'{"a":1}', b'{"a":2}'], 35)
    >>> frame_at(frame[:-1], 0) is None
    True
    """
    body = b"\n".join(texts)
    checksum = zlib.crc32(body, zlib.crc32(COVERED.pack(len(body), sequence)))
    return HEADER.pack(MAGIC, len(body), sequence, checksum) + body


def frame_at(data: bytes, start: int) -> tuple[int, list[bytes], int] | None:
    """Return sequence number, texts and end of the frame at a place; None if none is whole."""
    body_start = start + HEADER.size
    if len(data) < body_start:
        return None
    magic, length, sequence, checksum = HEADER.unpack_from(data, start)
    body = data[body_start : body_start + length]
    if magic != MAGIC or len(body) < length:
        return None
    if zlib.crc32(body, zlib.crc32(COVERED.pack(length, sequence))) != checksum:
        return None
    return sequence, body.split(b"\n"), body_start + length


def _next_frame(data: bytes, start: int) -> int:
    """Return where the next whole frame begins; -1 if there is none."""
    place = data.find(MAGIC, start)
    while place >= 0 and frame_at(data, place) is None:
        place = data.find(MAGIC, place + 1)
    return place


# ---------------------------------------------------------------------- reading
def read_journal(folder: Path) -> Found:
    """Return what is in a journal's folder; raise `JournalError` if it is damaged."""
    journal_id, n_cut = None, 0
    entries: list[Entry] = []
    paths = segments(folder)
    for path in paths:
        own_id, own, n_cut = _read_segment(path, is_last=path == paths[-1])
        if own_id is None:  # the process ended while it began the segment
            continue
        if journal_id is not None and own_id != journal_id:
            raise JournalError(f"{path} belongs to another journal than the file before it")
        if entries and own and own[0].sequence != entries[-1].sequence + 1:
            raise JournalError(
                f"{path} begins with record {own[0].sequence}, but the file before it ends with "
                f"{entries[-1].sequence}: a file is missing; put it back"
            )
        journal_id = own_id
        entries += own
    return Found(journal_id, entries, n_cut)


def _read_segment(path: Path, *, is_last: bool) -> tuple[str | None, list[Entry], int]:
    data = path.read_bytes()
    journal_id, place = None, 0
    entries: list[Entry] = []
    while place < len(data):
        frame = frame_at(data, place)
        if frame is None:
            later = _next_frame(data, place + 1)
            if later < 0 and is_last:
                break
            follows = f"whole ones follow at byte {later}" if later >= 0 else "another file follows"
            raise JournalError(
                f"{path}: the record at byte {place} is damaged, and {follows}: put the file back "
                "from a copy, or move the folder away to go on from the model file alone, without "
                "what was learnt after it was saved"
            )
        sequence, texts, end = frame
        if place == 0:
            journal_id = _read_id(path, texts[0])
            expected = sequence
        elif sequence != expected:
            raise JournalError(
                f"{path}: the record at byte {place} has number {sequence} instead of {expected}: "
                "put the file back from a copy"
            )
        else:
            entries += [Entry(sequence + i, text) for i, text in enumerate(texts)]
            expected += len(texts)
        place = end
    return journal_id, entries, len(data) - place


def _read_id(path: Path, text: bytes) -> str:
    head: dict[str, Any] = json.loads(text)
    if head.get("format") != FORMAT:
        raise JournalError(
            f"{path} has format {head.get('format')}, and this driftree reads {FORMAT}: upgrade "
            "driftree, or start it once with the version that wrote the file"
        )
    return str(head["journal"])


def segments(folder: Path) -> list[Path]:
    """Return the files of a journal, oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"))


# ---------------------------------------------------------------------- writing
class Journal:
    """A journal that is being written.

    Parameters
    ----------
    folder : Path
        Where its segments are.
    journal_id : str
        Told in every segment, so that no other model takes it for its own.
    """

    def __init__(self, folder: Path, journal_id: str) -> None:
        self.folder = folder
        self.journal_id = journal_id
        self.size = 0
        self._fd = -1

    def restart(self, sequence: int) -> None:
        """Forget everything, which the model file holds by now, and begin with this number."""
        self.close()
        for path in segments(self.folder):
            os.unlink(path)
        path = self.folder / f"{sequence:020}{SUFFIX}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self.size = 0
        head = json.dumps({"format": FORMAT, "journal": self.journal_id}).encode("ascii")
        self._write(to_frame(sequence, [head]))
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def append(self, sequence: int, texts: Sequence[bytes]) -> None:
        """Make texts durable, all of them by one fsync; the first has this number.

        After an error nothing may be appended any more: what of it is on the disk is not known.
        """
        self._write(to_frame(sequence, texts))

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        os.fsync(self._fd)
        self.size += len(data)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
