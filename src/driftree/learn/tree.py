"""The Dynamic Model Tree: accumulate, then decide.

One time step is `Tree.learn`: the kernels route the rows, sum losses and gradients and train the
simple models (lines 1 to 17 of Algorithm 1); then the nodes that are due are decided bottom-up
(lines 18 and 19, and the gains (4) and (5) at inner nodes). All decisions are in this file;
`evidence` provides the losses of the candidates.
"""

from __future__ import annotations

import copy
import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.learn._kernels import MeasuredRowFace
from driftree.learn.constants import WATCH
from driftree.learn.drifts import describe_drift
from driftree.learn.events import (
    KEEP_NODES,
    Bend,
    Condition,
    Curve,
    Event,
    LinkChange,
    MemoryChange,
    Prune,
    Replace,
    RunnerUp,
    Shift,
    Split,
    Unbend,
)
from driftree.learn.evidence import Candidate, Evidence, GradientApproximation, MeasuredTrials
from driftree.learn.history import MAX_ENTRANTS, Entrant, History, Sampler, check_history
from driftree.learn.model_trials import curves_of
from driftree.learn.nodes import TreeNodes
from driftree.learn.parameters import PaperParameters
from driftree.learn.sparse import SparseFeatures

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import (
        MeasuredEngine,
        NodeState,
        PaperEngine,
        SparseRows,
        _RowFace,
    )
    from driftree.learn.constants import MeasuredConstants, WatchConstants
    from driftree.learn.memory import SchemaSize
    from driftree.learn.model_trials import BendInput, ModelCandidate
    from driftree.learn.parameters import Parameters
    from driftree.learn.target import Codes


@dataclass(slots=True)
class Change:
    """A change in progress: its event to be, and the engine's count of changes before it."""

    kind: type[Event]
    node: int
    figures: dict[str, Any]
    n_before: int
    event: Event | None = None


class Tree(TreeNodes):
    """The nodes (in the engine), the decisions about them, and their history (None: not kept)."""

    engine: MeasuredEngine | PaperEngine

    def __init__(
        self,
        parameters: Parameters,
        n_classes: int | None = None,
        *,
        history: History | None = None,
        constants: MeasuredConstants | None = None,
    ) -> None:
        self.parameters = parameters
        if n_classes is None:
            n_classes = 0 if hasattr(parameters, "loss") else 1  # so far
        self.evidence: Evidence = (
            GradientApproximation(parameters, n_classes)
            if isinstance(parameters, PaperParameters)
            else MeasuredTrials(parameters, n_classes, constants)
        )
        super().__init__(self.evidence.engine)
        self._change: Change | None = None
        self.history: History | None = None
        if parameters.keep_history:
            self._keep(History(self.evidence.sample_rows) if history is None else history)
            self._watch(WATCH)

    def sparse_features(
        self, row_face: _RowFace, categorical: frozenset[Hashable]
    ) -> SparseFeatures | None:
        """Return the reader of sparse rows, if absent features are zero."""
        evidence, p = self.evidence, self.parameters
        if not isinstance(evidence, MeasuredTrials) or isinstance(p, PaperParameters):
            return None
        if p.absent != "zero":
            return None
        assert isinstance(row_face, MeasuredRowFace)
        return SparseFeatures(
            row_face, evidence.engine, evidence.constants, p.max_features, categorical
        )

    # ------------------------------------------------------------------ one time step
    def learn(
        self,
        X: NDArray[np.float64],
        y: Codes,
        w: NDArray[np.float64],
        sparse: SparseRows | None = None,
        wholes: NDArray[np.float64] | None = None,
    ) -> None:
        """Take one step with at most `step_rows` rows.

        Where rows were repeated by their weight, `wholes` has that at their first copy, and 0 at
        the others.

        The caller holds the engine's lock: nobody reads the tree between sums and decisions.
        """
        self.engine.learn(X, y.astype(np.float64), w, sparse, wholes)
        if self.engine.has_due:
            self.decide()

    def end_call(self) -> None:
        """Show the recent level of the target to the rows to come.

        Not earlier: within a batch, models should learn with what they will know when they predict
        one, and that is the level before it.
        """
        if not self.engine.has_labels:
            self.engine.show_level()

    @property
    def n_changes(self) -> int:
        """How often the tree has changed."""
        return self.engine.n_changes

    @property
    def recent_loss(self) -> float | None:
        """Mean loss of the last rows, predicted before learnt; the paper's setting has none."""
        evidence = self.evidence
        return evidence.engine.recent_loss if isinstance(evidence, MeasuredTrials) else None

    @property
    def label_rows(self) -> NDArray[np.float64] | None:
        """Discounted rows of each label; None for numbers."""
        return self.engine.class_rows(0) if self.engine.has_labels else None

    @property
    def step_rows(self) -> int:
        """Most rows of a batch in one step."""
        return self.evidence.step_rows()

    def decide(self) -> None:
        """Decide the link of the tree, or else the nodes that are due, children first."""
        engine = self.engine
        self.finish()
        if engine.link_is_due:
            self._change_link()
        else:
            self._decide_nodes()
        if engine.n_rows >= engine.wake_at:
            self._sample()
        if engine.has_alarm:
            self._tell_drift()
        self._look_at_sparse()

    def _look_at_sparse(self) -> None:
        """Choose the prominent features, if that is due."""
        sparse = self.encoder.sparse if hasattr(self, "encoder") else None
        if sparse is not None and sparse.is_due:
            sparse.look(self.encoder.known)
            self.finish()

    def _decide_nodes(self) -> None:
        engine = self.engine
        queue = [(-engine.node(node).depth, node) for node in engine.due]
        heapq.heapify(queue)
        waiting = {node for _, node in queue}
        while queue:
            _, node = heapq.heappop(queue)
            waiting.discard(node)
            if not engine.has_node(node):
                continue
            own = engine.node(node)
            if (own.model_is_due or own.search_is_due) and self._decide_model(node):
                own = engine.node(node)
            if own.change_is_due and self._decide_split(node, own):
                own = engine.node(node)
                if own.parent >= 0 and own.parent not in waiting:  # its subtree has changed
                    waiting.add(own.parent)
                    heapq.heappush(queue, (1 - own.depth, own.parent))
            if own.search_is_due:
                self.evidence.refresh(node, may_split=self._may_split(own))

    def _decide_split(self, node: int, own: NodeState) -> bool:
        """Decide a split, a replacement or pruning; return whether the tree has changed."""
        return self._decide_leaf(node, own) if own.is_leaf else self._decide_inner(node, own)

    def _decide_leaf(self, node: int, own: NodeState) -> bool:
        """Split if the best gain (3) reaches its threshold (line 18; Property 1)."""
        threshold = own.split_level
        ranked = sorted(
            (c for c in self.evidence.candidates(node) if c.is_ready),
            key=lambda c: (-c.gain, c.feature, c.threshold),
        )
        if not ranked or ranked[0].gain < threshold or threshold == math.inf:
            return False  # infinite: it must not be split
        best = ranked[0]
        self._make(
            Split,
            node,
            lambda: self.engine.split(node, best.place),
            gain=best.gain,
            threshold=threshold,
            loss_before=best.node_loss,
            loss_after=best.node_loss - best.gain,
            rows=best.rows,
            runner_up=self._runner_up(ranked[1:], "gain"),
            condition=self._condition_of(best),
        )
        return True

    def _decide_inner(self, node: int, own: NodeState) -> bool:
        """Prune by (5) or replace by (4), whichever exceeds its threshold by more (Property 2).

        A tie gives the smaller tree, a leaf. If the split stays, its threshold may move.
        """
        ranked = sorted(
            (c for c in self.evidence.candidates(node) if self._may_replace(c, own.split_level)),
            key=lambda c: (-c.replacement_gain, c.feature, c.threshold),
        )
        prune_gain = own.subtree_loss - own.own_loss
        prune_excess = prune_gain - own.prune_level
        replace_excess = ranked[0].replacement_gain - own.replace_level if ranked else -math.inf
        if not (prune_excess >= 0 or replace_excess >= 0):
            return self._decide_threshold(node, own)
        if prune_excess >= replace_excess:
            self._prune(node, prune_gain, ranked)
        else:
            self._replace(node, ranked)
        return True

    def _decide_threshold(self, node: int, own: NodeState) -> bool:
        """Move the threshold if that gains enough; the sides and their models stay."""
        border = self.evidence.border(node)
        if border is None or border.gain < border.level:
            return False
        feature, _, equality, missing_left = own.condition
        self._make(
            Shift,
            node,
            lambda: self.evidence.shift(node),
            gain=border.gain,
            threshold=border.level,
            loss_before=border.loss + border.gain,
            loss_after=border.loss,
            rows=border.rows,
            condition=self.words(
                feature, border.threshold, equality=equality, missing_left=missing_left
            ),
            old_condition=self._condition(node),
        )
        return True

    def _decide_model(self, node: int) -> bool:
        """Adopt the model on trial if its gain reaches its threshold; return whether it did."""
        models = self.evidence.models
        best = None if models is None else models.ahead(node)
        if models is None or best is None or best.gain < best.threshold:
            return False
        curves = self.changed_curves(node, best)
        is_leaf = self.engine.node(node).is_leaf
        ranked = sorted(
            (
                c._replace(gain=self._standing(c, is_leaf))
                for c in self.evidence.candidates(node)
                if c.is_ready
            ),
            key=lambda c: -c.gain,
        )
        self._make(
            Bend if best.added else Unbend if best.removed else MemoryChange,
            node,
            lambda: models.take(node),
            gain=best.gain,
            threshold=best.threshold,
            loss_before=best.node_loss,
            loss_after=best.node_loss - best.gain,
            rows=best.rows,
            runner_up=self._runner_up(ranked, "gain"),
            **({"curves": curves} if curves else {"memory": best.memory}),
        )
        return True

    def changed_curves(self, node: int, model: ModelCandidate) -> tuple[Curve, ...]:
        """Return the curves that another model adds or lacks, with all their knots."""
        models = self.evidence.models
        present = [] if models is None else models.bends(node)
        changed = {feature for feature, _, _ in model.added or model.removed}
        return self.curves(bend for bend in (*present, *model.added) if bend[0] in changed)

    def curves(self, bends: Iterable[BendInput]) -> tuple[Curve, ...]:
        """Return the curves of some bends, with the user's feature names."""
        names = self.encoder.display_names if hasattr(self, "encoder") else None
        return tuple(
            Curve(names[j] if names else f"x{j}", tuple(knots))
            for j, knots in curves_of(bends).items()
        )

    def _may_replace(self, candidate: Candidate, split_level: float) -> bool:
        """Tell whether a candidate may replace a split: it must also pass as a new split."""
        is_proved = not self.evidence.splits_prove_replacements or candidate.gain >= split_level
        return candidate.is_ready and is_proved

    def _prune(self, node: int, gain: float, ranked: list[Candidate]) -> None:
        own = self.engine.node(node)
        self._make(
            Prune,
            node,
            lambda: self.engine.prune(node),
            gain=gain,
            threshold=own.prune_level,
            loss_before=own.subtree_loss,
            loss_after=own.own_loss,
            rows=own.evidence,
            runner_up=self._runner_up(ranked, "replacement_gain"),
            old_condition=self._condition(node),
        )

    def _replace(self, node: int, ranked: list[Candidate]) -> None:
        best = ranked[0]
        self._make(
            Replace,
            node,
            lambda: self.engine.split(node, best.place),
            gain=best.replacement_gain,
            threshold=self.engine.node(node).replace_level,
            loss_before=best.subtree_loss,
            loss_after=best.subtree_loss - best.replacement_gain,
            rows=best.subtree_rows,
            runner_up=self._runner_up(ranked[1:], "replacement_gain"),
            condition=self._condition_of(best),
            old_condition=self._condition(node),
        )

    def entrants(self, node: int, own: NodeState) -> list[Entrant]:
        """Return the best candidates of a node, best first, with the gains that count there."""
        is_leaf = own.is_leaf
        present = () if is_leaf else own.condition[:2]
        entrants = [
            Entrant(*c[1:5], self._standing(c, is_leaf))  # condition and gain
            for c in self.evidence.candidates(node)
            if c.is_ready and (c.feature, c.threshold) != present
        ]
        return sorted(entrants, key=lambda entrant: -entrant.gain)[:MAX_ENTRANTS]

    def _standing(self, candidate: Candidate, is_leaf: bool) -> float:  # noqa: FBT001
        if is_leaf:
            return candidate.gain
        if self.evidence.splits_prove_replacements:
            return min(candidate.gain, candidate.replacement_gain)
        return candidate.replacement_gain

    def expect_classes(self, labels: Sequence[Hashable]) -> None:
        """Prepare for new labels: the noise floor is for two, and ends with the third."""
        link = self.evidence.link() if len(labels) > 2 else None
        if link is not None and link.has_floor:
            self._change_link(third_label=labels[2])

    def _change_link(self, third_label: Hashable = None) -> None:
        """Restart from the challenger, with a noise floor if the tree has none, or without."""
        link = self.evidence.link()
        assert link is not None
        is_forced = third_label is not None
        self._make(
            LinkChange,
            0,
            self.evidence.change_link,
            is_early=is_forced,  # before the step that brings the label
            gain=math.nan if is_forced else link.gain,
            threshold=math.nan if is_forced else self.evidence.levels(1).link,
            loss_before=link.tree_loss,
            loss_after=link.other_loss,
            rows=min(link.rows, self.engine.node(0).clock),  # one may have stood for several
            floor=link.other_floor,
            third_label=third_label,
        )

    # ------------------------------------------------------------------ thresholds and budgets
    def _may_split(self, own: NodeState) -> bool:
        p = self.parameters
        return self.engine.n_nodes + 2 <= p.max_nodes and own.depth < p.max_depth

    def _set_levels(self) -> None:
        """Give the kernels the thresholds above which they report a node as due."""
        for node, n_leaves in self.leaves_below().items():
            levels = self.evidence.levels(n_leaves, node)
            is_blocked = n_leaves == 1 and not self._may_split(self.engine.node(node))
            self.engine.set_levels(
                node,
                split=math.inf if is_blocked else levels.split,
                prune=levels.prune,
                replace=levels.replace,
                rest=levels.rest,
                n_splits=n_leaves - 1,
            )
            if self.evidence.models is not None:
                self.evidence.models.set_level(node)
            if node == 0:
                self.evidence.set_link_level(levels.link)
        self.evidence.set_borders()

    def leaf_bytes(self, size: SchemaSize) -> int:
        """Return the memory of a tree with one leaf, in bytes."""
        p = self.parameters
        return self.evidence.leaf_bytes(size, may_split=p.max_nodes > 2 and p.max_depth > 0)

    # ------------------------------------------------------------------ keeping
    def knowledge(self) -> dict[str, Any]:
        """Return a copy of everything learnt."""
        self.finish()
        self._look_at_sparse()  # if that was interrupted: a copy would wait for the next time
        return {"arrays": self.engine.arrays(), "history": copy.copy(self.history)}

    def restore(self, knowledge: dict[str, Any]) -> None:
        """Adopt the knowledge of another tree with the same parameters, if it is valid."""
        self.engine.restore(knowledge["arrays"])
        self.check(knowledge["history"])
        self._set_levels()
        if knowledge["history"] is not None:
            self._keep(knowledge["history"])

    def check(self, history: History | None) -> None:
        """Raise unless the tree respects its parameters and the history fits the tree."""
        self.check_depth(self.parameters.max_depth)
        check_history(history, self.engine, is_kept=self.parameters.keep_history)

    # ------------------------------------------------------------------ history
    def _keep(self, history: History) -> None:
        self.history = history
        self.engine.wake_at = history.next_row

    def _watch(self, c: WatchConstants) -> None:
        self.engine.watch(
            keep_one_in=c.keep_one_in,
            check_rows=c.check_rows,
            checks_later=c.checks_later,
            most_earlier=c.most_earlier,
            least_excess=c.least_excess,
            most_excess=c.most_excess,
            most_values=c.most_values,
            level=c.level,
        )

    @property
    def _sampler(self) -> Sampler:
        # Not kept: the reference cycle would keep an unused model alive until the garbage
        # collector runs.
        return Sampler(self.engine, self.evidence.window, self.entrants)

    def _sample(self) -> None:
        assert self.history is not None
        if self.engine.n_rows >= self.history.next_row:  # not taken before an interrupt
            self._sampler.take(self.history)
        self.engine.wake_at = self.history.next_row

    def _tell_drift(self) -> None:
        """Record an alarm, and restart the detector."""
        assert self.history is not None
        told = self.history.drifts
        if not told or told[-1].n_rows <= self.engine.watched_since:  # not told before an interrupt
            self.history.add_drift(describe_drift(self, WATCH))
        self.engine.restart_watch()

    def _condition_of(self, candidate: Candidate) -> Condition:
        return self.words(
            candidate.feature,
            candidate.threshold,
            equality=candidate.equality,
            missing_left=candidate.missing_left,
        )

    def _runner_up(self, ranked: list[Candidate], gain: str) -> RunnerUp | None:
        if not ranked:
            return None
        return RunnerUp(self._condition_of(ranked[0]), float(getattr(ranked[0], gain)))

    # ------------------------------------------------------------------ changes
    # The tree is in the engine, its history in Python, and an exception (Ctrl-C, out of memory) may
    # come between any two lines. So the change is noted first, the engine changes in one call that
    # succeeds or does nothing, and `finish` does the rest: at once or, after an interrupt, before
    # the tree is next read or learns.
    def _make(
        self,
        kind: type[Event],
        node: int,
        change: Callable[[], None],
        *,
        is_early: bool = False,
        **figures: object,
    ) -> None:
        """Change the tree, and record the change in the history."""
        engine = self.engine
        if self.history is not None:
            figures |= {
                "step": engine.n_steps + is_early,
                "n_rows": engine.n_rows + is_early,
                "path": self.path(node),
                "removed": () if issubclass(kind, KEEP_NODES) else self.history.below(node),
            }
        self._change = Change(kind, node, figures, engine.n_changes)
        change()
        self.finish()

    @property
    def is_finished(self) -> bool:
        """Whether no change is left unrecorded."""
        engine = self.engine
        return engine.n_changes + engine.n_growths == engine.n_told

    def finish(self) -> None:
        """Record a change of the tree; update thresholds after one of the tree or the schema."""
        engine = self.engine
        if self.is_finished:
            return
        with engine.writing():
            change, history = self._change, self.history
            if change is not None and history is not None and engine.n_changes > change.n_before:
                event = change.event = change.event or self._event(change)
                if not history.events or history.events[-1] is not event:
                    history.add(event, self._sampler.marks(event))
            self._change = None
            self._set_levels()
            engine.n_told = engine.n_changes + engine.n_growths

    def _event(self, change: Change) -> Event:
        node, children = change.node, {}
        if change.kind in (Split, Replace):
            children = {
                "left": int(self.engine.left[node]),
                "right": int(self.engine.right[node]),
            }
        return change.kind(node=node, **change.figures, **children)  # type: ignore[arg-type]
