"""Any source of rows as a stream of batches."""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator, Hashable, Iterable
from contextlib import closing
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import narwhals.stable.v2 as nw
import numpy as np

from driftree.learn.target import to_target
from driftree.streams.csv_columns import ColumnHints
from driftree.streams.csv_file import CsvFile
from driftree.streams.formats import arrow_format
from driftree.streams.rows import Blocks, cut
from driftree.streams.sources import (
    ArrowFile,
    BadRows,
    BadRowsWarning,
    MemoryTable,
    PairSource,
    Source,
)

if TYPE_CHECKING:
    from driftree.streams.findings import Findings

Task = Literal["classification", "regression"]
NO_HINTS = ColumnHints()
POSSIBLE = (
    'a path of a CSV, JSON Lines, Parquet or Feather file; "-" for standard input; an open file; '
    "an array, or a pandas, polars or pyarrow data frame, with the labels in one of its columns; a "
    "tuple (X, y) of these and their labels; an iterable of rows (dict, label), such as a River "
    "data set; an iterable of batches (X, y)"
)


class Stream:
    """Batches (X, y) of a source of rows, made by `open_stream`.

    Attributes
    ----------
    name : str
        The file's path, or another name of the source.
    batch_rows : int
        Rows per batch; the last batch may be shorter.
    n_rows : int or None
        Rows in total, None if unknown. Malformed rows of a file are included.
    feature_names : list or None
        Names of the features, None until they are known.
    bad_rows : BadRows
        Rows that the last iteration has skipped so far: `count`, and the `first` ten.
    task : {"classification", "regression"} or None
        "regression" if the targets are numbers, None if it was not given.
    findings : Findings or None
        What the first rows show about the target and each column; None until they were read.

    Examples
    --------
    >>> from driftree.streams import open_stream
    >>> stream = open_stream(([[1.0], [2.0], [3.0]], ["a", "b", "a"]), batch=2)
    >>> [y.tolist() for _, y in stream]
    [['a', 'b'], ['a']]
    >>> stream
    Stream('the array', batch_rows=2, n_rows=3)
    """

    def __init__(
        self, source: Source, batch: float, n_rows: int | None, task: Task | None = None
    ) -> None:
        self._source = source
        self.task = task
        self._limit = n_rows
        self._was_read = False
        self._has_told = False
        is_share = isinstance(batch, float)
        self.n_rows = self._count_rows() if is_share else self._limited(source.n_rows)
        if is_share and self.n_rows is None:
            raise ValueError(
                f"batch={batch} is a fraction of the stream, but the number of rows of "
                f"{source.name} is not known before they are read: give the rows per batch, such "
                "as batch=1000, or "
                "the rows in total as n_rows"
            )
        self.batch_rows = max(1, round(batch * (self.n_rows or 0))) if is_share else int(batch)

    def _limited(self, n_rows: int | None) -> int | None:
        return min((n for n in (n_rows, self._limit) if n is not None), default=None)

    def _count_rows(self) -> int | None:
        return self._limited(self._source.count_rows())

    @property
    def name(self) -> str:
        """The name of the source in errors."""
        return self._source.name

    @property
    def feature_names(self) -> list[Any] | None:
        """Names of the features, None until they are known."""
        return self._source.feature_names

    @property
    def bad_rows(self) -> BadRows:
        """Rows that the last iteration has skipped so far."""
        return self._source.bad_rows

    @property
    def findings(self) -> Findings | None:
        """What the first rows show; None until they were read, and for rows given as dicts."""
        found = self._source.findings
        return found if found is None else replace(found, task=self.task)

    def __iter__(self) -> Blocks:
        return self.batches()

    def batches(self, skip_rows: int = 0) -> Generator[tuple[Any, Any], None, None]:
        """Yield the batches after the first rows.

        Parameters
        ----------
        skip_rows : int, default=0
            Rows to skip at the beginning, not counting malformed ones. Batches end where they would
            without it, so the first one may be shorter.

        Yields
        ------
        tuple of (X, y)
            Features as in the source: an array or a data frame; for CSV, JSON Lines and dicts a
            dict of columns, float64 (NaN is missing) or objects, such as text (None is missing).
            Labels as an array of int64, float64 or objects.

        Examples
        --------
        >>> from driftree.streams import open_stream, sea
        >>> [len(y) for _, y in open_stream(sea(10), batch=4).batches(skip_rows=5)]
        [3, 2]
        """
        if skip_rows < 0:
            raise ValueError(f"skip_rows must be at least 0, but is {skip_rows}")
        self._check_unread()
        return self._report(skip_rows)

    def _check_unread(self) -> None:
        if self._was_read and not self._source.is_repeatable:
            raise RuntimeError(
                f"{self.name} can be read only once, and has been: reopen it, or give a path or "
                "something else that can be read again"
            )

    def _report(self, skip_rows: int) -> Generator[tuple[Any, Any], None, None]:
        """Read, and at the end or at an error, report the rows that were skipped."""
        if self._limit is not None and skip_rows >= self._limit:
            return
        try:
            with closing(self._read(skip_rows)) as batches:  # so that the file is closed at once
                for batch in batches:
                    if not self._has_told and self.findings is not None:
                        self._has_told = True
                        self.findings.warn(stacklevel=2)
                    yield batch
        except Exception as error:
            try:
                self.bad_rows.warn(stacklevel=2)
            except BadRowsWarning as warning:  # if warnings are errors
                error.add_note(str(warning))
            raise
        self.bad_rows.warn(stacklevel=2)

    def _read(
        self, skip_rows: int, stop: int | None = None
    ) -> Generator[tuple[Any, Any], None, None]:
        self._check_unread()  # another iterator may have begun in the meantime
        self._was_read = True
        stop = self._limited(stop)
        if stop is None or skip_rows < stop:
            blocks = self._source.blocks(skip_rows, self.batch_rows, stop)
            if self.task == "regression":
                blocks = _with_numbers(blocks, self.name)
            yield from cut(blocks, self.batch_rows, start=skip_rows, stop=stop)

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, batch_rows={self.batch_rows}, n_rows={self.n_rows})"


def _with_numbers(blocks: Blocks, name: str) -> Blocks:
    """Turn the targets of blocks into float64."""
    for X, y in blocks:
        try:
            yield X, to_target(y, strict=True)
        except ValueError as error:
            raise ValueError(f"the targets of {name}: {error}") from None


class _Recut(Source):
    """Another stream, recut into other batches; skipped rows are reported only once."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.name, self.n_rows = stream.name, stream.n_rows
        self.is_repeatable = stream._source.is_repeatable

    @property
    def feature_names(self) -> list[Any] | None:  # type: ignore[override]
        return self.stream.feature_names

    @property
    def bad_rows(self) -> BadRows:  # type: ignore[override]
        return self.stream.bad_rows

    @property
    def findings(self) -> Findings | None:  # type: ignore[override]
        return self.stream.findings

    def blocks(self, skip_rows: int, batch_rows: int, stop: int | None = None) -> Blocks:
        return self.stream._read(skip_rows, stop)

    def count_rows(self) -> int | None:
        return self.stream._count_rows()


def open_stream(
    source: Any,
    *,
    target: Hashable | None = None,
    batch: float = 1000,
    n_rows: int | None = None,
    on_bad_row: Literal["stop", "skip"] = "stop",
    categorical: Collection[str] = (),
    numeric: Collection[str] = (),
    time: Collection[str] = (),
    text: Collection[str] = (),
    drop: Collection[str] = (),
    header: bool = True,
    task: Task | None = None,
) -> Stream:
    r"""Open a source of rows as a stream of batches (X, y).

    Parameters
    ----------
    source : path, str, file object, array, data frame, tuple or iterable
        A CSV file with a header line, its cells separated by commas, semicolons or tabs, or JSON
        Lines, plain, gzipped or zipped; "-" for standard input; a Parquet or Feather file (needs
        pyarrow); an array or a data frame; a tuple (X, y); a River data set or any iterable of
        (dict, label); an iterable of batches. Files are read in bounded memory, and recognised by
        their first bytes.
    target : str or int, optional
        Column of the labels by name, in an array by position. By default the column called
        "target", or else the last one.
    batch : int or float, default=1000
        Rows per batch or, as a float below 1, a fraction of the stream; the paper uses 0.001. A CSV
        file is then read twice, to count its rows first.
    n_rows : int, optional
        Largest number of rows to read.
    on_bad_row : {"stop", "skip"}, default="stop"
        What to do with a malformed row of a file: raise `BadRowError` after the rows before it,
        or skip it, count it in `Stream.bad_rows`, and report it at the end by `BadRowsWarning`.
    categorical, numeric, time, text : collection of str, default=()
        Columns of a file that hold categories (the target may be among them), numbers, times, or
        text to be kept, whatever their first rows look like.
    drop : collection of str, default=()
        Columns of a file to leave out.
    header : bool, default=True
        Whether the first line of a CSV file has the names of the columns. Otherwise they are called
        x0, x1, ...
    task : {"classification", "regression"}, optional
        "regression" if the target is a number: then y is float64, even if all values are whole. By
        default numbers are labels, too.

    Returns
    -------
    Stream
        An iterable of batches, with name, size and malformed rows.

    Warns
    -----
    InputWarning
        Once, if the first rows show something unexpected: formatted numbers or times, columns that
        are left out or constant, a target that is hardly a label.

    Notes
    -----
    In CSV, spaces around column names are ignored, and an empty cell, NA, NaN, nan, null and ? are
    missing values. Numbers with decimal commas are refused. The type of a column is that of most of
    its cells in the first 1000 rows (or 16 MB): numbers, also with thousands separators, a currency
    or %; times, which become features (`driftree.learn.times`); otherwise categories. Ids and prose
    are left out; docs/input.md has the rules. A row is malformed if it has too few or too many
    cells, with text or an infinite number in a numeric column, without a label, with a label of
    another kind than most of the first, or with bytes that are not UTF-8. A line or a row of more
    than 4 million characters ends the reading with an error.

    Examples
    --------
    >>> import io
    >>> from driftree.streams import open_stream
    >>> file = io.StringIO("age,car,granted\n31,van,yes\n?,bus,no\n58,,yes\n")
    >>> for X, y in open_stream(file, batch=2):
    ...     print(X["age"], X["car"], y)
    [31. nan] ['van' 'bus'] ['yes' 'no']
    [58.] [None] ['yes']
    """
    _check_batch(batch)
    if n_rows is not None and n_rows < 1:
        raise ValueError(f"n_rows must be at least 1, or None for all rows, but is {n_rows}")
    if on_bad_row not in ("stop", "skip"):
        raise ValueError(f'on_bad_row must be "stop" or "skip", but is {on_bad_row!r}')
    if task is not None:
        check_task(task)
    hints = ColumnHints(
        categorical=_names("categorical", categorical),
        numeric=_names("numeric", numeric),
        time=_names("time", time),
        text=_names("text", text),
        drop=_names("drop", drop),
    )
    found = open_source(
        source, target=target, hints=hints, on_bad_row=on_bad_row, header=header, task=task
    )
    return Stream(found, batch, n_rows, task)


def open_source(
    source: Any,
    *,
    target: Hashable | None = None,
    hints: ColumnHints = NO_HINTS,
    on_bad_row: Literal["stop", "skip"] = "stop",
    header: bool = True,
    task: Task | None = None,
    has_target: bool = True,
) -> Source:
    """Recognise a source; `has_target` is False for files without a target."""
    file = _find_file(source)
    if file is None:
        if hints.given or not header:
            what = next(iter(hints.given), "header")
            raise ValueError(
                f"{what} is for files: prepare the table itself, or pass it to the learner"
            )
        return _find_rows(source, target)
    form = arrow_format(file) if isinstance(file, Path) else None
    skips_bad_rows = on_bad_row == "skip"
    if form is not None:
        return ArrowFile(
            file, form, target, hints, skips_bad_rows=skips_bad_rows, has_target=has_target
        )
    return CsvFile(
        file,
        str(file) if isinstance(file, Path) else _name_file(source),
        target=target,
        hints=hints,
        skips_bad_rows=skips_bad_rows,
        is_regression=task == "regression",
        has_target=has_target,
        has_header=header,
    )


def _names(what: str, columns: Collection[str]) -> tuple[str, ...]:
    if isinstance(columns, str):
        raise TypeError(f"{what} must be a list of column names: write [{columns!r}]")
    return tuple(columns)


def check_task(task: Task) -> Task:
    """Return a task; raise if it is invalid.

    Examples
    --------
    >>> check_task("ranking")
    Traceback (most recent call last):
    ValueError: task must be "classification" or "regression", got 'ranking'
    """
    if task not in ("classification", "regression"):
        raise ValueError(f'task must be "classification" or "regression", got {task!r}')
    return task


def _check_batch(batch: Any) -> None:
    is_count = isinstance(batch, (int, np.integer)) and not isinstance(batch, bool)
    if not (is_count and batch >= 1) and not (isinstance(batch, float) and 0 < batch < 1):
        raise ValueError(
            "batch must be a number of rows, 1 or more, or a fraction of the stream, such as "
            f"0.001, but is {batch!r}"
        )


# ---------------------------------------------------------------------- what a source is
def _find_file(source: Any) -> Any:
    """Return a path or a file object; None if the source is something else."""
    if isinstance(source, str) and source == "-":
        return getattr(sys.stdin, "buffer", sys.stdin)
    if isinstance(source, (str, PathLike)):
        path = Path(source)
        if not path.is_file():
            what = "is a directory" if path.is_dir() else "names no file"
            raise FileNotFoundError(f"{str(source)!r} {what}; a stream can be {POSSIBLE}")
        return path
    return source if hasattr(source, "readline") else None


def _name_file(source: Any) -> str:
    if isinstance(source, str):
        return "standard input"
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else "file object"


def _find_rows(source: Any, target: Hashable | None) -> Source:
    if isinstance(source, np.ndarray) or nw.dependencies.is_into_dataframe(source):
        return MemoryTable.from_whole(source, target)
    if target is not None:
        raise ValueError(
            f"target={target!r} names a column, but this source has separate labels: omit target"
        )
    if isinstance(source, tuple) and len(source) == 2:
        return MemoryTable.from_pair(*source)
    if isinstance(source, Stream):
        return _Recut(source)
    if isinstance(source, Iterable) and not isinstance(source, (bytes, dict)):
        return PairSource(source)
    raise TypeError(f"got {type(source).__name__!r}, but a stream can be {POSSIBLE}")
