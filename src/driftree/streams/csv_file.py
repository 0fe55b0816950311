"""CSV and JSON Lines in bounded memory: files, gzipped, zipped or plain, file objects, stdin.

Rows are read in blocks. The first block decides the type of a column, so that it does not depend on
the size of the batches. Whole columns are converted at once; only if that fails, cells are checked
one by one to find which row is malformed and why.
"""

from __future__ import annotations

import csv
import gzip
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from driftree.learn.validation import list_names
from driftree.streams.cells import is_missing, is_number, is_text, read_written
from driftree.streams.csv_columns import (
    NO_NAME,
    ColumnHints,
    CsvColumn,
    check_decimal_points,
    decide_column,
    decide_target,
)
from driftree.streams.findings import Findings, find_column, find_target
from driftree.streams.formats import (
    DAMAGE,
    JsonReader,
    Room,
    TooLongError,
    damaged,
    is_json,
    open_lines,
)
from driftree.streams.sources import BadRow, BadRowError, BadRows, Source, pick_target

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from driftree.streams.rows import Block, Blocks

    Reader = Any  # csv.reader's own type has no public name

FIRST_ROWS = 1000  # which decide the type of a column
BLOCK_ROWS = 500  # 700 new lists would start a garbage collection: 15 % of the time
DELIMITERS = ",;\t|"
LINE_BREAK = re.compile("\r\n?|\n")


@dataclass(slots=True)
class _Rows:
    """Rows as text with their line numbers, the malformed ones, and the error that ended them."""

    rows: list[list[str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    faults: dict[int, BadRow] = field(default_factory=dict)  # by line
    error: Exception | None = None
    is_last: bool = True


class CsvFile(Source):
    """A CSV file with a header line, or JSON Lines.

    Parameters
    ----------
    file : Path, or file object of text or bytes
        The file. A path is opened again each time; compression is recognised by the first bytes.
    name : str
        Name of the file in errors.
    target : str or None
        Column of the labels.
    hints : ColumnHints
        What the user says about columns.
    skips_bad_rows : bool
        Whether malformed rows are counted and left out, or raise an error.
    is_regression : bool, default=False
        Whether the target is a number, rather than a label.
    has_target : bool, default=True
        Whether there is a target at all; without one, the labels are None.
    has_header : bool, default=True
        Whether the first line has the names of the columns, rather than x0, x1, ...
    """

    def __init__(
        self,
        file: Path | IO[Any],
        name: str,
        *,
        target: Hashable | None,
        hints: ColumnHints,
        skips_bad_rows: bool,
        is_regression: bool = False,
        has_target: bool = True,
        has_header: bool = True,
    ) -> None:
        self.file = file
        self.name = name
        self.target = target
        self.hints = hints
        self.skips_bad_rows = skips_bad_rows
        self.is_regression = is_regression
        self.has_target = has_target
        self.has_header = has_header
        self.is_repeatable = isinstance(file, Path)
        self.bad_rows = BadRows()
        self.header: list[str] = []
        self.target_name: str | None = None
        self.delimiter = ","
        self._how: Literal["named", "called target", "last column"] = "last column"
        self._is_json = False
        self._unnamed: str | None = None
        self._room = Room()
        if self.is_repeatable:  # so that its errors are raised at once
            with open_lines(self.file, self._room, self.name) as lines:
                self._decide([], next(self._read_rows(self._read_header(lines))))

    # ------------------------------------------------------------------ rows
    def blocks(self, skip_rows: int, batch_rows: int, stop: int | None = None) -> Blocks:
        """Yield the well-formed rows after the first `skip_rows`.

        Malformed rows after row number `stop` are not counted.
        """
        self.bad_rows = BadRows()
        columns: list[CsvColumn] = []
        n_left = stop
        with open_lines(self.file, self._room, self.name) as lines:
            for part in self._read_rows(self._read_header(lines)):
                columns = self._decide(columns, part)
                for X, y in self._convert(part, columns, n_left):
                    n_left = None if n_left is None else n_left - len(y)
                    n_skipped = min(skip_rows, len(y))
                    skip_rows -= n_skipped
                    if n_skipped < len(y):
                        rows = slice(n_skipped, None)
                        yield {name: cells[rows] for name, cells in X.items()}, y[rows]

    def count_rows(self) -> int | None:
        """Count the rows of a file, including malformed ones, in a separate pass."""
        if not self.is_repeatable:
            return None
        n_rows = 0
        with open_lines(self.file, self._room, self.name) as lines:
            for part in self._read_rows(self._read_header(lines)):
                n_rows += len(part.rows) + len(part.faults)
                if part.error:
                    raise part.error
        return n_rows

    def _convert(
        self, part: _Rows, columns: list[CsvColumn], n_left: int | None
    ) -> Iterator[Block]:
        """Yield the well-formed rows of a part; then raise the error that ended it, if any.

        Malformed rows after `n_left` well-formed ones are not counted.
        """
        rows, faults = part.rows, part.faults
        try:
            block = self._to_block(rows, columns)
        except ValueError:
            faults |= self._find_faults(part, columns)
        if faults:
            first = min(faults)
            is_good = (
                [line not in faults for line in part.lines]
                if self.skips_bad_rows
                else [line < first for line in part.lines]
            )
            rows = [row for row, good in zip(rows, is_good, strict=True) if good]
            block = self._to_block(rows, columns)
            if self.skips_bad_rows:
                end = math.inf
                if n_left is not None and n_left <= len(rows):
                    end = [line for line in part.lines if line not in faults][n_left - 1]
                self.bad_rows.add([faults[line] for line in sorted(faults) if line < end])
        if rows:
            yield block
        if faults and not self.skips_bad_rows:
            raise BadRowError(faults[first])
        if part.error:
            raise part.error

    def _to_block(self, rows: list[list[str]], columns: list[CsvColumn]) -> Block:
        cells = zip(*rows, strict=True) if rows else [()] * len(columns)
        X: dict[str, NDArray[Any]] = {}
        y = np.full(len(rows), None)
        for column, values in zip(columns, cells, strict=True):
            if column.name == self.target_name:
                y = column.read(values)
            else:
                X.update(column.features(values))
        return X, y

    def _find_faults(self, part: _Rows, columns: list[CsvColumn]) -> dict[int, BadRow]:
        """Find malformed cells, the first of each row."""
        faults: dict[int, BadRow] = {}
        for line, row in zip(part.lines, part.rows, strict=True):
            for column, cell in zip(columns, row, strict=True):
                if not column.is_used:
                    continue
                try:
                    column.parse(cell)
                except ValueError as error:
                    last_line = line + sum(len(LINE_BREAK.findall(text)) for text in row)
                    faults[line] = BadRow(self.name, line, column.name, str(error), last_line)
                    break
        return faults

    # ------------------------------------------------------------------ what columns hold
    def _decide(self, known: list[CsvColumn], part: _Rows) -> list[CsvColumn]:
        """Return the columns: known ones, and new ones of this part."""
        if len(known) == len(self.header):
            return known
        cells = list(zip(*part.rows, strict=True)) if part.rows else [()] * len(self.header)
        if not known and self.has_header and not self._is_json:
            self._check_first_line(cells)
        names = self.header[len(known) :]
        fresh = [
            self._decide_one(name, values)
            for name, values in zip(names, cells[len(known) :], strict=True)
        ]
        columns = known + fresh
        features = [column for column in columns if column.name != self.target_name]
        self.feature_names = [
            name for column in features if column.is_used for name in column.features(())
        ]
        for name, n_columns in Counter(self.feature_names).items():
            if n_columns > 1:
                raise ValueError(
                    f"{self.name} has a column {name!r}, which is also a part of the time "
                    f"{name.rpartition(': ')[0]!r}: rename or drop one of them"
                )
        if not known:
            self.findings = self._find(columns, cells)
        return columns

    def _decide_one(self, name: str, values: Sequence[str]) -> CsvColumn:
        hints, may_be_decimal = self.hints, self.delimiter != ","
        hint = hints.kind_of(name)
        try:
            if name == self.target_name:
                column = decide_target(
                    name,
                    values,
                    is_category=hint == "category",
                    is_regression=self.is_regression,
                )
                if column.dtype is object and hint is None and may_be_decimal:
                    check_decimal_points(values)
                return column
            if not hints.wants(name):
                return CsvColumn(name, remark="not wanted", is_used=False)
            if name == self._unnamed:
                if not all(map(is_missing, values)):
                    raise ValueError("has no name in the header: give it one, or remove it")
                return CsvColumn(name, remark=NO_NAME, is_used=False)
            column = decide_column(
                name, values, hint, may_be_decimal=may_be_decimal, is_plain=hints.is_plain
            )
            return hints.without_prose(column)
        except ValueError as error:
            raise ValueError(f"column {name!r} of {self.name} {error}") from None

    def _check_first_line(self, cells: Sequence[Sequence[str]]) -> None:
        """Raise if the first line looks like a row.

        It does if it holds a number, and every cell would be valid in its column.
        """
        has_number = False
        for name, values in zip(self.header, map(set, cells), strict=True):
            numbers = [value for value in values if is_number(value)]
            if is_number(name):
                has_number = True
                fits = bool(numbers)
            else:
                repeats = 2 * len(values) < len(cells[0])
                fits = name in values or (not repeats and not numbers)
            if not fits:
                return
        if has_number and cells[0]:
            raise ValueError(
                f"the first line of {self.name} looks like a row ({list_names(self.header)}), not "
                "like column names: put a line with the names before it, or read it with "
                "header=False"
            )

    def _find(self, columns: list[CsvColumn], cells: Sequence[Sequence[str]]) -> Findings:
        """Record what the first rows show."""
        found, target = [], None
        for column, values in zip(columns, cells, strict=True):
            given = [value for value in values if not is_missing(value)]
            if column.name == self.target_name:
                numbers = [one.value for one in map(read_written, given) if one is not None]
                is_number_like = 2 * len(numbers) > len(given) and column.kind != "text"
                has_hint = self.hints.kind_of(column.name) is not None
                is_number_like &= not has_hint
                labels = [value.strip() for value in given]
                target = find_target(
                    column.name, self._how, labels, numbers if is_number_like else None
                )
                if has_hint:
                    target = target._replace(is_unlikely=False)
                continue
            found.append(find_column(column, given, len(values)))
        wanted = [column for column in found if self.hints.wants(str(column.name))]
        n_rows = len(cells[0]) if cells else 0
        return Findings(self.name, n_rows, target, wanted)

    # ------------------------------------------------------------------ text to rows
    def _read_rows(self, reader: Reader) -> Iterator[_Rows]:
        """Yield rows with as many cells as the header, a block at a time."""
        part = self._padded(self._read_part(reader, FIRST_ROWS))
        if not (part.rows or part.faults or part.error):
            raise ValueError(f"{self.name} holds a header, but no rows")
        yield part
        while not part.is_last:
            part = self._padded(self._read_part(reader, BLOCK_ROWS))
            yield part

    def _padded(self, part: _Rows) -> _Rows:
        """Pad rows of JSON from before a new key."""
        if self._is_json and part.rows and len(part.rows[0]) < len(self.header):
            for row in part.rows:
                row.extend([""] * (len(self.header) - len(row)))
        return part

    def _read_part(self, reader: Reader, n_rows: int) -> _Rows:
        part = _Rows()
        rows, lines, room, header = part.rows, part.lines, self._room, self.header
        start = reader.line_num + 1
        self._room.renew()
        while len(rows) + len(part.faults) < n_rows and room.left > 0:
            try:
                for row in reader:
                    if len(row) == len(header):  # which grows with the keys of JSON
                        rows.append(row)
                        lines.append(start)
                    elif row:  # a blank line is not a row
                        part.faults[start] = self._miscounted(start, row, reader.line_num)
                    start = reader.line_num + 1
                    if len(rows) + len(part.faults) == n_rows or room.left <= 0:
                        break
                else:
                    return part
            except csv.Error as error:
                reason = str(error) if self._is_json else f"cannot be split into cells: {error}"
                if reader.line_num > start and not self._is_json:
                    reason += " (a quote was opened)"
                part.faults[start] = BadRow(self.name, start, None, reason, reader.line_num)
                start = reader.line_num + 1
            except (OSError, TooLongError, *DAMAGE) as error:
                part.error = self._name_damage(error, start - 1)
                return part
        part.is_last = False
        return part

    def _miscounted(self, line: int, row: list[str], last_line: int) -> BadRow:
        width = len(self.header)
        column = self.header[len(row)] if len(row) < width else width + 1
        reason = f"expected {width} cells, got {len(row)}"
        return BadRow(self.name, line, column, reason, last_line)

    def _name_damage(self, error: Exception, line: int) -> Exception:
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            return error  # of the operating system, with its own message
        damage: Exception
        if isinstance(error, TooLongError):
            damage = ValueError(
                f"line {line + 1} of {self.name} {error}: is it CSV, with line breaks between its "
                "rows, and quotes that are closed?"
            )
        elif isinstance(error, UnicodeDecodeError):
            damage = ValueError(
                f"{self.name} has bytes after line {line} that are not "
                f"{error.encoding} ({error}): save the file as UTF-8, or open it with its encoding"
            )
        else:
            damage = damaged(self.name, line, error)
        damage.__cause__ = error
        return damage

    # ------------------------------------------------------------------ header
    def _read_header(self, lines: Iterator[str]) -> Reader:
        """Read the header and return a reader of the rows after it."""
        self._room.renew()
        try:
            first = next(lines, "").removeprefix("\ufeff")
            if not first.strip():
                raise ValueError(
                    f"{self.name} {'begins with a blank line' if first else 'is empty'}: a header "
                    "line with the names of the columns is needed, then one line per row"
                )
            self._is_json = is_json(first, self.name)
            if self._is_json:
                return self._begin_json(chain([first], lines))
            unquoted = re.sub('"[^"]*"', "", first)
            self.delimiter = max(DELIMITERS, key=unquoted.count)
            reader = csv.reader(chain([first], lines), delimiter=self.delimiter, strict=True)
            row = next(reader)
        except csv.Error as error:
            raise ValueError(f"the header of {self.name} is malformed: {error}") from None
        except (TooLongError, *DAMAGE) as error:
            raise self._name_damage(error, 0) from error
        if self.has_header:
            self._take_header(self._named([name.strip() for name in row]))
            return reader
        self._take_header([f"x{j}" for j in range(len(row))])
        return _RowAgain(row, reader)

    def _named(self, header: list[str]) -> list[str]:
        """Return the header with a name for the first or last column, if only that has none.

        The first is an index that was written with a table; the last is an empty column after a
        separator at the end of each line.
        """
        self._unnamed = None
        if header.count("") != 1 or len(header) < 3:
            return header
        if not header[0] and "index" not in header:
            return ["index", *header[1:]]
        if not header[-1]:
            self._unnamed = f"column {len(header)}"
            return [*header[:-1], self._unnamed]
        return header

    def _begin_json(self, lines: Iterator[str]) -> Reader:
        """Use the keys of the first object as header; later objects may add keys."""
        header: list[str] = []
        reader = JsonReader(lines, header)
        try:
            row = next(reader)
        except csv.Error as error:
            raise ValueError(f"{self.name}, line 1: {error}") from None
        if not header:
            raise ValueError(f"{self.name}, line 1: the object has no keys: they name the columns")
        self._take_header(header)
        return _RowAgain(row, reader)

    def _take_header(self, header: list[str]) -> None:
        self._check_header(header)
        self.header = header
        self.target_name = None
        if self.has_target:
            names = [name for name in header if name != self._unnamed]
            self.target_name = names[pick_target(names, self.target, self.name)]
            if self.target is not None:
                self._how = "named"
            elif self.target_name == "target":
                self._how = "called target"
        self.hints.check(header, self.name, self.target_name)

    def _check_header(self, header: list[str]) -> None:
        words = f"the header of {self.name}"
        if len(header) > 1 and all(re.fullmatch("'.+'", name) for name in header):
            raise ValueError(
                f'{words} has names in single quotes ({list_names(header)}): quote cells with " '
                "or not at all"
            )
        if any("\0" in name for name in header):
            raise ValueError(f"{self.name} is not UTF-8 text: save it as CSV in UTF-8")
        if all(map(is_number, header)):
            raise ValueError(
                f"{words} holds only numbers ({list_names(header)}): put a line with the column "
                "names before the first row, or read it with header=False"
            )
        if len(header) == 1 and self.has_target:
            raise ValueError(
                f"{words} has only one column, {header[0]!r}: features and a label are needed, "
                "with a comma, a semicolon, a tab or a bar between them"
            )
        seen = set()
        for i, name in enumerate(header):
            if not is_text(name):
                raise ValueError(
                    f"{words} has a name that is not UTF-8, {name!r}: save the file as UTF-8"
                )
            if not name:
                raise ValueError(
                    f"{words} has no name for column {i + 1}: give it one, or remove it"
                )
            if name in seen:
                is_row = any(map(is_number, header))
                hint = ", or read the file with header=False if it is a row" if is_row else ""
                raise ValueError(f"{words} has column {name!r} twice: rename one of them{hint}")
            seen.add(name)


class _RowAgain:
    """A reader that returns its first row once more."""

    def __init__(self, row: list[str], reader: Reader) -> None:
        self.row: list[str] | None = row
        self.reader = reader

    @property
    def line_num(self) -> int:
        return 0 if self.row is not None else int(self.reader.line_num)

    def __iter__(self) -> _RowAgain:
        return self

    def __next__(self) -> list[str]:
        row, self.row = self.row, None
        return next(self.reader) if row is None else row
