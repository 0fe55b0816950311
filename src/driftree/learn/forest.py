"""Forest: several trees that learn the same rows, and what they say together.

To the estimators a forest is like a tree: something that has an engine, an encoder and a target,
and takes steps. The first member is a plain tree. It reads the rows for all (`encoder`), and its
table scales them; the others follow its features, levels and labels, and see hinges of pairs of
features besides (`pairs`). What the members say is added up by the `Stack`.
"""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn._kernels import MAX_LEVELS, Lock, SparseRows, Stack
from driftree.learn.constants import FOREST
from driftree.learn.encoding import Encoder
from driftree.learn.events import MemberReplaced
from driftree.learn.pairs import Pairs, scale_of
from driftree.learn.target import Labels, Numbers
from driftree.learn.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import MeasuredEngine, Turn, _RowFace
    from driftree.learn.memory import Size
    from driftree.learn.parameters import ForestParameters
    from driftree.learn.target import Codes
    from driftree.learn.tree import Tree

    MakeTree = Callable[[Any], Tree]
    Rows = tuple[NDArray[np.float64], SparseRows | None]

MOST_SEED = 2**64
MOST_REPLACED = 1000  # that are remembered
LEVEL_FEATURES = 3  # of a number that is followed: no ends of pairs
ONE = np.ones(1)
GROWTH = ("features", "categorical", "levels", "missing")  # what the kernels are told of it


class Member:
    """A tree of a forest, and what only it sees.

    Attributes
    ----------
    tree : Tree
        It has its own engine, history and vocabulary.
    pairs : Pairs
        Its further inputs.
    seed : int
        Of its order of rows, and of its pairs.
    since : int
        Rows of the forest when it was made.
    """

    def __init__(self, tree: Tree, since: int = 0) -> None:
        self.tree = tree
        self.pairs = Pairs()
        self.pairs.share(tree.engine.n_features)  # of a number that is followed, some are known
        self.since = since
        self._ids = np.empty(0, dtype=np.int32)  # of sparse features, by the first member's
        self._n_given_up = (0, 0)

    @property
    def seed(self) -> int:
        """What its pairs and its order of rows are drawn with."""
        return self.tree.parameters.seed

    @property
    def engine(self) -> MeasuredEngine:
        """The kernels that hold its tree."""
        return self.tree.engine  # type: ignore[return-value]

    # ------------------------------------------------------------------ rows
    def rows(self, given: Rows, leader: Member, scale: NDArray[np.float64]) -> Rows:
        """Return rows of the forest as rows of this tree."""
        matrix, sparse = given
        if self is leader:
            return given
        if sparse is not None:
            return matrix, self._own_sparse(sparse, leader)
        if matrix.shape[1] < self.pairs.n_shared:  # features that came since the rows were read
            more = leader.engine.absent[matrix.shape[1] :]
            matrix = np.column_stack([matrix, np.tile(more, (len(matrix), 1))])
        return self.pairs.extend(matrix, scale), None

    def _own_sparse(self, sparse: SparseRows, leader: Member) -> SparseRows:
        """Return the same with this tree's ids; what it has no place for is left out."""
        stamp = leader.engine.n_given_up, self.engine.n_given_up
        if stamp != self._n_given_up:
            self._ids, self._n_given_up = np.empty(0, dtype=np.int32), stamp
        ids = sparse.ids
        n = int(ids.max()) + 1 if len(ids) else 0
        known = np.full(max(n, len(self._ids)), -1, dtype=np.int32)
        known[: len(self._ids)] = self._ids
        fresh = np.unique(ids[known[ids] < 0]).tolist()
        if fresh:
            names = leader.tree.encoder.row_face.sparse_names()
            found = self.tree.encoder.row_face.sparse_ids(
                [names[i] for i in fresh], learning=False, centred=False
            )
            assert found is not None
            known[fresh] = found
            self._ids = known
        own = known[ids]
        if (own >= 0).all():
            return SparseRows(sparse.begin, own, sparse.values)
        begin = np.concatenate([[0], np.cumsum(own >= 0)])[sparse.begin].astype(np.int64)
        return SparseRows(begin, own[own >= 0], sparse.values[own >= 0])

    def admit(self, sparse: SparseRows, leader: Member) -> None:
        """Give names of sparse features a place, before rows that hold them are learnt."""
        features = self.tree.encoder.sparse
        ids, counts = np.unique(sparse.ids, return_counts=True)
        is_known = np.zeros(len(ids), dtype=bool)
        within = ids < len(self._ids)
        is_known[within] = self._ids[ids[within]] >= 0
        if features is None or is_known.all():
            return
        names, centred = (
            leader.tree.encoder.row_face.sparse_names(),
            leader.engine.sparse_is_centred,
        )
        for is_centred in (False, True):
            chosen = ~is_known & (centred[ids] == is_centred)
            found = {names[i]: int(n) for i, n in zip(ids[chosen], counts[chosen], strict=True)}
            features.admit(found, centred=is_centred)

    # ------------------------------------------------------------------ growing
    def follow(self, leader: Member) -> None:
        """Take over what the first member knows of features, levels and labels."""
        encoder, face = leader.tree.encoder, self.tree.encoder.row_face
        known, own = encoder.known, face.known
        words = own.with_labels(known.label_list[len(own.labels) :])
        growth: dict[str, list[Any]] = {key: [] for key in GROWTH}
        n_features = len(known.names)
        if encoder.sparse is None and n_features:  # of sparse ones each tree has its own
            n_fresh = n_features - self.pairs.n_shared
            places = np.append(self.pairs.places, self.engine.n_features + np.arange(n_fresh))
            growth = self._growth(leader, places, n_features - n_fresh)
            if any(growth.values()):
                words = self._words_with(words, known, places)
        if words is own and not any(growth.values()):
            return
        face.commit(words, **growth, n_classes=len(words.labels))
        if encoder.sparse is None:
            self.pairs.share(n_features)

    def _growth(
        self, leader: Member, places: NDArray[np.intp], n_known: int
    ) -> dict[str, list[Any]]:
        """Return what the first member's schema has and this one has not, as kernels take it."""
        theirs, ours, known = leader.engine, self.engine, places[:n_known]
        is_categorical, has_value = theirs.is_categorical != 0, theirs.value_column >= 0
        turned = is_categorical[:n_known] & (ours.is_categorical[known] == 0)
        levels = (theirs.level_column >= 0).reshape(-1, MAX_LEVELS + 1)
        levels[:n_known] &= (ours.level_column < 0).reshape(-1, MAX_LEVELS + 1)[known]
        missing = theirs.missing_column >= 0
        missing[:n_known] &= ours.missing_column[known] < 0
        return {
            "features": [
                (bool(is_categorical[j]), bool(has_value[j])) for j in range(n_known, len(places))
            ],
            "categorical": [(int(places[j]), bool(has_value[j])) for j in np.flatnonzero(turned)],
            "levels": [(int(places[j]), int(code)) for j, code in np.argwhere(levels)],
            "missing": places[missing].tolist(),
        }

    def _words_with(
        self, own: Vocabulary, known: Vocabulary, places: NDArray[np.intp]
    ) -> Vocabulary:
        """Return this tree's names with the first member's, whose levels it has, too."""
        names = list(own.feature_names)
        for name in known.feature_names[self.pairs.n_shared :]:
            names.append(_unused(name, names))
        levels: list[dict[Hashable, int] | None] = [None] * len(names)
        for j, place in enumerate(places.tolist()):
            levels[place] = known.levels[j]
        return Vocabulary.of({name: i for i, name in enumerate(names)}, levels, own.labels)

    def add_pairs(self, leader: Member) -> None:
        """Have as many hinges as the numbers among the features are worth."""
        first = LEVEL_FEATURES if leader.engine.has_level else 0
        numbers = np.flatnonzero(leader.engine.value_column >= 0)
        numbers = numbers[numbers >= first]
        n_pairs = min(FOREST.pairs_per_feature * len(numbers), FOREST.most_pairs) - len(self.pairs)
        if len(numbers) < 2 or n_pairs <= 0:
            return
        face, shown = self.tree.encoder.row_face, leader.tree.encoder.display_names
        by_name = sorted(numbers.tolist(), key=shown.__getitem__)  # whatever order they came in
        ends = self.pairs.draw(by_name, n_pairs, self.seed)
        words: Vocabulary = face.known
        names = list(words.feature_names)
        for i, (p, q) in enumerate(ends.tolist(), len(self.pairs) + 1):
            names.append(_unused(f"{shown[p]} & {shown[q]} #{i}", names))
        levels = [*words.levels, *[None] * len(ends)]
        words = Vocabulary.of({name: i for i, name in enumerate(names)}, levels, words.labels)
        n_classes = len(words.labels)
        features = [(False, True)] * len(ends)
        face.commit(
            words, features=features, categorical=[], levels=[], missing=[], n_classes=n_classes
        )
        self.pairs.add(ends, self.seed)
        self.tree.finish()


def _unused(name: Hashable, names: Sequence[Hashable]) -> Hashable:
    while name in names:  # a feature may be named like a pair
        name = f"{name} "
    return name


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
        n_jobs = min(self.parameters.n_threads, len(self.members))
        if n_jobs == 1 or n_cells < FOREST.parallel_cells:
            return [work(member) for member in self.members]
        tasks = [_pool(os.getpid(), n_jobs).submit(work, member) for member in self.members]
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
def _pool(pid: int, n_jobs: int) -> ThreadPoolExecutor:
    """Return threads; a forked process has none of its parent's, hence the first argument."""
    return ThreadPoolExecutor(n_jobs, thread_name_prefix="driftree")


class ForestFace:
    """What a row face is to a tree: reads dicts for all members."""

    def __init__(self, engine: ForestEngine) -> None:
        self.engine = engine

    @property
    def _face(self) -> _RowFace:
        return self.engine.leader.tree.encoder.row_face

    def __getattr__(self, name: str) -> Any:
        if name == "engine":
            raise AttributeError(name)
        return getattr(self._face, name)

    def commit(self, known: object, **growth: Any) -> None:
        """Let all members grow; the others follow the first."""
        self._face.commit(known, **growth)
        self.follow()

    def follow(self) -> None:
        """Let the others know what the first knows."""
        for member in self.engine.members[1:]:
            member.follow(self.engine.leader)

    def learn(self, x: Any, y: Any) -> Any:
        """Take one step with one dict; NotImplemented if something in it is new."""
        face, engine = self._face, self.engine
        with engine.writing():
            target, row = face.read_target(y), face.read_row(x, learning=True)
            if target is None or row is None:
                return NotImplemented
            engine.learn(row, np.array([target]), ONE)
            for member in engine.members:
                member.tree.end_call()
        return None

    def predict(self, x: Any) -> Any:
        """Return the most probable label or the number; NotImplemented if Python must read x."""
        engine = self.engine
        with engine.reading():
            row = self._face.read_row(x, learning=False)
            if row is None:
                return NotImplemented
            if not engine.leader.engine.has_labels:
                numbers = engine.numbers(row)[0]
                return float(numbers[len(numbers) // 2])
            return self._face.known.label_list[int(engine.most_probable(row)[0])]

    def probabilities(self, x: Any) -> dict[Any, float] | None:
        """Return the probability of each label; None if Python must read x."""
        with self.engine.reading():
            row = self._face.read_row(x, learning=False)
            if row is None:
                return None
            proba = self.engine.probabilities(row)[0].tolist()
            return dict(zip(self._face.known.label_list, proba, strict=True))


class Forest:
    """A forest as the estimators know a tree.

    Parameters
    ----------
    parameters : ForestParameters or ForestNumberParameters
        Checked.
    make_tree : callable
        Makes a connected tree of a member's parameters.
    """

    def __init__(self, parameters: ForestParameters, make_tree: MakeTree) -> None:
        self.parameters = parameters
        self.core = ForestEngine(parameters, make_tree)
        self.engine: Any = self.core  # as the estimators take it
        leader = self.core.leader.tree
        self.face = ForestFace(self.core)
        self.encoder = Encoder(
            self.face,  # type: ignore[arg-type]
            leader.engine,
            leader.encoder.categorical,
            indicators=True,
            sparse=leader.encoder.sparse,
        )
        target = Labels if leader.engine.has_labels else Numbers
        self.target = target(self.face, self.engine)  # type: ignore[arg-type]
        self.face.follow()  # a target that is followed has features from the start

    @property
    def members(self) -> list[Member]:
        """The members, the plain tree first."""
        return self.core.members

    @property
    def trees(self) -> list[Tree]:
        """Their trees."""
        return [member.tree for member in self.core.members]

    # ------------------------------------------------------------------ as a tree does
    @property
    def n_nodes(self) -> int:
        """Nodes of all trees."""
        return self.core.n_nodes

    @property
    def step_rows(self) -> int:
        """Rows of a batch that are learnt at a time, at most."""
        return min(tree.step_rows for tree in self.trees)

    def learn(
        self,
        X: NDArray[np.float64],
        y: Codes,
        w: NDArray[np.float64],
        sparse: SparseRows | None = None,
    ) -> None:
        """Take one step; who calls has the engine's turn."""
        self.core.learn(X, y, w, sparse)

    def decide(self) -> None:
        """Decide the nodes that are due."""
        for tree in self.trees:
            tree.decide()

    def leaves(self) -> list[int]:
        """Return the leaves of the first tree from left to right."""
        return self.core.leader.tree.leaves()

    def leaf_bytes(self, size: Size) -> int:
        """Return the bytes of trees of one leaf each."""
        n_pairs = min(FOREST.most_pairs, FOREST.pairs_per_feature * size.n_features)
        wide = replace(
            size, n_features=size.n_features + n_pairs, n_columns=size.n_columns + n_pairs
        )
        first, *others = self.trees
        return first.leaf_bytes(size) + sum(tree.leaf_bytes(wide) for tree in others)

    def expect_classes(self, labels: Sequence[Hashable]) -> None:
        """Make ready for labels to come."""
        for tree in self.trees:
            tree.expect_classes(labels)

    def end_call(self) -> None:
        """Do what is to be done after all rows of a call."""
        for tree in self.trees:
            tree.end_call()

    def finish(self) -> None:
        """Bring to an end what is new or was interrupted, in all trees."""
        with self.core.writing():
            self.face.follow()
            for tree in self.trees:
                tree.finish()

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to finish."""
        return all(tree.is_finished for tree in self.trees)

    def check(self, histories: Iterable[Any]) -> None:
        """Raise unless each tree keeps to its parameters, and a history is that of its tree."""
        for tree, history in zip(self.trees, histories, strict=True):
            tree.check(history)

    # ------------------------------------------------------------------ keeping
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a copy of what was learnt besides the trees, by name."""
        engine = self.core
        found = {f"stack.{name}": array for name, array in engine.stack.arrays().items()}
        for i, member in enumerate(self.members[1:], 1):
            pairs = member.pairs.arrays()
            found |= {f"pairs{i}.{name}": array for name, array in pairs.items()}
        looks = [
            [look.n_rows, *look.agreement, *look.weights, *look.losses] for look in engine.looks
        ]
        counts = [engine.next_scale, engine.next_look, engine.n_replaced]
        return found | {
            "scale": engine.scale.copy(),
            "looks": np.array(looks, dtype=np.float64).reshape(-1),
            "counts": np.array(counts, dtype=np.int64),
            "since": np.array([member.since for member in self.members], dtype=np.int64),
        }

    def knowledge(self) -> dict[str, Any]:
        """Return a copy of what was learnt besides the trees."""
        self.finish()
        return {"arrays": self.arrays(), "replaced": list(self.core.replaced)}

    def restore(self, knowledge: dict[str, Any]) -> None:
        """Take such a copy over, after the trees took over theirs; raise if it is not sound."""
        arrays = knowledge["arrays"]
        engine, n = self.core, len(self.members)
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        for name, array in arrays.items():
            start, _, rest = name.rpartition(".")
            parts.setdefault(start, {})[rest] = array
        own = parts.get("", {})
        wanted = {"", "stack", *(f"pairs{i}" for i in range(1, n))}
        is_whole = parts.keys() == wanted and own.keys() == {"scale", "looks", "counts", "since"}
        if not is_whole:
            raise ValueError("a forest must have weights, pairs, a scale and looks")
        engine.stack.restore(parts["stack"])
        n_features = 0 if self.encoder.sparse is not None else len(self.encoder.known.names)
        for i, member in enumerate(self.members[1:], 1):
            member.pairs.restore(parts[f"pairs{i}"], n_features)
            if n_features and len(member.pairs.sources) != member.engine.n_features:
                raise ValueError("the pairs are not those of the tree's features")
            ends = member.pairs.ends
            if len(ends) and (len(own["scale"]) % 2 or ends.max() >= len(own["scale"]) // 2):
                raise ValueError("the scale is not that of the pairs")
        width = 2 + 3 * n
        looks, counts, since = own["looks"], own["counts"], own["since"]
        is_sound = (
            own["scale"].dtype == looks.dtype == np.float64
            and bool(np.isfinite(own["scale"]).all() and np.isfinite(looks).all())
            and len(looks) % width == 0
            and len(looks) <= width * (FOREST.most_looks + 1)
            and counts.dtype == since.dtype == np.int64
            and counts.shape == (3,)
            and since.shape == (n,)
            and bool((counts >= 0).all() and (since >= 0).all())
        )
        if not is_sound:
            raise ValueError("what is known of the members is not sound")
        engine.scale = own["scale"].copy()
        engine.looks = [
            Look(int(row[0]), *(tuple(part.tolist()) for part in np.split(row[1:], [n, 2 * n])))
            for row in looks.reshape(-1, width)
        ]
        engine.next_scale, engine.next_look, engine.n_replaced = counts.tolist()
        engine.replaced = list(knowledge["replaced"])
        for member, rows in zip(self.members, since.tolist(), strict=True):
            member.since = rows
