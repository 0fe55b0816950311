"""Evidence: where a candidate's loss comes from. This is one of the two seams between the settings.

`MeasuredTrials` (ours) trains two child models for the most promising candidates on the rows that
follow, and compares the losses paid. `GradientApproximation` (the paper) estimates the candidates'
losses by one gradient step, (6) and (7). The tree asks both the same questions and does not know
which one answers.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from driftree.learn import constants
from driftree.learn._kernels import MAX_LEVELS, MeasuredEngine, PaperEngine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from driftree.learn.memory import Size
    from driftree.learn.parameters import MeasuredParameters, PaperParameters


BendInput = tuple[int, float, float]
"""One piece of a curve: its feature, and the two values between which it rises."""


class Candidate(NamedTuple):
    """A possible split of a node, with its losses."""

    place: int
    """Where the kernels keep it."""
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
    """Whether enough rows came to both sides for it to be chosen."""


class BendCandidate(NamedTuple):
    """Another model for a node, with more bends or fewer, on trial."""

    added: list[BendInput]
    removed: list[BendInput]
    gain: float
    """The node's loss minus that of the model on trial."""
    threshold: float
    """What the gain must reach."""
    node_loss: float
    rows: float


class Levels(NamedTuple):
    """What the gains (3), (5) and (4) must reach at a node, and what lets it rest."""

    split: float
    prune: float
    replace: float
    rest: float
    """A node whose branch earns as much is far from any change: it looks at one row in four."""
    link: float
    """What another link must prove at the root."""


class Link(NamedTuple):
    """The contest between the link of the tree and the other: a noise floor, or none."""

    gain: float
    tree_loss: float
    other_loss: float
    rows: float
    other_floor: tuple[float, float]
    has_floor: bool
    """Whether the tree has a floor now."""


class Evidence(Protocol):
    """The questions that the tree asks."""

    sample_rows: int
    """Rows between samples of the nodes at first: the faster rows are learnt, the more."""
    window: float
    """Rows of the stream after which sums have faded to 1/e."""
    splits_prove_replacements: bool
    """Whether a replacement must also pass as a split."""

    @property
    def engine(self) -> MeasuredEngine | PaperEngine:
        """The kernels that hold the tree."""

    def step_rows(self) -> int:
        """Return how many rows of a batch make one time step, at most."""

    def levels(self, n_leaves: int, node: int = 0) -> Levels:
        """Thresholds of a node with `n_leaves` leaves below it."""

    def bend_candidate(self, node: int) -> BendCandidate | None:
        """Return the model with other bends that is on trial at a node, if there is one."""

    def bend(self, node: int) -> None:
        """Let the model on trial take the place of the node's own."""

    def set_bend_level(self, node: int) -> None:
        """Say what the model on trial must gain."""

    def candidates(self, node: int) -> list[Candidate]:
        """Return the possible splits of a node, whether they are ready or not."""

    def refresh(self, node: int, *, may_split: bool) -> None:
        """Look for new candidates, where that is due."""

    def set_link_level(self, level: float) -> None:
        """Say what another link must prove."""

    def link(self) -> Link | None:
        """Return how the other link does, if there is one."""

    def change_link(self) -> None:
        """Let the tree start again with the other link."""

    def leaf_bytes(self, size: Size, *, may_split: bool) -> int:
        """Return the bytes of a tree of one leaf."""


class GradientApproximation:
    """The paper's candidate store: gains by (7), thresholds from the AIC (11)."""

    window = math.inf
    splits_prove_replacements = False

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
        )

    def step_rows(self) -> int:
        """Return all rows of a batch: that is a time step in the paper."""
        return self.constants.step_rows

    def leaf_bytes(self, size: Size, *, may_split: bool) -> int:
        """Two gradients per stored candidate, those of waiting rows, the model and its sums."""
        n_gradients = 2 * self.stored * size.n_features + self.constants.waiting_rows + 3
        return 8 * size.n_weights * n_gradients

    def levels(self, n_leaves: int, node: int = 0) -> Levels:
        """Thresholds (11): what the AIC asks for the change in free parameters."""
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

    def bend_candidate(self, node: int) -> None:
        """Return None: the paper's models are lines."""

    def bend(self, node: int) -> None:
        """Do nothing: the paper's models are lines."""

    def set_bend_level(self, node: int) -> None:
        """Do nothing: the paper's models are lines."""

    def set_link_level(self, level: float) -> None:
        """Do nothing: the paper has one link."""

    def link(self) -> None:
        """Return None: the paper has one link."""

    def change_link(self) -> None:
        """Do nothing: the paper has one link."""


class MeasuredTrials:
    """Trials: a gain is a difference of losses really paid in advance, a log Bayes factor."""

    splits_prove_replacements = True

    def __init__(self, parameters: MeasuredParameters, n_classes: int) -> None:
        p = parameters
        c = constants.MEASURED if p.max_bends else constants.STRAIGHT
        self.constants = c
        self.sample_rows = c.sample_rows
        self.margin = -math.log(p.epsilon)
        self.window = p.evidence_window
        self.trials = p.trials
        self.bins = p.bins
        self.max_bends = p.max_bends
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
            model_window=p.model_window,
            rows_per_input=c.rows_per_input,
            passes=c.passes,
            clear_lead=c.clear_lead,
            most_sure=c.most_sure,
            variance=c.variance,
            sureness_window=c.sureness_window,
            mean_curvature=c.mean_curvature,
            floor_first=c.floor_first,
            floor_first_rows=c.floor_first_rows,
            floor_rows=c.floor_rows,
            floor_least=c.floor_least,
            floor_most=c.floor_most,
        )

    def step_rows(self) -> int:
        """Return 200 rows, or fewer of many inputs: nobody can predict during a step."""
        engine = self.engine
        n_inputs = engine.n_columns + self.max_bends
        cells = n_inputs * (n_inputs + engine.n_outputs)
        return max(1, min(self.constants.step_rows, self.constants.step_cells // cells))

    def levels(self, n_leaves: int, node: int = 0) -> Levels:
        """Thresholds: a split must prove tau nats, and goes when it has lost a quarter of that."""
        c = self.constants
        tau = self._required(self.engine.n_columns + len(self._bends(node)))
        return Levels(
            split=tau,
            prune=-c.prune_share * tau,
            replace=tau,
            rest=c.rest_factor * tau,
            link=c.link_factor * tau,
        )

    def _required(self, n_inputs: int) -> float:
        """Return the nats that a change must prove which gives a model so many more inputs."""
        n_parameters = n_inputs * max(1, self.engine.n_classes - 1)
        return self.margin + self.constants.nats_per_parameter * n_parameters

    def leaf_bytes(self, size: Size, *, may_split: bool) -> int:
        """Return those of models and grid.

        Two models per trial, the leaf's own, the challenger's and one with other bends; and the
        slots of the grid.
        """
        n_numeric = size.n_features - size.n_categorical
        n_bends = min(self.max_bends, self.constants.curve_pieces * n_numeric)
        n_models = 1 + (size.n_classes <= 2) + 2 * self.trials * may_split + (n_bends > 0)
        bent = replace(size, n_columns=size.n_columns + n_bends)
        n_slots = (MAX_LEVELS + 2) * size.n_categorical + n_numeric * (
            self._bins(4 * size.n_weights, size.n_categorical, n_numeric) + 1
        )
        return 8 * n_models * (3 * bent.n_weights + bent.stride**2) + n_slots * (
            4 * size.n_weights + 24
        )

    def _bins(self, slot_bytes: int, n_categorical: int, n_numeric: int) -> int:
        """Return how many bins of each numeric feature memory allows."""
        c = self.constants
        room = c.grid_bytes // slot_bytes - (MAX_LEVELS + 2) * n_categorical
        return int(np.clip(room // max(1, n_numeric) - 1, c.least_bins, self.bins))

    def candidates(self, node: int) -> list[Candidate]:
        """Return the trials: all losses are of the same rows."""
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

    def set_link_level(self, level: float) -> None:
        """Say what another link must prove."""
        self.engine.challenger_level = level

    def link(self) -> Link | None:
        """Return how the challenger does; with a third label there is none."""
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
        """Let the tree start again from the challenger."""
        self.engine.adopt_challenger()

    # ------------------------------------------------------------------ looking for splits
    def refresh(self, node: int, *, may_split: bool) -> None:
        """Drop trials that earn nothing, and start the most promising new ones."""
        engine, c = self.engine, self.constants
        own = engine.node(node)
        if not engine.grid_is_ready(node):
            first_rows = engine.first_rows(node)
            if len(first_rows) >= c.first_rows:
                self._choose_grid(node, first_rows)
                engine.refresh_at(node, own.rows + c.refresh_rows)
                self._refresh_bends(node, own.rows)
            return
        if own.rows < own.refresh_at:
            return
        self._refresh_bends(node, own.rows)
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
        wanted = 1 if not own.is_leaf else self.trials if may_split else 0
        if not is_young:  # one at a time, and another when that one earns
            wanted = min(wanted, n_earning + 1)
        if len(running) < wanted:
            taken = {t.place for t in running}
            tried = {t.condition[0] for t in running}
            self._start_trials(node, taken, tried, wanted)

    def _start_trials(self, node: int, taken: set[int], tried: set[int], wanted: int) -> None:
        engine = self.engine
        first = node * self.trials
        free = [t for t in range(first, first + self.trials) if t not in taken]
        ranked = sorted(engine.proposals(node), key=lambda proposal: (-proposal[0], proposal[1]))
        present = engine.node(node).condition[:2]  # no use in trying what is there
        fresh = [p for p in ranked if p[1] not in tried and (p[1], p[2]) != present]
        for t, proposal in zip(free[: wanted - len(taken)], fresh, strict=False):
            engine.start_trial(t, *proposal[1:])

    # ------------------------------------------------------------------ looking for bends
    def _bends(self, node: int) -> list[BendInput]:
        engine = self.engine
        return engine.bends(int(engine.model[node])) if self.max_bends else []

    def bend_candidate(self, node: int) -> BendCandidate | None:
        """Return the model on trial.

        More bends must prove as much as a split for the inputs that they add. Fewer bends must be
        better by a quarter of that; or, when the node is looked at after many rows, not worse by
        more than that.
        """
        trial = self.engine.bend_trial(node)
        if trial.model < 0:
            return None
        c = self.constants
        before, after = self._bends(node), self.engine.bends(trial.model)
        added = [bend for bend in after if bend not in before]
        removed = [bend for bend in before if bend not in after]
        required = self._bend_level(before, after)
        # Not in between: what a model does may not depend on when it was last loaded.
        own = self.engine.node(node)
        is_old = own.rows - trial.born >= c.unbend_rows
        if not added and is_old and own.rows >= own.refresh_at:
            required = -required
        gain = trial.node_loss - trial.trial_loss
        return BendCandidate(added, removed, gain, required, trial.node_loss, trial.evidence)

    def _bend_level(self, before: list[BendInput], after: list[BendInput]) -> float:
        """Return what another model must gain to take over at any time."""
        n_added = sum(bend not in before for bend in after)
        if n_added:
            return self._required(n_added)
        return self.constants.prune_share * self._required(len(before) - len(after))

    def set_bend_level(self, node: int) -> None:
        """Say what the model on trial must gain."""
        engine = self.engine
        model = engine.bend_trial(node).model
        if model >= 0:
            engine.bend_level(node, self._bend_level(self._bends(node), engine.bends(model)))

    def bend(self, node: int) -> None:
        """Change the model; the grid sees some rows with it before the next trial."""
        self.engine.bend(node)
        rows = self.engine.node(node).rows
        self.engine.next_bend(node, rows + self.constants.trial_rows, 0)

    def _refresh_bends(self, node: int, rows: float) -> None:
        """Let the trial of bends go on, end it if it failed, or start the next one."""
        if self.max_bends == 0:
            return
        engine, c = self.engine, self.constants
        trial, candidate = engine.bend_trial(node), self.bend_candidate(node)
        if candidate is not None:
            is_late, earns = rows - trial.born > c.trial_rows, candidate.gain > 0
            is_hopeless = candidate.gain < -candidate.threshold or (is_late and not earns)
            bends_earn = rows - trial.born >= c.unbend_rows  # which a model with fewer has shown
            has_failed = is_hopeless if candidate.added else bends_earn
            if has_failed:
                self._bar_bends(node, rows, trial.n_failed)
            return
        if rows < trial.next_at:
            return
        adds_first, n_halvings = trial.n_failed % 2 == 0, trial.n_failed // 2
        wanted = self._more_bends(node, n_halvings) if adds_first else self._fewer_bends(node)
        if wanted is None:
            wanted = self._fewer_bends(node) if adds_first else self._more_bends(node, n_halvings)
        if wanted is not None:
            features = np.array([bend[0] for bend in wanted], dtype=np.int32)
            ends = np.array([bend[1:] for bend in wanted], dtype=np.float64).reshape(-1, 2)
            low, high = ends[:, 0].copy(), ends[:, 1].copy()
            level = self._bend_level(self._bends(node), wanted)
            engine.start_bend_trial(node, features, low, high, level)

    def _bar_bends(self, node: int, rows: float, n_failed: int) -> None:
        c = self.constants
        self.engine.drop_bend_trial(node)
        wait = c.barred_rows * 2 ** min(n_failed, c.most_bars)
        self.engine.next_bend(node, rows + wait, n_failed + 1)

    def _more_bends(self, node: int, n_halvings: int) -> list[BendInput] | None:
        """Return the present bends with those of the most promising features, if there are any.

        The first time all features that find room; after a failure the better half, and so on.
        """
        engine, present = self.engine, self._bends(node)
        room = self.max_bends - len(present)
        taken = {feature for feature, _, _ in present} | set(
            np.flatnonzero(engine.scale_is_indicator)
        )
        edges = {
            j: own
            for j, own in enumerate(engine.edges(node))
            if j not in taken and curve_pieces(j, own, 2)
        }
        scores = dict.fromkeys(edges, 0.0)
        for score, feature, _ in engine.bend_proposals(node):
            if feature in scores:
                scores[feature] = max(score, scores[feature])
        ranked = sorted(edges, key=lambda j: (-scores[j], j))[: max(1, len(edges) >> n_halvings)]
        for n_pieces in range(self.constants.curve_pieces, 1, -1):  # the finest that has room
            pieces = [curve_pieces(j, edges[j], n_pieces) for j in ranked]
            if sum(map(len, pieces)) <= room:
                break
        else:
            if not any(scores.values()):
                return None  # who comes first is not known yet
        added: list[BendInput] = []
        for own in pieces:
            added += own if len(added) + len(own) <= room else []
        return present + added if added else None

    def _fewer_bends(self, node: int) -> list[BendInput] | None:
        """Return the present bends without those of features that seem to earn nothing, if any.

        By the curvature of the loss a feature's bends should be worth a nat per parameter.
        """
        present = self._bends(node)
        model = int(self.engine.model[node])
        n_outputs = max(1, self.engine.n_classes - 1)
        worth: dict[int, float] = {}
        for (feature, _, _), own in zip(present, self.engine.bend_worth(model), strict=True):
            worth[feature] = worth.get(feature, 0.0) + own - n_outputs
        kept = [bend for bend in present if worth[bend[0]] > 0]
        return kept if len(kept) < len(present) else None

    def _choose_grid(self, node: int, first_rows: NDArray[np.float64]) -> None:
        """Choose edges at up to `bins` quantiles of the node's first rows, as memory allows."""
        engine = self.engine
        categorical = engine.is_categorical.astype(bool)
        n_categorical = int(categorical.sum())
        slot_bytes = 4 * engine.n_outputs * engine.stride
        bins = self._bins(slot_bytes, n_categorical, len(categorical) - n_categorical)
        slots: list[int] = []
        edges: list[float] = []
        for j, is_category in enumerate(categorical):
            own = np.empty(0) if is_category else quantile_edges(first_rows[:, j], bins)
            slots.append(MAX_LEVELS + 2 if is_category else len(own) + 2)
            edges.extend(own)
            edges.extend([math.nan] * (slots[-1] - len(own)))
        engine.choose_grid(node, np.array(slots, dtype=np.int32), np.array(edges))


def quantile_edges(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Return distinct values at the quantiles i / bins, the largest value left out.

    Examples
    --------
    >>> quantile_edges(np.array([4.0, 1.0, np.nan, 2.0, 3.0]), bins=2)
    array([2.])
    """
    present = np.sort(values[~np.isnan(values)])
    if present.size == 0:
        return present
    places = -(-np.arange(1, bins) * present.size // bins) - 1
    edges = np.unique(present[places])
    return np.asarray(edges[edges < present[-1]])


def curve_pieces(feature: int, edges: NDArray[np.float64], n_pieces: int) -> list[BendInput]:
    """Return the pieces of a feature's curve, with knots at quantiles.

    There are none where values are too few, or too far from each other for a difference.

    Examples
    --------
    >>> curve_pieces(0, np.array([1.0, 2.0, 3.0, 5.0, 8.0]), 2)
    [(0, 1.0, 3.0), (0, 3.0, 8.0)]
    """
    if len(edges) < 3 or not math.isfinite(float(edges[-1]) - float(edges[0])):
        return []
    places = np.linspace(0, len(edges) - 1, min(n_pieces + 1, len(edges)))
    knots = edges[np.round(places).astype(int)].tolist()
    return [(feature, low, high) for low, high in pairwise(knots)]


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


def free_parameters(engine: MeasuredEngine | PaperEngine) -> int:
    """Return k, the free parameters of one simple model."""
    return engine.n_columns * max(1, engine.n_classes - 1)
