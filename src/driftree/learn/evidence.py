"""Evidence: where a candidate's loss comes from. This is one of the two seams between the settings.

`MeasuredTrials` (ours) trains two child models for the most promising candidates on the rows that
follow, and compares the losses paid. `GradientApproximation` (the paper) estimates the candidates'
losses by one gradient step, (6) and (7). The tree asks both the same four questions and does not
know which one answers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from driftree.learn._kernels import MAX_LEVELS, Engine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from driftree.learn.memory import Size

MAX_ENTRANTS = 3  # of a node in its history
WAITING_ROWS = 32  # of a node in the kernels, whose gradients are not yet in the candidates' sums


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible split of a node, with its losses.

    `gain` is (3), the node's loss minus that of the two children; `replacement_gain` is (4), the
    loss of the present subtree minus that of the two children.
    """

    place: int
    feature: int
    threshold: float
    equality: bool
    missing_left: bool
    gain: float
    replacement_gain: float
    node_loss: float
    subtree_loss: float
    rows: float
    """Rows behind `gain`."""
    subtree_rows: float
    """Rows behind `replacement_gain`."""


@dataclass(frozen=True, slots=True)
class Levels:
    """What the gains (3), (5) and (4) must reach at a node, and what lets it rest."""

    split: float
    prune: float
    replace: float
    rest: float
    """A node whose branch earns as much is far from any change: it looks at one row in four."""


class Entrant(NamedTuple):
    """A candidate in the race to change a node, and its gain so far."""

    feature: int
    threshold: float
    equality: bool
    missing_left: bool
    gain: float


class Evidence(Protocol):
    """The questions that the tree asks."""

    SAMPLE_ROWS: int
    """Rows between samples of the nodes at first: the faster rows are learnt, the more."""
    window: float
    """Rows of the stream after which sums have faded to 1/e."""

    SAVERS: str
    """What makes a leaf smaller, in words."""

    def leaf_bytes(self, size: Size, *, may_split: bool) -> int:
        """Return the bytes of a tree of one leaf."""

    def step_rows(self) -> int:
        """Return how many rows of a batch make one time step, at most."""

    def levels(self, n_leaves: int) -> Levels:
        """Thresholds of a node with `n_leaves` leaves below it."""

    def candidates(self, node: int) -> list[Candidate]:
        """Return the candidates that may be chosen at a node."""

    def race(self, node: int) -> list[Entrant]:
        """Return the best candidates of a node with their gains, best first, for its history."""

    def split(self, node: int, candidate: Candidate) -> None:
        """Give the leaf `node` two children by the candidate."""

    def refresh(self, node: int, *, may_split: bool) -> None:
        """Look for new candidates, where that is due."""


class GradientApproximation:
    """The paper's candidate store: gains by (7), thresholds from the AIC (11)."""

    STEP_ROWS = 2**24  # the whole batch, as far as a row's number has 24 bits in the kernels
    SAMPLE_ROWS = 10_000
    LEAST_WEIGHT = 1e-100  # of a side: with less, (6) may have no room in a float
    SAVERS = ", or lower `candidates`"

    def __init__(self, engine: Engine, epsilon: float, candidates: int) -> None:
        self.engine = engine
        self.margin = -math.log(epsilon)
        self.stored = candidates
        self.window = math.inf

    def step_rows(self) -> int:
        """Return all rows of a batch: that is a time step in the paper."""
        return self.STEP_ROWS

    def leaf_bytes(self, size: Size, *, may_split: bool) -> int:
        """Two gradients per stored candidate, those of waiting rows, the model and its sums."""
        return 8 * size.n_weights * (2 * self.stored * size.n_features + WAITING_ROWS + 3)

    def levels(self, n_leaves: int) -> Levels:
        """Thresholds (11): what the AIC asks for the change in free parameters."""
        k = free_parameters(self.engine)
        return Levels(
            split=k + self.margin,
            prune=k * (1 - n_leaves) + self.margin,
            replace=k * (2 - n_leaves) + self.margin,
            rest=math.inf,
        )

    def candidates(self, node: int) -> list[Candidate]:
        """Return the stored candidates with rows on both sides.

        A candidate's window is not the node's, so (4) is (5) plus the candidate's own gain.
        """
        engine = self.engine
        own_loss, subtree_loss = float(engine.own_loss[node]), float(engine.subtree_loss[node])
        found = []
        for place, (gain, feature, value, n_left, n_right, loss) in enumerate(
            engine.stored_candidates(node)
        ):
            if min(n_left, n_right) > self.LEAST_WEIGHT:
                equality = bool(engine.is_categorical[feature])
                replacement_gain = subtree_loss - own_loss + gain
                found.append(
                    Candidate(
                        place=place,
                        feature=feature,
                        threshold=value,
                        equality=equality,
                        missing_left=False,
                        gain=gain,
                        replacement_gain=replacement_gain,
                        node_loss=loss,
                        subtree_loss=subtree_loss,
                        rows=n_left + n_right,
                        subtree_rows=float(engine.evidence[node]),
                    )
                )
        return found

    def race(self, node: int) -> list[Entrant]:
        """Return the best of the store; at an inner node with the gain (4)."""
        engine = self.engine
        prune_gain = float(engine.subtree_loss[node] - engine.own_loss[node])
        is_leaf = engine.left[node] < 0
        more = 0.0 if is_leaf else prune_gain
        present = None if is_leaf else (int(engine.feature[node]), float(engine.threshold[node]))
        categorical = engine.is_categorical
        return [
            Entrant(
                feature, value, bool(categorical[feature]), missing_left=False, gain=more + gain
            )
            for gain, feature, value in engine.leading_candidates(node, MAX_ENTRANTS + 1)
            if (feature, value) != present
        ][:MAX_ENTRANTS]

    def split(self, node: int, candidate: Candidate) -> None:
        """Children start from (6) with their share of the loss by (7)."""
        self.engine.split_by_candidate(node, candidate.place)

    def refresh(self, node: int, *, may_split: bool) -> None:
        """Do nothing: the store takes new candidates with every batch."""


class MeasuredTrials:
    """Trials: a gain is a difference of losses really paid in advance, a log Bayes factor."""

    STEP_ROWS = 200
    STEP_CELLS = 8_000_000  # of the models' matrices: 200 rows of up to 200 inputs
    SAMPLE_ROWS = 500
    FIRST_ROWS = 300
    REFRESH_ROWS = 200
    OLD_REFRESH_ROWS = 1000
    TRIAL_ROWS = 1000
    BARRED_ROWS = 2000
    SIDE_ROWS = 20
    YOUNG_ROWS = 10_000
    REST_FACTOR = 16
    ALARM_FACTOR = 1.2
    RESTLESS_SHARE = 0.5
    GRID_BYTES = 4_000_000
    LEAST_BINS = 4
    SAVERS = ", or lower `trials`"

    def __init__(
        self, engine: Engine, *, epsilon: float, window: float, trials: int, bins: int
    ) -> None:
        self.engine = engine
        self.margin = -math.log(epsilon)
        self.window = window
        engine.restless_rows = engine.restless_until = self.RESTLESS_SHARE * window
        engine.alarm_level = self.ALARM_FACTOR
        self.trials = trials
        self.bins = bins
        # Views of the engine's arrays, which never move; making one costs more than reading it.
        self._left, self._rows, self._refresh_at = engine.left, engine.rows, engine.refresh_at
        self._feature, self._born = engine.trial_feature, engine.trial_born
        self._node_loss, self._subtree_loss = engine.trial_node_loss, engine.trial_subtree_loss
        self._trial_loss = engine.trial_trial_loss
        self._n_left, self._n_right = engine.trial_n_left, engine.trial_n_right
        self._threshold, self._equality = engine.trial_threshold, engine.trial_equality
        self._missing_left = engine.trial_missing_left

    def step_rows(self) -> int:
        """Return 200 rows, or fewer of many inputs: nobody can predict during a step."""
        engine = self.engine
        cells = engine.n_columns * (engine.n_columns + engine.n_outputs)
        return max(1, min(self.STEP_ROWS, self.STEP_CELLS // cells))

    def levels(self, n_leaves: int) -> Levels:
        """Thresholds: a split must prove tau nats, and goes when it earns a quarter or less."""
        tau = self.margin + 0.1 * free_parameters(self.engine)
        return Levels(split=tau, prune=-tau / 4, replace=tau, rest=self.REST_FACTOR * tau)

    def leaf_bytes(self, size: Size, *, may_split: bool) -> int:
        """Two models per trial, the leaf's own and the challenger's; and the slots of the grid."""
        n_models = 1 + (size.n_classes <= 2) + 2 * self.trials * may_split
        n_numeric = size.n_features - size.n_categorical
        n_slots = (MAX_LEVELS + 2) * size.n_categorical + n_numeric * (
            self._bins(4 * size.n_weights, size.n_categorical, n_numeric) + 1
        )
        return 8 * n_models * (3 * size.n_weights + size.stride**2) + n_slots * (
            4 * size.n_weights + 24
        )

    def _bins(self, slot_bytes: int, n_categorical: int, n_numeric: int) -> int:
        """Return how many bins of each numeric feature memory allows."""
        room = self.GRID_BYTES // slot_bytes - (MAX_LEVELS + 2) * n_categorical
        return int(np.clip(room // max(1, n_numeric) - 1, self.LEAST_BINS, self.bins))

    def _places(self, node: int) -> list[int]:
        first = node * self.trials
        return [t for t in range(first, first + self.trials) if self._feature[t] >= 0]

    def candidates(self, node: int) -> list[Candidate]:
        """Return the trials that saw enough rows on both sides.

        At an inner node only those that would also pass as a split.
        """
        engine = self.engine
        least = engine.split_level[node] if self._left[node] >= 0 else -math.inf
        found = []
        for t in self._places(node):
            n_left, n_right = float(self._n_left[t]), float(self._n_right[t])
            node_loss, subtree_loss = float(self._node_loss[t]), float(self._subtree_loss[t])
            trial_loss = float(self._trial_loss[t])
            if min(n_left, n_right) < self.SIDE_ROWS or node_loss - trial_loss < least:
                continue
            found.append(
                Candidate(
                    place=t,
                    feature=int(self._feature[t]),
                    threshold=float(self._threshold[t]),
                    equality=bool(self._equality[t]),
                    missing_left=bool(self._missing_left[t]),
                    gain=node_loss - trial_loss,
                    replacement_gain=subtree_loss - trial_loss,
                    node_loss=node_loss,
                    subtree_loss=subtree_loss,
                    rows=float(engine.trial_evidence[t]),
                    subtree_rows=float(engine.trial_evidence[t]),
                )
            )
        return found

    def race(self, node: int) -> list[Entrant]:
        """Return the best trials with enough rows; an inner node's must pass as a split, too."""
        node_loss, subtree_loss = self._node_loss, self._subtree_loss
        is_leaf = self._left[node] < 0
        entrants = [
            Entrant(
                int(self._feature[t]),
                float(self._threshold[t]),
                bool(self._equality[t]),
                bool(self._missing_left[t]),
                float(
                    (node_loss[t] if is_leaf else min(node_loss[t], subtree_loss[t]))
                    - self._trial_loss[t]
                ),
            )
            for t in self._places(node)
            if min(self._n_left[t], self._n_right[t]) >= self.SIDE_ROWS
        ]
        return sorted(entrants, key=lambda entrant: -entrant.gain)[:MAX_ENTRANTS]

    def split(self, node: int, candidate: Candidate) -> None:
        """Children start as the trial's two models."""
        self.engine.split_by_trial(node, candidate.place)

    def refresh(self, node: int, *, may_split: bool) -> None:
        """Drop trials that earn nothing, and start the most promising new ones."""
        engine = self.engine
        rows = float(self._rows[node])
        if not engine.grid_is_ready(node):
            first_rows = engine.first_rows(node)
            if len(first_rows) >= self.FIRST_ROWS:
                self._choose_grid(node, first_rows)
                self._refresh_at[node] = rows + self.REFRESH_ROWS
            return
        if rows < self._refresh_at[node]:
            return
        is_young = rows <= self.YOUNG_ROWS or not engine.is_calm
        self._refresh_at[node] = rows + (self.REFRESH_ROWS if is_young else self.OLD_REFRESH_ROWS)
        is_inner = self._left[node] >= 0
        rival_loss = self._subtree_loss if is_inner else self._node_loss
        for t in self._places(node):
            is_old = rows - self._born[t] > self.TRIAL_ROWS
            if is_old and rival_loss[t] <= self._trial_loss[t]:
                engine.drop_trial(t, rows + self.BARRED_ROWS)
        running = self._places(node)
        wanted = 1 if is_inner else self.trials if may_split else 0
        if not is_young:  # one at a time, and another when that one earns
            n_earning = sum(bool(rival_loss[t] > self._trial_loss[t]) for t in running)
            wanted = min(wanted, n_earning + 1)
        if len(running) < wanted:
            self._start_trials(node, running, wanted)

    def _start_trials(self, node: int, running: list[int], wanted: int) -> None:
        engine = self.engine
        tried = {int(self._feature[t]) for t in running}
        first = node * self.trials
        free = [t for t in range(first, first + self.trials) if t not in running]
        ranked = sorted(engine.proposals(node), key=lambda proposal: (-proposal[0], proposal[1]))
        present = (engine.feature[node], engine.threshold[node])  # no use in trying what is there
        fresh = [p for p in ranked if p[1] not in tried and (p[1], p[2]) != present]
        for t, proposal in zip(free[: wanted - len(running)], fresh, strict=False):
            engine.start_trial(t, *proposal[1:])

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


def free_parameters(engine: Engine) -> int:
    """Return k, the free parameters of one simple model."""
    return engine.n_columns * max(1, engine.n_classes - 1)
