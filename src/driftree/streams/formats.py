"""File formats by their first bytes; files to lines of text, compressed or not; lines of JSON.

Lines and blocks of them have a maximum size: an endless line is found before it fills the memory.

JSON from clients is read strictly: UTF-8, no NaN, no duplicate keys, no numbers beyond float64.
Errors say where and what.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zipfile
import zlib
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from driftree.learn.validation import list_names, quoted, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

N_HEAD = 64  # bytes that identify a format
MAX_LINE = 2**22  # characters: hundreds of thousands of cells, in little memory
MAX_PART = 2**24  # characters of a block of rows
MAX_CHECK = 2**27  # bytes that are unpacked after an error to reach a checksum: up to a second
GZIP = b"\x1f\x8b"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the second of an archive without files
DAMAGE = (EOFError, UnicodeDecodeError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile)
ARROW: dict[bytes, Literal["Parquet", "Feather"]] = {b"PAR1": "Parquet", b"ARROW1": "Feather"}
MODEL = b'{"__metadata__":{"driftree":'  # after eight bytes with the length of the header
REFUSED = {
    b"FEA1": ("Feather in its first version", "write it again with pyarrow, or as CSV"),
    b"SQLite format 3": ("an SQLite database", "export the table as CSV"),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook", "save the sheet as CSV in UTF-8"),
    b"\x89HDF": ("HDF5", "write the table as CSV or Parquet"),
    b"Obj\x01": ("Avro", "write it as JSON Lines or Parquet"),
    b"ORC": ("ORC", "write it as Parquet"),
    b"%PDF": ("a PDF", "export the table as CSV"),
    b"\x89PNG": ("a picture", "give a table"),
    b"BZh": ("compressed by bzip2", "unpack it, or compress it with gzip"),
    b"\xfd7zXZ": ("compressed by xz", "unpack it, or compress it with gzip"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "unpack it, or compress it with gzip"),
    b"7z\xbc\xaf": ("a 7z archive", "unpack it"),
    b"\x80\x04\x95": ("a pickle", "write the table as CSV or Parquet"),
    b"\x80\x05\x95": ("a pickle", "write the table as CSV or Parquet"),
    b"\x93NUMPY": ("a NumPy array", "load it with numpy.load and give the array"),
    b"<!DOCTYPE": ("a web page", "download the table itself"),
    b"@relation": ("an ARFF file", "write the table as CSV or Parquet"),
    b"@RELATION": ("an ARFF file", "write the table as CSV or Parquet"),
    b"<html": ("a web page", "download the table itself"),
    b"\xff\xfe": ("not UTF-8 text, but UTF-16", "save it as CSV in UTF-8"),
    b"\xfe\xff": ("not UTF-8 text, but UTF-16", "save it as CSV in UTF-8"),
}
OFFICE = {
    "xl/": "an Excel workbook",
    "word/": "a Word document",
    "content.xml": "an OpenDocument file",
}

MAX_TEXT = 1000  # characters of a name, a level or a label
LARGEST = 2**1023  # of integers: float64 can still hold it
KINDS = {dict: "an object", list: "a list", type(None): "null"}


def arrow_format(path: Path) -> Literal["Parquet", "Feather"] | None:
    """Return which of pyarrow's formats a file has, None if neither."""
    with path.open("rb") as file:
        head = file.read(N_HEAD)
    return next((form for magic, form in ARROW.items() if head.startswith(magic)), None)


def is_model(path: Path) -> bool:
    """Return whether a file is a driftree model."""
    with path.open("rb") as file:
        return file.read(N_HEAD)[8:].startswith(MODEL)


def check_head(head: bytes, name: str) -> None:
    """Raise if a file is not text; the error says what it is.

    Examples
    --------
    >>> check_head(b"SQLite format 3", "loans.db")
    Traceback (most recent call last):
    ValueError: loans.db is an SQLite database: export the table as CSV
    """
    if head[8:].startswith(MODEL):
        raise ValueError(
            f"{name} is a driftree model: driftree.load reads it, and so do driftree predict, "
            "explain, learn and report"
        )
    for magic, form in ARROW.items():
        if head.startswith(magic):
            raise ValueError(f"{name} is {form}, which can only be read from a path: give its path")
    for magic, (what, advice) in REFUSED.items():
        if head.startswith(magic):
            raise ValueError(f"{name} is {what}: {advice}")


# ---------------------------------------------------------------------- packed
def open_packed(file: Any, stack: ExitStack, name: str) -> Any:
    """Return the text in a file as bytes, unpacked if it is compressed; raise if it is not text."""
    head = file.peek(N_HEAD)[:N_HEAD]
    if head.startswith(GZIP):
        file = stack.enter_context(gzip.GzipFile(fileobj=file))
    elif head.startswith(ZIP):
        file = _open_zip(file, stack, name)
    else:
        check_head(head, name)
        return file
    try:
        inner = file.peek(N_HEAD)[:N_HEAD]
    except DAMAGE as error:
        raise damaged(name, 0, error) from error
    if inner.startswith((GZIP, *ZIP)):
        raise ValueError(f"the file in {name} is compressed, too: unpack it")
    check_head(inner, f"what is packed in {name}")
    return file


def damaged(name: str, line: int, error: Exception) -> OSError:
    """Return the error of a compressed file that cannot be unpacked after a line."""
    return _damage(name, f" after line {line}", error)


def _damage(name: str, where: str, error: Exception) -> OSError:
    return OSError(
        f"{name} is truncated or damaged{where} ({error}): get the compressed file again"
    )


def _open_zip(file: Any, stack: ExitStack, name: str) -> Any:
    if not file.seekable():
        raise ValueError(
            f"{name} is a zip archive, which can only be read from a path: give its path"
        )
    try:
        archive = stack.enter_context(zipfile.ZipFile(file))
    except zipfile.BadZipFile as error:
        raise OSError(f"{name} is a truncated or damaged zip archive: {error}") from None
    names = [
        one.filename
        for one in archive.infolist()
        if not one.is_dir() and not one.filename.startswith("__MACOSX/")
    ]
    for start, what in OFFICE.items():
        if any(one.startswith(start) for one in names):
            raise ValueError(f"{name} is {what}: save the sheet or table as CSV in UTF-8")
    if not names:
        raise ValueError(f"{name} is a zip archive without files: pack the table again")
    if len(names) != 1:
        raise ValueError(
            f"{name} is a zip archive of {len(names)} files ({list_names(names)}): unpack it, or "
            "pack only the table"
        )
    if archive.getinfo(names[0]).flag_bits & 1:
        raise ValueError(f"{name} is a zip archive with a password: unpack it")
    try:
        return stack.enter_context(archive.open(names[0]))
    except NotImplementedError as error:
        raise ValueError(f"{name} is a zip archive that cannot be unpacked ({error})") from None


# ---------------------------------------------------------------------- lines of bounded length
@contextmanager
def open_lines(file: Path | IO[Any], room: Room, name: str) -> Iterator[Iterator[str]]:
    """Open a file as lines of text, unpacked if it is compressed; a file object stays open."""
    with ExitStack() as stack:
        if isinstance(file, Path):
            data: Any = stack.enter_context(file.open("rb"))
        else:
            data = file
            if isinstance(data.read(0), str):
                _let_bytes_pass(data)
                yield watch_text(data, room)
                return
        if not hasattr(data, "peek"):
            data = io.BufferedReader(data)
            stack.callback(data.detach)
        inner = open_packed(data, stack, name)
        watched: Any = WatchedBytes(inner, room)
        # Bytes that are not UTF-8 become lone surrogates, so that errors can name the cell.
        text = io.TextIOWrapper(watched, encoding="utf-8-sig", errors="surrogateescape", newline="")
        stack.callback(text.detach)
        try:
            yield text
        except ValueError:
            if inner is not data and isinstance(file, Path):
                _check_rest(inner, name)
            raise


def _check_rest(packed: Any, name: str) -> None:
    """Raise if a compressed file with a malformed row is damaged, as its checksum may tell."""
    n_left = MAX_CHECK
    try:
        while n_left > 0 and (found := packed.read(2**16)):
            n_left -= len(found)
    except DAMAGE as error:
        raise _damage(name, "", error) from error


def _let_bytes_pass(file: Any) -> None:
    """Let a text file decode invalid bytes as lone surrogates, if nothing was read from it yet.

    It decodes ahead of the lines that it returns: its own error would lose the rows before.
    """
    if isinstance(file, io.TextIOWrapper) and file.errors == "strict":
        with suppress(io.UnsupportedOperation):  # it has been read from
            file.reconfigure(errors="surrogateescape")


class TooLongError(ValueError):
    """A line, or a row of many lines, exceeds the limit of characters."""


class Room:
    """What is left of the limit of a block of rows.

    A row is begun only while something is left. So if it is exceeded by more than a line, one row
    took it.

    Attributes
    ----------
    left : int
        Characters, or bytes when reading bytes.
    """

    def __init__(self) -> None:
        self.left = MAX_PART

    def renew(self) -> None:
        """Start another block."""
        self.left = MAX_PART

    def take(self, n_line: int, n: int) -> None:
        """Subtract `n`; raise if that is too much, or if the line is too long."""
        self.left -= n
        if n_line > MAX_LINE:
            raise TooLongError(f"has more than {MAX_LINE:,} characters")
        if self.left < -MAX_LINE:
            raise TooLongError(f"begins a row of more than {MAX_LINE:,} characters")


class WatchedBytes(io.BufferedIOBase):
    """A binary file whose line lengths are checked while it is read in large pieces."""

    def __init__(self, file: Any, room: Room) -> None:
        self.file, self.room = file, room
        self.n_line = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def read1(self, size: int = -1, /) -> bytes:
        """Read what is available, at least one byte before the end."""
        data: bytes = self.file.read1(size)
        end = max(data.rfind(b"\n"), data.rfind(b"\r"))
        is_blank = not data.strip(b"\r\n")  # blank lines are not rows, however many
        n_before = self.n_line + len(data) if end < 0 else 0  # lines that end here come first
        self.n_line = n_before if end < 0 else len(data) - end - 1
        self.room.take(n_before, 0 if is_blank else len(data))
        return data


def watch_text(file: Any, room: Room) -> Iterator[str]:
    """Yield the lines of a file of text."""
    is_own = isinstance(file, io.TextIOBase)  # file-like objects may only read whole lines
    for line in iter(partial(file.readline, MAX_LINE + 1), "") if is_own else file:
        room.take(len(line), len(line) if len(line) > 2 else 0)
        yield line


# ---------------------------------------------------------------------- JSON
class JsonError(csv.Error):
    """A line is not a JSON object of plain values."""


def is_json(first_line: str, name: str) -> bool:
    """Return whether the first line is JSON Lines, not CSV; raise if it begins an array.

    Examples
    --------
    >>> is_json('{"age": 31}', "people.jsonl"), is_json("age,car", "people.csv")
    (True, False)
    """
    start = "".join(first_line.split())
    if start == "[" or start.startswith("[{"):
        raise ValueError(
            f"{name} is a JSON array: write one object per line (JSON Lines; jq -c '.[]' does)"
        )
    return start.startswith("{")


class JsonReader:
    """Reads lines of JSON as `csv.reader` reads CSV: as lists of text cells.

    Parameters
    ----------
    lines : iterator of str
        One object each.
    header : list of str
        Names of the cells; new keys are appended to it.

    Attributes
    ----------
    line_num : int
        Lines read so far.

    Examples
    --------
    >>> header = []
    >>> reader = JsonReader(iter(['{"age": 31, "owner": true}', '{"car": null, "age": 2}']), header)
    >>> list(reader), header
    ([['31', 'true'], ['2', '', '']], ['age', 'owner', 'car'])
    """

    def __init__(self, lines: Iterator[str], header: list[str]) -> None:
        self.lines = lines
        self.header = header
        self.line_num = 0

    def __iter__(self) -> JsonReader:
        return self

    def __next__(self) -> list[str]:
        line = next(self.lines)
        self.line_num += 1
        if not line.strip():
            return []
        try:
            held = json.loads(line, object_pairs_hook=_without_twins)
        except RecursionError:
            raise JsonError("is nested too deeply") from None
        except ValueError as error:
            raise JsonError(f"is not JSON: {error}") from None
        if not isinstance(held, dict):
            raise JsonError(f"is not a JSON object, but {shown(held)}")
        cells = {name: _to_cell(name, value) for name, value in held.items()}
        self.header += [name for name in cells if name not in self.header]
        return [cells.get(name, "") for name in self.header]


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raise if a key appears twice."""
    held = dict(pairs)
    if len(held) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise JsonError(f"has the key {twice!r} twice: rename or remove one of them")
    return held


def _to_cell(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        raise JsonError(
            f"{name!r} holds {shown(value)}: give plain values, with a key for each part"
        )
    return json.dumps(value)


# ---------------------------------------------------------------------- JSON that somebody has sent
def parse_json(body: bytes) -> Any:
    r"""Parse JSON strictly.

    Examples
    --------
    >>> parse_json(b'{"rows": [{"age": 31}]}')
    {'rows': [{'age': 31}]}
    >>> parse_json(b'{"age": 31, "age": 32}')
    Traceback (most recent call last):
    ValueError: duplicate key 'age'
    """
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_unique)
    except RecursionError:
        words = "it is nested too deeply"
    except (UnicodeDecodeError, json.JSONDecodeError, DuplicateKeyError) as error:
        words = str(error)
    except ValueError:  # Python converts no more than 4,300 digits
        words = "an integer has too many digits"
    raise ValueError(words) from None


class DuplicateKeyError(ValueError):
    """An object has a duplicate key."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise DuplicateKeyError(f"duplicate key {quoted(twice)}")
    return found


def check_value(value: Any, where: str) -> None:
    """Raise unless a value is text, a boolean or a finite number, of reasonable size.

    Examples
    --------
    >>> check_value(3, "column 'age', row 0")
    >>> check_value(float("nan"), "column 'age', row 1")
    Traceback (most recent call last):
    ValueError: column 'age', row 1: JSON has no nan: use null if missing
    """
    kind = type(value)
    if kind is float:
        if not math.isfinite(value):
            raise ValueError(f"{where}: JSON has no {value}: use null if missing")
    elif kind is str:
        if len(value) > MAX_TEXT:
            raise ValueError(f"{where}: the text exceeds {MAX_TEXT:,} characters: shorten it")
    elif kind is int:
        if not -LARGEST < value < LARGEST:
            raise ValueError(f"{where}: the number is too large for float64: send it as text")
    elif kind is not bool:
        raise ValueError(
            f"{where} must be a number, text, true or false, got {KINDS.get(kind, kind)}"
        )
