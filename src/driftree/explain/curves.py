"""Curves: the effect of a number on the log-odds of a leaf where its line is bent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from driftree.learn.events import format_number
from driftree.learn.units import node_curves

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from driftree.learn.tree import Tree


class CurveRun(NamedTuple):
    """A part of a curve that only rises (`change` above 0) or only falls."""

    low: float
    high: float
    change: float


@dataclass(frozen=True, slots=True)
class LeafCurve:
    """What a number adds to the log-odds in a leaf: a piecewise linear function.

    Attributes
    ----------
    knots : tuple of float
        Values of the feature, ascending: those at which the line is bent, and those three standard
        deviations from the mean. Further out the curve is flat.
    values : tuple of float
        Log-odds that it adds at the knots, relative to its mean, where the curve is 0. A missing
        value adds nothing (except the weight of "... is missing", if there is one).
    first, last : float
        Where the line is bent and the leaf has rows: from the first of the bends to the last, or to
        where the leaf's conditions end. Beyond the bends it continues as a line.

    Examples
    --------
    >>> curve = LeafCurve((10.0, 44.9, 90.0), (-1.2, 0.9, -2.1), 10.0, 90.0)
    >>> print(curve)
    +2.1 from 10 to 44.9, -3 to 90
    >>> print(f"{curve(20):.3f}")
    -0.598
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]
    first: float
    last: float

    def __call__(self, value: float | None) -> float:
        """Return the log-odds that a value adds; None and NaN are missing."""
        if value is None or math.isnan(value):
            return 0.0
        return float(np.interp(value, self.knots, self.values))

    def __str__(self) -> str:
        return ", ".join(
            f"{run.change:+.3g} {'' if i else f'from {format_number(run.low)} '}"
            f"to {format_number(run.high)}"
            for i, run in enumerate(self.runs)
        )

    @property
    def slopes(self) -> tuple[float, ...]:
        """Change of the log-odds per unit of the feature, between each two knots."""
        points = pairwise(zip(self.knots, self.values, strict=True))
        return tuple((v1 - v0) / (x1 - x0) for (x0, v0), (x1, v1) in points)

    @property
    def mean_slope(self) -> float:
        """Change of the log-odds per unit, from `first` to `last`."""
        return (self(self.last) - self(self.first)) / (self.last - self.first)

    @property
    def runs(self) -> list[CurveRun]:
        """The curve from `first` to `last`, in parts that only rise or only fall."""
        between = [knot for knot in self.knots if self.first < knot < self.last]
        runs: list[CurveRun] = []
        for low, high in pairwise([self.first, *between, self.last]):
            change = self(high) - self(low)
            if runs and change * runs[-1].change >= 0:
                runs[-1] = CurveRun(runs[-1].low, high, runs[-1].change + change)
            else:
                runs.append(CurveRun(low, high, change))
        return runs


def leaf_curves(
    tree: Tree, node: int, possible: NDArray[np.bool_]
) -> tuple[dict[int, list[LeafCurve]], NDArray[np.float64]]:
    """Return the curves of the bent features, one per output, and what they add at the means.

    Features that the leaf's conditions say are missing are left out: `possible` tells which inputs
    can differ from 0.
    """
    engine = tree.engine
    found = {}
    at_means = np.zeros(engine.n_outputs)
    for j, curve in node_curves(engine, node).items():
        if possible[engine.value_column[j]]:
            zero = curve.at(float(engine.scale_mean[j]))
            at_means += zero
            found[j] = [
                LeafCurve(
                    tuple(curve.knots.tolist()),
                    tuple((own - base).tolist()),
                    curve.first,
                    curve.last,
                )
                for own, base in zip(curve.values, zero, strict=True)
            ]
    return found, at_means


def say_runs(curve: LeafCurve, rise: str = "rise", fall: str = "fall") -> str:
    """Describe where a curve rises and falls, and by how much.

    Examples
    --------
    >>> say_runs(LeafCurve((10.0, 44.9, 90.0), (-1.2, 0.9, -2.1), 10.0, 90.0))
    'rise by 2.1 from 10 to 44.9, then fall by 3 to 90'
    """
    return ", then ".join(
        f"{rise if run.change >= 0 else fall} by {abs(run.change):.3g} "
        f"{'' if i else f'from {format_number(run.low)} '}to {format_number(run.high)}"
        for i, run in enumerate(curve.runs)
    )
