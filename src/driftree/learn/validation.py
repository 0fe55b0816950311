"""Validation: what may come in as a cell, a label or a weight, and the words when it may not.

Every error says where, what was given, and what to do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.words import shown

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from driftree.learn._kernels import _TreeEngine

    Rows = NDArray[np.intp] | None  # the rows of the input that count; None is all of them

MAX_COPIES = (
    8  # an integer weight up to this is as many rows; a larger one is this many heavier rows
)
MAX_WEIGHT = 1e15  # beyond that, a row of weight 1 is lost in the rounding of the sums
NUMBER_TYPES = frozenset({float, int, bool, np.float64, type(None)})
# Python hashes text and bytes with a secret, but not numbers and tuples: who chooses them can make
# them all collide, and n of them cost n * n / 2 comparisons, here about a second.
MAX_NUMBERS = 10_000  # labels, or names, that are neither text nor bytes
MAX_PARTS = 50_000  # of all of them: what is compared of long numbers and tuples
SHORT = 64  # labels of so few rows are looked up one by one, which is faster than sorting them


# ---------------------------------------------------------------------- cells
def is_missing(cell: Any) -> bool:
    """Tell None, NaN, NaT and pandas' NA from values.

    Examples
    --------
    >>> [is_missing(cell) for cell in (None, float("nan"), 0.0, "")]
    [True, True, False, False]
    """
    if cell is None or type(cell).__name__ == "NAType":
        return True
    differs = cell != cell  # noqa: PLR0124 (NaN is the value that is not itself)
    return isinstance(differs, (bool, np.bool_)) and bool(differs)


def is_text(cells: NDArray[np.float64] | list[Any]) -> bool | None:
    """Tell text and truth values from numbers by the first value.

    Without one, NaN counts as a number, and None says nothing.

    Examples
    --------
    >>> is_text([None, "red"]), is_text([2.5, "red"]), is_text([None]), is_text([math.nan])
    (True, False, None, False)
    """
    if isinstance(cells, np.ndarray):
        return False
    has_nan = False
    for cell in cells:
        if not is_missing(cell):
            return isinstance(cell, (str, bytes, bool, np.bool_))
        has_nan |= isinstance(cell, float)
    return False if has_nan else None


def plain(value: Any) -> Any:
    """Return NumPy's scalars as Python's: what is kept does not depend on where it came from."""
    return value.item() if isinstance(value, (np.bool_, np.number, np.character)) else value


def to_numbers(
    name: Hashable, cells: NDArray[np.float64] | list[Any], rows: Rows
) -> NDArray[np.float64]:
    """Return a numeric column as float64, NaN where missing."""
    numbers = _to_floats(name, cells, rows) if isinstance(cells, list) else cells
    check_finite(name, numbers, rows)
    return numbers


def _to_floats(name: Hashable, cells: list[Any], rows: Rows) -> NDArray[np.float64]:
    if set(map(type, cells)) <= NUMBER_TYPES:
        with contextlib.suppress(OverflowError):  # a whole number beyond float64
            return np.array(cells, dtype=np.float64)
    numbers = np.full(len(cells), math.nan)
    for i, cell in enumerate(cells):
        if isinstance(cell, (str, bytes)):
            raise ValueError(
                f"column {name!r} is numeric, but row {_row(i, rows)} holds {shown(cell)}: convert "
                "it to a number, use None if it is missing, or name the column in `categorical` "
                "from the start"
            )
        try:
            numbers[i] = float(cell)
        except OverflowError:
            numbers[i] = math.inf
        except (TypeError, ValueError):
            if not is_missing(cell):
                raise TypeError(
                    f"column {name!r}, row {_row(i, rows)}: a value argument must be a string or a "
                    f"real number, got {shown(cell)} of type {type(cell).__name__!r}: convert it "
                    "(dates to days since some day, for example), or leave the column out"
                ) from None
    return numbers


def check_finite(name: Hashable, numbers: NDArray[np.float64], rows: Rows) -> None:
    """Raise if a number is infinite."""
    infinite = np.isinf(numbers)
    if infinite.any():
        row = _row(int(infinite.argmax()), rows)
        raise ValueError(
            f"Input contains infinity or a value too large: column {name!r}, row {row}; "
            "use NaN or None for a missing value, or clip it"
        )


def unhashable(what: str, cells: Iterable[Any], rows: Rows) -> TypeError:
    """Return the error for the first cell that cannot be a key."""
    for i, cell in enumerate(cells):
        try:
            hash(cell)
        except TypeError:
            return TypeError(
                f"{what}, row {_row(i, rows)} holds {shown(cell)} of type {type(cell).__name__!r}, "
                "which is not hashable: use text, numbers or tuples"
            )
    raise AssertionError("all are hashable")


def _row(i: int, rows: Rows) -> int:
    return i if rows is None else int(rows[i])


def unmasked(values: Any) -> Any:
    """Return an array whose masked cells are NaN, or None where there is no NaN; others as given.

    Examples
    --------
    >>> unmasked(np.ma.masked_array([1, 2], mask=[False, True]))
    array([ 1., nan])
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    is_number = values.dtype.kind in "fiu"
    with np.errstate(over="ignore"):  # infinity for a long double beyond float64
        cells = np.array(values.data, dtype=np.float64 if is_number else object)
    cells[np.ma.getmaskarray(values)] = math.nan if is_number else None
    return cells


# ---------------------------------------------------------------------- labels
def check_labels(y: Any) -> NDArray[Any]:
    """Return labels as an array by scikit-learn's rules: real numbers are no classes."""
    if type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "iub":
        return y
    if y is None:
        raise ValueError("learning requires y to be passed, but the target y is None")
    _check_sequence("y", y)
    if isinstance(y, np.ma.MaskedArray):
        y = y.tolist()
    labels: NDArray[Any] = column_or_1d(_from_list(y) if isinstance(y, list) else y, warn=True)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = int(np.isfinite(labels).argmin())
        raise _missing_label(labels[row].item(), row)
    if labels.dtype.kind != "O":
        check_classification_targets(labels)
    return labels


def _from_list(y: list[Any]) -> NDArray[Any]:
    """Return the labels unchanged: NumPy would turn numbers beside text into text."""
    kinds = {type(label) for label in y}
    if len(kinds) <= 1 and tuple not in kinds:
        with contextlib.suppress(ValueError):  # lists of several lengths
            return np.asarray(y)
    return as_objects(y)


def to_labels(y: Any, what: str = "y") -> Any:
    """Return the labels of a series of any data frame library, or the sequence that was given."""
    for method in ("to_pylist", "to_list"):  # pyarrow's name, and everyone else's
        if hasattr(y, method):
            return getattr(y, method)()
    _check_sequence(what, y)
    return y.tolist() if isinstance(y, np.ma.MaskedArray) else y


def _check_sequence(what: str, y: Any) -> None:
    """Raise if labels have no order or no number: text and sets would be learnt as nonsense."""
    has_length = hasattr(y, "__len__") or hasattr(y, "__array__")
    if not has_length or isinstance(y, (str, bytes, Set, Mapping)):
        raise TypeError(
            f"{what} must hold labels in their order, got {shown(y)} of type {type(y).__name__!r}: "
            "give a list, an array or a series"
        )
    if getattr(y, "shape", None) == ():
        raise ValueError(f"{what} should be a 1d array, got an array of shape () instead.")


def distinct_labels(
    y: Iterable[Any], rows: Rows = None, what: str = "y"
) -> tuple[list[Any], NDArray[np.intp]]:
    """Return the distinct labels, sorted if they can be, and each row's place among them.

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
    if any(issubclass(kind, np.generic) for kind in set(map(type, items))):
        items = list(map(plain, items))
    if rows is not None:
        items = [items[i] for i in rows]
    try:
        labels = list(dict.fromkeys(items))
    except TypeError:
        raise unhashable(what, items, rows) from None
    if any(map(_is_no_label, labels)):
        i = next(i for i, label in enumerate(items) if _is_no_label(label))
        raise _missing_label(items[i], _row(i, rows), what)
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
        f"Input {what} contains NaN, infinity or None: the label of row {row} is {label!r}; leave "
        "the row out, or give such rows a label of their own"
    )


def label_array(labels: list[Any]) -> NDArray[Any]:
    r"""Return labels as an array that holds them unchanged.

    Examples
    --------
    >>> label_array(["a", "b"]), label_array([1, "b"])
    (array(['a', 'b'], dtype='<U1'), array([1, 'b'], dtype=object))
    >>> label_array(["a", b"\x80"])
    array(['a', b'\x80'], dtype=object)
    """
    is_plain = all(isinstance(label, (str, bytes, bool, int, float)) for label in labels)
    if is_plain and len({isinstance(label, bytes) for label in labels}) < 2:  # bytes are no text
        array = np.asarray(labels)
        if array.tolist() == labels:
            return array
    return as_objects(labels)


def as_objects(values: list[Any]) -> NDArray[Any]:
    """Return values as an array of objects, each as it is, even if it is a sequence."""
    return np.fromiter(values, dtype=object, count=len(values))


# ---------------------------------------------------------------------- weights
def check_weights(weights: ArrayLike | None, n_rows: int) -> NDArray[np.float64] | None:
    """Return the weights as float64, one per row."""
    if weights is None:
        return None
    checked = _to_weights(weights)
    if checked.ndim == 0:
        checked = np.full(n_rows, checked)
    if checked.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must hold one number per row, {n_rows} in all, got the shape "
            f"{checked.shape}"
        )
    wrong = ~(np.isfinite(checked) & (checked >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            "Negative values in data passed to `sample_weight`, or values that are not finite: "
            f"row {row} has the weight {checked[row]}; 0 leaves a row out"
        )
    if (checked > MAX_WEIGHT).any():
        row = int(checked.argmax())
        raise ValueError(
            f"sample_weight must be at most {MAX_WEIGHT:g}, but row {row} has the weight "
            f"{checked[row]}: divide all weights by the same number"
        )
    return checked


def _to_weights(weights: ArrayLike) -> NDArray[np.float64]:
    """Return weights as float64; text, dates and complex numbers are none."""
    with contextlib.suppress(TypeError, ValueError), np.errstate(over="ignore"):
        given = np.asarray(unmasked(weights))
        cells = given.flat if given.dtype.kind == "O" else ()
        is_text = any(isinstance(cell, (str, bytes)) for cell in cells)
        if given.dtype.kind in "biufO" and not is_text:
            return given.astype(np.float64)  # infinity for a long double beyond it
    raise TypeError(
        f"sample_weight must hold numbers, got {shown(weights)}: give one number per row"
    )


def apply_weights(
    matrix: NDArray[np.float64], codes: NDArray[np.int32], weights: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
    """Turn weights into rows: weight 2.5 is two rows and one of weight 0.5; none may be 0.

    Examples
    --------
    >>> rows, _, shares = apply_weights(
    ...     np.array([[7.0], [8.0]]), np.array([0, 1]), np.array([1, 2.5])
    ... )
    >>> rows.T, shares
    (array([[7., 8., 8., 8.]]), array([1. , 1. , 1. , 0.5]))
    """
    if weights is None:
        return matrix, codes, np.ones(len(codes))
    if (weights == 1.0).all():
        return matrix, codes, weights
    copies = np.minimum(np.ceil(weights), MAX_COPIES).astype(np.intp)
    rows = np.repeat(np.arange(len(codes)), copies)
    shares = np.where(weights > MAX_COPIES, weights / MAX_COPIES, 1.0)[rows]
    rest = weights - np.floor(weights)
    has_rest = (rest > 0) & (weights <= MAX_COPIES)
    shares[np.cumsum(copies)[has_rest] - 1] = rest[has_rest]
    return matrix[rows], codes[rows], shares


# ---------------------------------------------------------------------- keys and codes
def check_keys(keys: Iterable[Hashable], what: str, kind: type[ValueError] = ValueError) -> None:
    """Raise an error if there are more keys than may collide; text and bytes are free.

    Examples
    --------
    >>> check_keys(map(str, range(100_000)), "labels")
    >>> check_keys(range(100_000), "labels")
    Traceback (most recent call last):
    ValueError: 100,000 labels are neither text nor bytes, at most 10,000 may be: make them text
    """
    rest: list[Any] = [key for key in keys if not isinstance(key, (str, bytes))]
    n_keys = n_parts = len(rest)
    if n_keys > MAX_NUMBERS:
        raise kind(
            f"{n_keys:,} {what} are neither text nor bytes, at most {MAX_NUMBERS:,} may be: make "
            "them text"
        )
    while rest and n_parts <= MAX_PARTS:
        key = rest.pop()
        if isinstance(key, tuple):
            n_parts += len(key)
            rest += key[:MAX_PARTS]
        elif isinstance(key, int):
            n_parts += key.bit_length() // 256
        elif isinstance(key, (str, bytes)):
            n_parts += len(key) // 256
    if n_parts > MAX_PARTS:
        raise kind(
            f"{n_keys:,} {what} are long numbers or tuples of more than {MAX_PARTS:,} parts "
            "together: make them text"
        )


def check_codes(
    engine: _TreeEngine,
    names: Mapping[Hashable, int],
    levels: Sequence[Mapping[Hashable, int] | None],
    labels: Mapping[Hashable, int],
    *,
    indicators: bool,
) -> None:
    """Raise unless an engine has these features, levels and labels: it trusts their codes."""
    if list(names.values()) != list(range(engine.n_features)) or len(levels) != len(names):
        raise ValueError(f"the names and levels are not those of {engine.n_features} features")
    if list(labels.values()) != list(range(engine.n_classes)):
        raise ValueError(f"the labels are not those of {engine.n_classes} classes")
    columns = engine.level_column.reshape(-1, MAX_LEVELS + 1)
    for j, (name, codes) in enumerate(zip(names, levels, strict=True)):
        has_value, is_category = engine.value_column[j] >= 0, bool(engine.is_categorical[j])
        if codes is None:
            fits = has_value and not (is_category and indicators)
        else:
            is_numbered = list(codes.values()) == list(range(min(len(codes), MAX_LEVELS)))
            has_columns = not indicators or bool((columns[j, : len(codes)] >= 0).all())
            fits = is_category and has_value != indicators and is_numbered and has_columns
        if not fits:
            raise ValueError(f"the levels of feature {name!r} are not those of its columns")
