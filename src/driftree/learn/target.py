"""Target: what y means; for a classifier, labels, for a regressor, numbers.

It is the counterpart of the encoder for X: it reads y, finds new labels, and returns predictions as
the user's labels or numbers. Another kind of y needs another class like `Labels` and `Numbers`, and
no change of the learning.
"""

from __future__ import annotations

import contextlib
import math
import numbers as numbers_abc
from collections.abc import Mapping, Set
from decimal import Decimal
from statistics import NormalDist
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from river.utils import dataframe
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from driftree.learn._kernels import LARGEST_NUMBER, REACH_LEVELS
from driftree.learn.imbalance import decide
from driftree.learn.tables import Columns
from driftree.learn.units import LOG_ODDS, Unit, unit_of
from driftree.learn.validation import (
    as_objects,
    check_keys,
    has_scalars,
    is_missing,
    plain,
    row_of,
    shown,
    unhashable,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from driftree.learn._kernels import SparseRows, _ModelTreeEngine, _RowFace, _TreeEngine
    from driftree.learn.imbalance import Cut, Imbalance
    from driftree.learn.tables import Frame
    from driftree.learn.validation import Rows
    from driftree.learn.vocabulary import Vocabulary

Codes = NDArray[np.int32] | NDArray[np.float64]
"""Codes of labels, or numbers."""
SHORT = 64  # labels of this few rows are looked up one by one, which is faster than sorting


class Target(Protocol):
    """The interface of every kind of y."""

    @property
    def labels(self) -> Mapping[Hashable, int]:
        """Labels to codes; empty for regression."""

    @property
    def label_list(self) -> Sequence[Any]:
        """Labels by code."""

    @property
    def unit(self) -> Unit:
        """Converts the models' output to the user's unit."""

    imbalance: Imbalance | None
    """Class weights and threshold; None without both."""

    @property
    def cut(self) -> Cut | None:
        """The decision threshold; None if the most probable label is predicted."""

    def outputs(self, n_outputs: int, quantiles: Sequence[float] = ()) -> list[Hashable]:
        """Return the names of so many outputs."""

    def read(
        self,
        y: Any,
        n_rows: int,
        *,
        strict: bool = False,
        expected: Any = None,
        rows: Rows = None,
        are_all: bool = False,
    ) -> Answers:
        """Return the targets as input for the kernels; raise if they are invalid."""

    def known_codes(self, y: Any, n_rows: int) -> Codes | None:
        """Return the same for an array that needs no checks; otherwise None."""

    def knowledge(self) -> dict[str, Any]:
        """Return the state for `restore_names`."""

    def predict(
        self, matrix: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[Any]:
        """Return the prediction for each row."""

    def to_column(self, matrix: NDArray[np.float64], sparse: SparseRows | None, like: Frame) -> Any:
        """Return the predictions as a series of a frame's library, or an array."""


class Answers(NamedTuple):
    """Targets that were read: a code per row, and new labels, in the order of codes."""

    codes: Codes
    new: Sequence[Hashable] = ()


class Labels:
    """Labels of any hashable type.

    Parameters
    ----------
    row_face : RowFace or FimtddRowFace
        Holds the vocabulary, which encoder and target share: both change at once.
    engine : Engine or FimtddEngine
        Predicts codes.
    """

    imbalance: Imbalance | None = None

    def __init__(self, row_face: _RowFace, engine: _TreeEngine) -> None:
        self.row_face = row_face
        self.engine = engine

    # ------------------------------------------------------------------ words
    unit = LOG_ODDS

    def outputs(self, n_outputs: int, quantiles: Sequence[float] = ()) -> list[Hashable]:
        """Return the labels with a model: the second of two, each of more, none of one.

        Models of the past may have fewer outputs than there are labels now.
        """
        labels = list(self.labels)
        return labels[:n_outputs] if n_outputs > 1 else labels[1:2]

    @property
    def labels(self) -> dict[Hashable, int]:
        """Labels to codes."""
        return self._known.labels

    @property
    def label_list(self) -> list[Any]:
        """Labels by code."""
        return self._known.label_list

    @property
    def classes(self) -> NDArray[Any]:
        """Labels by code, as an array."""
        return self._known.classes

    @property
    def _known(self) -> Vocabulary:
        return self.row_face.known  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ reading
    def read(
        self,
        y: Any,
        n_rows: int,
        *,
        strict: bool = False,
        expected: Any = None,
        rows: Rows = None,
        are_all: bool = False,
    ) -> Answers:
        """Return the labels' codes, and the new labels, sorted if possible.

        Parameters
        ----------
        y : sequence
            The labels.
        n_rows : int
            How many there must be.
        strict : bool
            Whether scikit-learn's rules hold: an array, in which real numbers are not classes.
        expected : sequence, optional
            Labels that get a code before those in `y`.
        rows : array of int, optional
            The rows that count.
        are_all : bool
            Whether there are no labels but these.
        """
        given = check_labels(y) if strict else to_labels(y)
        if len(given) != n_rows:
            raise ValueError(
                f"X has {n_rows} rows, but y has {len(given)} labels: give one per row"
            )
        first: list[Any] = []
        if expected is not None:
            first, _ = distinct_labels(to_labels(expected, "classes"), what="classes")
        distinct, places = distinct_labels(given, rows)
        codes = self.labels
        new = [label for label in dict.fromkeys(first + distinct) if label not in codes]
        if new:
            check_keys([*codes, *new], "labels")
            codes = codes | {label: len(codes) + i for i, label in enumerate(new)}
            if self.imbalance is not None:
                self.imbalance.check(list(codes), are_all=are_all or expected is not None)
        lookup = np.array([codes[label] for label in distinct], dtype=np.int32)
        return Answers(lookup[places], new)

    def known_codes(self, y: Any, n_rows: int) -> NDArray[np.int32] | None:
        """Return the codes of known labels, small integers or text; otherwise None."""
        labels = plain_column(y, n_rows)
        if labels is None:
            return None
        if labels.dtype == np.int64:
            return self.row_face.codes(np.ascontiguousarray(labels))
        if labels.dtype.kind not in "UO":
            return None
        known = self.labels
        try:
            codes = [known.get(label) for label in labels.tolist()]
        except TypeError:  # not hashable
            return None
        return None if None in codes else np.array(codes, dtype=np.int32)

    # ------------------------------------------------------------------ keeping
    def knowledge(self) -> dict[str, Any]:
        """Return a copy of the labels, for `restore_names`, and of their statistics."""
        seen = {} if self.imbalance is None else {"seen": self.imbalance.seen()}
        return {"labels": dict(self.labels), **seen}

    # ------------------------------------------------------------------ predictions
    @property
    def cut(self) -> Cut | None:
        """The decision threshold; None if the most probable label is predicted."""
        return None if self.imbalance is None else self.imbalance.cut(self.labels)

    def decide(self, probabilities: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the predicted code of each row."""
        return decide(probabilities, self.cut)

    def predict(
        self, matrix: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[Any]:
        """Return the predicted label of each row."""
        if self.imbalance is None or self.imbalance.threshold is None:
            codes: Any = self.engine.most_probable(matrix, sparse)
        else:
            codes = self.decide(self.engine.probabilities(matrix, sparse))
        return np.asarray(self.classes[codes])  # after the codes: another thread may add a label

    def probabilities_of(
        self, matrix: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> dict[Any, float]:
        """Return the probability of each label for the only row."""
        proba = self.engine.probabilities(matrix, sparse)[0]
        return dict(zip(self.label_list, proba.tolist(), strict=True))

    def sets(
        self,
        reaches: NDArray[np.float64],
        probabilities: NDArray[np.float64],
        level: float,
    ) -> NDArray[np.bool_]:
        """Return which labels are in the set of each row."""
        found = probabilities >= math.exp(-reach_at(reaches, level))
        found[np.arange(len(found)), probabilities.argmax(axis=1)] = True
        return found

    def to_column(self, matrix: NDArray[np.float64], sparse: SparseRows | None, like: Frame) -> Any:
        """Return the predicted labels as a series of a frame's library, or an array."""
        codes = self.decide(self.engine.probabilities(matrix, sparse))
        if isinstance(like, Columns):
            return self.classes[codes]
        labels = self.label_list
        if not like.implementation.is_pandas_like() and len(set(map(type, labels))) > 1:
            raise TypeError(
                f"labels of several types ({labels[:8]!r}, ...) do not fit into a column of "
                f"{type(like.to_native())!r}: give a pandas data frame, or use predict_one or "
                "predict"
            )
        return dataframe.to_native_series([labels[code] for code in codes], name=None, like=like)

    def to_columns(
        self, matrix: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> dict[Any, NDArray[np.float64]]:
        """Return the probabilities of each label."""
        proba = self.engine.probabilities(matrix, sparse)
        return dict(zip(self.label_list, proba.T, strict=True))


class Numbers:
    """Real numbers.

    Parameters
    ----------
    row_face : RowFace
        Holds the vocabulary, which has no labels.
    engine : Engine
        Its predictions are in the user's unit.
    """

    labels: Mapping[Hashable, int] = MappingProxyType({})
    label_list: Sequence[Any] = ()
    imbalance: Imbalance | None = None
    cut: Cut | None = None

    def __init__(self, row_face: _RowFace, engine: Any) -> None:
        self.row_face = row_face
        self.engine: _ModelTreeEngine = engine

    def read(
        self,
        y: Any,
        n_rows: int,
        *,
        strict: bool = False,
        expected: Any = None,
        rows: Rows = None,
        are_all: bool = False,
    ) -> Answers:
        """Return the numbers; raise if one of them is missing, infinite or not a number."""
        assert expected is None
        numbers = to_target(y, strict=strict)
        if len(numbers) != n_rows:
            raise ValueError(
                f"X has {n_rows} rows, but y has {len(numbers)} numbers: give one per row"
            )
        numbers = _check_range(numbers, rows)
        if self.engine.has_log_link and (numbers < 0).any():
            row = int((numbers < 0).argmax())
            raise ValueError(
                f"with loss='poisson' or a log link targets must not be negative, but that of row "
                f"{row_of(row, rows)} is {numbers[row].item()!r}"
            )
        return Answers(numbers)

    def known_codes(self, y: Any, n_rows: int) -> NDArray[np.float64] | None:
        """Return numbers in the allowed range; otherwise None."""
        numbers = plain_column(y, n_rows)
        if numbers is None or numbers.dtype != np.float64:
            return None
        if not bool((np.abs(numbers) <= LARGEST_NUMBER).all()):
            return None
        return None if self.engine.has_log_link and bool((numbers < 0).any()) else numbers

    def knowledge(self) -> dict[str, Any]:
        """Return the state for `restore_names`, without labels."""
        return {"labels": {}}

    @property
    def unit(self) -> Unit:
        """Converts the models' output to the user's unit."""
        return unit_of(self.engine)

    def outputs(self, n_outputs: int, quantiles: Sequence[float] = ()) -> list[Hashable]:
        """Return the names of the outputs."""
        if n_outputs > 1:
            return [f"{quantile:g} quantile" for quantile in quantiles[:n_outputs]]
        return ["log y" if self.unit.has_log_link else "y"]

    def predict(
        self, matrix: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[np.float64]:
        """Return the predicted number of each row."""
        found = self.engine.numbers(matrix, sparse)
        return np.asarray(found[:, found.shape[1] // 2])

    def intervals(
        self, matrix: NDArray[np.float64], sparse: SparseRows | None, level: float
    ) -> NDArray[np.float64]:
        """Return lower and upper ends."""
        if not self.engine.has_intervals:
            raise ValueError(
                "intervals are for one number: with loss='quantile', use predict_quantiles"
            )
        return self.engine.intervals(matrix, reach_at(self.engine.reaches, level), sparse)

    def to_column(self, matrix: NDArray[np.float64], sparse: SparseRows | None, like: Frame) -> Any:
        """Return the predictions as a series of a frame's library, or an array."""
        numbers = self.predict(matrix, sparse)
        if isinstance(like, Columns):
            return numbers
        return dataframe.to_native_series(numbers.tolist(), name=None, like=like)


NORMAL = NormalDist()


def reach_at(reaches: NDArray[np.float64], level: float) -> float:
    """Return the reach of any level, interpolated over normal quantiles."""
    check_level(level)
    places = [NORMAL.inv_cdf((1 + one) / 2) for one in (*REACH_LEVELS, level)]
    return float(np.interp(places[-1], places[:-1], np.maximum.accumulate(reaches)))


def check_level(level: Any) -> None:
    """Raise if the level of an interval or a set is not in the range of those that are learnt.

    Examples
    --------
    >>> check_level(0.9)
    >>> check_level([0.5, 0.9])
    Traceback (most recent call last):
    ValueError: level must be from 0.5 to 0.99, got [0.5, 0.9]: give one number
    """
    low, high = REACH_LEVELS[0], REACH_LEVELS[-1]
    value = level[()] if isinstance(level, np.ndarray) and level.ndim == 0 else level
    is_number = isinstance(value, numbers_abc.Real)
    if not is_number or not low <= level <= high:
        hint = "" if is_number else ": give one number"
        raise ValueError(f"level must be from {low:g} to {high:g}, got {shown(level)}{hint}")


# ---------------------------------------------------------------------- checking numbers
def check_numbers(y: Any) -> NDArray[np.float64]:
    """Return a target of numbers; raise if one is missing or too large.

    Examples
    --------
    >>> check_numbers([3, 2.5])
    array([3. , 2.5])
    """
    return _check_range(to_target(y, strict=True))


def _check_range(numbers: NDArray[np.float64], rows: Rows = None) -> NDArray[np.float64]:
    """Return the numbers of some rows; raise if one of them is missing or too large."""
    if rows is not None:
        numbers = numbers[rows]
    is_wrong = ~(np.abs(numbers) <= LARGEST_NUMBER)
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise ValueError(
            f"Input y contains NaN, infinity or a number beyond {LARGEST_NUMBER:g}: the target of "
            f"row {row_of(row, rows)} is {numbers[row].item()!r}; omit the row, or scale y"
        )
    return numbers


def to_target(y: Any, *, strict: bool) -> NDArray[np.float64]:
    """Return a target of numbers as an array of float64."""
    if y is None:
        raise ValueError("learning requires y to be passed, but the target y is None")
    _check_sequence("y", y, "numbers")
    given = y.tolist() if isinstance(y, np.ma.MaskedArray) else y
    if not strict and hasattr(given, "to_pylist"):
        given = given.to_pylist()
    if isinstance(given, list) and has_scalars(set(map(type, given))):
        given = list(map(plain, given))
    try:
        array: NDArray[Any] = np.asarray(given)
    except ValueError:  # lists of several lengths
        array = as_objects(given)
    if not strict and array.ndim != 1:
        raise ValueError(f"y must be a sequence of numbers, got an array of shape {array.shape}")
    array = column_or_1d(array, warn=True)
    if array.dtype.kind in "fiu":
        return array.astype(np.float64)
    if array.dtype.kind in "mM":
        raise ValueError(
            f"y must hold numbers, but holds values of type {array.dtype}: convert them (dates to "
            "days since some day, for example)"
        )
    for row, number in enumerate(array.tolist()):
        is_number = isinstance(number, (numbers_abc.Real, Decimal)) and not isinstance(number, bool)
        if not is_number and not is_missing(number):
            raise ValueError(
                f"y must hold numbers, but the target of row {row} is {shown(number)}: for labels "
                "use DynamicModelTreeClassifier"
            )
    try:
        return np.array(
            [math.nan if is_missing(number) else number for number in array], dtype=np.float64
        )
    except OverflowError:
        raise ValueError(
            "y holds a whole number beyond the range of float64 (1.8e308): scale the targets"
        ) from None


def plain_column(y: Any, n_rows: int) -> NDArray[Any] | None:
    """Return an array, or a pandas series as one, if it has so many values; otherwise None."""
    if nw.dependencies.is_pandas_series(y):
        y = y.to_numpy()
    return y if type(y) is np.ndarray and y.shape == (n_rows,) else None


# ---------------------------------------------------------------------- checking labels
def check_labels(y: Any) -> NDArray[Any]:
    """Return labels as an array by scikit-learn's rules: real numbers are not classes."""
    if type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "iubU":
        return y
    if y is None:
        raise ValueError("learning requires y to be passed, but the target y is None")
    _check_sequence("y", y)
    is_nullable = hasattr(getattr(y, "dtype", None), "na_value")
    if isinstance(y, np.ma.MaskedArray) or is_nullable:
        y = y.tolist()  # NumPy would convert pandas' nullable booleans and integers to float64
    if isinstance(y, np.ndarray) and y.dtype.kind == "T":
        y = y.astype(object)  # which scikit-learn knows
    labels: NDArray[Any] = column_or_1d(_from_list(y) if isinstance(y, list) else y, warn=True)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = int(np.isfinite(labels).argmin())
        raise _missing_label(labels[row].item(), row)
    if labels.dtype.kind != "O":
        check_classification_targets(labels)
    return labels


def _from_list(y: list[Any]) -> NDArray[Any]:
    """Return the labels unchanged: NumPy would convert mixed numbers and text to text."""
    kinds = {type(label) for label in y}
    if len(kinds) <= 1 and tuple not in kinds:
        with contextlib.suppress(ValueError):  # lists of several lengths
            return np.asarray(y)
    return as_objects(y)


def to_labels(y: Any, what: str = "y") -> Any:
    """Return the labels of a series of any data frame library, or the given sequence."""
    shape = getattr(y, "shape", ())
    if len(shape) > 1 and not isinstance(y, np.ndarray):
        raise TypeError(
            f"{what} must be a sequence of labels, got {type(y).__name__!r} of shape {shape}: give "
            "one column, as a series or an array"
        )
    for method in ("to_pylist", "to_list"):  # pyarrow's name, and everyone else's
        if hasattr(y, method):
            return getattr(y, method)()
    _check_sequence(what, y)
    if isinstance(y, np.ma.MaskedArray):
        return y.tolist()
    return y if hasattr(y, "__len__") else np.asarray(y)


def _check_sequence(what: str, y: Any, of: str = "labels") -> None:
    """Raise if labels have no order or length: text and sets would be learnt as nonsense."""
    has_length = hasattr(y, "__len__") or hasattr(y, "__array__")
    if not has_length or isinstance(y, (str, bytes, Set, Mapping)):
        raise TypeError(
            f"{what} must be a sequence of {of}, got {shown(y)} of type {type(y).__name__!r}: "
            "give a list, an array or a series"
        )
    if getattr(y, "shape", None) == ():
        raise ValueError(f"{what} should be a 1d array, got an array of shape () instead.")


def distinct_labels(
    y: Iterable[Any], rows: Rows = None, what: str = "y"
) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the distinct labels, sorted if possible, and each row's index among them.

    Examples
    --------
    >>> distinct_labels(["no", "yes", "no", "maybe"])
    (['maybe', 'no', 'yes'], array([1, 2, 1, 0]))
    """
    if isinstance(y, np.ndarray):
        if y.dtype.kind in "biuf" and len(y) > SHORT:
            unique, places = np.unique(y if rows is None else y[rows], return_inverse=True)
            if y.dtype.kind != "f" or np.isfinite(unique).all():
                return unique.tolist(), places
        y = list(y) if y.dtype.kind in "mM" else y.tolist()
    items = list(y)
    if has_scalars(set(map(type, items))):
        items = list(map(plain, items))
    if rows is not None:
        items = [items[i] for i in rows]
    try:
        labels = list(dict.fromkeys(items))
    except TypeError:
        raise unhashable(what, items, rows) from None
    if any(map(_is_no_label, labels)):
        i = next(i for i, label in enumerate(items) if _is_no_label(label))
        raise _missing_label(items[i], row_of(i, rows), what)
    try:
        labels.sort()
    except TypeError:  # of several kinds: in order of appearance
        labels = list(dict.fromkeys(items))
    order = {label: place for place, label in enumerate(labels)}
    return labels, np.fromiter(map(order.__getitem__, items), np.intp, len(items))


def _is_no_label(label: Any) -> bool:
    return is_missing(label) or (isinstance(label, float) and math.isinf(label))


def _missing_label(label: Any, row: int, what: str = "y") -> ValueError:
    return ValueError(
        f"Input {what} contains NaN, infinity or None: the label of row {row} is {label!r}; omit "
        "the row, or give such rows a label of their own"
    )
