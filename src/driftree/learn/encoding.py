"""Encoding: dicts, arrays and data frames to a float64 matrix, labels to codes.

The encoder knows features by name and remembers the levels of categorical ones. A batch is read in
two moves: `read_*` looks at everything and raises before anything has changed; `commit` then lets
new labels, features, levels and missing values take their place in the engine, all at once. NaN in
the matrix means missing.

The first value of a feature says what it is: text or a truth value makes it categorical, a number
numeric. NaN counts as a number as long as there is nothing else; None says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np

from driftree.learn._kernels import MAX_LEVELS, all_finite
from driftree.learn.events import ALL_DIGITS, DIGITS, Condition
from driftree.learn.memory import Size, text_bytes
from driftree.learn.tables import Columns, array_names
from driftree.learn.validation import (
    check_codes,
    check_finite,
    check_keys,
    distinct_labels,
    is_missing,
    is_text,
    plain,
    to_numbers,
    unhashable,
)
from driftree.learn.vocabulary import Vocabulary
from driftree.learn.words import distinct_texts, list_names

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import _TreeEngine
    from driftree.learn.tables import Table
    from driftree.learn.validation import Rows


class Column(NamedTuple):
    """One feature of a batch: numbers, or cells as they came."""

    name: Hashable
    values: NDArray[np.float64] | list[Any]
    is_category: bool = False  # the data frame says so


@dataclass(slots=True)
class Batch:
    """A matrix, and what must be registered before it may be learnt."""

    matrix: NDArray[np.float64]
    new_features: list[tuple[Hashable, bool, bool]] = field(default_factory=list)
    new_categorical: list[int] = field(default_factory=list)  # always missing until now
    new_levels: list[tuple[int, Hashable]] = field(default_factory=list)
    new_shared: list[int] = field(default_factory=list)
    new_missing: list[int] = field(default_factory=list)

    @property
    def n_text(self) -> int:
        """Bytes of new names and levels in a file; names twice: scikit-learn keeps them, too."""
        names = text_bytes(name for name, *_ in self.new_features)
        return 2 * names + text_bytes(level for _, level in self.new_levels)

    @property
    def brings_columns(self) -> bool:
        """Whether the models will have more inputs."""
        return bool(self.new_features or self.new_levels or self.new_shared or self.new_missing)

    @property
    def brings_words(self) -> bool:
        """Whether there are new names or levels."""
        return bool(self.new_features or self.new_levels or self.new_categorical)


class Encoder:
    """Features, levels and labels that a model has met.

    Parameters
    ----------
    engine : Engine or FimtddEngine
        Where new columns are registered.
    categorical : iterable of names or positions, or None
        Features whose values are categories although they may be numbers.
    indicators : bool
        True: every level gets its own 0/1 input. False (the paper's setting): numbers stay numbers
        and strings become numbers in order of appearance; only the splits treat them as categories.

    Attributes
    ----------
    known : Vocabulary
        The words met so far; `names`, `levels`, `labels` and what else it has can be asked of the
        encoder, too.
    """

    def __init__(
        self, engine: _TreeEngine, categorical: Iterable[Hashable] | None, *, indicators: bool
    ) -> None:
        self.engine = engine
        self.categorical = as_set(categorical)
        self.indicators = indicators
        self.row_face = engine.row_face(Vocabulary.of({}, [], {}))

    def restore(
        self,
        names: Mapping[Hashable, int],
        levels: Iterable[dict[Hashable, int] | None],
        labels: Mapping[Hashable, int],
    ) -> None:
        """Take over what another encoder knew; raise if it does not fit the engine."""
        levels = list(levels)
        check_codes(self.engine, names, levels, labels, indicators=self.indicators)
        self._commit(Vocabulary.of(names, levels, labels), Batch(np.empty((0, len(names)))))

    # ------------------------------------------------------------------ words
    @property
    def known(self) -> Vocabulary:
        """The words met so far."""
        return self.row_face.known  # type: ignore[no-any-return]

    @property
    def names(self) -> dict[Hashable, int]:
        """Feature names to places in the matrix."""
        return self.known.names

    @property
    def levels(self) -> list[dict[Hashable, int] | None]:
        """Per feature the codes of its levels, or None for a numeric one."""
        return self.known.levels

    @property
    def labels(self) -> dict[Hashable, int]:
        """Labels to codes."""
        return self.known.labels

    @property
    def feature_names(self) -> list[Hashable]:
        """Feature names by place."""
        return self.known.feature_names

    @property
    def display_names(self) -> list[str]:
        """The names as text, each different from all others."""
        return self.known.display_names

    @property
    def label_list(self) -> list[Any]:
        """Labels by code."""
        return self.known.label_list

    @property
    def classes(self) -> NDArray[Any]:
        """Labels by code, as an array."""
        return self.known.classes

    # ------------------------------------------------------------------ rows
    def read(
        self,
        X: Table,
        names: Sequence[Hashable] | None = None,
        *,
        learning: bool,
        rows: Rows = None,
    ) -> Batch:
        """Read an array, a frame or columns; the order of a frame's columns does not matter.

        Parameters
        ----------
        X : ndarray, data frame or Columns
            The batch.
        names : sequence, optional
            Names of the columns, if they are not the frame's own, or x0, x1, ... for an array.
        learning : bool
            Whether new features and levels are to be registered; otherwise they are ignored.
        rows : array of int, optional
            The rows that count; None is all of them.
        """
        if isinstance(X, np.ndarray):
            return self._read_array(X, names, rows, learning=learning)
        names = list(X.columns) if names is None else names
        if isinstance(X, Columns):
            return self._read_columns(X, names, rows, learning=learning)
        if all(dtype.is_numeric() for dtype in X.schema.dtypes()):
            return self._read_array(_to_numpy(X), names, rows, learning=learning)
        frame = X if rows is None else X[rows.tolist(), :]
        columns = [
            _to_column(name, series)
            for name, series in zip(names, frame.iter_columns(), strict=True)
        ]
        return self._read(columns, len(frame), rows, learning=learning)

    def is_ready(self, X: NDArray[np.float64]) -> bool:
        """Tell whether an array can be taken as it is: its columns are known and hold numbers."""
        known = self.known
        return (
            known.has_array_names
            and known.is_numeric
            and X.shape[1] == len(known.names)
            and X.flags.c_contiguous
            and X.flags.aligned
            and all_finite(X)
        )

    def known_codes(self, y: NDArray[Any]) -> NDArray[np.int32] | None:
        """Return the labels' codes if they are small whole numbers, all known; otherwise None."""
        return self.row_face.codes(y) if y.dtype == np.int64 and y.flags.c_contiguous else None

    def _read_columns(
        self, X: Columns, names: Sequence[Hashable], rows: Rows, *, learning: bool
    ) -> Batch:
        arrays = list(X.arrays.values())
        if arrays and all(array.dtype.kind in "fiu" for array in arrays):
            with np.errstate(over="ignore"):  # a long double beyond float64 is infinity
                matrix = np.column_stack(arrays).astype(np.float64, copy=False)
            return self._read_array(matrix, names, rows, learning=learning)
        chosen = arrays if rows is None else [array[rows] for array in arrays]
        with np.errstate(over="ignore"):
            columns = [
                Column(
                    name, array.astype(np.float64) if array.dtype.kind in "fiu" else array.tolist()
                )
                for name, array in zip(names, chosen, strict=True)
            ]
        n_rows = len(X) if rows is None else len(rows)
        return self._read(columns, n_rows, rows, learning=learning)

    def _read_array(
        self, X: NDArray[Any], names: Sequence[Hashable] | None, rows: Rows, *, learning: bool
    ) -> Batch:
        if rows is not None:
            X = X[rows]
        known = self.known
        is_known = known.has_array_names if names is None else names == known.feature_names
        is_plain = X.dtype == np.float64 and X.shape[1] == len(known.names)
        if is_plain and is_known and known.is_numeric:
            batch = Batch(np.require(X, requirements=["C", "A"]))
            if not np.isfinite(X).all():
                for name, values in zip(self.feature_names, X.T, strict=True):
                    check_finite(name, values, rows)
                self._find_missing(batch, learning=learning)
            return batch
        if names is None:
            names = array_names(X.shape[1])
            self._check_array_names(names)
        is_number = X.dtype.kind in "fiu"
        values = X.T.astype(np.float64, copy=False) if is_number else X.T.tolist()
        return self._read(list(map(Column, names, values)), len(X), rows, learning=learning)

    def read_dict(self, x: Mapping[Hashable, Any], *, learning: bool) -> Batch:
        """Read one row."""
        if not hasattr(x, "items"):
            raise TypeError(f"a row must be a dict of feature names to values, got {x!r}")
        columns = [Column(name, [value]) for name, value in x.items()]
        return self._read(columns, 1, None, learning=learning)

    def _read(self, columns: Sequence[Column], n_rows: int, rows: Rows, *, learning: bool) -> Batch:
        known = len(self.names)
        batch = Batch(np.full((n_rows, known), math.nan))
        fresh: list[NDArray[np.float64]] = []
        declared = self.declared([column.name for column in columns]) if learning else frozenset()
        for column in columns:
            j = self.names.get(column.name)
            if j is not None:
                codes = self.levels[j]
                if learning and codes is None and self._is_first_text(j, column):
                    codes = {}
                    batch.new_categorical.append(j)
                batch.matrix[:, j] = (
                    to_numbers(column.name, column.values, rows)
                    if codes is None
                    else self._codes(batch, j, codes, column, rows, learning=learning)
                )
                continue
            text = is_text(column.values)
            if text is None or not learning:
                continue  # what kind of feature it is will be seen with its first value
            if column.name != column.name:  # NaN would be new in every row
                raise ValueError(
                    f"a column is named {column.name!r}: give it a name, or leave it out"
                )
            is_category = text or column.is_category or column.name in declared
            has_levels = text or (is_category and self.indicators)
            has_value = not (has_levels and self.indicators)
            batch.new_features.append((column.name, is_category, has_value))
            fresh.append(
                self._codes(batch, known + len(fresh), {}, column, rows, learning=True)
                if has_levels
                else to_numbers(column.name, column.values, rows)
            )
        if fresh:
            check_keys([*self.names, *(name for name, *_ in batch.new_features)], "names")
            batch.matrix = np.column_stack([batch.matrix, *fresh])
        self._find_missing(batch, learning=learning)
        return batch

    def _is_first_text(self, j: int, column: Column) -> bool:
        """Tell whether a numeric feature that was always missing turns out to be categorical."""
        is_category = column.is_category or is_text(column.values)
        return bool(is_category) and self.engine.scale_weight[j] == 0

    def _codes(
        self,
        batch: Batch,
        j: int,
        codes: dict[Hashable, int],
        column: Column,
        rows: Rows,
        *,
        learning: bool,
    ) -> NDArray[np.float64]:
        """Return the codes of a categorical column; levels beyond the last share one code."""
        cells = column.values if isinstance(column.values, list) else column.values.tolist()
        try:
            distinct = dict.fromkeys(cells)
        except TypeError:
            raise unhashable(f"column {column.name!r}", cells, rows) from None
        lookup: dict[Hashable, float] = {}
        n_levels = len(codes)
        for cell in distinct:
            if is_missing(cell):
                lookup[cell] = math.nan
            elif cell in codes:
                lookup[cell] = codes[cell]
            elif learning and n_levels < MAX_LEVELS:
                lookup[cell] = n_levels
                n_levels += 1
                batch.new_levels.append((j, plain(cell)))
            else:
                lookup[cell] = MAX_LEVELS
        if learning and self.indicators and MAX_LEVELS in lookup.values():
            batch.new_shared.append(j)
        return np.fromiter(map(lookup.__getitem__, cells), np.float64, len(cells))

    def _find_missing(self, batch: Batch, *, learning: bool) -> None:
        if not learning:
            return
        missing_column = self.engine.missing_column
        for j in np.flatnonzero(np.isnan(batch.matrix).any(axis=0)):
            if j >= len(missing_column) or missing_column[j] < 0:
                batch.new_missing.append(int(j))

    def commit(self, batch: Batch, new_labels: Sequence[Hashable] = ()) -> None:
        """Register what is new: all of it, or nothing if this is interrupted."""
        known = self.known.with_labels(new_labels)
        if batch.brings_words:
            names = [name for name, *_ in batch.new_features]
            known = known.with_features(names, self._levels_with(batch), batch.n_text)
        if known is not self.known or batch.brings_columns:
            self._commit(known, batch)

    def _levels_with(self, batch: Batch) -> list[dict[Hashable, int] | None]:
        """Return the levels of all features once a batch is registered."""
        with_levels = {j for j, _ in batch.new_levels}
        first = len(self.names)
        levels = self.levels + [
            {} if first + i in with_levels or not has_value else None
            for i, (*_, has_value) in enumerate(batch.new_features)
        ]
        for j in batch.new_categorical:
            levels[j] = {}
        for j in with_levels:
            levels[j] = {} | (levels[j] or {})
        for j, value in batch.new_levels:
            codes = levels[j]
            assert codes is not None
            codes[value] = len(codes)
        return levels

    def _commit(self, known: Vocabulary, batch: Batch) -> None:
        new_levels: list[tuple[int, int]] = []
        if self.indicators:
            for j, value in batch.new_levels:
                codes = known.levels[j]
                assert codes is not None
                new_levels.append((j, codes[value]))
        self.row_face.commit(
            known,
            features=[(categorical, has_value) for _, categorical, has_value in batch.new_features],
            categorical=[(j, not self.indicators) for j in batch.new_categorical],
            levels=new_levels + [(j, MAX_LEVELS) for j in batch.new_shared],
            missing=batch.new_missing,
            n_classes=len(known.labels),
        )

    def size_with(self, batch: Batch, new_labels: Sequence[Hashable]) -> Size:
        """Return how large the models will be once a batch and its labels are registered."""
        n_indicators = len(batch.new_levels) + len(batch.new_shared) if self.indicators else 0
        n_values = sum(has_value for *_, has_value in batch.new_features)
        n_new_categorical = sum(categorical for _, categorical, _ in batch.new_features)
        return Size(
            n_features=len(self.names) + len(batch.new_features),
            n_categorical=int(self.engine.is_categorical.sum()) + n_new_categorical,
            n_columns=self.engine.n_columns + n_values + n_indicators + len(batch.new_missing),
            n_classes=len(self.labels) + len(new_labels),
            n_text=self.known.n_text + batch.n_text + text_bytes(new_labels),
        )

    # ------------------------------------------------------------------ names
    def declared(self, names: Sequence[Hashable]) -> frozenset[Hashable]:
        """Return those that `categorical` names, or counts: a name wins over a position."""
        found = self.categorical.intersection(names)
        return found.union(
            names[place]
            for place in self.categorical - found
            if isinstance(place, int) and 0 <= place < len(names)
        )

    def check_declared(self, names: Sequence[Hashable]) -> None:
        """Raise if `categorical` speaks of a feature that is not among all there are."""
        if len(self.declared(names)) < len(self.categorical):
            for place in self.categorical:
                is_position = isinstance(place, int) and 0 <= place < len(names)
                if place not in names and not is_position:
                    raise ValueError(
                        f"`categorical` names {place!r}, but the features are "
                        f"{list_names(names)}: use their names, or positions from 0"
                    )

    def _check_array_names(self, names: Sequence[Hashable]) -> None:
        if self.names and self.names.keys().isdisjoint(names):
            raise ValueError(
                f"the model knows its features by name ({list_names(self.feature_names)}), but the "
                "array's columns have none: give a data frame, or dicts to learn_one, predict_one"
            )

    # ------------------------------------------------------------------ labels
    def read_labels(
        self, y: Iterable[Any], expected: Iterable[Any] | None = None, *, rows: Rows = None
    ) -> tuple[NDArray[np.int32], list[Hashable]]:
        """Return the labels' codes, and the new labels, sorted where they can be.

        Parameters
        ----------
        y : iterable
            The labels.
        expected : iterable, optional
            Labels that get a code before those in `y`.
        rows : array of int, optional
            The rows that count.
        """
        distinct, places = distinct_labels(y, rows)
        first = [] if expected is None else distinct_labels(expected, what="classes")[0]
        new = [label for label in dict.fromkeys(first + distinct) if label not in self.labels]
        codes = self.labels
        if new:
            check_keys([*codes, *new], "labels")
            codes = codes | {label: len(codes) + i for i, label in enumerate(new)}
        lookup = np.array([codes[label] for label in distinct], dtype=np.int32)
        return lookup[places], new

    # ------------------------------------------------------------------ words
    def level(self, feature: int, code: float) -> Hashable:
        """Return the level that a code stands for."""
        codes = self.levels[feature]
        if codes is None:
            return code
        names = list(codes)
        return names[int(code)] if code < len(names) else "any other level"

    def condition(
        self, feature: int, threshold: float, *, equality: bool, missing_left: bool
    ) -> Condition:
        """Say a split in the user's names and units."""
        name = self.display_names[feature]
        if threshold == -math.inf:
            return Condition(name, "is missing", None, missing_passes=True)
        was_missing = self.engine.missing_column[feature] >= 0
        passes = missing_left if was_missing else None
        if equality:
            return Condition(name, "==", self.level(feature, threshold), passes)
        return Condition(name, "<=", float(threshold), passes, self.digits(feature, threshold))

    def digits(self, feature: int, value: float) -> int:
        """Return how many digits of a value tell it from others: a hundredth of the scale."""
        scale = float(self.engine.scale_factor[feature])  # 0: it never varied
        size = abs(value) * scale
        if not 0 < size < math.inf:
            return DIGITS
        return max(DIGITS, min(ALL_DIGITS, 3 + math.ceil(math.log10(size))))

    def column_names(self) -> list[str]:
        """Name the inputs of the simple models, the intercept first; no two have the same name."""
        engine = self.engine
        names = ["intercept"] * engine.n_columns
        precise = ["the intercept"] * engine.n_columns
        levels = engine.level_column.reshape(-1, MAX_LEVELS + 1)
        for j, name in enumerate(self.display_names):
            if (column := engine.value_column[j]) >= 0:
                names[column], precise[column] = name, repr(self.feature_names[j])
            if (column := engine.missing_column[j]) >= 0:
                names[column] = precise[column] = f"{name} is missing"
            for code in np.flatnonzero(levels[j] >= 0):
                column, level = levels[j, code], self.level(j, int(code))
                names[column] = str(Condition(name, "==", level))
                precise[column] = f"{name} == {level!r}"
        return distinct_texts(names, precise)


# ---------------------------------------------------------------------- sources
def as_set(categorical: Iterable[Hashable] | None) -> frozenset[Hashable]:
    """Return the features that a user calls categorical."""
    if categorical is None:
        return frozenset()
    if isinstance(categorical, (str, bytes)) or not hasattr(categorical, "__iter__"):
        raise TypeError(
            "categorical must be a sequence of feature names or positions, or None, got "
            f"{categorical!r}: write [{categorical!r}]"
        )
    return frozenset(map(plain, categorical))


def _to_numpy(data: Any) -> NDArray[np.float64]:
    """Return a frame or series of numbers as float64, NaN where missing."""
    if data.implementation.is_pandas_like():  # whose own missing value is no float
        return np.asarray(data.to_native().to_numpy(dtype=np.float64, na_value=math.nan))
    return np.asarray(data.to_numpy(), dtype=np.float64)


def _to_column(name: Hashable, series: Any) -> Column:
    dtype = series.dtype
    if dtype.is_numeric():
        return Column(name, _to_numpy(series))
    cells, is_category = series.to_list(), isinstance(dtype, (nw.Categorical, nw.Enum))
    is_typed = str(getattr(series.to_native(), "dtype", "")) != "object"
    if is_typed and series.null_count() == len(series):
        cells = [None] * len(cells)  # pandas has NaN here, but text is no number
    return Column(name, cells, is_category)
