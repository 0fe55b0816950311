"""The engine of a forest: rows and predictions of its members, one step of all, who is replaced."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn._kernels import Lock, Stack
from driftree.learn.constants import FOREST
from driftree.learn.events import MemberReplaced
from driftree.learn.members import Member, scale_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import SparseRows, Turn
    from driftree.learn.members import Rows
    from driftree.learn.parameters import ForestParameters
    from driftree.learn.target import Codes
    from driftree.learn.tree import Tree

    MakeTree = Callable[[Any], Tree]

MOST_REPLACED = 1000  # that are remembered


class Look(NamedTuple):
    """How the members did at some time.

    Attributes
    ----------
    n_rows : int
        Rows learnt by then.
    agreement : tuple of float
        Share of the last rows, about 2,000, in which each said what all together did.
    weights : tuple of float
        What each counted.
    losses : tuple of float
        Mean loss of each over the same rows, and of all together: nats, or absolute errors.
    """

    n_rows: int
    agreement: tuple[float, ...]
    weights: tuple[float, ...]
    losses: tuple[float, ...]


class ForestEngine:
    """What an engine is to a tree: members, their rows and predictions, and turns."""

    def __init__(self, parameters: ForestParameters, make_tree: MakeTree) -> None:
        self.parameters = parameters
        self.n_threads = 1  # that may work at the same time
        self.make_tree = make_tree
        self.members = [
            Member(make_tree(parameters.of_member(i))) for i in range(parameters.n_trees)
        ]
        self.stack = Stack(
            parameters.n_trees,
            window=FOREST.window,
            prior=FOREST.prior,
            most_step=FOREST.most_step,
            mixed=FOREST.mixed,
            clear=FOREST.clear,
        )
        self.scale = np.empty(0)
        self.next_scale = FOREST.scale_rows
        self.next_look = FOREST.look_rows
        self.n_replaced = 0
        self.replaced: list[MemberReplaced] = []
        self.looks: list[Look] = []
        self._lock = Lock()

    def reading(self) -> Turn:
        """Return a block in which no thread changes anything."""
        return self._lock.share()

    def writing(self) -> Turn:
        """Return a block in which no other thread reads or changes anything."""
        return self._lock.hold()

    @property
    def leader(self) -> Member:
        """The plain tree that reads the rows for all."""
        return self.members[0]

    def __getattr__(self, name: str) -> Any:
        # What the members have in common: classes, the target's unit, the features.
        if name.startswith("_") or name == "members":
            raise AttributeError(name)
        return getattr(self.members[0].engine, name)

    # ------------------------------------------------------------------ predictions
    def said(
        self, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> list[NDArray[np.float64]]:
        """Return what each member says of rows: probabilities, or numbers [rows, outputs]."""
        given = self._contiguous(X), sparse
        return self._each(lambda member: self._say(member, member.rows(given, *self._known)), X)

    @property
    def _known(self) -> tuple[Member, NDArray[np.float64]]:
        return self.leader, self.scale

    def _say(self, member: Member, rows: Rows) -> NDArray[np.float64]:
        engine = member.engine
        return engine.probabilities(*rows) if engine.has_labels else engine.numbers(*rows)

    def probabilities(
        self, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[np.float64]:
        """Return the probabilities of all together, [rows, classes]."""
        with self.reading():
            return self.stack.probabilities(self.said(X, sparse))

    def most_probable(
        self, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[np.int64]:
        """Return the code of each row's most probable class."""
        return np.asarray(self.probabilities(X, sparse).argmax(axis=1))

    def logits(
        self, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[np.float64]:
        """Return the log-odds of the second of two classes, or a logit of each, centred."""
        with self.reading():
            found = self.stack.log_odds(self.said(X, sparse))
        n_classes = found.shape[1]
        if n_classes > 2:
            return found
        return found[:, 1:] - found[:, :1] if n_classes == 2 else np.zeros((len(found), 1))

    def numbers(
        self, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[np.float64]:
        """Return the predicted numbers, [rows, outputs]."""
        with self.reading():
            return self._mean(self.said(X, sparse))

    def _mean(self, members: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        shares, has_log_link = self.stack.shares.tolist(), self.leader.engine.has_log_link
        if has_log_link:  # what adds up are logarithms
            members = [np.log(np.maximum(one, 1e-300)) for one in members]
        found = sum(share * one for share, one in zip(shares, members, strict=True))
        found = np.exp(found) if has_log_link else found
        return np.asarray(np.maximum.accumulate(found, axis=1))  # quantiles are in order

    def leaves(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> NDArray[np.int32]:
        """Return the leaf that each row reaches in each tree, [rows, trees]."""
        with self.reading():
            return np.column_stack(
                [member.engine.leaves(*self.rows_of(member, X, sparse)) for member in self.members]
            )

    def rows_of(
        self, member: Member, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> Rows:
        """Return rows as one member takes them."""
        return member.rows((self._contiguous(X), sparse), *self._known)

    @staticmethod
    def _contiguous(X: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.require(X, np.float64, ["C", "A"])

    # ------------------------------------------------------------------ one time step
    def learn(
        self,
        X: NDArray[np.float64],
        y: Codes,
        w: NDArray[np.float64],
        sparse: SparseRows | None = None,
    ) -> None:
        """Take one step: each member says what it thinks of the rows, and learns them."""
        given = self._contiguous(X), sparse
        if sparse is not None:
            for member in self.members[1:]:
                member.admit(sparse, self.leader)

        def study(member: Member) -> NDArray[np.float64]:
            rows = member.rows(given, *self._known)
            said = self._say(member, rows)
            member.tree.learn(rows[0], y, w, rows[1])
            return said

        said, targets = self._each(study, X), y.astype(np.float64)
        if self.leader.engine.has_labels:
            self.stack.learn_labels(said, targets, w)
        else:
            middle = said[0].shape[1] // 2
            self.stack.learn_numbers([one[:, [middle]] for one in said], targets, w)
        n_rows = self.leader.engine.n_rows
        if n_rows >= self.next_scale:
            self.rescale()
        if n_rows >= self.next_look:
            self._look(n_rows)

    def _each(
        self, work: Callable[[Member], NDArray[np.float64]], X: NDArray[np.float64]
    ) -> list[NDArray[np.float64]]:
        """Let each member do something; in threads where that is worth it. Same bits, any way."""
        n_cells = len(X) * self.leader.engine.n_columns * len(self.members)
        n_threads = min(self.n_threads, len(self.members))
        if n_threads == 1 or n_cells < FOREST.parallel_cells:
            return [work(member) for member in self.members]
        tasks = [_pool(os.getpid(), n_threads).submit(work, member) for member in self.members]
        wait(tasks)  # all, even if one fails: nobody works on when this returns
        return [task.result() for task in tasks]

    def rescale(self) -> None:
        """Scale the ends of pairs anew, and give new numbers theirs."""
        n_rows = self.leader.engine.n_rows
        self.scale = scale_of(self.leader.engine)
        if self.leader.tree.encoder.sparse is None:
            for member in self.members[1:]:
                member.add_pairs(self.leader)
        self.next_scale = 2 * max(n_rows, FOREST.scale_rows)

    # ------------------------------------------------------------------ looking at the members
    def _look(self, n_rows: int) -> None:
        """Note how the members do, and replace the one that has become useless."""
        self.looks.append(self.look())
        if len(self.looks) > FOREST.most_looks:
            self.looks = self.looks[1::2]
        gaps = np.diff([0, *(look.n_rows for look in self.looks)])
        self.next_look = n_rows + (
            FOREST.look_rows if len(self.looks) < 2 else max(FOREST.look_rows, int(gaps[0]))
        )
        weights = self.stack.weights
        old = [
            i for i, member in enumerate(self.members) if n_rows - member.since >= FOREST.youth_rows
        ]
        useless = [i for i in old if i > 0 and weights[i] <= 0]
        if useless:
            self._replace(min(useless, key=lambda i: weights[i]), n_rows)

    def look(self) -> Look:
        """Return how the members do."""
        stack = self.stack
        rows = max(stack.rows, 1e-300)
        weights = stack.weights if self.leader.engine.has_labels else stack.shares
        return Look(
            self.leader.engine.n_rows,
            tuple((stack.agreement / rows).tolist()),
            tuple(weights.tolist()),
            tuple((stack.losses / rows).tolist()),
        )

    def _replace(self, place: int, n_rows: int) -> None:
        """Let a new member take the place of one whose weight says that the others do better."""
        look = self.look()
        self.n_replaced += 1
        parameters = self.parameters.of_member(self.parameters.n_trees - 1 + self.n_replaced)
        fresh = Member(self.make_tree(parameters), n_rows)
        fresh.follow(self.leader)
        if self.leader.tree.encoder.sparse is None:
            fresh.add_pairs(self.leader)
        fresh.tree.finish()
        self.members[place] = fresh
        self.stack.restart(place)
        event = MemberReplaced(
            n_rows=n_rows,
            member=place,
            weight=look.weights[place],
            loss=look.losses[place],
            loss_of_all=look.losses[-1],
            has_labels=self.leader.engine.has_labels,
        )
        self.replaced = [*self.replaced, event][-MOST_REPLACED:]

    # ------------------------------------------------------------------ size
    @property
    def n_nodes(self) -> int:
        """Nodes of all trees."""
        return sum(member.engine.n_nodes for member in self.members)

    def memory_usage(self) -> int:
        """Return the bytes that the members' engines hold."""
        return sum(member.engine.memory_usage() for member in self.members)


@functools.lru_cache(4)
def _pool(pid: int, n_threads: int) -> ThreadPoolExecutor:
    """Return threads; a forked process has none of its parent's, hence the first argument."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="driftree")
