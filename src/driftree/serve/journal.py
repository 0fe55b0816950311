"""Journal: a write-ahead log of what was learnt since the model was last saved.

A journal is a folder of *segments*: a new file each time the model is saved. A segment is a
sequence of *frames*: magic, length, sequence number, CRC-32, then one JSON text per line; the first
frame says which journal it is. What one fsync makes durable is one frame, so only the last frame of
the last segment can be torn. Such a tail was never acknowledged, and is cut off. An incomplete
frame that others follow is damage, and is never skipped. The first byte of the magic does not occur
in JSON, which is written as ASCII: nothing that a client sends can look like a frame.

A segment gets its name when its first frame is durable, and before the older ones are deleted: a
journal without a segment, or with one whose first frame is incomplete, is damaged, too. A small
file beside them counts what was acknowledged. It is written after the segment, without fsync: after
a power failure it may lag behind, but is never ahead, and shows that the end of a segment is
missing.
"""

from __future__ import annotations

import errno
import json
import os
import re
import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from driftree.learn.storage.atomic import Unfinished

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FORMAT = 1
MAGIC = b"\x89dmt"
HEADER = struct.Struct("<4sIQI")  # magic, bytes of the body, first sequence number, CRC-32
COVERED = struct.Struct("<IQ")  # of the header, by the CRC
SUFFIX = ".log"
OWN_NAME = re.compile(r"[0-9]{20}\.log|\.driftree-[0-9]{20}\.log\.tmp")
COUNT_NAME = "acknowledged"
COUNT = struct.Struct("<QI")  # last sequence number, CRC-32 of it and the journal's id
MAX_GROUP = 64  # texts in a frame
LEAST_TEXT = 50  # bytes of a batch
INSTEAD = (
    "restore it from a backup; or, to continue from the model file alone, without what was learnt "
    "after it was saved, move the folder away and give --without-journal"
)


class JournalError(ValueError):
    """A journal is damaged, or belongs to another model; the message says where."""


class Entry(NamedTuple):
    """One record."""

    sequence: int
    data: bytes


class Found(NamedTuple):
    """What a journal holds.

    Attributes
    ----------
    journal_id : str or None
        Which journal it is; None if there is none.
    first : int
        Number of the first record that it has, or would have.
    entries : list of Entry
        The records, in order.
    n_cut : int
        Bytes at the end that are not a complete frame.
    n_torn : int
        Largest number of records that these may have held.
    path : Path or None
        The last segment, to which more can be appended.
    """

    journal_id: str | None
    first: int
    entries: list[Entry]
    n_cut: int
    n_torn: int
    path: Path | None

    @property
    def last(self) -> int:
        """Number of the last record."""
        return self.first + len(self.entries) - 1


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
    """Return sequence number, texts and end of the frame at an offset; None if it is incomplete."""
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
    """Return where the next complete frame begins; -1 if there is none."""
    place = data.find(MAGIC, start)
    while place >= 0 and frame_at(data, place) is None:
        place = data.find(MAGIC, place + 1)
    return place


def _torn_records(data: bytes, start: int) -> int:
    """Return how many records a torn frame may have held, at most."""
    if len(data) < start + HEADER.size or not data.startswith(MAGIC, start):
        return MAX_GROUP
    length: int = HEADER.unpack_from(data, start)[1]
    body = data[start + HEADER.size :]
    n_unwritten = length - len(body) + body.count(0)  # JSON has no byte 0
    return min(MAX_GROUP, 1 + body.count(b"\n") + n_unwritten // LEAST_TEXT)


# ---------------------------------------------------------------------- reading
def read_journal(folder: Path) -> Found:
    """Return what is in a journal's folder; raise `JournalError` if it is damaged."""
    found = Found(None, 1, [], 0, 0, None)
    paths = segments(folder)
    for path in paths:
        own = _read_segment(path, is_last=path == paths[-1])
        if found.journal_id is None:
            found = own
            continue
        if own.journal_id != found.journal_id:
            raise JournalError(f"{path} belongs to another journal than the file before it")
        if own.first != found.last + 1:
            raise JournalError(
                f"{path} begins with record {own.first}, but the file before it ends with "
                f"{found.last}: a file is missing; {INSTEAD}"
            )
        found = own._replace(first=found.first, entries=found.entries + own.entries)
    return found


def _read_segment(path: Path, *, is_last: bool) -> Found:
    data = path.read_bytes()
    head = frame_at(data, 0)
    if head is None:
        what = "damaged" if data else "empty"
        raise JournalError(f"{path}: the record at byte 0 is {what}: {INSTEAD}")
    first, (text, *_), place = head
    journal_id = _read_id(path, text)
    entries: list[Entry] = []
    while place < len(data):
        frame = frame_at(data, place)
        if frame is None:
            if follows := _what_follows(data, place, is_last=is_last):
                raise JournalError(
                    f"{path}: the record at byte {place} is damaged, and {follows}: {INSTEAD}"
                )
            break
        sequence, texts, end = frame
        expected = first + len(entries)
        if sequence != expected:
            raise JournalError(
                f"{path}: the record at byte {place} has number {sequence} instead of {expected}: "
                f"{INSTEAD}"
            )
        entries += [Entry(sequence + i, text) for i, text in enumerate(texts)]
        place = end
    n_cut = len(data) - place
    n_torn = _torn_records(data, place) if n_cut else 0
    return Found(journal_id, first, entries, n_cut, n_torn, path)


def _what_follows(data: bytes, place: int, *, is_last: bool) -> str | None:
    """Say what follows an incomplete record, which was then not the last one; None if nothing."""
    if (later := _next_frame(data, place + 1)) >= 0:
        return f"complete ones follow at byte {later}"
    if not is_last:
        return "another file follows"
    if data.startswith(MAGIC, place) and len(data) >= place + HEADER.size:
        end = place + HEADER.size + HEADER.unpack_from(data, place)[1]
        if len(data) > end:
            return f"more follows at byte {end}"
    return None


def _read_id(path: Path, text: bytes) -> str:
    try:
        head: Any = json.loads(text)
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict) or not isinstance(head.get("journal"), str):
        raise JournalError(f"{path} does not say which journal it belongs to: {INSTEAD}")
    if head.get("format") != FORMAT:
        raise JournalError(
            f"{path} has format {head.get('format')}, and this driftree reads {FORMAT}: upgrade "
            "driftree, or start it once with the version that wrote the file"
        )
    return str(head["journal"])


def segments(folder: Path) -> list[Path]:
    """Return the files of a journal, oldest first; other files in the folder are ignored."""
    return [path for path in _own_files(folder) if path.name.endswith(SUFFIX)]


def _own_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if OWN_NAME.fullmatch(path.name))


def read_count(folder: Path, journal_id: str) -> int | None:
    """Return how many records were acknowledged, at least; None if that is not known."""
    try:
        data = (folder / COUNT_NAME).read_bytes()
    except FileNotFoundError:
        return None
    sequence = int.from_bytes(data[:8], "little")
    return sequence if data == _to_count(sequence, journal_id) else None


def _to_count(sequence: int, journal_id: str) -> bytes:
    covered = sequence.to_bytes(8, "little") + journal_id.encode("utf-8", "surrogatepass")
    return COUNT.pack(sequence, zlib.crc32(covered))


# ---------------------------------------------------------------------- writing
class Journal:
    """A journal that is open for writing.

    Parameters
    ----------
    folder : Path
        Where its segments are.
    journal_id : str
        Written to every segment, so that no other model uses it.
    """

    def __init__(self, folder: Path, journal_id: str) -> None:
        self.folder = folder
        self.journal_id = journal_id
        self.size = 0
        self._fd = self._count_fd = -1
        self._next: Unfinished | None = None
        self._next_path = folder
        self._next_size = 0

    # ------------------------------------------------------------------ segments
    def resume(self, found: Found) -> None:
        """Continue after what was found; a torn tail is cut off."""
        assert found.path is not None
        self._fd = os.open(found.path, os.O_WRONLY | os.O_APPEND)
        self.size = os.fstat(self._fd).st_size - found.n_cut
        if found.n_cut:
            os.ftruncate(self._fd, self.size)
            os.fsync(self._fd)
        self._begin_count(found.last)

    def restart(self, sequence: int) -> None:
        """Drop all records, which the model file holds by now, and start with this number."""
        self.prepare(sequence)
        self.switch()
        if self._count_fd < 0:
            self._begin_count(sequence - 1)

    def prepare(self, sequence: int) -> None:
        """Write a new segment under a temporary name: if this fails, the old one stays."""
        path = self.folder / f"{sequence:020}{SUFFIX}"
        new = Unfinished(path, is_alone=True, is_private=True)
        try:
            head = json.dumps({"format": FORMAT, "journal": self.journal_id}).encode("ascii")
            self._next_size = _write(new.fd, to_frame(sequence, [head]))
        except BaseException:
            new.close()
            raise
        self._next, self._next_path = new, path

    def switch(self) -> None:
        """Put the new segment in place, then delete the old ones."""
        assert self._next is not None
        self._next.put_in_place()
        fd, before = os.open(self._next_path, os.O_WRONLY | os.O_APPEND), self._fd
        self._fd, self.size = fd, self._next_size
        if before >= 0:
            os.close(before)
        self._next.close()
        self._next = None
        for old in _own_files(self.folder):
            if old != self._next_path:
                os.unlink(old)

    def _begin_count(self, sequence: int) -> None:
        path = self.folder / COUNT_NAME
        self._count_fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(self._count_fd, _to_count(sequence, self.journal_id), 0)
        os.ftruncate(self._count_fd, COUNT.size)

    # ------------------------------------------------------------------ records
    def append(self, sequence: int, texts: Sequence[bytes]) -> None:
        """Append texts durably, with one fsync; the first has this number.

        After an error nothing more may be appended: how much of it reached the disk is unknown.
        """
        self.size += _write(self._fd, to_frame(sequence, texts))
        status = os.fstat(self._fd)
        if status.st_nlink == 0 or status.st_size != self.size:
            raise OSError(errno.EIO, "the journal was deleted or changed by another process")
        last = sequence + len(texts) - 1
        os.pwrite(self._count_fd, _to_count(last, self.journal_id), 0)

    def close(self) -> None:
        """Close the files."""
        if self._next is not None:
            self._next.close()
            self._next = None
        for fd in (self._fd, self._count_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._count_fd = -1


def _write(fd: int, data: bytes) -> int:
    """Write data durably; return its length."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    os.fsync(fd)
    return len(data)
