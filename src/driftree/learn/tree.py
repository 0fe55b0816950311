"""The Dynamic Model Tree: accumulate, then decide.

One time step is `Tree.learn`: the kernels route the rows, sum losses and gradients and train the
simple models (lines 1 to 17 of Algorithm 1); then the nodes that are due are decided bottom-up
(lines 18 and 19, and the gains (4) and (5) at inner nodes). Decisions are all in this file; where a
candidate's loss comes from is the business of `evidence`.
"""

from __future__ import annotations

import copy
import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.learn._kernels import Engine
from driftree.learn.events import Condition, Event, LinkChange, Prune, Replace, RunnerUp, Split
from driftree.learn.evidence import (
    Candidate,
    Evidence,
    GradientApproximation,
    MeasuredTrials,
)
from driftree.learn.history import History
from driftree.learn.nodes import TreeNodes
from driftree.learn.parameters import PaperParameters
from driftree.learn.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from driftree.learn.memory import Size
    from driftree.learn.parameters import Parameters

ADAGRAD_PASSES = 3
FLOOR_FACTOR = 4  # the noise floor must prove this many times what a split must


@dataclass(slots=True)
class Change:
    """A change that is being made: its event to be, and the engine's count before it."""

    kind: type[Event]
    node: int
    figures: dict[str, Any]
    n_before: int
    event: Event | None = None


class Tree(TreeNodes):
    """Node arrays (in the engine), the decisions over them, and their history (None: not kept)."""

    engine: Engine

    def __init__(self, parameters: Parameters, n_classes: int) -> None:
        p = parameters
        self.parameters = p
        self.engine = Engine(
            n_classes,
            by_gradient=isinstance(p, PaperParameters),
            passes=ADAGRAD_PASSES,
            first_rows=MeasuredTrials.FIRST_ROWS,
            seed=p.seed,
            max_nodes=p.max_nodes,
            **_own_settings(p),
        )
        self.evidence: Evidence = (
            GradientApproximation(self.engine, p.epsilon, p.candidates)
            if isinstance(p, PaperParameters)
            else MeasuredTrials(
                self.engine,
                epsilon=p.epsilon,
                window=p.evidence_window,
                trials=p.trials,
                bins=p.bins,
            )
        )
        super().__init__(self.engine)
        self._split_level = self.engine.split_level
        self._change: Change | None = None
        self._set_levels()
        self._sampler = Sampler(self.engine, self.evidence)
        self.history: History | None = None
        if p.keep_history:
            self._keep(History(self.evidence.SAMPLE_ROWS))

    # ------------------------------------------------------------------ one time step
    def learn(self, X: NDArray[np.float64], y: NDArray[np.int32], w: NDArray[np.float64]) -> None:
        """Take one step with at most `step_rows` rows.

        Who calls has the engine's turn: nobody looks between the sums and the decisions.
        """
        self.engine.learn(X, y, w)
        if self.engine.has_due:
            self.decide()

    @property
    def step_rows(self) -> int:
        """Rows of a batch that make one step, at most."""
        return self.evidence.step_rows()

    def decide(self) -> None:
        """Decide the link of the whole tree, or else the nodes that are due, children first."""
        engine = self.engine
        self.finish()
        if engine.challenger >= 0 and engine.challenger_gain >= engine.challenger_level:
            self._change_link()
        else:
            self._decide_nodes()
        if engine.n_rows >= engine.wake_at:
            self._sample()

    def _decide_nodes(self) -> None:
        engine = self.engine
        queue = [(-int(self._depth[node]), node) for node in engine.due]
        heapq.heapify(queue)
        waiting = {node for _, node in queue}
        while queue:
            _, node = heapq.heappop(queue)
            waiting.discard(node)
            if not self._alive[node]:
                continue
            is_leaf = self._left[node] < 0
            changed = self._decide_leaf(node) if is_leaf else self._decide_inner(node)
            self.evidence.refresh(node, may_split=self._may_split(node))
            parent = int(self._parent[node])
            if changed and parent >= 0 and parent not in waiting:  # its subtree is another now
                waiting.add(parent)
                heapq.heappush(queue, (-int(self._depth[parent]), parent))

    def _decide_leaf(self, node: int) -> bool:
        """Split if the best gain (3) reaches its threshold (line 18; Property 1)."""
        ranked = sorted(
            self.evidence.candidates(node), key=lambda c: (-c.gain, c.feature, c.threshold)
        )
        threshold = float(self._split_level[node])
        if not ranked or ranked[0].gain < threshold or threshold == math.inf:
            return False  # infinite: it may not be split, whatever the gain
        best = ranked[0]
        self._make(
            Split,
            node,
            lambda: self.evidence.split(node, best),
            gain=best.gain,
            threshold=threshold,
            loss_before=best.node_loss,
            loss_after=best.node_loss - best.gain,
            rows=best.rows,
            runner_up=self._runner_up(ranked[1:], "gain"),
            condition=self._condition_of(best),
        )
        return True

    def _decide_inner(self, node: int) -> bool:
        """Prune by (5) or replace by (4), whichever exceeds its threshold by more (Property 2).

        A tie makes a leaf, the smaller tree.
        """
        engine = self.engine
        ranked = sorted(
            self.evidence.candidates(node),
            key=lambda c: (-c.replacement_gain, c.feature, c.threshold),
        )
        prune_gain = float(engine.subtree_loss[node] - engine.own_loss[node])
        prune_excess = prune_gain - float(engine.prune_level[node])
        replace_excess = (
            ranked[0].replacement_gain - float(engine.replace_level[node]) if ranked else -np.inf
        )
        if not (prune_excess >= 0 or replace_excess >= 0):
            return False
        if prune_excess >= replace_excess:
            self._prune(node, prune_gain, ranked)
        else:
            self._replace(node, ranked)
        return True

    def _prune(self, node: int, gain: float, ranked: list[Candidate]) -> None:
        engine = self.engine
        self._make(
            Prune,
            node,
            lambda: engine.prune(node),
            gain=gain,
            threshold=float(engine.prune_level[node]),
            loss_before=float(engine.subtree_loss[node]),
            loss_after=float(engine.own_loss[node]),
            rows=float(engine.evidence[node]),
            runner_up=self._runner_up(ranked, "replacement_gain"),
            old_condition=self._condition(node),
        )

    def _replace(self, node: int, ranked: list[Candidate]) -> None:
        best = ranked[0]
        self._make(
            Replace,
            node,
            lambda: self.evidence.split(node, best),
            gain=best.replacement_gain,
            threshold=float(self.engine.replace_level[node]),
            loss_before=best.subtree_loss,
            loss_after=best.subtree_loss - best.replacement_gain,
            rows=best.subtree_rows,
            runner_up=self._runner_up(ranked[1:], "replacement_gain"),
            condition=self._condition_of(best),
            old_condition=self._condition(node),
        )

    def expect_classes(self, labels: Sequence[Hashable]) -> None:
        """Make ready for labels to come: the noise floor is for two, and goes with the third."""
        engine = self.engine
        if len(labels) > 2 and engine.challenger >= 0 and any(engine.floor(int(engine.model[0]))):
            self._change_link(third_label=labels[2])

    def _change_link(self, third_label: Hashable = None) -> None:
        """Start again from the challenger, which allows for random labels, or no longer does."""
        engine = self.engine
        is_forced = third_label is not None
        figures = {
            "gain": math.nan if is_forced else float(engine.challenger_gain),
            "threshold": math.nan if is_forced else float(engine.challenger_level),
            "loss_before": float(engine.rival_loss),
            "loss_after": float(engine.challenger_loss),
            "rows": float(engine.challenger_rows),
            "floor": engine.floor(engine.challenger),
        }
        # A label is made room for before the step that brings it.
        self._make(
            LinkChange,
            0,
            engine.adopt_challenger,
            is_early=is_forced,
            **figures,
            third_label=third_label,
        )

    # ------------------------------------------------------------------ thresholds and budgets
    def _may_split(self, node: int) -> bool:
        p = self.parameters
        return self.n_nodes + 2 <= p.max_nodes and int(self._depth[node]) < p.max_depth

    def _set_levels(self) -> None:
        """Tell the kernels what each node's gains must reach to be reported."""
        engine = self.engine
        leaves_below = self.leaves_below()
        for node in self.walk():
            levels = self.evidence.levels(leaves_below[node])
            is_leaf = engine.left[node] < 0
            blocked = is_leaf and not self._may_split(node)
            engine.split_level[node] = np.inf if blocked else levels.split
            engine.prune_level[node] = levels.prune
            engine.replace_level[node] = levels.replace
            engine.rest_level[node] = levels.rest
        engine.challenger_level = FLOOR_FACTOR * self.evidence.levels(1).split

    @property
    def savers(self) -> str:
        """The parameters that make it smaller, in words."""
        return self.evidence.SAVERS

    def leaf_bytes(self, size: Size) -> int:
        """Return the bytes of a tree of one leaf."""
        p = self.parameters
        return self.evidence.leaf_bytes(size, may_split=p.max_nodes > 2 and p.max_depth > 0)

    def knowledge(self) -> dict[str, Any]:
        """Return a copy of all that was learnt."""
        self.finish()
        return {"arrays": self.engine.arrays(), "history": copy.copy(self.history)}

    def restore(self, knowledge: dict[str, Any]) -> None:
        """Take over the knowledge of another tree with the same parameters, if it is sound."""
        self.engine.restore(knowledge["arrays"])
        self.check(knowledge["history"])
        self._set_levels()
        if knowledge["history"] is not None:
            self._keep(knowledge["history"])

    def check(self, history: History | None) -> None:
        """Raise unless the tree keeps to its parameters, and a history is that of the tree."""
        engine = self.engine
        nodes = list(self.walk())
        if max(self._depth[nodes]) > self.parameters.max_depth:
            raise ValueError(f"the tree is deeper than {self.parameters.max_depth}")
        if (history is None) == bool(self.parameters.keep_history):
            raise ValueError("there must be a history if, and only if, keep_history is True")
        if history is None:
            return
        now = history.now.nodes
        links = {
            node: (engine.parent[node], engine.left[node], engine.right[node], engine.depth[node])
            for node in nodes
        }
        if {s.node: (s.parent, s.left, s.right, s.depth) for s in now.values()} != links:
            raise ValueError("the history is not that of this tree")
        last = history.events[-1].step - 1 if history.events else 0  # a link may change early
        sampled = history.samples[-1].step if history.samples else 0
        if max(history.first_step, last, sampled) > engine.n_steps:
            raise ValueError("the history goes beyond the present")
        for node, mark in history.marks.items():
            latest = engine.node_clock[node] if node in now else engine.clock
            if mark.clock > latest:
                raise ValueError(f"the history marks node {node} at a time that is to come")

    # ------------------------------------------------------------------ history
    def _keep(self, history: History) -> None:
        self.history = history
        self.engine.wake_at = history.next_row

    def _sample(self) -> None:
        assert self.history is not None
        self._sampler.take(self.history)
        self.engine.wake_at = self.history.next_row

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
    # The tree lies in the engine, its history in Python, and an exception (Ctrl-C, no memory) may
    # come between any two lines. So what is going to be written is noted first, the engine changes
    # in one call that works or does nothing, and `finish` does the rest: now, or, if it was
    # interrupted, before the tree is next looked at or learns.
    def _make(
        self,
        kind: type[Event],
        node: int,
        change: Callable[[], None],
        *,
        is_early: bool = False,
        **figures: object,
    ) -> None:
        """Change the tree, and write the change into the history."""
        engine = self.engine
        if self.history is not None:
            figures |= {
                "step": engine.n_steps + is_early,
                "n_rows": engine.n_rows + is_early,
                "path": self.path(node),
                "removed": self.history.below(node),
            }
        self._change = Change(kind, node, figures, engine.n_changes)
        change()
        self.finish()

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to finish."""
        engine = self.engine
        return engine.n_changes + engine.n_growths == engine.n_told

    def finish(self) -> None:
        """Write down a change of the tree, and set the thresholds after one of tree or schema."""
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


def _own_settings(p: Parameters) -> dict[str, Any]:
    """Return what the engine needs for one setting, and nothing for the other, which it ignores."""
    if isinstance(p, PaperParameters):
        return {
            "learning_rate": p.learning_rate,
            "gain_step": p.gain_step,
            "candidates_per_feature": p.candidates,
            "replacement_rate": p.replacement_rate,
            **dict.fromkeys(("evidence_window", "memory"), math.inf),
            "trials": 0,
        }
    return {
        "evidence_window": p.evidence_window,
        "memory": p.model_window,
        "trials": p.trials,
        **dict.fromkeys(("learning_rate", "gain_step", "replacement_rate"), 0.0),
        "candidates_per_feature": 0,
    }
