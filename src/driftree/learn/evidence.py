"""Evidence: where a candidate's loss comes from, one of two differences between the settings.

`MeasuredTrials` (ours) trains two child models for the most promising candidates on the rows that
follow, and compares the losses. `GradientApproximation` (the paper) estimates the candidates'
losses by one gradient step, (6) and (7). Both have the same interface: the tree does not know which
one it uses.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from driftree.learn import constants
from driftree.learn._kernels import MAX_LEVELS, MeasuredEngine, PaperEngine
from driftree.learn.losses import find
from driftree.learn.model_trials import ModelTrials
from driftree.learn.parameters import MeasuredNumberParameters, PaperNumberParameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from driftree.learn._kernels import BorderState
    from driftree.learn.constants import MeasuredConstants
    from driftree.learn.memory import SchemaSize
    from driftree.learn.parameters import MeasuredParameters, PaperParameters


class Candidate(NamedTuple):
    """A possible split of a node, with its losses."""

    place: int
    """Its index in the kernels."""
    feature: int
    threshold: float
    equality: bool
    missing_left: bool
    gain: float
    """(3): the node's loss minus that of the two children."""
    replacement_gain: float
    """(4): the loss of the present subtree minus that of the two children."""
    node_loss: float
    subtree_loss: float
    rows: float
    """Rows behind `gain`."""
    subtree_rows: float
    """Rows behind `replacement_gain`."""
    is_ready: bool
    """Whether both sides have enough rows for it to be chosen."""


class Levels(NamedTuple):
    """The required gains (3), (5) and (4) of a node, and the gain at which it rests."""

    split: float
    prune: float
    replace: float
    rest: float
    """A node whose branch gains this much is far from any change: it learns one row in four."""
    link: float
    """The required gain of another link at the root."""


class Link(NamedTuple):
    """The comparison of the tree's link with the other one: with a noise floor, or without."""

    gain: float
    tree_loss: float
    other_loss: float
    rows: float
    other_floor: tuple[float, float]
    has_floor: bool
    """Whether the tree has a floor at present."""


class Evidence(Protocol):
    """The interface between the tree and its evidence."""

    sample_rows: int
    """Initial number of rows between samples of the nodes: more if rows are learnt faster."""
    window: float
    """Rows of the stream after which sums are discounted to 1/e."""
    splits_prove_replacements: bool
    """Whether a replacement must also fulfil the condition of a split."""

    @property
    def engine(self) -> MeasuredEngine | PaperEngine:
        """The kernels that hold the tree."""

    def step_rows(self) -> int:
        """Return the largest number of rows of a step."""

    def levels(self, n_leaves: int, node: int = 0) -> Levels:
        """Thresholds of a node with `n_leaves` leaves below it."""

    @property
    def models(self) -> ModelTrials | None:
        """Trials of other models for the nodes, if any."""

    def candidates(self, node: int) -> list[Candidate]:
        """Return the possible splits of a node, ready or not."""

    def refresh(self, node: int, *, may_split: bool) -> None:
        """Look for new candidates, if that is due."""

    def set_borders(self) -> None:
        """Set what other thresholds of the present splits must gain."""

    def border(self, node: int) -> BorderState | None:
        """Return the best other threshold of a node's split, if it may move."""

    def shift(self, node: int) -> None:
        """Move the threshold there."""

    def set_link_level(self, level: float) -> None:
        """Set the required gain of another link."""

    def link(self) -> Link | None:
        """Return the state of the comparison with the other link, if there is one."""

    def change_link(self) -> None:
        """Restart the tree with the other link."""

    def leaf_bytes(self, size: SchemaSize, *, may_split: bool) -> int:
        """Return the bytes of a tree of one leaf."""


class GradientApproximation:
    """The paper's candidate store: gains by (7), thresholds from the AIC (11)."""

    window = math.inf
    splits_prove_replacements = False
    models = None

    def __init__(self, parameters: PaperParameters, n_classes: int) -> None:
        p = parameters
        self.constants = constants.PAPER
        self.sample_rows = self.constants.sample_rows
        self.margin = -math.log(p.epsilon)
        self.stored = p.candidates
        self.engine = PaperEngine(
            n_classes,
            max_nodes=p.max_nodes,
            seed=p.seed,
            learning_rate=p.learning_rate,
            gain_step=p.gain_step,
            candidates=p.candidates,
            replacement_rate=p.replacement_rate,
            loss=p.loss if isinstance(p, PaperNumberParameters) else "labels",
        )

    def step_rows(self) -> int:
        """Return all rows of a batch: that is a time step in the paper."""
        return self.constants.step_rows

    def leaf_bytes(self, size: SchemaSize, *, may_split: bool) -> int:
        """Two gradients per stored candidate, those of waiting rows, the model and its sums."""
        n_gradients = 2 * self.stored * size.n_features + self.constants.waiting_rows + 3
        return 8 * size.n_weights * n_gradients

    def levels(self, n_leaves: int, node: int = 0) -> Levels:
        """Thresholds (11): by the AIC, for the change in free parameters."""
        k = free_parameters(self.engine)
        return Levels(
            split=k + self.margin,
            prune=k * (1 - n_leaves) + self.margin,
            replace=k * (2 - n_leaves) + self.margin,
            rest=math.inf,
            link=math.inf,
        )

    def candidates(self, node: int) -> list[Candidate]:
        """Return the stored candidates.

        A candidate's window is not the node's, so (4) is (5) plus the candidate's own gain.
        """
        engine, least = self.engine, self.constants.least_weight
        own = engine.node(node)
        prune_gain = own.subtree_loss - own.own_loss
        categorical = engine.is_categorical
        return [
            Candidate(
                place,
                feature,
                value,
                equality=bool(categorical[feature]),
                missing_left=False,
                gain=gain,
                replacement_gain=prune_gain + gain,
                node_loss=loss,
                subtree_loss=own.subtree_loss,
                rows=n_left + n_right,
                subtree_rows=own.evidence,
                is_ready=min(n_left, n_right) > least,
            )
            for place, (gain, feature, value, n_left, n_right, loss) in enumerate(
                engine.stored_candidates(node)
            )
        ]

    def refresh(self, node: int, *, may_split: bool) -> None:
        """Do nothing: the store takes new candidates with every batch."""

    def set_borders(self) -> None:
        """Do nothing: the paper's thresholds do not move."""

    def border(self, node: int) -> None:
        """Return None: the paper's thresholds do not move."""

    def shift(self, node: int) -> None:
        """Do nothing: the paper's thresholds do not move."""

    def set_link_level(self, level: float) -> None:
        """Do nothing: the paper has one link."""

    def link(self) -> None:
        """Return None: the paper has one link."""

    def change_link(self) -> None:
        """Do nothing: the paper has one link."""


def constants_of(parameters: MeasuredParameters) -> MeasuredConstants:
    """Return the constants of a single tree."""
    if isinstance(parameters, MeasuredNumberParameters):
        return constants.MEASURED_NUMBERS if parameters.max_bends else constants.STRAIGHT_NUMBERS
    return constants.MEASURED if parameters.max_bends else constants.STRAIGHT


class MeasuredTrials:
    """Trials: a gain is a difference of losses measured before learning, a log Bayes factor."""

    splits_prove_replacements = True

    def __init__(
        self, parameters: MeasuredParameters, n_classes: int, given: MeasuredConstants | None = None
    ) -> None:
        p = parameters
        c = constants_of(p) if given is None else given
        if isinstance(p, MeasuredNumberParameters):
            asked = find(p.loss)
            loss, quantiles = p.loss, p.quantiles
            if asked is not None:
                loss = "asked_log" if asked.link == "log" else "asked"
        else:
            loss, quantiles, asked = "labels", (), None
        self.constants = c
        self.sample_rows = c.sample_rows
        self.window = p.evidence_window
        self.trials = p.trials
        self.bins = p.bins
        self.most_bends = min(p.max_bends, c.most_bends)
        self.engine = MeasuredEngine(
            n_classes,
            max_nodes=p.max_nodes,
            seed=p.seed,
            evidence_window=p.evidence_window,
            trials=p.trials,
            first_rows=c.first_rows,
            rest_share=c.rest_share,
            rest_least=c.rest_least,
            recent_speed=c.recent_speed,
            alarm_factor=c.alarm_factor,
            restless_rows=c.restless_share * p.evidence_window,
            split_price=c.split_price,
            model_window=p.model_window,
            rows_per_input=c.rows_per_input,
            passes=c.passes,
            clear_lead=c.clear_lead,
            most_sure=c.most_sure,
            variance=c.variance,
            sureness_window=c.sureness_window,
            sparse_step=c.sparse_step,
            mean_curvature=c.mean_curvature,
            floor_first=c.floor_first,
            floor_first_rows=c.floor_first_rows,
            floor_rows=c.floor_rows,
            floor_least=c.floor_least,
            floor_most=c.floor_most,
            loss=loss,
            step=c.step,
            alarm_nats=c.alarm_nats,
            renewed_doubt=c.renewed_doubt,
            renewed_rest=c.renewed_rest,
            renewed_harm=c.renewed_harm,
            spread_rows=c.spread_rows,
            spread_first_rows=c.spread_first_rows,
            spread_least=c.spread_least,
            input_limit=c.input_limit,
            quantiles=quantiles,
            asked=asked,
            trial_rest_rows=c.trial_rest_rows,
            model_rest_rows=c.model_rest_rows,
            grid_rest_rows=c.grid_rest_rows,
            trials_rest=c.trials_rest,
            nodes_always_rest=c.nodes_always_rest,
            costly_columns=c.costly_columns,
            single_columns=c.single_columns,
            block_rows=c.block_rows,
            wait_bytes=c.wait_bytes,
            border_deviations=c.border_deviations,
            side_variance=c.side_variance * c.variance,
        )
        self.engine.absent_is_zero = p.absent == "zero"
        self.models = ModelTrials(self.engine, c, p)

    def step_rows(self) -> int:
        """Return 200 rows, or fewer with many inputs: nobody can predict during a step."""
        engine, c = self.engine, self.constants
        n_inputs = engine.n_columns + self.most_bends
        line = n_inputs // 2 if engine.is_costly else n_inputs
        cells = n_inputs * (line + engine.n_outputs)
        return max(1, min(c.step_rows, c.step_cells // cells))

    def levels(self, n_leaves: int, node: int = 0) -> Levels:
        """Thresholds: a split must gain tau nats, and goes when it has lost a quarter of that."""
        c = self.constants
        tau = self.models.required(self.engine.n_columns + len(self.models.bends(node)))
        return Levels(
            split=tau,
            prune=-c.prune_share * tau,
            replace=tau,
            rest=c.rest_factor * tau,
            link=c.link_factor * tau,
        )

    def leaf_bytes(self, size: SchemaSize, *, may_split: bool) -> int:
        """Return the bytes of models and grid.

        There are two models per trial, the leaf's own, its second, the challenger and one with
        other bends, and the slots of the grid.
        """
        c = self.constants
        renews = math.isfinite(c.renew_rows) and size.n_columns <= c.costly_columns
        n_numeric = size.n_features - size.n_categorical
        n_bends = min(self.most_bends, c.curve_pieces * n_numeric)
        n_models = 1 + renews + (size.n_classes <= 2) + 2 * self.trials * may_split + (n_bends > 0)
        bent = replace(size, n_columns=size.n_columns + n_bends)
        n_slots = (MAX_LEVELS + 2) * size.n_categorical + n_numeric * (
            self.grid_bins(size.n_columns, 4 * size.n_weights, size.n_categorical, n_numeric) + 1
        )
        n_slots *= c.first_rows > 0
        cell = 4 if size.n_columns > c.single_columns else 8
        model = 24 * bent.n_weights + cell * bent.stride**2
        return n_models * model + n_slots * (4 * size.n_weights + 24)

    def grid_bins(self, n_columns: int, slot_bytes: int, n_categorical: int, n_numeric: int) -> int:
        """Return the number of bins per numeric feature within the memory limit."""
        c = self.constants
        grid_bytes = c.costly_grid_bytes if n_columns > c.costly_columns else c.grid_bytes
        room = grid_bytes // slot_bytes - (MAX_LEVELS + 2) * n_categorical
        return min(self.bins, max(c.least_bins, room // max(1, n_numeric) - 1))

    def candidates(self, node: int) -> list[Candidate]:
        """Return the trials: all losses are over the same rows."""
        side_rows = self.constants.side_rows
        return [
            Candidate(
                t.place,
                *t.condition,
                gain=t.node_loss - t.trial_loss,
                replacement_gain=t.subtree_loss - t.trial_loss,
                node_loss=t.node_loss,
                subtree_loss=t.subtree_loss,
                rows=t.evidence,
                subtree_rows=t.evidence,
                is_ready=min(t.n_left, t.n_right) >= side_rows,
            )
            for t in self.engine.trials(node)
        ]

    def set_borders(self) -> None:
        """Set what another threshold of a split must gain, and between which others it may be.

        These are the thresholds of the same feature above the node and below it.
        """
        engine, c = self.engine, self.constants
        if not c.border_deviations:
            return
        level = self.models.margin + c.nats_per_parameter  # for one number
        left, right = engine.left, engine.right

        def visit(node: int, above: Ranges) -> Ranges:
            if left[node] < 0:
                return {}
            feature, threshold, equality, _ = engine.node(node).condition
            if equality or math.isinf(threshold):  # a level, or whether a value is missing
                return joined(visit(left[node], above), visit(right[node], above))
            low, high = above.get(feature, (-math.inf, math.inf))
            lower = visit(left[node], above | {feature: (low, threshold)})
            upper = visit(right[node], above | {feature: (threshold, high)})
            low = max(low, lower.get(feature, NOTHING)[1])
            high = min(high, upper.get(feature, NOTHING)[0])
            engine.set_border(node, level=level, low=low, high=high)
            return joined({feature: (threshold, threshold)}, joined(lower, upper))

        visit(0, {})

    def border(self, node: int) -> BorderState:
        """Return the best other threshold of a node."""
        return self.engine.border(node)

    def shift(self, node: int) -> None:
        """Move the threshold there."""
        self.engine.shift(node)

    def set_link_level(self, level: float) -> None:
        """Set the required gain of another link."""
        self.engine.challenger_level = level

    def link(self) -> Link | None:
        """Return the state of the challenger; with a third label there is none."""
        engine = self.engine
        if engine.challenger < 0:
            return None
        return Link(
            gain=engine.challenger_gain,
            tree_loss=engine.rival_loss,
            other_loss=engine.challenger_loss,
            rows=engine.challenger_rows,
            other_floor=engine.floor(engine.challenger),
            has_floor=any(engine.floor(int(engine.model[0]))),
        )

    def change_link(self) -> None:
        """Restart the tree from the challenger."""
        self.engine.adopt_challenger()

    # ------------------------------------------------------------------ looking for splits
    def refresh(self, node: int, *, may_split: bool) -> None:
        """Drop trials without a gain, and start the most promising new ones."""
        engine, c = self.engine, self.constants
        if c.first_rows == 0:
            return
        own = engine.node(node)
        if not engine.grid_is_ready(node):
            first_rows = engine.first_rows(node)
            if len(first_rows) >= c.first_rows:
                self._choose_grid(node, first_rows)
                engine.refresh_at(node, own.rows + c.refresh_rows)
                self.models.refresh(node)
            return
        self.models.restart(node)
        if own.rows < own.refresh_at or own.trials_rest:
            return
        self.models.refresh(node)
        self.models.renew(node)
        is_young = own.rows <= c.young_rows or not engine.is_calm
        engine.refresh_at(node, own.rows + (c.refresh_rows if is_young else c.old_refresh_rows))
        running = []
        n_earning = 0
        for t in engine.trials(node):
            rival_loss = t.node_loss if own.is_leaf else t.subtree_loss
            earns = rival_loss > t.trial_loss
            if own.rows - t.born > c.trial_rows and not earns:
                engine.drop_trial(t.place, own.rows + c.barred_rows)
            else:
                running.append(t)
                n_earning += earns
        wanted = c.inner_trials if not own.is_leaf else self.trials if may_split else 0
        if not is_young:  # one at a time, and another when that one has a gain
            wanted = min(wanted, n_earning + 1)
        if engine.is_costly:
            wanted = min(wanted, n_earning + c.costly_trials)
        if len(running) < wanted:
            taken = {t.place for t in running}
            tried = {t.condition[0] for t in running}
            self._start_trials(node, taken, tried, wanted)

    def _start_trials(self, node: int, taken: set[int], tried: set[int], wanted: int) -> None:
        engine = self.engine
        first = node * self.trials
        free = [t for t in range(first, first + self.trials) if t not in taken]
        ranked = sorted(engine.proposals(node), key=lambda proposal: (-proposal[0], proposal[1]))
        present = engine.node(node).condition[:2]  # the present split is not tried
        above = self._thresholds_above(node)
        fresh = (
            p
            for p in ranked
            if p[1] not in tried
            and (p[1], p[2]) != present
            and not any(is_near(p[2], *one) for one in above.get(p[1], ()))
        )
        for t, proposal in zip(free[: wanted - len(taken)], fresh, strict=False):
            engine.start_trial(t, *proposal[1:])

    def _thresholds_above(self, node: int) -> dict[int, list[tuple[float, float, bool]]]:
        """Return the thresholds above a node by feature: the arguments of `is_near`.

        Two nearly equal thresholds are of no use to readers, and have hardly any rows between them.
        """
        engine = self.engine
        found: dict[int, list[tuple[float, float, bool]]] = {}
        below, node = node, engine.node(node).parent
        if node < 0 or not engine.grid_is_ready(0):
            return found
        while node >= 0:
            own = engine.node(node)
            feature, threshold, equality, _ = own.condition
            if not equality:
                distance = self.constants.least_distance * engine.span(0, feature)
                is_right = int(engine.right[node]) == below
                found.setdefault(feature, []).append((threshold, distance, is_right))
            below, node = node, own.parent
        return found

    def _choose_grid(self, node: int, first_rows: NDArray[np.float64]) -> None:
        """Choose bin edges at up to `bins` quantiles of the node's first rows."""
        engine = self.engine
        categorical = engine.is_categorical.astype(bool)
        n_categorical = int(categorical.sum())
        slot_bytes = 4 * engine.n_outputs * engine.stride
        n_numeric = len(categorical) - n_categorical
        bins = self.grid_bins(engine.n_columns, slot_bytes, n_categorical, n_numeric)
        absent = engine.absent
        slots: list[int] = []
        edges = [np.empty(0)]
        columns = zip(categorical.tolist(), quantile_edges(first_rows, bins), strict=True)
        for j, (is_category, quantiles) in enumerate(columns):
            own = np.empty(0) if is_category else quantiles
            if absent[j] == 0 and 0 not in own:  # whether a row has it
                own = np.sort(np.append(own, 0.0))
            slots.append(MAX_LEVELS + 2 if is_category else len(own) + 2)
            edges += [own, np.full(slots[-1] - len(own), math.nan)]
        engine.choose_grid(node, np.array(slots, dtype=np.int32), np.concatenate(edges))


def quantile_edges(rows: NDArray[np.float64], bins: int) -> list[NDArray[np.float64]]:
    """Return distinct values of each column at the quantiles i / bins, without the largest.

    Examples
    --------
    >>> quantile_edges(np.array([[1.0], [3.0], [2.0], [4.0], [np.nan]]), bins=2)
    [array([2.])]
    """
    ordered = np.sort(rows, axis=0)  # missing values last
    n_present = len(ordered) - np.isnan(ordered).sum(axis=0)
    places = -(-np.arange(1, bins)[:, None] * n_present // bins) - 1
    edges = np.take_along_axis(ordered, places, axis=0)
    is_edge = edges < ordered[n_present - 1, np.arange(len(n_present))]  # unless all are missing
    is_edge[1:] &= edges[1:] > edges[:-1]
    return [own[is_own] for own, is_own in zip(edges.T, is_edge.T, strict=True)]


def is_near(threshold: float, other: float, distance: float, is_right: bool) -> bool:  # noqa: FBT001
    """Tell whether a threshold is too near to one above it, or beyond: it may have moved there.

    Whether a value is missing, an infinite threshold, is always another question.

    Examples
    --------
    >>> [is_near(threshold, 5.0, 1.0, is_right=True) for threshold in (4.0, 5.5, 7.0)]
    [True, True, False]
    """
    if math.isinf(threshold) or math.isinf(other):
        return False
    return (threshold - other if is_right else other - threshold) < distance


Ranges = dict[int, tuple[float, float]]
"""The least and the largest threshold of each feature in a part of a tree."""
NOTHING = (math.inf, -math.inf)
"""The range of no threshold."""


def joined(some: Ranges, others: Ranges) -> Ranges:
    """Return the ranges of both parts together.

    Examples
    --------
    >>> joined({0: (1.0, 2.0)}, {0: (3.0, 3.0), 1: (4.0, 4.0)})
    {0: (1.0, 3.0), 1: (4.0, 4.0)}
    """
    both = some | others
    for feature in some.keys() & others.keys():
        (low, high), (other_low, other_high) = some[feature], others[feature]
        both[feature] = min(low, other_low), max(high, other_high)
    return both


def free_parameters(engine: MeasuredEngine | PaperEngine) -> int:
    """Return k, the free parameters of one simple model."""
    return engine.n_columns * max(1, engine.n_classes - 1)
