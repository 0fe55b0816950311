"""Weights: sample weights, validated, and converted to repeated rows."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftree.learn.validation import shown, unmasked

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from driftree.learn.validation import Rows

# A whole weight up to this is learnt as that many rows, a larger one as this many heavier rows.
MAX_COPIES = 8
MAX_WEIGHT = 1e15  # beyond that, a row of weight 1 would be lost to rounding in the sums


class Weights(NamedTuple):
    """The rows that count, with repetitions and weights."""

    rows: Rows
    """Those whose weight is not 0; None is all of them."""
    copies: NDArray[np.intp] | None
    """Indices of these rows, repeated as often as they are learnt; None is each of them once."""
    shares: NDArray[np.float64]
    """The weight of each copy."""
    given: NDArray[np.float64]
    """The weights of these rows."""
    wholes: NDArray[np.float64]
    """The given weight at the first copy of each row; 0 at the others."""

    @classmethod
    def of(
        cls, rows: Rows, weights: NDArray[np.float64], given: NDArray[np.float64] | None = None
    ) -> Weights:
        """Repeat rows by their weights; `given` are those that the user gave, if they differ."""
        given = weights if given is None else given
        copies, shares = _copies(weights)
        is_first = np.diff(copies, prepend=-1) > 0
        return cls(rows, copies, shares, given, np.where(is_first, given[copies], 0.0))

    def times(self, factors: NDArray[np.float64]) -> Weights:
        """Return the same with each row's weight multiplied, except those given."""
        return Weights.of(self.rows, np.minimum(factors * self.given, MAX_WEIGHT), self.given)


def read_weights(weights: ArrayLike | None, n_rows: int) -> Weights:
    """Convert weights to rows: weight 2.5 is two rows and one of weight 0.5, weight 0 is none.

    Examples
    --------
    >>> rows, copies, shares, *_ = read_weights([1, 0, 2.5], 3)
    >>> rows.tolist(), copies.tolist(), shares.tolist()
    ([0, 2], [0, 1, 1, 1], [1.0, 1.0, 1.0, 0.5])
    """
    if weights is None:
        ones = np.ones(n_rows)
        return Weights(None, None, ones, ones, ones)
    checked = _check(one_per_row(weights, n_rows))
    rows = None
    if not checked.all():
        rows = np.flatnonzero(checked)
        checked = checked[rows]
    if (checked == 1.0).all():
        return Weights(rows, None, checked, checked, checked)
    return Weights.of(rows, checked)


def _copies(checked: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return how often each row is learnt, and the weight of each copy."""
    n_copies = np.minimum(np.ceil(checked), MAX_COPIES).astype(np.intp)
    copies = np.repeat(np.arange(len(checked)), n_copies)
    shares = np.where(checked > MAX_COPIES, checked / MAX_COPIES, 1.0)[copies]
    rest = checked - np.floor(checked)
    has_rest = (rest > 0) & (checked <= MAX_COPIES)
    shares[np.cumsum(n_copies)[has_rest] - 1] = rest[has_rest]
    return copies, shares


def one_per_row(weights: ArrayLike, n_rows: int) -> NDArray[np.float64]:
    """Return weights as one number per row, of any size; a single one is that of all rows.

    Examples
    --------
    >>> one_per_row([1, 0.5], 2), one_per_row(2, 2)
    (array([1. , 0.5]), array([2., 2.]))
    """
    numbers = _to_numbers(weights)
    if numbers.ndim == 0:
        numbers = np.full(n_rows, numbers)
    if numbers.shape != (n_rows,):
        raise ValueError(
            f"sample_weight must hold one number per row, {n_rows} in all, got the shape "
            f"{numbers.shape}"
        )
    return numbers


def _check(checked: NDArray[np.float64]) -> NDArray[np.float64]:
    """Raise if a weight is not a number from 0 to the largest allowed one."""
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


def _to_numbers(weights: ArrayLike) -> NDArray[np.float64]:
    """Return weights as float64; raise for text, dates and complex numbers."""
    with contextlib.suppress(TypeError, ValueError), np.errstate(over="ignore"):
        is_masked = isinstance(weights, np.ma.MaskedArray)
        given = np.asarray(unmasked(weights) if is_masked else weights)
        cells = given.flat if given.dtype.kind == "O" else ()
        is_text = any(isinstance(cell, (str, bytes)) for cell in cells)
        if given.dtype.kind in "biufO" and not is_text:
            return given.astype(np.float64)  # infinity for a long double beyond it
    raise TypeError(
        f"sample_weight must hold numbers, got {shown(weights)}: give one number per row"
    )
