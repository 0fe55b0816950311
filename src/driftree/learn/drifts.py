"""Drifts: alarms that the rule behind the rows has changed; where, since when, with which inputs.

The kernels keep a few rows and detect that their loss would now be larger than it was
(`watch.hpp`). Here the branch is located by these rows, and those before and after are compared by
feature.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.learn.columns import level_names
from driftree.learn.events import Condition, format_numbers, join_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from driftree.learn.constants import WatchConstants
    from driftree.learn.nodes import TreeNodes

MOST_OF_IT = 0.9  # share of the excess that the branch of a drift must hold
LEAST_ROWS = 20  # on either side, for a comparison
CHANCE = 1e-2  # that an unchanged input is named


@dataclass(frozen=True, slots=True)
class InputChange:
    """An input whose distribution changed with a drift; `str` describes it.

    Attributes
    ----------
    feature : str
        Its name.
    kind : str
        "values" (the distribution of its numbers), "missing" (how often it is missing) or "level"
        (how often it is one of its levels).
    before, after : float
        The median, or the share of rows.
    level : object
        The level; "any other level" is all later ones of more than 32 together.

    Examples
    --------
    >>> print(InputChange("age", "missing", 0.0, 0.25))
    age is missing in 25% of rows instead of 0%
    >>> print(InputChange("car", "level", 0.0, 0.1, level="van"))
    car == 'van' in 10% of rows instead of 0%
    """

    feature: str
    kind: str
    before: float
    after: float
    level: object = None

    def __str__(self) -> str:
        if self.kind == "values":
            before, after = format_numbers((self.before, self.after))
            return f"{self.feature} has another distribution, with a median of {after} ({before})"
        what = "is missing" if self.kind == "missing" else f"== {self.level!r}"
        return f"{self.feature} {what} in {self.after:.0%} of rows instead of {self.before:.0%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """An alarm: the rule behind the rows has changed. `str` is a sentence.

    Attributes
    ----------
    n_rows : int
        Rows learnt when the alarm was raised.
    since : int
        Row of the last check without evidence for it: the drift began about then, or soon after.
    excess : float
        Loss per row of the present tree on earlier rows, minus their loss on arrival, in nats. Each
        row counts for at most 4 nats, either way.
    loss_before, loss_since : float
        Mean loss of the kept rows on arrival: until `since`, and after it. They hardly differ if
        the tree adapts fast. NaN if no rows were kept.
    path : tuple of Condition
        The smallest branch of the present tree that has 90 % of the excess; empty: all rows.
    share : float
        Share of the rows before that reach this branch.
    inputs : tuple of InputChange
        Inputs whose distribution changed, too; empty if only their relation to the target did.
    """

    n_rows: int
    since: int
    excess: float
    loss_before: float
    loss_since: float
    path: tuple[Condition, ...] = ()
    share: float = 1.0
    inputs: tuple[InputChange, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the figures, and the sentence as `why`, for JSON; None is unknown."""
        figures = {
            name: value if math.isfinite(value := getattr(self, name)) else None
            for name in ("n_rows", "since", "excess", "loss_before", "loss_since", "share")
        }
        inputs = [asdict(change) for change in self.inputs]
        return figures | {"path": [*map(str, self.path)], "inputs": inputs, "why": str(self)}

    def __str__(self) -> str:
        where = f"rows with {join_path(self.path)} ({self.share:.0%})" if self.path else "all rows"
        inputs = "; ".join(map(str, self.inputs)) if self.inputs else "none changed by itself"
        return (
            f"Row {self.n_rows:,}: drift since about row {self.since:,}, in {where}. On "
            f"earlier rows its loss would now be {self.excess:.2f} nats per row higher. Loss of "
            f"rows on arrival: {self.loss_since:.2f} since, {self.loss_before:.2f} before. Inputs: "
            f"{inputs}."
        )


# ---------------------------------------------------------------------- what is known of an alarm
def describe_drift(tree: TreeNodes, constants: WatchConstants) -> Drift:
    """Describe an alarm that the engine has raised."""
    engine: Any = tree.engine  # of a tree that detects drift
    since = engine.watched_since
    X, targets, losses, came = engine.watched_rows()
    is_before = came <= since
    excess = engine.losses(X[is_before], targets[is_before]) - losses[is_before]
    excess = np.clip(excess, -constants.most_excess, constants.most_excess)
    node, share = _find_branch(tree, X[is_before], excess)
    return Drift(
        n_rows=engine.n_rows,
        since=since,
        excess=_mean(excess),
        loss_before=_mean(losses[is_before]),
        loss_since=_mean(losses[~is_before]),
        path=tree.path(node),
        share=share,
        inputs=tuple(changed_inputs(tree, X[is_before], X[~is_before])),
    )


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else math.nan


def _find_branch(
    tree: TreeNodes, X: NDArray[np.float64], excess: NDArray[np.float64]
) -> tuple[int, float]:
    """Return the lowest node with most of the excess, and its share of the rows."""
    if len(X) < LEAST_ROWS or excess.sum() <= 0:
        return 0, 1.0
    leaves = tree.engine.leaves(X)
    lefts, rights = tree.engine.left, tree.engine.right
    nodes = np.array(list(tree.walk()))
    sums = dict.fromkeys(nodes.tolist(), 0.0)
    counts = dict.fromkeys(nodes.tolist(), 0)
    for node in nodes[::-1].tolist():  # children before parents
        if lefts[node] < 0:
            is_here = leaves == node
            sums[node], counts[node] = float(excess[is_here].sum()), int(is_here.sum())
        else:
            for child in (int(lefts[node]), int(rights[node])):
                sums[node] += sums[child]
                counts[node] += counts[child]
    node = 0
    while lefts[node] >= 0:
        best = max((int(lefts[node]), int(rights[node])), key=sums.__getitem__)
        if sums[best] < MOST_OF_IT * sums[0] or counts[best] < LEAST_ROWS:
            break
        node = best
    return node, counts[node] / len(X)


# ---------------------------------------------------------------------- inputs
def changed_inputs(
    tree: TreeNodes, before: NDArray[np.float64], after: NDArray[np.float64]
) -> Iterator[InputChange]:
    """Yield the inputs whose distribution changed significantly."""
    if min(len(before), len(after)) < LEAST_ROWS:
        return
    engine = tree.engine
    is_categorical = engine.is_categorical
    first = len(level_names(engine))
    chance = CHANCE / max(1, before.shape[1] - first)
    for j in range(first, before.shape[1]):
        name = tree.encoder.display_names[j] if hasattr(tree, "encoder") else f"x{j}"
        old, new = before[:, j], after[:, j]
        is_missing = np.isnan(old), np.isnan(new)
        if (shares := _compare_shares(*is_missing, chance)) is not None:
            yield InputChange(name, "missing", *shares)
        old, new = old[~is_missing[0]], new[~is_missing[1]]
        if min(len(old), len(new)) < LEAST_ROWS:
            continue
        if is_categorical[j]:
            for code, shares in _compare_levels(old, new, chance):
                level = tree.encoder.level(j, code) if hasattr(tree, "encoder") else code
                yield InputChange(name, "level", *shares, level=level)
        elif _ks_chance(old, new) < chance:
            yield InputChange(name, "values", float(np.median(old)), float(np.median(new)))


def _compare_levels(
    old: NDArray[np.float64], new: NDArray[np.float64], chance: float
) -> Iterator[tuple[int, tuple[float, float]]]:
    """Yield the codes whose shares differ, and the shares."""
    codes = np.unique(np.concatenate([old, new]))
    for code in codes.tolist():
        shares = _compare_shares(old == code, new == code, chance / len(codes))
        if shares is not None:
            yield int(code), shares


def _compare_shares(
    old: NDArray[np.bool_], new: NDArray[np.bool_], chance: float
) -> tuple[float, float] | None:
    """Return two shares if they differ significantly (pooled, with continuity correction)."""
    n, m = len(old), len(new)
    before, after = float(old.mean()), float(new.mean())
    pooled = (old.sum() + new.sum()) / (n + m)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    distance = abs(after - before) - 0.5 * (1 / n + 1 / m)
    if error == 0 or math.erfc(distance / error / math.sqrt(2)) >= chance:
        return None
    return before, after


def _ks_chance(old: NDArray[np.float64], new: NDArray[np.float64]) -> float:
    """Return the p-value of a Kolmogorov-Smirnov distance, for many rows."""
    values = np.sort(np.concatenate([old, new]))
    shares = [
        np.searchsorted(np.sort(part), values, side="right") / len(part) for part in (old, new)
    ]
    distance = float(np.abs(shares[0] - shares[1]).max())
    scaled = distance * math.sqrt(len(old) * len(new) / (len(old) + len(new)))
    if scaled < 0.3:  # where the series has not converged, and the probability is 1
        return 1.0
    terms = (2 * (-1) ** (k - 1) * math.exp(-2 * k * k * scaled**2) for k in range(1, 20))
    return min(1.0, float(sum(terms)))
