"""Rows of a file for an existing model, read as the model expects its features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np

from driftree.learn.times import whole_names
from driftree.learn.validation import as_objects, list_names
from driftree.streams.cells import is_whole
from driftree.streams.csv_columns import ColumnHints, decide_column
from driftree.streams.rows import Rows
from driftree.streams.stream import Stream, open_source

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from driftree.streams.stream import Task

BATCH_ROWS = 1000
TRUTHS = {"True", "true", "TRUE", "False", "false", "FALSE"}


class KnownRows:
    """Reads rows as a model expects its features: numbers, levels, and parts of times.

    Parameters
    ----------
    model : DynamicModelTree or FIMT-DD
        A model that has learnt something.
    text : sequence of str, default=()
        Text columns whose words it has learnt.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> model = DynamicModelTreeClassifier()
    >>> model.learn_one({"income": 31.0, "owner": True}, "yes")
    >>> KnownRows(model).row({"income": "$1,200", "owner": "True"})
    {'income': 1200.0, 'owner': True}
    """

    def __init__(self, model: Any, text: Sequence[str] = ()) -> None:
        self.model = model
        self.text = tuple(text)
        encoder = model._fitted.encoder
        self.is_sparse = encoder.sparse is not None
        names = [name for name in encoder.feature_names if name in encoder.given_names]
        self.levels: dict[Any, dict[str, Any]] = {
            name: by_text(codes)
            for name, codes in zip(encoder.feature_names, encoder.levels, strict=True)
            if codes is not None
        }
        self.features = [] if self.is_sparse else names
        self.names = {str(name): name for name in names}
        times = whole_names(names) - set(map(str, names))
        self.parts = {time: [n for n in names if str(n).startswith(f"{time}: ")] for time in times}
        self.hints = self._hints(self.features, sorted(times))

    def _hints(self, names: list[Hashable], times: list[str]) -> ColumnHints:
        if self.is_sparse:
            return ColumnHints(text=self.text, is_checked=False)
        parts = {part for names in self.parts.values() for part in names}
        return ColumnHints(
            categorical=tuple(str(n) for n in names if n in self.levels and n not in parts),
            numeric=tuple(str(n) for n in names if n not in self.levels and n not in parts),
            time=tuple(times),
            is_checked=False,
        )

    @property
    def columns(self) -> list[str]:
        """Columns that rows should have."""
        return [str(name) for name in self._said()]

    def _said(self) -> list[Any]:
        parts = {part: time for time, names in self.parts.items() for part in names}
        return list(dict.fromkeys(parts.get(name, name) for name in self.features))

    # ------------------------------------------------------------------ files
    def open(
        self,
        source: Any,
        *,
        target: str | None = None,
        has_target: bool = False,
        header: bool = True,
        on_bad_row: Any = "stop",
        drop: tuple[str, ...] = (),
        n_rows: int | None = None,
        task: Task | None = None,
    ) -> Stream:
        """Open a file of rows; without a target, only known columns are read."""
        for name in drop:
            if name in self.columns:
                raise ValueError(f"drop names {name!r}, which is a feature of the model")
        hints = replace(self.hints, drop=drop)
        if not has_target and not self.is_sparse:
            hints = replace(hints, only=frozenset(self.columns))
        found = open_source(
            source,
            target=target,
            hints=hints,
            on_bad_row=on_bad_row,
            header=header,
            task=task,
            has_target=has_target,
        )
        stream = Stream(found, BATCH_ROWS, n_rows, task)
        told = None if stream.findings is None else stream.findings.target
        if told is not None and told.name in self.columns:
            raise ValueError(
                f"{told.name!r} ({told.how}) is a feature of the model: name the target, which "
                f"must be another column of {stream.name}"
            )
        return stream

    def lacking(self, stream: Stream) -> list[str]:
        """Return the columns that a stream lacks; raise if it lacks all of them."""
        if self.is_sparse or stream.findings is None:
            return []
        there = {str(column.name) for column in stream.findings.columns}
        lacking = [name for name in self.columns if name not in there]
        if lacking and len(lacking) == len(self.columns):
            raise ValueError(
                f"{stream.name} has none of the columns that the model knows: "
                f"{list_names(self.columns)}"
            )
        return lacking

    def unknown(self, stream: Stream) -> list[str]:
        """Return the columns of a stream that would be new features."""
        if self.is_sparse or stream.findings is None:
            return []
        used = [str(column.name) for column in stream.findings.columns if column.is_used]
        return [name for name in used if name not in self.columns]

    def batches(self, stream: Stream) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Yield columns, or dicts for a model of text, and the labels."""
        for X, y in stream.batches():
            if self.text or self.is_sparse:
                yield Rows(X, y, self.text).dicts, y
            else:
                yield self._known(X), y

    def _known(self, X: Any) -> dict[Any, Any]:
        if not isinstance(X, Mapping):
            frame = nw.from_native(X, eager_only=True)
            X = {name: as_objects(frame.get_column(name).to_list()) for name in frame.columns}
        return self._named(X)

    def _named(self, X: Mapping[str, NDArray[Any]]) -> dict[Any, NDArray[Any]]:
        """Return columns with the model's names and levels."""
        own = {self.names.get(name, name): cells for name, cells in X.items()}
        return {name: self._level_cells(name, cells) for name, cells in own.items()}

    def _level_cells(self, name: Any, cells: NDArray[Any]) -> NDArray[Any]:
        levels = self.levels.get(name)
        if levels is None or all(text == level for text, level in levels.items()):
            return cells
        return as_objects([cell if cell is None else levels.get(str(cell), cell) for cell in cells])

    def labels(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return labels of a file as those of the model that their text stands for.

        Examples
        --------
        >>> from driftree import DynamicModelTreeClassifier
        >>> model = DynamicModelTreeClassifier()
        >>> model.learn_one({"income": 31.0}, True)
        >>> KnownRows(model).labels(np.array(["True", "False"], dtype=object))
        array([True, 'False'], dtype=object)
        """
        known = by_text(self.model.classes_.tolist())
        return as_objects([known.get(str(label), label) for label in y.tolist()])

    # ------------------------------------------------------------------ one row
    def row(self, cells: Mapping[str, str]) -> dict[Hashable, Any]:
        """Return a row of text as input for the model; raise if something is wrong or unknown."""
        if self.text or self.is_sparse:
            X = {name: decide_column(name, [cell]).read([cell]) for name, cell in cells.items()}
            [row] = Rows(X, np.full(1, None), self.text).dicts
            return row
        unknown = [name for name in cells if name not in self.columns]
        if unknown:
            raise ValueError(
                f"the model has no feature {unknown[0]!r}: it knows {list_names(self.columns)}"
            )
        found: dict[Hashable, Any] = {}
        for name, cell in cells.items():
            try:
                column = decide_column(name, [cell], self.hints.kind_of(name))
                known = self._named(column.features([cell]))
            except ValueError as error:
                raise ValueError(f"{name}={cell}: {error}") from None
            found |= {key: values.tolist()[0] for key, values in known.items()}
            if is_whole(cell.replace(",", "")) and isinstance(found.get(name), float):
                found[name] = int(found[name])  # stays a whole number in counterfactuals
        return found


def by_text(values: Iterable[Any]) -> dict[str, Any]:
    """Return levels or labels by the texts that stand for them in files.

    A text that is a value itself stands for nothing else.

    Examples
    --------
    >>> by_text([1.0, True, "1"])
    {'1': '1', '1.0': 1.0, 'True': True, 'true': True, 'TRUE': True}
    """
    values = list(values)
    found = {value: value for value in values if isinstance(value, str)}
    for value in values:
        for text in _spellings(value):
            found.setdefault(text, value)
    return found


def _spellings(value: Any) -> list[str]:
    """Return the usual texts for a value: JSON has true for True, tables have 1 for 1.0.

    The text "True" has them, too: a model that learnt a CSV file knows no other True.
    """
    text = str(value)
    if text in TRUTHS:
        return [text, text.title(), text.lower(), text.upper()]
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return [text, f"{int(value)}", f"{int(value)}.0"]
    return [text]
