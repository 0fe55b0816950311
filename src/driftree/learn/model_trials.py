"""Trials of other models for a node: with more bends, finer curves, fewer bends or another memory.

One other model at a time learns the rows of the node, and replaces its model when it has lost
enough less. After each failure the wait for the next trial is longer.
"""

from __future__ import annotations

import math
import operator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import BendTrial, MeasuredEngine
    from driftree.learn.constants import MeasuredConstants
    from driftree.learn.parameters import MeasuredParameters


LEAST_WIDTH = 1e-300

BendInput = tuple[int, float, float]
"""One piece of a curve: its feature, and the two values between which it rises."""


class ModelCandidate(NamedTuple):
    """Another model for a node, on trial."""

    added: list[BendInput]
    removed: list[BendInput]
    memory: float
    """Rows that it remembers, approximately."""
    gain: float
    """The node's loss minus that of the model on trial."""
    threshold: float
    """What the gain must reach."""
    node_loss: float
    rows: float


class Wanted(NamedTuple):
    """The bends and the memory of a model to be tried."""

    bends: list[BendInput]
    memory: float
    """As a share of the usual memory."""


class ModelTrials:
    """The models on trial, and what is tried next."""

    def __init__(
        self,
        engine: MeasuredEngine,
        constants: MeasuredConstants,
        parameters: MeasuredParameters,
    ) -> None:
        self.engine = engine
        self.constants = constants
        self.max_bends = parameters.max_bends
        self.model_window = parameters.model_window
        self.margin = -math.log(parameters.epsilon)
        n_quantiles = parameters.bins - 1  # with fewer edges, each value seen is an edge
        self.few_edges = min(constants.most_levels, n_quantiles)
        self.code_edges = min(constants.most_codes, n_quantiles)

    def required(self, n_inputs: int) -> float:
        """Return the nats that a change must gain if it adds so many inputs to a model."""
        n_parameters = n_inputs * max(1, self.engine.n_classes - 1)
        return self.margin + self.constants.nats_per_parameter * n_parameters

    def bends(self, node: int) -> list[BendInput]:
        """Return the bends of a node's model."""
        return self.engine.bends(self.engine.node(node).model) if self.max_bends else []

    def candidate(self, node: int) -> ModelCandidate | None:
        """Return the model on trial.

        More bends must gain as much as a split with as many new inputs, and another memory as much
        as one input. Each piece beyond the usual number of a curve has the price of a split. Fewer
        bends must gain a quarter of that or, when the node is checked after many rows, lose no more
        than that.
        """
        engine, trial = self.engine, self.engine.bend_trial(node)
        if trial.model < 0:
            return None
        before, after = self.bends(node), engine.bends(trial.model)
        added, removed = without(after, before), without(before, after)
        required = self._level(before, after) + self._price(added) * trial.evidence
        # Only then: behaviour must not depend on when the model was last loaded.
        own = engine.node(node)
        is_old = own.rows - trial.born >= self.constants.unbend_rows
        if removed and is_old and own.rows >= own.refresh_at:
            required = -required
        return ModelCandidate(
            added,
            removed,
            self._remembered(trial.model, len(after)),
            gain=trial.node_loss - trial.trial_loss,
            threshold=required,
            node_loss=trial.node_loss,
            rows=trial.evidence,
        )

    def ahead(self, node: int) -> ModelCandidate | None:
        """Return the model on trial, unless it clearly has not gained enough."""
        trial = self.engine.bend_trial(node)
        if trial.model < 0:
            return None
        own = self.engine.node(node)
        is_young = own.rows - trial.born < self.constants.unbend_rows
        if (is_young and not trial.is_due) or own.trials_rest:
            return None  # the usual case
        return self.candidate(node)

    def _level(self, before: list[BendInput], after: list[BendInput]) -> float:
        """Return the gain with which another model is adopted at any time, without its price."""
        n_added = len(after) - len(before)
        if n_added >= 0:
            return self.required(max(1, n_added))  # another memory counts as one
        return self.constants.prune_share * self.required(-n_added)

    def _price(self, added: list[BendInput]) -> float:
        """Return what the pieces beyond the usual number must gain per row."""
        return self.constants.split_price * self._n_fine(added)

    def set_level(self, node: int) -> None:
        """Tell the engine what the model on trial must gain."""
        engine = self.engine
        model = engine.bend_trial(node).model
        if model >= 0:
            before, after = self.bends(node), engine.bends(model)
            price = self._price(without(after, before))
            engine.bend_level(node, self._level(before, after), price)

    def take(self, node: int) -> None:
        """Adopt the model on trial; before the next trial the grid sees some rows with it.

        Finer curves, which do not depend on the grid, need not wait for many. The renewed model was
        of the model before, and the next look may be far off: the leaf gets another one at once.
        """
        c, engine = self.constants, self.engine
        engine.bend(node)
        self.renew(node)
        wait = c.refresh_rows if self._finer_curves(node, 0) else c.trial_rows
        engine.next_bend(node, engine.node(node).rows + wait, 0)

    def refresh(self, node: int) -> None:
        """Continue the trial, end it if it failed, or start the next one.

        While bends that failed are barred, another memory is tried.
        """
        if self.max_bends == 0 or self.engine.n_columns == 1:  # only an intercept
            return
        engine, wanted = self.engine, None
        trial, rows = engine.bend_trial(node), engine.node(node).rows
        if trial.model >= 0 and not self._may_end(trial, rows - trial.born):
            return
        candidate = self.candidate(node)
        if candidate is None:
            if rows >= trial.next_at:
                wanted = self._other_bends(node, trial.n_failed) or self._other_memory(node)
        elif self._has_failed(candidate, rows - trial.born):
            engine.drop_bend_trial(node)
            is_of_bends = bool(candidate.added or candidate.removed)
            if is_of_bends or self._other_bends(node, trial.n_failed) is None:
                self._bar(node, rows, trial.n_failed)
            if is_of_bends:
                wanted = self._other_memory(node)
        if wanted is not None:
            self._start(node, wanted)

    def renew(self, node: int) -> None:
        """Copy the renewed model of a leaf anew from its first model, unless it leads.

        The copy has the same weights with the uncertainty of a new model, so it follows a change at
        once. The leaf predicts a mean of both, weighted by their recent losses. All trials are
        compared with the first model.
        """
        engine, own, renewed = self.engine, self.engine.node(node), self.engine.renewed(node)
        is_due = own.rows - renewed.born >= self.constants.renew_rows
        leads = renewed.model >= 0 and renewed.lead > -self.constants.renewed_doubt
        is_wide = engine.is_costly or engine.has_sparse
        if own.is_leaf and is_due and not leads and not is_wide:
            engine.renew(node)

    def restart(self, node: int) -> None:
        """Let the renewed model of a leaf start from zero if the leaf does harm.

        It does if it has lately lost more than no model at all, with which all labels are equally
        likely: after an abrupt change, what was learnt before may be wrong.
        """
        renewed = self.engine.renewed(node)
        if renewed.model >= 0 and renewed.harm >= self.constants.renewed_harm:
            self.engine.restart(node)

    def _may_end(self, trial: BendTrial, age: float) -> bool:
        """Tell whether a trial may have failed: a quick check before `_has_failed`."""
        c, gain = self.constants, trial.node_loss - trial.trial_loss
        is_late = age > c.trial_rows and not gain > 0
        return is_late or gain < -trial.level or age >= c.unbend_rows

    def _has_failed(self, candidate: ModelCandidate, age: float) -> bool:
        """Tell whether a trial has failed. One with fewer bends fails if all bends are useful.

        A curve of many pieces may lose at first, until each piece has seen some rows. A memory must
        win within a limited time: where labels have no noise, a short one always wins in the long
        run, since its weights grow faster, and is worse as soon as there is noise.
        """
        c = self.constants
        if not candidate.added and age >= c.unbend_rows:
            return True
        is_lost = candidate.gain < -candidate.threshold and age > min(
            c.trial_rows, c.rows_per_input * self._n_fine(candidate.added)
        )
        is_late = age > c.trial_rows and not candidate.gain > 0
        return not candidate.removed and (is_lost or is_late)

    def _n_fine(self, added: list[BendInput]) -> int:
        """Return the number of pieces beyond the usual number of their curves."""
        return max(0, len(added) - self.constants.curve_pieces * len({j for j, _, _ in added}))

    def _bar(self, node: int, rows: float, n_failed: int) -> None:
        c = self.constants
        wait = c.barred_rows * 2 ** min(n_failed, c.most_bars)
        self.engine.next_bend(node, rows + wait, n_failed + 1)

    def _start(self, node: int, wanted: Wanted) -> None:
        features = np.array([bend[0] for bend in wanted.bends], dtype=np.int32)
        ends = np.array([bend[1:] for bend in wanted.bends], dtype=np.float64).reshape(-1, 2)
        present = self.bends(node)
        self.engine.start_bend_trial(
            node,
            features,
            ends[:, 0].copy(),
            ends[:, 1].copy(),
            wanted.memory,
            self._level(present, wanted.bends),
            self._price(without(wanted.bends, present)),
        )

    # ------------------------------------------------------------------ what is tried
    def _other_bends(self, node: int, n_failed: int) -> Wanted | None:
        """Return a model with finer curves, with more bends, or with fewer.

        The order alternates; finer curves come after curves that have won or failed twice.
        """
        n_halvings = n_failed // 2
        if n_failed % 2 == 1:
            return (
                self._fewer_bends(node)
                or self._more_bends(node, n_halvings)
                or self._finer_curves(node, n_halvings)
            )
        if n_failed or self.bends(node):
            return (
                self._finer_curves(node, n_halvings)
                or self._more_bends(node, n_halvings)
                or self._fewer_bends(node)
            )
        return self._more_bends(node, n_halvings) or self._finer_curves(node, n_halvings)

    def _remembered(self, model: int, n_bends: int) -> float:
        n_inputs = self.engine.n_columns + n_bends
        usual = max(self.model_window, self.constants.rows_per_input * n_inputs)
        return self.engine.memory(model) * usual

    def _memory(self, node: int) -> float:
        return self.engine.memory(int(self.engine.model[node]))

    def _other_memory(self, node: int) -> Wanted | None:
        """Return the same model with the short memory, or the usual one if it has the short one."""
        short = self.constants.short_memory
        memory = short if self._memory(node) > short else 1.0
        return Wanted(self.bends(node), memory) if short < 1 else None

    def _more_bends(self, node: int, n_halvings: int) -> Wanted | None:
        """Return the present bends and those of the most promising features, if there are any.

        First all features that there is room for; after a failure the better half, and so on.
        The remaining room goes to features with few values, for a knot at each of them.
        """
        present = self.bends(node)
        room = min(self.max_bends, self.constants.most_bends) - len(present)
        taken = {feature for feature, _, _ in present}
        lines = [j for j in self._numbers() if j not in taken]
        if room < 1 or not lines or not self.engine.grid_is_ready(node):
            return None
        all_edges = self.engine.edges(node)
        edges = {j: all_edges[j] for j in lines if curve_knots(all_edges[j], 2)}
        if not edges:
            return None
        best = self._scores(node)
        order = most_promising(edges, best, n_halvings)
        for n_pieces in range(self.constants.curve_pieces, 1, -1):  # the finest that fits
            sizes = {j: min(n_pieces, len(edges[j]) - 1) for j in order}
            spare = room - sum(sizes.values())
            if spare >= 0:
                break
        else:
            if not best[list(edges)].any():
                return None  # the order is not known yet
        for j in order:  # few values may be codes: the effect of each may differ
            n_more = len(edges[j]) - 1 - sizes[j]
            if len(edges[j]) < self.few_edges and n_more <= spare:
                sizes[j] += n_more
                spare -= n_more
        added: list[BendInput] = []
        for j, size in sizes.items():
            added += curve_pieces(j, edges[j], size) if len(added) + size <= room else []
        return Wanted(present + added, self._memory(node)) if added else None

    def _finer_curves(self, node: int, n_halvings: int) -> Wanted | None:
        """Return the present bends with a knot at each value of features with few whole numbers.

        These may be codes (of shops, products, places), for which quantiles mean little.
        """
        present = self.bends(node)
        room = self.max_bends - len(present)
        if room < 1 or not self.engine.grid_is_ready(node):
            return None
        all_edges = self.engine.edges(node)
        finer: dict[int, list[BendInput]] = {}
        for j in self._numbers():
            edges = all_edges[j]
            is_code = len(edges) < self.code_edges and all(map(float.is_integer, edges))
            if is_code and curve_knots(edges, 2):
                finer[j] = finer_pieces(j, edges, [bend for bend in present if bend[0] == j])
        finer = {j: pieces for j, pieces in finer.items() if pieces}
        if not finer:
            return None
        added: list[BendInput] = []
        for j in most_promising(finer, self._scores(node), n_halvings):
            added += finer[j] if len(added) + len(finer[j]) <= room else []
        return Wanted(present + added, self._memory(node)) if added else None

    def _numbers(self) -> list[int]:
        """Return the features with a line of their own, or a curve."""
        engine = self.engine
        is_number = ~engine.scale_is_indicator & (engine.value_column >= 0)
        return np.flatnonzero(is_number).tolist()

    def _scores(self, node: int) -> NDArray[np.float64]:
        """Return by feature how promising a bend of its line is."""
        best = np.zeros(self.engine.n_features)
        scores, features = self.engine.bend_scores(node)
        np.fmax.at(best, features, scores)
        return best

    def _fewer_bends(self, node: int) -> Wanted | None:
        """Return the present bends without those that seem useless, if there are any.

        By the curvature of the loss, the bends of a feature should be worth a nat per parameter.
        """
        present = self.bends(node)
        model = int(self.engine.model[node])
        n_outputs = max(1, self.engine.n_classes - 1)
        worth: dict[int, float] = {}
        for bend, own in zip(present, self.engine.bend_worth(model), strict=True):
            worth[bend[0]] = worth.get(bend[0], 0.0) + own - n_outputs
        kept = [bend for bend in present if worth[bend[0]] > 0]
        return Wanted(kept, self._memory(node)) if len(kept) < len(present) else None


def without(bends: list[BendInput], others: list[BendInput]) -> list[BendInput]:
    """Return the bends that are not among others, where one list contains the other.

    Examples
    --------
    >>> without([(0, 1.0, 3.0), (1, 3.0, 8.0)], [(0, 1.0, 3.0)])
    [(1, 3.0, 8.0)]
    """
    if len(bends) <= len(others):
        return []
    there = set(others)
    return [bend for bend in bends if bend not in there]


def most_promising(
    features: Iterable[int], scores: NDArray[np.float64], n_halvings: int
) -> list[int]:
    """Return the features, best first: all of them, the better half, quarter, ...

    Examples
    --------
    >>> most_promising([1, 2, 3], np.array([9.0, 1.0, 2.0, 2.0]), 0)
    [2, 3, 1]
    >>> most_promising([1, 2, 3], np.array([9.0, 1.0, 2.0, 2.0]), 1)
    [2]
    """
    order = sorted(features, key=lambda j: (-scores[j], j))
    return order[: max(1, len(order) >> n_halvings)]


def curve_knots(edges: Sequence[float], n_pieces: int) -> list[float]:
    """Return the knots, at quantiles, of a curve with up to so many pieces.

    There are none if there are too few values (the largest is no edge: two edges are three values),
    or if a difference of values or a slope is infinite.

    Examples
    --------
    >>> curve_knots([1.0, 2.0, 3.0, 5.0, 8.0], 2), curve_knots([1.0, 2.0], 2), curve_knots([1.0], 2)
    ([1.0, 3.0, 8.0], [1.0, 2.0], [])
    """
    if len(edges) < 2 or not math.isfinite(edges[-1] - edges[0]):
        return []
    last = len(edges) - 1
    n_pieces = min(n_pieces, last)
    knots = [edges[round(i * (last / n_pieces))] for i in range(n_pieces + 1)]
    return knots if min(map(operator.sub, knots[1:], knots)) > LEAST_WIDTH else []


def curve_pieces(feature: int, edges: Sequence[float], n_pieces: int) -> list[BendInput]:
    """Return the pieces of a feature's curve, between its knots.

    Examples
    --------
    >>> curve_pieces(0, [1.0, 2.0, 3.0, 5.0, 8.0], 2)
    [(0, 1.0, 3.0), (0, 3.0, 8.0)]
    """
    return [(feature, low, high) for low, high in pairwise(curve_knots(edges, n_pieces))]


def finer_pieces(
    feature: int, edges: Sequence[float], present: Sequence[BendInput]
) -> list[BendInput]:
    """Return the pieces that make each edge a knot of a curve, together with its present pieces.

    The last part of a present piece is left out: the others determine it.

    Examples
    --------
    >>> finer_pieces(0, [1.0, 2.0, 3.0, 5.0, 8.0], [(0, 1.0, 3.0), (0, 3.0, 5.0)])
    [(0, 1.0, 2.0), (0, 5.0, 8.0)]
    >>> finer_pieces(0, [1.0, 2.0, 3.0], [])
    [(0, 1.0, 2.0), (0, 2.0, 3.0)]
    """
    ends = {high for _, _, high in present}
    knots = sorted({*edges, *ends, *(low for _, low, _ in present)})
    return [
        (feature, low, high)
        for low, high in pairwise(knots)
        if high not in ends and high - low > LEAST_WIDTH
    ]


def curves_of(bends: Iterable[BendInput]) -> dict[int, list[float]]:
    """Return the knots of each feature that has bends.

    Examples
    --------
    >>> curves_of([(0, 1.0, 3.0), (0, 3.0, 8.0)])
    {0: [1.0, 3.0, 8.0]}
    """
    knots: dict[int, set[float]] = {}
    for feature, low, high in bends:
        knots.setdefault(feature, set()).update((low, high))
    return {feature: sorted(own) for feature, own in knots.items()}
