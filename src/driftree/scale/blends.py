"""Blends: merging the copies of one simple model that learnt different rows.

Newton's half is weights w with a precision P, the information about them. Rows add to it and time
discounts it: a copy that starts from w0, P0 ends with P_k = f_k P0 + G_k, where G_k is the
information from its rows. Copies learn at the same time, so the rows of each must also be
discounted by those of the others: together they count for g (G_1 + G_2 + ...), where g gives them
the weight that they would have one after the other. With F, the product of all f_k,

    P = F P0 + g sum G_k,    (H P0 + c g sum G_k) (w - w0) = g sum (f_k P0 + c G_k) (w_k - w0).

If the loss is a parabola, H is F. After an abrupt change it is not: each copy has moved most of the
way although it has little information. So H is at least g times the mean of the f_k; then a move
counts at most as often as there are copies.

c is 1 with two labels. With more, Newton divides by the mean curvature over the labels, which is
less than that of the labels that the rows are about. One copy corrects that row by row, but the
moves of several would add up to more than the whole way. So c turns the mean into half of the sum,
which is enough for any label.

Adagrad's half learns the same rows by small steps. In a direction with much information each copy
has moved most of the way, so the mean of their moves is right; in one with little information moves
add up. The rate m of a copy is that of steps down a parabola whose curvature is the information
gained: K copies together move (1 - exp(-K m)) / (1 - exp(-m)) times their mean. Sums of squares add
up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn._kernels import MOST_TRACE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from driftree.learn.constants import MeasuredConstants

    Arrays = Mapping[str, NDArray[Any]]

LEAST_SQUARES = 1e-12


class Learning(NamedTuple):
    """The parameters with which the simple models of a tree learn."""

    window: float
    n_columns: int
    constants: MeasuredConstants

    def keep(self, n_columns: int, share: float) -> float:
        """Return the factor by which a row discounts the precision, for a share of the memory."""
        least = self.constants.rows_per_input * n_columns
        return 1.0 - 1.0 / (share * max(self.window, least))

    def curvature(self, n_outputs: int) -> float:
        """Return by how much the curvature of a label may exceed that of Newton."""
        return max(1.0, (n_outputs - 1) / 2) if self.constants.mean_curvature else 1.0


class Blend(NamedTuple):
    """The numbers of a simple model; `kernels/blend_parts.hpp` has the same."""

    adagrad: NDArray[np.float64]  # [outputs, columns]
    squares: NDArray[np.float64]
    newton: NDArray[np.float64]
    covariance: NDArray[np.float64]  # [columns, columns]
    stride: int

    @classmethod
    def read(cls, arrays: Arrays, place: int, learning: Learning) -> Blend:
        """Return the model at an index."""
        columns = learning.n_columns + int(arrays["model.bend_feature.lengths"][place])
        n_outputs = 1 if int(arrays["n_classes"][0]) <= 2 else int(arrays["n_classes"][0])
        numbers = arrays["model.numbers"][piece(arrays, "model.numbers", place)]
        stride = _stride(len(numbers), n_outputs)
        size = n_outputs * stride
        lines = numbers[: 3 * size].reshape(3, n_outputs, stride)[:, :, :columns]
        matrix = numbers[3 * size :].reshape(stride, stride)[:columns, :columns]
        covariance = matrix * float(arrays["model.scale"][place])
        return cls(lines[0], lines[1], lines[2], covariance, stride)

    @classmethod
    def new(cls, like: Blend, learning: Learning) -> Blend:
        """Return a model with the same inputs that has learnt nothing."""
        zeros = np.zeros_like(like.adagrad)
        covariance = learning.constants.variance * np.eye(zeros.shape[1])
        return cls(zeros, zeros, zeros, covariance, like.stride)

    def to_numbers(self) -> NDArray[np.float64]:
        """Return it in the layout of the kernels, padded to whole vectors."""
        columns = self.adagrad.shape[1]
        after = (0, self.stride - columns)
        lines = [np.pad(one, ((0, 0), after)) for one in self[:3]]
        return np.concatenate(
            [one.ravel() for one in (*lines, np.pad(self.covariance, (after, after)))]
        )

    def limited(self, learning: Learning, share: float, n_rows: float) -> Blend | None:
        """Return it with the limit that the kernels would set within so many rows, or None.

        Without information, weights become less certain with time, up to a limit that each copy
        would set. The limit is no information and must not be counted once per copy.
        """
        own, most = np.diagonal(self.covariance), learning.constants.variance
        keep = learning.keep(len(own), share)
        if own.sum() * keep**-n_rows <= MOST_TRACE * most * len(own):
            return None
        factor = np.sqrt(most / np.maximum(own, most))
        return self._replace(covariance=self.covariance * factor * factor[:, None])


def piece(arrays: Arrays, name: str, place: int) -> slice:
    """Return the position of the values of an index."""
    lengths = arrays[f"{name}.lengths"]
    begin = int(lengths[:place].sum())
    return slice(begin, begin + int(lengths[place]))


def _stride(n_numbers: int, n_outputs: int) -> int:
    """Return the stride of a model with so many numbers: 3 outputs stride + stride^2."""
    half = 1.5 * n_outputs
    return round(math.sqrt(half * half + n_numbers) - half)


class CopyBlend(NamedTuple):
    """A copy's version of a simple model, and its number of rows."""

    blend: Blend
    n_rows: float


def merge_blends(
    copies: Sequence[CopyBlend], base: Blend | None, learning: Learning, share: float
) -> Blend:
    """Return the merged model; `share` is its memory as a share of the usual one."""
    first, c = copies[0].blend, learning.constants
    n_outputs, n_columns = first.adagrad.shape
    start = Blend.new(first, learning) if base is None else base
    start = start.limited(learning, share, 0.0) or start
    told = sorted(copies, key=lambda one: (one.n_rows, one.blend.newton.tobytes()))
    shares = row_shares([one.n_rows for one in told])
    fades = [learning.keep(n_columns, share) ** one.n_rows for one in told]
    left = math.prod(fades)
    spread_out = weigh(left, fades)
    curvature = learning.curvature(n_outputs)
    before = _inverse(start.covariance)
    gained, pull = np.zeros_like(before), np.zeros_like(start.newton)
    squares, move = start.squares.copy(), np.zeros_like(start.adagrad)
    for one, fade, own_share in zip(told, fades, shares, strict=True):
        own = _inverse(one.blend.covariance) - fade * before
        gained += own
        pull += (one.blend.newton - start.newton) @ (fade * before + curvature * own)
        squares += np.maximum(one.blend.squares - start.squares, 0.0)
        move += own_share * (one.blend.adagrad - start.adagrad)
    # In units in which the steps of Adagrad have the same length in all directions.
    unit = np.maximum(squares.mean(axis=0), LEAST_SQUARES) ** 0.25
    known, directions = np.linalg.eigh(gained / unit / unit[:, None])
    known = np.maximum(known, 0.0)
    gained = (directions * known) @ directions.T * unit * unit[:, None]
    further = sum_over_mean(c.passes * c.step * curvature * known, 1.0 / float(shares @ shares))
    move = ((move * unit) @ directions * further) @ directions.T / unit
    precision = left * before + spread_out * gained
    kept = max(left, spread_out * float(shares @ fades))
    solved = _inverse(kept * before + curvature * spread_out * gained)
    return Blend(
        start.adagrad + move,
        squares,
        start.newton + spread_out * pull @ solved,
        _inverse(precision),
        first.stride,
    )


def row_shares(rows: Sequence[float]) -> NDArray[np.float64]:
    """Return each copy's share of the rows of all."""
    counts = np.array(rows, dtype=np.float64)
    return counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / len(counts))


def weigh(left: float, fades: Sequence[float]) -> float:
    """Return the weight of discounted sums of copies whose rows came at the same time.

    Relative to the sum over infinitely many rows, rows one after the other add up to 1 - `left`,
    and those of one copy to 1 - its own factor.
    """
    apart = sum(1.0 - fade for fade in fades)
    return (1.0 - left) / apart if apart > 0 else 1.0


def sum_over_mean(rates: NDArray[np.float64], n_copies: float) -> NDArray[np.float64]:
    """Return the move of all copies together as a multiple of their mean move.

    Examples
    --------
    >>> sum_over_mean(np.array([0.0, 8.0, 800.0]), 8.0).round(2)
    array([8.  , 1.58, 1.  ])
    """
    moved = -np.expm1(-rates / n_copies)  # by one copy, as a share of the whole way
    return np.divide(
        -np.expm1(-rates), moved, out=np.full_like(rates, n_copies), where=moved > 1e-9
    )


def merge_faded(base: float, found: Sequence[float], rows: Sequence[float], keep: float) -> float:
    """Return a sum that is discounted with each row, over the rows of all copies.

    Examples
    --------
    >>> merge_faded(1.0, [1.5, 2.5], [1, 1], keep=1 - 1e-9)
    3.0
    """
    fades = [keep**n_rows for n_rows in rows]
    left = math.prod(fades)
    gained = sum(own - fade * base for own, fade in zip(found, fades, strict=True))
    return float(left * base + weigh(left, fades) * gained)


def _inverse(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inverse of a positive matrix, which is exactly symmetric."""
    symmetric = (matrix + matrix.T) / 2
    found = np.linalg.inv(symmetric)
    return np.asarray((found + found.T) / 2)
