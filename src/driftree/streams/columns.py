"""Tables as columns: read from `<name>.csv.gz`, kept as arrays, made ready as in the paper."""

import csv
import gzip
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftree.streams.bad_rows import BadRow
from driftree.streams.cache import write_whole
from driftree.streams.catalogue import Counts
from driftree.streams.concepts import Features, Labels
from driftree.streams.csv_columns import (
    is_missing,
    is_text,
    parse_number,
    parse_number_label,
    parse_text,
    parse_text_label,
)

ROWS_AT_ONCE = 20_000
TARGET = "target"


@dataclass(frozen=True, eq=False)
class Column:
    """A column: numbers, or the codes of `levels`, which are in order of appearance.

    Missing numbers are not-a-number, missing texts have the code -1.
    """

    values: NDArray[Any]
    levels: NDArray[np.str_] | None = None

    def restored(self) -> NDArray[Any]:
        """Return float64 numbers, or an object array of str and None."""
        if self.levels is None:
            return self.values.astype(np.float64, copy=False)
        texts: NDArray[Any] = np.array([*self.levels.tolist(), None], dtype=object)
        restored: NDArray[Any] = texts[self.values]
        return restored

    def has_missing(self) -> bool:
        """Tell whether a cell is missing."""
        missing = np.isnan(self.values) if self.levels is None else self.values == -1
        return bool(missing.any())


def read_columns(path: Path) -> dict[str, Column]:
    """Read a well-formed CSV file, gzipped, with a header whose last name is `target`.

    Cells are numbers and missing as in `open_stream`, but as the file is read to its end, a column
    with a cell that is neither is text.
    """
    text_names: set[str] = set()
    while True:
        try:
            columns = _read_as(path, text_names)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path} is damaged, take it from its source again: {error}"
            ) from error
        except csv.Error:
            raise _bad_row(path) from None
        if columns is not None:
            return columns


def _read_as(path: Path, text_names: set[str]) -> dict[str, Column] | None:
    """Read the file; if a column proves to be text only now, add it to the set and give up."""
    with _open_rows(path) as (names, reader):
        rows = filter(None, reader)  # a blank line is none
        parts: list[list[NDArray[Any]]] = [[] for _ in names]
        codes: list[dict[str, int]] = [{} for _ in names]
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            try:
                cells = list(zip(*chunk, strict=True))
            except ValueError:
                cells = []
            if len(cells) != len(names):
                raise _bad_row(path)
            for i, (name, column) in enumerate(zip(names, cells, strict=True)):
                if name not in text_names:
                    numbers = _as_numbers(column)
                    if numbers is not None:
                        parts[i].append(numbers)
                        continue
                    text_names.add(name)
                    if parts[i]:  # earlier rows looked like numbers
                        return None
                parts[i].append(_as_codes(column, codes[i]))
    if not parts[0]:
        raise ValueError(f"{path} has no rows")
    columns = {
        name: Column(np.concatenate(part), _levels(levels) if name in text_names else None)
        for name, part, levels in zip(names, parts, codes, strict=True)
    }
    _check_cells(path, columns)
    return columns


@contextmanager
def _open_rows(path: Path) -> Iterator[tuple[list[str], Any]]:
    """Open a file; give the names in its header, and a reader of its rows."""
    # Bytes that are no UTF-8 become lone surrogates: the cell that holds them is named.
    with gzip.open(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            names = [name.strip() for name in next(reader, [])]
        except csv.Error as error:
            raise ValueError(f"the header of {path} is malformed: {error}") from None
        if not all(map(is_text, names)):
            raise ValueError(f"the header of {path} is not UTF-8: save the file as UTF-8")
        if not names or names[-1] != TARGET or len(set(names)) < len(names):
            raise ValueError(
                f"{path} must begin with a line of different column names, the last one "
                f"{TARGET}, but begins with {','.join(names)[:200] or 'an empty line'}"
            )
        yield names, reader


def _as_numbers(cells: Sequence[str]) -> Features | None:
    """Return numbers, or None if there are others than missing cells among the cells."""
    if "_" in "".join(cells):  # which Python has in numbers
        return None
    with suppress(ValueError):
        return np.array([float(cell or "nan") for cell in cells])
    with suppress(ValueError):  # a missing cell may be a word
        return np.array([math.nan if is_missing(cell) else float(cell) for cell in cells])
    return None


def _as_codes(cells: Sequence[str], codes: dict[str, int]) -> NDArray[np.int32]:
    """Return codes in order of appearance, -1 for missing cells; new texts are added."""
    n_levels = max(codes.values(), default=-1) + 1
    for cell in dict.fromkeys(cells):
        if cell not in codes:
            codes[cell] = -1 if is_missing(cell) else n_levels
            n_levels += codes[cell] >= 0
    return np.array([codes[cell] for cell in cells], dtype=np.int32)


def _levels(codes: Mapping[str, int]) -> NDArray[np.str_]:
    return np.array([text for text, code in codes.items() if code >= 0])


def _check_cells(path: Path, columns: Mapping[str, Column]) -> None:
    """Refuse what `open_stream` refuses too: infinite numbers, broken text, no label."""
    for name, column in columns.items():
        is_label = name == TARGET
        parse: Callable[[str], Any]
        if column.levels is None:
            is_bad = bool(np.isinf(column.values).any())
            parse = parse_number_label if is_label else parse_number
        else:
            is_bad = not all(map(is_text, column.levels.tolist()))
            parse = parse_text_label if is_label else parse_text
        if is_bad or (is_label and column.has_missing()):
            raise _bad_row(path, name, parse)


def _bad_row(path: Path, column: str = TARGET, parse: Callable[[str], Any] = str) -> ValueError:
    """Read again up to the first row that is malformed, and name it."""
    with _open_rows(path) as (names, reader):
        place, start = names.index(column), reader.line_num + 1
        where: str | None = None
        try:
            for row in reader:
                if len(row) == len(names):
                    where = column
                    parse(row[place])
                elif row:
                    raise ValueError(f"expected {len(names)} cells, got {len(row)}")
                start, where = reader.line_num + 1, None
        except (ValueError, csv.Error) as error:
            bad_row = BadRow(str(path), start, where, str(error), reader.line_num)
            return ValueError(f"{bad_row} (mend the file, or take it from its source again)")
    return ValueError(f"{path} has changed while it was read")


def count(columns: Mapping[str, Column]) -> Counts:
    """Return the size of a table."""
    labels, n_rows_of_label = np.unique(columns[TARGET].values, return_counts=True)
    n_rows = len(columns[TARGET].values)
    return Counts(n_rows, len(columns) - 1, len(labels), int(n_rows_of_label.max(initial=0)))


def keep_columns(path: Path, columns: Mapping[str, Column], key: str) -> None:
    """Keep a table as arrays, each in the smallest type that holds it exactly."""
    arrays: dict[str, NDArray[Any]] = {"key": np.array(key), "names": np.array(list(columns))}
    for i, column in enumerate(columns.values()):
        arrays[f"values{i}"] = _shrink(column.values)
        if column.levels is not None:
            arrays[f"levels{i}"] = column.levels
    with write_whole(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def kept_columns(path: Path, key: str) -> dict[str, Column] | None:
    """Return a kept table, or None if there is none that was made from this source."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if str(arrays["key"]) != key:
                return None
            return {
                name: Column(arrays[f"values{i}"], arrays.get(f"levels{i}"))
                for i, name in enumerate(arrays["names"].tolist())
            }
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None  # nothing is lost: the table is read from its source again


def _shrink(values: NDArray[Any]) -> NDArray[Any]:
    """Return values in the smallest type from which the same bits come back."""
    for dtype in (np.int8, np.int16, np.int32):
        with np.errstate(invalid="ignore"):
            small = values.astype(dtype)
        if small.astype(values.dtype).tobytes() == values.tobytes():
            return small
    return values


def factorise(column: Column) -> tuple[Labels, NDArray[Any]]:
    """Return codes in order of appearance, and the values that they stand for."""
    if column.levels is not None:
        return column.values.astype(np.int64), column.levels.astype(object)
    values, first, codes = np.unique(column.values, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return rank[codes].astype(np.int64), narrow(values[np.argsort(first)].astype(np.float64))


def narrow(numbers: Features) -> NDArray[Any]:
    """Return whole numbers as int64, others as they are."""
    whole = np.isfinite(numbers).all() and np.array_equal(numbers, np.round(numbers))
    return numbers.astype(np.int64) if whole else numbers


def scale_as_in_paper(
    columns: Mapping[str, Column], shared_levels: Sequence[Sequence[int]]
) -> Features:
    """Return features with texts factorised and everything scaled to [0, 1] over all rows.

    Constant features become 0. Columns in a group of `shared_levels` are factorised and scaled as
    one: first all rows of the first column, then those of the second.
    """
    missing = [name for name, column in columns.items() if column.has_missing()]
    if missing:
        raise ValueError(
            f"the paper's preprocessing knows no missing cells, but {', '.join(missing)} has some; "
            'fill them in, or load with preprocess="none"'
        )
    n_rows = len(next(iter(columns.values())).values)
    X = np.empty((n_rows, len(columns)))
    for i, column in enumerate(columns.values()):
        X[:, i] = column.values
    shared = {i for group in shared_levels for i in group}
    for group in shared_levels:
        levels: dict[str, int] = {}
        for i, column in ((i, list(columns.values())[i]) for i in group):
            if column.levels is not None:
                codes = [levels.setdefault(level, len(levels)) for level in column.levels.tolist()]
                X[:, i] = np.array(codes)[column.values]
    for group in (*shared_levels, *((i,) for i in range(X.shape[1]) if i not in shared)):
        part = X[:, list(group)]
        low, spread = part.min(), np.ptp(part)
        X[:, list(group)] = (part - low) / (spread or 1)
    return X
