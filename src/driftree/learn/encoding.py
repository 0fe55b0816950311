"""Encoding: dicts, arrays and data frames to a float64 matrix, labels to codes.

The encoder knows features by name and remembers the levels of categorical ones. A batch is read in two moves: `read`
looks at everything and raises before anything has changed; `commit` then lets new features, levels and missing values
take their place in the engine. NaN in the matrix means missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np

from driftree.learn._kernels import MAX_LEVELS, Engine, RowReader
from driftree.learn.events import Condition

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

Values = Any  # a float64 array, or an object array


@dataclass(slots=True)
class Batch:
    """A matrix, and what must be registered before it may be learnt."""

    matrix: NDArray[np.float64]
    new_features: list[tuple[Hashable, bool, bool]] = field(default_factory=list)
    new_levels: list[tuple[int, Hashable]] = field(default_factory=list)
    new_missing: list[int] = field(default_factory=list)


class Encoder:
    """Features, levels and labels that a model has met.

    Parameters
    ----------
    engine : Engine
        Where new columns are registered.
    categorical : iterable of names or positions
        Features whose values are categories although they may be numbers.
    indicators : bool
        True: every level gets its own 0/1 input. False (the paper's setting): numbers stay numbers and strings become
        numbers in order of appearance; only the splits treat them as categories.
    """

    def __init__(
        self, engine: Engine, categorical: Iterable[Hashable], *, indicators: bool
    ) -> None:
        self.engine = engine
        self.categorical = frozenset(categorical)
        self.indicators = indicators
        self.names: dict[Hashable, int] = {}
        self.levels: list[dict[Hashable, int] | None] = []
        self.labels: dict[Hashable, int] = {}
        self.attach()

    def attach(self) -> None:
        """Make the reader of single rows, which shares the dictionaries."""
        self.reader = RowReader(self.names, self.levels, self.labels)

    # ------------------------------------------------------------------ rows
    def read_array(
        self, X: NDArray[Any], names: Sequence[Hashable] | None = None, *, learning: bool
    ) -> Batch:
        """Read a two-dimensional array; without names its columns are called x0, x1, ..."""
        is_plain = X.dtype == np.float64 and X.flags.c_contiguous
        if is_plain and X.shape[1] == len(self.names) and self._all_numeric():
            batch = Batch(X)
            finite = np.isfinite(X)
            if not finite.all():
                for name, j in self.names.items():
                    _check_infinity(name, X[:, j])
                self._find_missing(batch, learning=learning)
            return batch
        names = [f"x{j}" for j in range(X.shape[1])] if names is None else names
        return self._read(zip(names, X.T, strict=True), len(X), learning=learning)

    def read_frame(self, X: Any, *, learning: bool) -> Batch:
        """Read any eager data frame that narwhals knows; the order of its columns does not matter."""
        frame = nw.from_native(X, eager_only=True)
        columns = ((name, _values_of(frame[name])) for name in frame.columns)
        return self._read(columns, len(frame), learning=learning)

    def read_dict(self, x: Mapping[Hashable, Any], *, learning: bool) -> Batch:
        """Read one row."""
        if not hasattr(x, "items"):
            raise TypeError(f"a row must be a dict of feature names to values, got {x!r}")
        columns = []
        for name, value in x.items():
            cell = np.empty(1, dtype=object)
            cell[0] = value
            columns.append((name, cell))
        return self._read(columns, 1, learning=learning)

    def _all_numeric(self) -> bool:
        return all(codes is None for codes in self.levels)

    def _is_declared(self, name: Hashable, position: int) -> bool:
        return name in self.categorical or position in self.categorical

    def _read(
        self, columns: Iterable[tuple[Hashable, Values]], n_rows: int, *, learning: bool
    ) -> Batch:
        known = len(self.names)
        batch = Batch(np.full((n_rows, known), math.nan))
        fresh: list[NDArray[np.float64]] = []
        seen: set[Hashable] = set()
        for position, (name, raw) in enumerate(columns):
            if name in seen:
                raise ValueError(f"column {name!r} appears twice: rename one of them")
            seen.add(name)
            values = _plain(name, raw)
            j = self.names.get(name)
            if j is not None:
                codes = self.levels[j]
                batch.matrix[:, j] = (
                    _numbers(name, values)
                    if codes is None
                    else self._codes(batch, j, codes, values, learning=learning)
                )
                continue
            if not learning or (values.dtype == object and all(map(_is_missing, values))):
                continue  # what kind of feature it is will be seen with its first value
            declared = self._is_declared(name, position)
            is_text = _is_categorical(values)
            has_levels = is_text or (declared and self.indicators)
            batch.new_features.append(
                (name, declared or is_text, not (has_levels and self.indicators))
            )
            j = known + len(fresh)
            fresh.append(
                self._codes(batch, j, {}, values, learning=True)
                if has_levels
                else _numbers(name, values)
            )
        if fresh:
            batch.matrix = np.column_stack([batch.matrix, *fresh])
        self._find_missing(batch, learning=learning)
        return batch

    def _codes(
        self,
        batch: Batch,
        j: int,
        codes: dict[Hashable, int],
        values: Values,
        *,
        learning: bool,
    ) -> NDArray[np.float64]:
        """Return the codes of a categorical column; levels beyond the last share one code."""
        new: dict[Hashable, int] = {}
        out = np.full(len(values), math.nan)
        for i, value in enumerate(values.tolist()):
            if _is_missing(value):
                continue
            code = codes.get(value, new.get(value))
            if code is None:
                code = len(codes) + len(new)
                if learning and code < MAX_LEVELS:
                    new[value] = code
                else:
                    code = MAX_LEVELS
            out[i] = code
        batch.new_levels.extend((j, value) for value in new)
        return out

    def _find_missing(self, batch: Batch, *, learning: bool) -> None:
        if not learning:
            return
        missing_column = self.engine.missing_column
        for j in np.flatnonzero(np.isnan(batch.matrix).any(axis=0)):
            if j >= len(missing_column) or missing_column[j] < 0:
                batch.new_missing.append(int(j))

    def commit(self, batch: Batch) -> None:
        """Register what is new in a batch; nothing after this may fail."""
        engine = self.engine
        with_levels = {j for j, _ in batch.new_levels}
        for name, categorical, has_value in batch.new_features:
            j = engine.add_feature(categorical, has_value)
            self.names[name] = j
            self.levels.append({} if j in with_levels or not has_value else None)
        for j, value in batch.new_levels:
            codes = self.levels[j]
            assert codes is not None
            codes[value] = len(codes)
            if self.indicators:
                engine.add_level(j, codes[value])
        if self.indicators:
            self._add_shared_levels(batch)
        for j in batch.new_missing:
            engine.add_missing(j)

    def _add_shared_levels(self, batch: Batch) -> None:
        """Give the levels beyond the last one input that they share, when one of them comes."""
        shared = self.engine.level_column
        for j, codes in enumerate(self.levels):
            if codes is None or shared[j * (MAX_LEVELS + 1) + MAX_LEVELS] >= 0:
                continue
            if (batch.matrix[:, j] == MAX_LEVELS).any():
                self.engine.add_level(j, MAX_LEVELS)

    # ------------------------------------------------------------------ labels
    def read_labels(self, y: Iterable[Any]) -> tuple[NDArray[np.int32], list[Hashable]]:
        """Return the labels' codes, and the labels that are new, in order of appearance (sorted in an array)."""
        if isinstance(y, np.ndarray) and y.dtype != object:
            distinct, places = np.unique(y, return_inverse=True)
            labels = distinct.tolist()
        else:
            items = y.tolist() if isinstance(y, np.ndarray) else list(y)
            order: dict[Hashable, int] = {}
            places = np.array([order.setdefault(_label(item), len(order)) for item in items], int)
            labels = list(order)
        new = [label for label in labels if label not in self.labels]
        codes = {label: len(self.labels) + i for i, label in enumerate(new)}
        lookup = np.array(
            [self.labels[label] if label in self.labels else codes[label] for label in labels],
            dtype=np.int32,
        )
        return np.ascontiguousarray(lookup[places.reshape(-1)], dtype=np.int32), new

    def commit_labels(self, new: Iterable[Hashable]) -> None:
        """Register new labels."""
        for label in new:
            self.labels.setdefault(label, len(self.labels))
        self.engine.set_classes(len(self.labels))

    # ------------------------------------------------------------------ words
    @property
    def feature_names(self) -> list[Hashable]:
        """Feature names in order of appearance."""
        return list(self.names)

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
        name = str(self.feature_names[feature])
        if threshold == -math.inf:
            return Condition(name, "is missing", None, missing_passes=True)
        if equality:
            return Condition(name, "==", self.level(feature, threshold), missing_left)
        return Condition(name, "<=", float(threshold), missing_left)

    def column_names(self) -> list[str]:
        """Name the inputs of the simple models, the intercept first."""
        engine = self.engine
        names = ["intercept"] * engine.n_columns
        levels = engine.level_column.reshape(-1, MAX_LEVELS + 1)
        for j, name in enumerate(self.feature_names):
            if engine.value_column[j] >= 0:
                names[engine.value_column[j]] = str(name)
            if engine.missing_column[j] >= 0:
                names[engine.missing_column[j]] = f"{name} is missing"
            for code in np.flatnonzero(levels[j] >= 0):
                names[levels[j, code]] = f"{name} == {self.level(j, int(code))!r}"
        return names


# ---------------------------------------------------------------------- cells
def _is_missing(value: object) -> bool:
    return value is None or value != value or type(value).__name__ == "NAType"  # noqa: PLR0124


def _label(label: Any) -> Hashable:
    return label.item() if isinstance(label, np.generic) else label


def _plain(name: Hashable, values: Values) -> Values:
    """Return float64, or objects (text, bool, None) as they are."""
    if values.dtype.kind in "fiu":
        return np.asarray(values, dtype=np.float64)
    if values.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: column {name!r}")
    return np.asarray(values, dtype=object)


def _is_categorical(values: Values) -> bool:
    """Tell text and truth values from numbers."""
    return values.dtype == object and any(
        isinstance(value, (str, bytes, bool, np.bool_)) for value in values
    )


def _numbers(name: Hashable, values: Values) -> NDArray[np.float64]:
    """Return a numeric column as float64, NaN where missing."""
    if values.dtype != object:
        _check_infinity(name, values)
        return np.asarray(values, dtype=np.float64)
    out = np.full(len(values), math.nan)
    for i, value in enumerate(values):
        if _is_missing(value):
            continue
        if isinstance(value, (str, bytes)):
            raise ValueError(
                f"column {name!r} is numeric, but row {i} holds {value!r}: "
                "convert it to a number, or name the column in `categorical` from the start"
            )
        try:
            out[i] = float(value)
        except (TypeError, ValueError):
            raise TypeError(
                f"a value argument must be a string or a real number, not {type(value).__name__!r} "
                f"(column {name!r}, row {i})"
            ) from None
    _check_infinity(name, out)
    return out


def _check_infinity(name: Hashable, values: NDArray[np.float64]) -> None:
    infinite = np.isinf(values)
    if infinite.any():
        row = int(np.flatnonzero(infinite)[0])
        raise ValueError(
            f"Input contains infinity: column {name!r}, row {row}; use NaN for a missing value"
        )


def _values_of(series: nw.Series[Any]) -> Values:
    """Return a frame's column as float64 or as an object array with None for missing."""
    dtype = series.dtype
    if dtype.is_numeric():
        return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    values = np.empty(len(series), dtype=object)
    values[:] = series.to_list()
    return values
