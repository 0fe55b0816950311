"""Members: the trees of a forest, their own inputs, and how they follow the first.

A curve models the effect of one feature; only splits could model interactions. So each tree of a
forest except the first has hinges of random pairs of numbers as further inputs, max(0, a z_p + b
z_q + c), where z is the standardised number. The trees differ in their pairs.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.learn._kernels import MAX_LEVELS, SparseRows
from driftree.learn.columns import level_names
from driftree.learn.constants import FLAT, GROWING
from driftree.learn.evidence import constants_of
from driftree.learn.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import MeasuredEngine, _TreeEngine
    from driftree.learn.constants import MeasuredConstants
    from driftree.learn.parameters import ForestParameters, MeasuredParameters
    from driftree.learn.tree import Tree

    Rows = tuple[NDArray[np.float64], SparseRows | None]

GROWTH = ("features", "categorical", "levels", "missing")  # for the kernels


class Pairs:
    """The hinges of one tree, and the origin of its features.

    Attributes
    ----------
    sources : array of int32
        By feature of the tree: the feature of the forest that it is, or -1 - i for hinge i.
    ends : array of int32, of shape (n_pairs, 2)
        The two features of the forest that a hinge uses.
    slopes : array, of shape (n_pairs, 3)
        a, b and c of each.
    """

    def __init__(self) -> None:
        self.sources = np.empty(0, dtype=np.int32)
        self.ends = np.empty((0, 2), dtype=np.int32)
        self.slopes = np.empty((0, 3))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def n_shared(self) -> int:
        """Number of features that the tree shares with the forest."""
        return len(self.sources) - len(self)

    @property
    def places(self) -> NDArray[np.intp]:
        """By feature of the forest: which feature of the tree it is."""
        return np.flatnonzero(self.sources >= 0)

    def sharing(self, n_features: int) -> Pairs:
        """Return these hinges, and so many shared features."""
        grown = copy(self)
        fresh = np.arange(self.n_shared, n_features, dtype=np.int32)
        grown.sources = np.append(self.sources, fresh)
        return grown

    def draw(self, numbers: Sequence[int], n_pairs: int, seed: int) -> NDArray[np.int32]:
        """Draw random pairs of numeric features for new hinges."""
        draw = np.random.default_rng([seed, len(self)])
        ends = [draw.choice(numbers, 2, replace=False) for _ in range(n_pairs)]
        return np.array(ends, dtype=np.int32).reshape(-1, 2)

    def joined_by(self, ends: NDArray[np.int32], seed: int) -> Pairs:
        """Return these hinges, and further ones."""
        grown = copy(self)
        slopes = np.random.default_rng([seed, len(self), 1]).normal(size=(len(ends), 3))
        fresh = -1 - np.arange(len(self), len(self) + len(ends), dtype=np.int32)
        grown.ends = np.concatenate([self.ends, ends])
        grown.slopes = np.concatenate([self.slopes, slopes])
        grown.sources = np.append(self.sources, fresh)
        return grown

    # ------------------------------------------------------------------ keeping
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return a copy of all arrays by name."""
        return {
            "sources": self.sources.copy(),
            "ends": self.ends.reshape(-1).copy(),
            "slopes": self.slopes.reshape(-1).copy(),
        }

    def restore(self, arrays: dict[str, NDArray[Any]], n_features: int) -> None:
        """Restore arrays; raise ValueError if they are invalid."""
        names = ("sources", "ends", "slopes")
        if arrays.keys() != {*names}:
            raise ValueError(f"the pairs of features must have {', '.join(names)}")
        sources, ends, slopes = (arrays[name] for name in names)
        n_pairs = len(slopes) // 3
        is_sound = (
            sources.dtype == ends.dtype == np.int32
            and slopes.dtype == np.float64
            and len(slopes) == 3 * n_pairs
            and len(ends) == 2 * n_pairs
            and np.array_equal(sources[sources >= 0], np.arange(n_features))
            and np.array_equal(-1 - sources[sources < 0], np.arange(n_pairs))
            and bool(((ends >= 0) & (ends < n_features)).all())
            and bool(np.isfinite(slopes).all())
        )
        if not is_sound:
            raise ValueError("the pairs of features are invalid")
        self.sources, self.ends = sources.copy(), ends.reshape(-1, 2).copy()
        self.slopes = slopes.reshape(-1, 3).copy()


def varies(engine: _TreeEngine) -> NDArray[np.bool_]:
    """Return which numbers have varied so far, by more than rounding.

    A hinge of a constant would itself be constant.
    """
    mean, factor = engine.scale_mean, engine.scale_factor
    has_both = (mean > 0) & (mean < 1)
    is_wide = (factor > 0) & (np.abs(mean) * factor < 1e9)
    return np.where(engine.scale_is_indicator != 0, has_both, is_wide)


def scale_of(engine: _TreeEngine) -> NDArray[np.float64]:
    """Return shift and factor of each feature: z = (x - shift) * factor, standardised."""
    factor = np.where(engine.scale_is_indicator, 1.0, 2.0) * engine.scale_factor
    return np.column_stack([engine.scale_shift, factor]).reshape(-1)


# ---------------------------------------------------------------------- members
def looks_for_more(parameters: Any) -> bool:
    """Return whether a tree may ever grow beyond its first model."""
    return bool(parameters.max_depth or parameters.max_bends)


def light_constants(own: MeasuredParameters, forest: ForestParameters) -> MeasuredConstants | None:
    """Return the constants of a tree with pairs; None for one without, which is a plain tree.

    `OfForest.of_member` defines its parameters. Files may hold trees with others.
    """
    if own.absent == "zero":
        return None
    alone, light = constants_of(forest), forest.constants
    return replace(
        alone,
        first_rows=alone.first_rows if looks_for_more(own) else 0,
        inner_trials=light.inner_trials,
        passes=light.passes,
        rows_per_input=alone.rows_per_input * own.model_window / forest.model_window,
        single_columns=light.single_columns,
    )


class Member:
    """A tree of a forest, and its own inputs.

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
        # of a number that is followed, some are known
        self.pairs = Pairs().sharing(tree.engine.n_features)
        self._grown: Pairs | None = None
        self.since = since
        self._ids = np.empty(0, dtype=np.int32)  # of sparse features, by the first member's
        self._n_given_up = (0, 0)

    @property
    def seed(self) -> int:
        """The seed of its pairs and its order of rows."""
        return self.tree.parameters.seed

    @property
    def engine(self) -> MeasuredEngine:
        """The kernels that hold its tree."""
        return self.tree.engine  # type: ignore[return-value]

    # ------------------------------------------------------------------ rows
    def seen(self, leader: Member) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return the origin of this tree's features, and its hinges, for the kernels."""
        pairs = self.pairs
        is_plain = self is leader or leader.tree.encoder.sparse is not None
        sources = np.empty(0, dtype=np.int32) if is_plain else pairs.sources
        return sources, pairs.ends.reshape(-1), pairs.slopes.reshape(-1)

    def own_sparse(self, sparse: SparseRows, leader: Member) -> SparseRows:
        """Return sparse rows with this tree's ids; names that it does not have are left out."""
        if self is leader:
            return sparse
        self._forget_ids(leader)
        ids = sparse.ids
        n = int(ids.max()) + 1 if len(ids) else 0
        known = np.full(max(n, len(self._ids)), -1, dtype=np.int32)
        known[: len(self._ids)] = self._ids
        fresh = np.unique(ids[known[ids] < 0]).tolist()
        if fresh:
            found = self.tree.encoder.row_face.sparse_ids(
                leader.tree.encoder.row_face.names_of(fresh), learning=False, centred=False
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
        """Register names of sparse features, before rows that hold them are learnt."""
        features = self.tree.encoder.sparse
        self._forget_ids(leader)
        ids, counts = np.unique(sparse.ids, return_counts=True)
        within = ids[ids < len(self._ids)]
        if features is None or (len(within) == len(ids) and (self._ids[within] >= 0).all()):
            return
        features.expect()
        names = leader.tree.encoder.row_face.names_of(ids.tolist())
        are_centred = (leader.engine.sparse_is_centred[ids] != 0).tolist()
        centred = {name for name, own in zip(names, are_centred, strict=True) if own}
        held = dict(zip(names, counts.tolist(), strict=True))
        features.admit(held, centred=centred)  # known names, too: these are not evicted now

    def _forget_ids(self, leader: Member) -> None:
        """Forget which ids are the same names if names were evicted since."""
        stamp = leader.engine.n_given_up, self.engine.n_given_up
        if stamp != self._n_given_up:
            self._ids, self._n_given_up = np.empty(0, dtype=np.int32), stamp

    # ------------------------------------------------------------------ growing
    # As with changes of a tree, an exception (Ctrl-C) may come between any two lines: the pairs of
    # the grown tree are noted first, the tree grows in one call that succeeds or does nothing, and
    # `settle` does the rest.
    def _grow(self, words: Vocabulary, pairs: Pairs, growth: dict[str, list[Any]]) -> None:
        """Add words and features to the tree, and its pairs with them."""
        self._grown = pairs
        self.tree.encoder.row_face.commit(words, **growth, n_classes=len(words.labels))
        self.settle()

    def settle(self) -> None:
        """Take the pairs of a tree that has grown."""
        grown = self._grown
        if grown is not None and len(grown.sources) == self.engine.n_features:
            self.pairs = grown
        self._grown = None

    def follow(self, leader: Member) -> bool:
        """Copy new features, levels and labels of the first member."""
        self.settle()
        encoder = leader.tree.encoder
        known, own = encoder.known, self.tree.encoder.row_face.known
        words = own.with_labels(known.label_list[len(own.labels) :])
        growth: dict[str, list[Any]] = {key: [] for key in GROWTH}
        n_features, pairs = len(known.names), self.pairs
        if encoder.sparse is None and n_features:  # of sparse ones each tree has its own
            pairs = self.pairs.sharing(n_features)
            n_fresh = n_features - self.pairs.n_shared
            places = np.append(self.pairs.places, self.engine.n_features + np.arange(n_fresh))
            growth = self._growth(leader, places, n_features - n_fresh)
            if any(growth.values()):
                words = self._words_with(words, known, places)
        if words is own and not any(growth.values()):
            return False
        self._grow(words, pairs, growth)
        return True

    def _growth(
        self, leader: Member, places: NDArray[np.intp], n_known: int
    ) -> dict[str, list[Any]]:
        """Return what this schema lacks compared with the first member's, for the kernels."""
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
        """Return this tree's names together with the first member's names and levels."""
        names = list(own.feature_names)
        for name in known.feature_names[self.pairs.n_shared :]:
            names.append(_unused(name, names))
        levels: list[dict[Hashable, int] | None] = [None] * len(names)
        for j, place in enumerate(places.tolist()):
            levels[place] = known.levels[j]
        return Vocabulary.of({name: i for i, name in enumerate(names)}, levels, own.labels)

    def count_pairs(self, n_numbers: int) -> int:
        """Return the number of hinges for so many numeric features."""
        kind = GROWING if looks_for_more(self.tree.parameters) else FLAT
        return min(kind.pairs_per_feature * n_numbers, kind.most_pairs)

    def add_pairs(self, leader: Member) -> None:
        """Add hinges for the numeric features."""
        self.settle()
        first = len(level_names(leader.engine))
        numbers = np.flatnonzero((leader.engine.value_column >= 0) & varies(leader.engine))
        numbers = numbers[numbers >= first]
        n_pairs = self.count_pairs(len(numbers)) - len(self.pairs)
        if len(numbers) < 2 or n_pairs <= 0:
            return
        shown = leader.tree.encoder.display_names
        by_name = sorted(numbers.tolist(), key=shown.__getitem__)  # in any order of arrival
        ends = self.pairs.draw(by_name, n_pairs, self.seed)
        words: Vocabulary = self.tree.encoder.row_face.known
        names = list(words.feature_names)
        for i, (p, q) in enumerate(ends.tolist(), len(self.pairs) + 1):
            names.append(_unused(f"{shown[p]} & {shown[q]} #{i}", names))
        levels = [*words.levels, *[None] * len(ends)]
        words = Vocabulary.of({name: i for i, name in enumerate(names)}, levels, words.labels)
        growth: dict[str, list[Any]] = {key: [] for key in GROWTH}
        growth["features"] = [(False, True)] * len(ends)
        self._grow(words, self.pairs.joined_by(ends, self.seed), growth)
        self.tree.finish()


def _unused(name: Hashable, names: Sequence[Hashable]) -> Hashable:
    while name in names:  # a feature may be named like a pair
        name = f"{name} "
    return name
