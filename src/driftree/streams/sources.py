"""Sources of rows: tables in memory, Parquet files, iterables; malformed rows."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np

from driftree.learn.encoding import FIRST_ROWS as FIRST_DICTS
from driftree.learn.sparse import look_sparse
from driftree.learn.tables import Columns, DictRows, from_sequence, to_frame
from driftree.learn.validation import as_objects, is_missing, list_names, unmasked
from driftree.streams.csv_columns import INDEX
from driftree.streams.findings import (
    FIRST_ROWS,
    ColumnFinding,
    Findings,
    TargetFinding,
    convert,
    decide_series,
    find_cells,
    find_columns,
    find_faults,
    find_infinite,
    find_target,
)
from driftree.streams.rows import (
    Block,
    Blocks,
    count_rows,
    gather,
    name_features,
    take,
    to_label_array,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from driftree.streams.csv_columns import ColumnHints, CsvColumn

BLOCK_ROWS = 1000  # of rows that arrive one by one
PARQUET_ROWS = 10_000
N_KEPT, N_SHOWN = 10, 3  # malformed rows that are kept, and those that the warning shows


# ---------------------------------------------------------------------- malformed rows
class BadRow(NamedTuple):
    """Where a malformed row is, and what is wrong with it.

    Examples
    --------
    >>> print(BadRow("flights.csv", 17, "delay", "expected a number, got 'late'"))
    flights.csv, line 17, column 'delay': expected a number, got 'late'
    >>> print(BadRow("flights.csv", 17, None, "a quote was opened", last_line=3016))
    flights.csv, lines 17 to 3,016: a quote was opened
    """

    file: str
    line: int  # the first one, from 1, if cells have line breaks in them
    column: str | int | None  # by number, from 1, if it has no name; None: the row has no cells
    reason: str
    last_line: int | None = None  # if it is not the first one
    unit: str = "line"  # Parquet and Feather files have rows

    def __str__(self) -> str:
        column = "" if self.column is None else f", column {self.column!r}"
        line = f"{self.unit} {self.line}"
        if self.last_line not in (None, self.line):
            line = f"lines {self.line:,} to {self.last_line:,}"
        return f"{self.file}, {line}{column}: {self.reason}"


@dataclass(slots=True)
class BadRows:
    """How many malformed rows were skipped, and the first ten of them.

    Examples
    --------
    >>> BadRows()
    BadRows(count=0, first=[])
    """

    count: int = 0
    first: list[BadRow] = field(default_factory=list)

    def add(self, rows: Collection[BadRow]) -> None:
        """Count rows."""
        self.count += len(rows)
        self.first += list(rows)[: N_KEPT - len(self.first)]

    def warn(self, stacklevel: int) -> None:
        """Report what was skipped, if anything was."""
        if self.count:
            shown = "".join(f"\n  {row}" for row in self.first[:N_SHOWN])
            rest = f"\n  and {self.count - N_SHOWN:,} more" if self.count > N_SHOWN else ""
            noun = "row was" if self.count == 1 else "rows were"
            words = f"{self.count:,} malformed {noun} skipped:{shown}{rest}"
            warnings.warn(words, BadRowsWarning, stacklevel=stacklevel + 1)


class BadRowError(ValueError):
    r"""A row is malformed.

    Attributes
    ----------
    file, line, column, reason, last_line
        As in `BadRow`.
    row : BadRow
        All of these.

    Examples
    --------
    >>> import io
    >>> from driftree.streams import open_stream
    >>> list(open_stream(io.StringIO("delay,late\n9,no\n75,yes\nmuch,yes\n")))
    Traceback (most recent call last):
    driftree.streams.sources.BadRowError: file object, line 4, column 'delay': expected a number,
    got 'much' (fix the row, name the column in categorical if it holds text, or read with
    on_bad_row="skip")
    """

    def __init__(self, row: BadRow) -> None:
        self.file, self.line, self.column, self.reason, self.last_line, _ = row
        text = "name the column in categorical if it holds text, "
        hint = text if row.reason.startswith("expected a") else ""
        super().__init__(f'{row} (fix the row, {hint}or read with on_bad_row="skip")')
        self.row = row

    def __reduce__(self) -> tuple[type[BadRowError], tuple[BadRow]]:
        return type(self), (self.row,)


class BadRowsWarning(UserWarning):
    r"""Malformed rows were skipped: how many, and the first three.

    Examples
    --------
    >>> import io, warnings
    >>> from driftree.streams import open_stream
    >>> file = io.StringIO("delay,late\n9,no\nmuch,yes\n75,yes\n")
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     print([y.tolist() for _, y in open_stream(file, on_bad_row="skip")])
    [['no', 'yes']]
    >>> print(caught[0].message)
    1 malformed row was skipped:
      file object, line 3, column 'delay': expected a number, got 'much'
    """


# ---------------------------------------------------------------------- sources
class Source(ABC):
    """Rows in blocks of any size.

    Attributes
    ----------
    name : str
        Its name in errors.
    feature_names : list or None
        None until they are known.
    n_rows : int or None
        Number of rows, if known without reading.
    is_repeatable : bool
        Whether it can be read more than once.
    bad_rows : BadRows
        What the last reading skipped.
    findings : Findings or None
        What the first rows show; None until they were read, or if they are not examined.
    """

    name: str
    feature_names: list[Any] | None = None
    n_rows: int | None = None
    is_repeatable = True
    bad_rows = BadRows()
    findings: Findings | None = None

    @abstractmethod
    def blocks(self, skip_rows: int, batch_rows: int, stop: int | None = None) -> Blocks:
        """Yield the rows after the first `skip_rows`.

        Blocks will be cut into batches of `batch_rows`, so a slow source need not read further
        ahead. No rows from number `stop` on are needed, but some may be yielded.
        """

    def count_rows(self) -> int | None:
        """Return the number of rows, reading them if necessary; None if unknown."""
        return self.n_rows


def pick_target(names: Sequence[Hashable], target: Hashable | None, what: str) -> int:
    """Return the index of the target's column: as named, or called target, or the last one."""
    if target is None:
        return names.index("target") if "target" in names else len(names) - 1
    if target not in names:
        raise ValueError(f"{what} has no column {target!r}; its columns are {list_names(names)}")
    return names.index(target)


class MemoryTable(Source):
    """An array or a data frame in memory, and its labels."""

    def __init__(
        self,
        X: Any,
        y: Any,
        name: str,
        target: Hashable | None = None,
        asked: Hashable | None = None,
    ) -> None:
        self.name = name
        self.X, self.y = X, to_label_array(y)
        self.feature_names = name_features(X)
        self.n_rows = count_rows(X)
        _check_lengths(X, self.y, name)
        self.findings = self._look(target, asked)

    def _look(self, target: Hashable | None, asked: Hashable | None) -> Findings:
        """Examine the first rows, without converting them."""
        X, y = take((self.X, self.y), 0, min(len(self.y), FIRST_ROWS))
        columns = find_cells(name_features(X), X)
        return Findings(self.name, len(y), look_at_target(target, asked, y), columns)

    @classmethod
    def from_pair(cls, X: Any, y: Any) -> MemoryTable:
        """Create it from features and labels."""
        if isinstance(X, Mapping):
            X = Columns(X).arrays
        elif not nw.dependencies.is_into_dataframe(X):
            X = _to_rectangle(X)
        return cls(X, y, _name_table(X))

    @classmethod
    def from_whole(cls, table: Any, target: Hashable | None) -> MemoryTable:
        """Create it from a table with the labels in one of its columns."""
        name = _name_table(table)
        if isinstance(table, np.ndarray):
            table = unmasked(table)
            places = range(-table.shape[1], table.shape[1]) if table.ndim == 2 else range(0)
            place: Any = -1 if target is None else target
            if place not in places:
                raise ValueError(
                    f"target must be the position of one of the columns, from 0, in {name} of "
                    f"shape {table.shape}, got {target!r}"
                )
            column = f"column {range(table.shape[1])[place]}"
            return cls(np.delete(table, place, axis=1), table[:, place], name, column, target)
        frame = to_frame(table)
        column = frame.columns[pick_target(frame.columns, target, name)]
        X, y = frame.drop([column]).to_native(), frame.get_column(column).to_native()
        return cls(X, y, name, column, target)

    def blocks(self, skip_rows: int, batch_rows: int, stop: int | None = None) -> Blocks:
        """Yield the rows in one block, which is not a copy."""
        yield take((self.X, self.y), skip_rows, len(self.y))


def _name_table(table: Any) -> str:
    if isinstance(table, np.ndarray):
        return "the array"
    if isinstance(table, Mapping):
        return "the dict of columns"
    return f"the {type(table).__module__.partition('.')[0]} data frame"


def _check_lengths(X: Any, y: NDArray[Any], name: str) -> None:
    n_rows = count_rows(X)
    if n_rows != len(y):
        raise ValueError(
            f"X and y must have the same number of rows, but {name} has {n_rows} and {len(y)}"
        )


def _to_rectangle(X: Any) -> NDArray[Any]:
    array = np.asarray(unmasked(X)) if hasattr(X, "dtype") else from_sequence(X)
    if array.ndim != 2:
        lengths = sorted({len(row) for row in array.flat if isinstance(row, (list, tuple))})
        if lengths:
            raise ValueError(
                f"all rows of X must have the same number of cells, got rows of {lengths} cells"
            )
        raise ValueError(
            f"X must have two dimensions, rows and columns, got the shape {array.shape}: with a "
            "single feature, use X.reshape(-1, 1)"
        )
    return array


class ArrowFile(Source):
    """A Parquet or Feather file, read as pyarrow tables.

    Parameters
    ----------
    path : Path
        The file.
    form : {"Parquet", "Feather"}
        Its format.
    target : str or None
        Column of the labels.
    hints : ColumnHints
        What the user says about columns.
    skips_bad_rows : bool
        Whether malformed rows are counted and left out, or raise an error.
    has_target : bool, default=True
        Whether there is a target at all; without one, the labels are None.
    """

    def __init__(
        self,
        path: Path,
        form: Literal["Parquet", "Feather"],
        target: Hashable | None,
        hints: ColumnHints,
        *,
        skips_bad_rows: bool,
        has_target: bool = True,
    ) -> None:
        self.path, self.name, self.form = path, str(path), form
        self.skips_bad_rows = skips_bad_rows
        self.bad_rows = BadRows()
        with self._opened() as file:
            schema = file.schema_arrow if form == "Parquet" else file.schema
            described = schema.pandas_metadata or {}
            groups = self._group_sizes(file)
        self.n_rows = sum(groups)
        # pandas stores a frame's index as columns after the others, except a plain range.
        index = [name for name in described.get("index_columns", ()) if isinstance(name, str)]
        asked = {target, *(name for names in hints.given.values() for name in names)}
        kept = [name for name in index if name in asked]
        index = [name for name in index if name not in asked]
        self.index = [name for name in schema.names if name in index]
        names = kept + [name for name in schema.names if name not in (*index, *kept)]
        self.target = names[pick_target(names, target, self.name)] if has_target else None
        hints.check(names, self.name, self.target)
        self._decide(names, target, hints)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the file; an error says which file is damaged, as pyarrow's does not."""
        try:
            import pyarrow
            from pyarrow import ipc, parquet
        except ImportError:
            raise ImportError(f"reading {self.form} needs pyarrow: pip install pyarrow") from None
        try:
            if self.form == "Parquet":
                file = parquet.ParquetFile(self.path)
            else:
                file = ipc.open_file(pyarrow.memory_map(str(self.path)))
            with file:
                yield file
        except (pyarrow.ArrowInvalid, OSError) as error:
            if getattr(error, "errno", None) is not None:
                raise  # of the operating system, with its own message
            raise OSError(
                f"{self.name} is truncated or damaged {self.form} ({error}): get the file again"
            ) from error

    def _group_sizes(self, file: Any) -> list[int]:
        """Return the number of rows of each row group."""
        if self.form == "Parquet":
            return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        return [file.get_batch(i).num_rows for i in range(file.num_record_batches)]

    def _batches(self, file: Any, first: int, n_groups: int) -> Iterator[Any]:
        """Yield record batches, starting with a row group."""
        if self.form == "Parquet":
            groups = list(range(first, n_groups))
            yield from file.iter_batches(PARQUET_ROWS, row_groups=groups) if groups else ()
        else:
            yield from (file.get_batch(i) for i in range(first, n_groups))

    def _decide(self, names: list[str], target: Hashable | None, hints: ColumnHints) -> None:
        """Examine the first rows."""
        first = next(self._tables(0), None)
        features = [name for name in names if name != self.target]
        if first is None:
            self._columns: dict[Any, CsvColumn] = {}
            self.feature_names = features
            return
        frame = nw.from_native(first.slice(0, FIRST_ROWS), eager_only=True)
        self._columns = {}
        for name in features:
            try:
                self._columns[name] = decide_series(name, frame.get_column(name), hints)
            except ValueError as error:
                raise ValueError(f"column {name!r} of {self.name} {error}") from None
        X = frame.select(features)
        good = _without(find_faults(X, self._columns), len(X))
        self.feature_names = list(convert(X[good], self._columns).columns)
        found = [one for one in find_columns(X, self._columns) if hints.wants(str(one.name))]
        told, self._has_labels = None, False
        if self.target is not None:
            given = frame.get_column(self.target).drop_nulls().to_native()
            told = look_at_target(self.target, target, to_label_array(given))
            self._has_labels = hints.kind_of(str(self.target)) is not None
            if self._has_labels:
                told = told._replace(is_continuous=False, is_unlikely=False)
        named = [name for name in self.index if not name.startswith("__index_level_")]
        found += [ColumnFinding(name, "id", 0.0, 0, INDEX, is_used=False) for name in named]
        self.findings = Findings(self.name, len(frame), told, found)

    def _tables(self, skip_rows: int) -> Iterator[Any]:
        """Yield tables; row groups before the first requested row are not read."""
        import pyarrow

        with self._opened() as file:
            sizes = self._group_sizes(file)
            first = 0
            while first < len(sizes) and skip_rows >= sizes[first]:
                skip_rows -= sizes[first]
                first += 1
            for rows in self._batches(file, first, len(sizes)):
                table = pyarrow.Table.from_batches([rows]).slice(skip_rows)
                skip_rows = max(0, skip_rows - rows.num_rows)
                if table.num_rows:
                    yield table

    def blocks(self, skip_rows: int, batch_rows: int, stop: int | None = None) -> Blocks:
        """Yield the well-formed rows after the first `skip_rows`.

        Malformed rows after row number `stop` are not counted.
        """
        self.bad_rows = BadRows()
        n_read = 0 if self.skips_bad_rows else skip_rows  # else all rows before are well-formed
        n_kept = n_read
        for table in self._tables(n_read):
            frame, y = self._parts(table)
            faults = self._find_faults(frame, y, n_read)
            n_read += len(y)
            if faults:
                good = _without(faults, len(y))
                if self.skips_bad_rows:
                    n_left = math.inf if stop is None else stop - n_kept
                    end = good[int(n_left) - 1] if n_left <= len(good) else len(y)
                    self.bad_rows.add([faults[row] for row in sorted(faults) if row < end])
                else:
                    good = good[: min(faults)]
                frame, y = self._parts(table.take(good))  # integers are floats beside nulls
            n_unwanted = min(max(0, skip_rows - n_kept), len(y))
            n_kept += len(y)
            if n_unwanted < len(y):
                block = convert(frame, self._columns).to_native(), y
                yield take(block, n_unwanted, len(y))
            if faults and not self.skips_bad_rows:
                raise BadRowError(faults[min(faults)])

    def _parts(self, table: Any) -> tuple[Any, NDArray[Any]]:
        """Return the features as they are in the file, and the labels."""
        y = np.full(table.num_rows, None)
        if self.target is not None:
            y = to_label_array(table[self.target])
            if self._has_labels and y.dtype.kind == "f":
                y = as_objects([None if math.isnan(cell) else str(cell) for cell in y.tolist()])
        others = [name for name in (self.target, *self.index) if name is not None]
        return nw.from_native(table.drop_columns(others), eager_only=True), y

    def _find_faults(self, frame: Any, y: NDArray[Any], n_before: int) -> dict[int, BadRow]:
        """Find malformed rows after the first ones of the file: the first cell of each."""
        found = find_faults(frame, self._columns)
        if self.target is not None:
            for row, reason in _faulty_labels(y):
                found.setdefault(row, (self.target, reason))
        return {
            row: BadRow(self.name, n_before + row + 1, name, reason, unit="row")
            for row, (name, reason) in found.items()
        }


def _faulty_labels(y: NDArray[Any]) -> Iterator[tuple[int, str]]:
    """Yield the places of labels that nothing can learn, and what is wrong with them."""
    if y.dtype.kind == "f":
        yield from find_infinite(y)
        missing = np.flatnonzero(np.isnan(y)).tolist()
    else:
        missing = [row for row, label in enumerate(y.tolist()) if label is None]
    for row in missing:
        yield row, "the target is missing"


def _without(faults: Collection[int], n_rows: int) -> NDArray[np.intp]:
    """Return the rows that are not malformed."""
    return np.delete(np.arange(n_rows), list(faults))


def look_at_target(
    name: Hashable | None, asked: Hashable | None, labels: NDArray[Any]
) -> TargetFinding:
    """Describe the first labels."""
    how: Literal["named", "called target", "last column", ""] = "last column"
    if name is None:
        how = ""
    elif asked is not None:
        how = "named"
    elif name == "target":
        how = "called target"
    values = [label for label in labels.tolist() if not is_missing(label)]
    is_number = labels.dtype.kind in "iuf"
    return find_target(name, how, values, [float(v) for v in values] if is_number else None)


def is_row(item: Any) -> bool:
    """Return whether an item is a row, a dict and a label, rather than a batch.

    Examples
    --------
    >>> is_row(({"age": 31}, "yes")), is_row(({"age": [31, 47]}, ["yes", "no"]))
    (True, False)
    """
    is_pair = isinstance(item, (tuple, list)) and len(item) == 2
    return is_pair and isinstance(item[0], Mapping) and np.ndim(item[1]) == 0


class PairSource(Source):
    """An iterable of rows (dict, label), such as River's data sets, or of batches (X, y)."""

    def __init__(self, pairs: Iterable[Any]) -> None:
        self.pairs = pairs
        self.name = getattr(pairs, "name", type(pairs).__name__)
        self.is_repeatable = not isinstance(pairs, Iterator)
        self.n_rows = getattr(pairs, "n_samples", None)  # of River's data sets
        self.is_regression = getattr(pairs, "task", None) == "Regression"

    def blocks(self, skip_rows: int, batch_rows: int, stop: int | None = None) -> Blocks:
        """Yield rows in blocks of at most 1000, and batches unchanged."""
        items = iter(self.pairs)
        first = next(items, None)
        if first is None:
            raise ValueError(f"{self.name} holds no rows")
        items = chain([first], items)
        if is_row(first):
            rows, block_rows = islice(items, stop), min(batch_rows, BLOCK_ROWS)
            blocks = self._gather(map(self._as_pair, rows), block_rows, skip_rows // block_rows)
            skip_rows %= block_rows
        else:
            blocks = (self._as_block(*self._as_pair(item)) for item in items)
        for block in blocks:
            n_rows = len(block[1])
            if isinstance(block[0], (Mapping, list)):
                names = [*(self.feature_names or ()), *name_features(block[0])]
                self.feature_names = list(dict.fromkeys(names))
            if skip_rows < n_rows:
                yield take(block, skip_rows, n_rows)
            skip_rows = max(0, skip_rows - n_rows)

    def _gather(self, rows: Iterator[tuple[Any, Any]], block_rows: int, n_skipped: int) -> Blocks:
        """Yield blocks after the first ones: the same as if these had been read."""
        are_sparse = None
        for i, pairs in enumerate(gather(rows, block_rows)):
            if are_sparse is None:
                are_sparse = look_sparse([x for x, _ in pairs[:FIRST_DICTS]], ())
            if i < n_skipped:
                continue
            features, labels = map(list, zip(*pairs, strict=True))
            y = to_label_array(labels)
            has_names = any(features)  # a dict of no columns would have no rows
            X = DictRows(features).arrays if has_names and not are_sparse else features
            yield X, y.astype(np.float64) if self.is_regression else y

    def _as_block(self, X: Any, y: Any) -> Block:
        if isinstance(X, Mapping):
            X = Columns(X).arrays
        elif not nw.dependencies.is_into_dataframe(X):
            X = _to_rectangle(X)
        labels = to_label_array(y)
        _check_lengths(X, labels, f"a batch of {self.name}")
        return X, labels

    def _as_pair(self, item: Any) -> tuple[Any, Any]:
        if not isinstance(item, (tuple, list)) or len(item) != 2 or isinstance(item[1], Mapping):
            raise TypeError(
                f"{self.name} must yield rows, pairs of a dict and one label, or batches, pairs of "
                f"features and labels, got {item!r:.80}"
            )
        return item[0], item[1]
