"""The engine of a forest: steps of all members, scaling of pairs, replacement of members.

The kernels' `Forest` takes the steps and adds up the members' predictions. Decisions are made here.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn import _kernels
from driftree.learn.constants import FOREST
from driftree.learn.events import MemberReplaced
from driftree.learn.members import Member, light_constants, scale_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from numpy.typing import NDArray

    from driftree.learn._kernels import SparseRows, Stack, Turn
    from driftree.learn.members import Rows
    from driftree.learn.parameters import ForestParameters
    from driftree.learn.target import Codes
    from driftree.learn.tree import Tree

    MakeTree = Callable[..., Tree]

MOST_REPLACED = 1000  # that are kept


class Look(NamedTuple):
    """Agreement, weights and losses of the members at some time.

    Attributes
    ----------
    n_rows : int
        Rows learnt by then.
    agreement : tuple of float
        Share of the last rows, about 2,000, in which each predicted the same as the forest; NaN if
        it has seen none yet.
    weights : tuple of float
        Weight of each.
    losses : tuple of float
        Mean loss of each over the same rows, and of the forest: nats, or absolute errors.
    """

    n_rows: int
    agreement: tuple[float, ...]
    weights: tuple[float, ...]
    losses: tuple[float, ...]


class StepSaid(NamedTuple):
    """The members' predictions of the rows of a step before learning them, for the `Stack`."""

    said: NDArray[np.float64]
    targets: NDArray[np.float64]
    weights: NDArray[np.float64]


class ForestEngine:
    """The counterpart of a tree's engine: members, their rows and predictions, and locks.

    Attributes
    ----------
    is_whole : bool
        Whether the kernels have the members as they are; not while these change, nor after an
        exception (Ctrl-C) in the middle of that: then `mend` comes before the next row.
    told : list of StepSaid or None
        If it is a list, predictions are appended to it, as the stack is elsewhere.
    most_rows : int or None
        Largest number of rows of a step, for trees that are elsewhere.
    """

    def __init__(self, parameters: ForestParameters, make_tree: MakeTree) -> None:
        self.parameters = parameters
        self.make_tree = make_tree
        self.kernel = _kernels.Forest(
            parameters.n_trees,
            window=FOREST.window,
            prior=FOREST.prior,
            most_step=FOREST.most_step,
            mixed=FOREST.mixed,
            clear=FOREST.clear,
            most_deviations=FOREST.most_deviations,
        )
        self.is_whole = True
        self.members = [self._make(i) for i in range(parameters.n_trees)]
        for place in range(parameters.n_trees):
            self.seat(place)
        self.next_scale = FOREST.scale_rows
        self.next_look = FOREST.look_rows
        self.wait()
        self.n_replaced = 0
        self.replaced: list[MemberReplaced] = []
        self.looks: list[Look] = []
        self.told: list[StepSaid] | None = None
        self.most_rows: int | None = None

    def _make(self, number: int, since: int = 0) -> Member:
        """Return a new member; the first is number 0."""
        own = self.parameters.of_member(number)
        constants = light_constants(own, self.parameters) if number else None
        return Member(self.make_tree(own, constants=constants), since)

    def reading(self) -> Turn:
        """Return the read lock."""
        self.mend()
        return self.kernel.reading()

    def writing(self) -> Turn:
        """Return the write lock."""
        return self.kernel.writing()

    def seat(self, place: int) -> None:
        """Pass a member and its inputs to the kernels, after each change of either."""
        member = self.members[place]
        if place > 0 and self.parameters.absent != "zero":
            member.engine.drop_challenger()
        self.kernel.set_member(place, member.engine, *member.seen(self.leader))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change members in a block."""
        self.is_whole = False
        yield
        self.is_whole = True

    def mend(self) -> None:
        """Complete a change of the members that was interrupted."""
        if self.is_whole:
            return
        with self.writing():
            if self.is_whole:  # whoever had the lock was in the middle of it, and not interrupted
                return
            with self.changing():
                for place, member in enumerate(self.members):
                    if place > 0:
                        member.follow(self.leader)
                    self.seat(place)

    def follow(self) -> None:
        """Copy features, levels and labels of the first member to the others."""
        for place, member in enumerate(self.members[1:], 1):
            if member.follow(self.leader):
                self.seat(place)

    def wait(self) -> None:
        """Set when the kernels call: for a new scale, or for a check of the members."""
        self.kernel.wake_at = min(self.next_scale, self.next_look)

    @property
    def n_threads(self) -> int:
        """Number of threads."""
        return self.kernel.n_threads

    @n_threads.setter
    def n_threads(self, n: int) -> None:
        self.kernel.n_threads = n

    @property
    def stack(self) -> Stack:
        """The weighted sum of the members' predictions."""
        return self.kernel.stack

    @property
    def scale(self) -> NDArray[np.float64]:
        """Shift and factor of each feature for hinges."""
        return self.kernel.scale

    @scale.setter
    def scale(self, scale: NDArray[np.float64]) -> None:
        self.kernel.scale = scale

    @property
    def leader(self) -> Member:
        """The plain tree that reads the rows for all."""
        return self.members[0]

    def __getattr__(self, name: str) -> Any:
        # What the members have in common: classes, the target's unit, the features.
        if name.startswith("_") or name in ("members", "kernel"):
            raise AttributeError(name)
        return getattr(self.members[0].engine, name)

    # ------------------------------------------------------------------ predictions
    def _given(
        self, X: NDArray[np.float64], sparse: SparseRows | None
    ) -> tuple[NDArray[np.float64], list[SparseRows] | None]:
        """Return rows as input for the kernels: each member has its own sparse features."""
        self.mend()
        matrix = np.require(X, np.float64, ["C", "A"])
        if sparse is None:
            return matrix, None
        return matrix, [member.own_sparse(sparse, self.leader) for member in self.members]

    def probabilities(
        self, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[np.float64]:
        """Return the forest's probabilities, [rows, classes]."""
        return self.kernel.probabilities(*self._given(X, sparse))

    def most_probable(
        self, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[np.int64]:
        """Return the code of each row's most probable class."""
        return np.asarray(self.probabilities(X, sparse).argmax(axis=1))

    def logits(
        self, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[np.float64]:
        """Return the log-odds of the second of two classes, or a logit of each, centred."""
        found = self.kernel.log_odds(*self._given(X, sparse))
        n_classes = found.shape[1]
        if n_classes > 2:
            return found
        return found[:, 1:] - found[:, :1] if n_classes == 2 else np.zeros((len(found), 1))

    def numbers(
        self, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> NDArray[np.float64]:
        """Return the predicted numbers, [rows, outputs]."""
        return self.kernel.numbers(*self._given(X, sparse))

    def leaves(self, X: NDArray[np.float64], sparse: SparseRows | None = None) -> NDArray[np.int32]:
        """Return the leaf that each row reaches in each tree, [rows, trees]."""
        with self.reading():
            return np.column_stack(
                [member.engine.leaves(*self.rows_of(member, X, sparse)) for member in self.members]
            )

    def rows_of(
        self, member: Member, X: NDArray[np.float64], sparse: SparseRows | None = None
    ) -> Rows:
        """Return rows as input for one member."""
        if sparse is not None:
            return X, member.own_sparse(sparse, self.leader)
        return self.kernel.rows_of(self.members.index(member), *self._given(X, None)[:1]), None

    # ------------------------------------------------------------------ one time step
    def learn(
        self,
        X: NDArray[np.float64],
        y: Codes,
        w: NDArray[np.float64],
        sparse: SparseRows | None = None,
        wholes: NDArray[np.float64] | None = None,
    ) -> None:
        """Learn one step: each member predicts the rows, then learns them."""
        if sparse is not None:
            for member in self.members[1:]:
                member.admit(sparse, self.leader)
        matrix, parts = self._given(X, sparse)
        targets = y.astype(np.float64)
        decided: set[int] = set()

        def decide(place: int) -> None:  # by one thread, while others let further members learn
            decided.add(place)
            self.members[place].tree.decide()

        self.kernel.learn(matrix, targets, w, parts, wholes, decide)
        if self.told is not None:
            self.told.append(StepSaid(self.kernel.said, targets, w))
        if self.kernel.has_due:
            self.decide(decided)

    def decide(self, decided: Collection[int] = ()) -> None:
        """Decide what is due: in the trees that are not decided yet, then for the forest."""
        for place, member in enumerate(self.members):
            if place not in decided and member.engine.has_due:
                member.tree.decide()
        n_rows = self.leader.engine.n_rows
        if n_rows >= self.next_scale:
            self.rescale()
        if n_rows >= self.next_look:
            self._look(n_rows)
        self.wait()

    def rescale(self) -> None:
        """Update the scale of hinges, and set that of new numbers."""
        n_rows = self.leader.engine.n_rows
        self.scale = scale_of(self.leader.engine)
        if self.leader.tree.encoder.sparse is None:
            with self.changing():
                for place, member in enumerate(self.members[1:], 1):
                    member.add_pairs(self.leader)
                    self.seat(place)
        self.next_scale = 2 * max(n_rows, FOREST.scale_rows)

    # ------------------------------------------------------------------ looking at the members
    def _look(self, n_rows: int) -> None:
        """Record the state of the members, and replace a useless one."""
        look = self.look()
        place = self.find_useless(look)
        if place is not None:
            self.renew(place, self.next_number, n_rows)
            self.note_replaced(place, look)

    def find_useless(self, look: Look) -> int | None:
        """Record a look, and return the index of a useless member."""
        n_rows = look.n_rows
        self.looks.append(look)
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
        return min(useless, key=lambda i: weights[i], default=None)

    def look(self) -> Look:
        """Return the present state of the members."""
        stack = self.stack
        rows = np.where(stack.rows > 0, stack.rows, np.nan)
        weights = stack.weights if self.leader.engine.has_labels else stack.shares
        return Look(
            self.leader.engine.n_rows,
            tuple((stack.agreement / rows[:-1]).tolist()),
            tuple(weights.tolist()),
            tuple((stack.losses / rows).tolist()),
        )

    def note_replaced(self, place: int, look: Look) -> None:
        """Record the replacement of a useless member."""
        self.n_replaced += 1
        self.stack.restart(place)
        event = MemberReplaced(
            n_rows=look.n_rows,
            member=place,
            weight=look.weights[place],
            loss=look.losses[place],
            loss_of_all=look.losses[-1],
            has_labels=self.leader.engine.has_labels,
        )
        self.replaced = [*self.replaced, event][-MOST_REPLACED:]

    @property
    def next_number(self) -> int:
        """Number of the next new member among all that ever were, which determines its seed."""
        return self.parameters.n_trees + self.n_replaced

    def renew(self, place: int, number: int, n_rows: int) -> None:
        """Replace the member at an index by a new one."""
        fresh = self._make(number, n_rows)
        fresh.follow(self.leader)
        if self.leader.tree.encoder.sparse is None:
            fresh.add_pairs(self.leader)
            self.extend_scale()
        fresh.tree.finish()
        with self.changing():
            self.members[place] = fresh
            self.seat(place)

    def extend_scale(self) -> None:
        """Set the scale of new features; existing ones keep theirs."""
        known = self.scale
        self.scale = np.append(known, scale_of(self.leader.engine)[len(known) :])

    # ------------------------------------------------------------------ size
    @property
    def n_nodes(self) -> int:
        """Nodes of all trees."""
        return sum(member.engine.n_nodes for member in self.members)

    def memory_usage(self) -> int:
        """Return the bytes that the members' engines hold."""
        own = sum(member.engine.memory_usage() for member in self.members)
        return own + self.kernel.memory_usage()
