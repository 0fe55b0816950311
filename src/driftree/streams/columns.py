"""Tables as columns: read from `<name>.csv.gz`, kept as arrays, made ready as in the paper."""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftree.streams.batching import join
from driftree.streams.cache import write_whole
from driftree.streams.catalogue import Counts
from driftree.streams.concepts import Features, Labels
from driftree.streams.files import open_stream

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
    """Read a CSV file as `open_stream` does, as a whole; the label is the column `target`."""
    X, y = join(list(open_stream(path, target=TARGET, batch=ROWS_AT_ONCE)))
    return {name: _to_column(cells) for name, cells in {**X, TARGET: y}.items()}


def _to_column(cells: NDArray[Any]) -> Column:
    if cells.dtype != object:
        return Column(cells.astype(np.float64, copy=False))
    texts = cells.tolist()
    codes: dict[str | None, int] = {None: -1}
    for text in dict.fromkeys(texts):
        codes.setdefault(text, len(codes) - 1)
    levels = np.array([text for text in codes if text is not None])
    return Column(np.fromiter(map(codes.__getitem__, texts), np.int32, len(texts)), levels)


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
