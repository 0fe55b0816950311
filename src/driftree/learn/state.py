"""State: what an estimator has learnt, a tree with encoder and target; size, copies, pickles."""

from __future__ import annotations

import copy
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from sklearn.exceptions import NotFittedError

from driftree.learn._kernels import Lock, StoredArrays, pack_arrays
from driftree.learn.encoding import Encoder, as_set, restore_names
from driftree.learn.memory import bytes_of
from driftree.learn.storage import models
from driftree.learn.target import Labels
from driftree.learn.vocabulary import Vocabulary
from driftree.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from driftree.learn._kernels import SparseRows, Turn, _TreeEngine
    from driftree.learn.memory import SchemaSize
    from driftree.learn.nodes import TreeNodes
    from driftree.learn.target import Codes, Target

STATE_VERSION = 5  # of the pickle format: increase it with every change
NO_WORDS = Vocabulary.of({}, [], {})  # shared by all trees without any
State = TypeVar("State", bound="HasTree")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class LearningTree(Protocol):
    """The interface of a tree for the estimators."""

    @property
    def parameters(self) -> Any:
        """Its validated parameters."""

    @property
    def engine(self) -> _TreeEngine:
        """The kernels that hold its arrays."""

    @property
    def encoder(self) -> Encoder:
        """Features and levels: what X means."""

    @property
    def target(self) -> Target:
        """Labels or numbers: what y means."""

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""

    @property
    def n_changes(self) -> int:
        """How often it has changed; 0 if unknown."""

    @property
    def recent_loss(self) -> float | None:
        """Mean loss of the last rows, predicted before learnt; None if unknown."""

    @property
    def label_rows(self) -> NDArray[np.float64] | None:
        """Rows of each label, as far as they are remembered; None if unknown."""

    @property
    def step_rows(self) -> int:
        """Largest number of rows of a step."""

    def learn(
        self,
        X: NDArray[np.float64],
        y: Codes,
        w: NDArray[np.float64],
        sparse: SparseRows | None = None,
        wholes: NDArray[np.float64] | None = None,
    ) -> None:
        """Learn at most `step_rows` rows in one step; the caller holds the engine's lock."""

    def decide(self) -> None:
        """Decide the nodes that are due."""

    def leaves(self) -> list[int]:
        """Return the leaves from left to right."""

    def leaf_bytes(self, size: SchemaSize) -> int:
        """Return the bytes of a tree of one leaf."""

    def expect_classes(self, labels: Sequence[Hashable]) -> None:
        """Prepare for new labels."""

    def end_call(self) -> None:
        """Finish a call, after all its rows."""

    def finish(self) -> None:
        """Complete what is new or was interrupted: thresholds, the last event."""

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to finish."""

    def knowledge(self) -> dict[str, Any]:
        """Return a copy of everything learnt."""

    def restore(self, knowledge: dict[str, Any]) -> None:
        """Restore what another tree has learnt; raise ValueError if it is invalid."""


def connect(
    tree: TreeNodes,
    categorical: Sequence[Hashable] | None,
    *,
    indicators: bool,
    target: type[Target] = Labels,
) -> None:
    """Set the encoder and the target of a new tree, which share one vocabulary."""
    row_face = tree.engine.row_face(NO_WORDS)
    tree.encoder = Encoder(
        row_face,
        tree.engine,
        categorical,
        indicators=indicators,
        sparse=tree.sparse_features(row_face, as_set(categorical)),
    )
    tree.target = target(row_face, tree.engine)  # type: ignore[call-arg]


class HasTree(Protocol):
    """An object that may have a tree."""

    @property
    def _tree(self) -> LearningTree | None: ...


def undisturbed(
    method: Callable[Concatenate[State, Arguments], Result],
) -> Callable[Concatenate[State, Arguments], Result]:
    """Run a method under the read lock: no other thread learns meanwhile."""
    return _in_turn(method, alone=False)


def undisturbed_alone(
    method: Callable[Concatenate[State, Arguments], Result],
) -> Callable[Concatenate[State, Arguments], Result]:
    """Run a method under the write lock, since it settles the paper's candidates."""
    return _in_turn(method, alone=True)


def _in_turn(
    method: Callable[Concatenate[State, Arguments], Result], *, alone: bool
) -> Callable[Concatenate[State, Arguments], Result]:
    @wraps(method)
    def look(self: State, /, *arguments: Arguments.args, **more: Arguments.kwargs) -> Result:
        while (tree := self._tree) is not None:
            if not tree.is_finished:
                tree.finish()
            with tree.engine.writing() if alone else tree.engine.reading():
                if tree is self._tree:  # `fit` creates a new one
                    return method(self, *arguments, **more)
        return method(self, *arguments, **more)

    return look


class Unsaved:
    """Per-process state, kept out of `__dict__` and so out of copies, pickles and comparisons."""

    __slots__ = ("_lock", "_sizes")
    _lock: Lock
    _sizes: dict[Hashable, int]

    def __new__(cls, *_: Any, **__: Any) -> Self:  # noqa: D102
        self = super().__new__(cls)
        self._lock = Lock()
        return self

    def _learning(self) -> Turn:
        """Return the lock for whole calls that learn."""
        return self._lock.hold()


class PickledArrays(dict[str, Any]):
    """Arrays by name, pickled in one piece, since there are a hundred small ones."""

    def __reduce__(self) -> tuple[Callable[[bytes], StoredArrays], tuple[bytes]]:
        return unpickle_arrays, (pack_arrays(self),)


def unpickle_arrays(packed: bytes) -> StoredArrays:
    """Return the arrays in a pickle, as input for `LearntState._take_over`."""
    return StoredArrays.unpack(packed)


def count_paper_splits(tree: LearningTree) -> int:
    """Return the inner nodes of a tree, plus 1 (two classes) or c per leaf."""
    n_classes, n_leaves = tree.engine.n_classes, (tree.n_nodes + 1) // 2
    return n_leaves - 1 + n_leaves * (n_classes if n_classes > 2 else 1)


def count_parameters(tree: LearningTree) -> int:
    """Return the inner nodes of a tree, plus the weights of each leaf model."""
    engine, leaves = tree.engine, tree.leaves()
    models = engine.model
    n_inputs = sum(len(engine.bends(int(models[leaf]))) for leaf in leaves)
    n_inputs += len(leaves) * (engine.n_columns - 1)
    if tree.encoder.sparse is not None:
        n_inputs += sum(map(tree.encoder.sparse.n_inputs, leaves))
    return len(leaves) - 1 + n_inputs * max(1, int(engine.n_classes) - 1)


def learnt_of(tree: LearningTree) -> dict[str, Any]:
    """Return a copy of everything that a tree has learnt, for `take_over`."""
    knowledge = tree.knowledge()
    return {
        **knowledge,
        "arrays": PickledArrays(knowledge["arrays"]),
        **tree.encoder.knowledge(),
        **tree.target.knowledge(),
        "parameters": tree.parameters,
    }


def take_over(tree: LearningTree, learnt: dict[str, Any]) -> None:
    """Restore what another tree has learnt, if it is valid."""
    tree.restore(learnt)
    restore_names(tree, learnt)
    restore_seen(tree, learnt.get("seen", {}))


def restore_seen(tree: LearningTree, seen: Mapping[str, NDArray[Any]]) -> None:
    """Restore the label statistics of another tree, if they are valid."""
    if tree.target.imbalance is not None:
        tree.target.imbalance.restore(seen, tree.target.label_list)
    elif seen:
        raise ValueError("label statistics need class_weight or threshold")


class LearntState(Unsaved):
    """The state of all estimators, and its locks; it has no tree before something was learnt.

    Predictions share a read lock; learning takes the write lock for each step, including decisions
    and new names. So readers see the model after a whole step (`undisturbed`). Calls that learn are
    serialised (`_learning`), except rows of `learn_one` without anything new: these may be learnt
    between the steps of a batch.
    """

    categorical: Sequence[Hashable] | None
    _tree: LearningTree | None = None

    def _read_parameters(self, *, is_sparse: bool = False) -> Any:
        """Return the validated parameters; `sparse` if the first rows are sparse."""
        raise NotImplementedError

    @staticmethod
    def _new_tree(parameters: Any, categorical: Sequence[Hashable] | None) -> LearningTree:
        """Return a new tree, connected with its encoder and its target."""
        raise NotImplementedError

    @classmethod
    def _bare_tree(cls, learnt: Mapping[str, Any]) -> LearningTree:
        """Return a tree for `take_over`, which sets features, levels and labels."""
        return cls._new_tree(learnt["parameters"], learnt["categorical"])

    # ------------------------------------------------------------------ what it knows
    @property
    def _fitted(self) -> LearningTree:
        """The tree, for attributes that exist once something was learnt."""
        tree = self._tree
        if tree is None:
            raise NotFittedError(
                f"this {type(self).__name__} has learnt nothing yet: such attributes exist after "
                "the first rows"
            )
        return tree

    @property
    @undisturbed
    def n_nodes_(self) -> int:
        """Number of nodes."""
        return self._fitted.n_nodes

    @property
    def n_leaves_(self) -> int:
        """Number of leaves."""
        return (self.n_nodes_ + 1) // 2

    @property
    @undisturbed
    def depth_(self) -> int:
        """Number of conditions on the longest path."""
        tree = self._fitted
        return max(int(tree.engine.depth[leaf]) for leaf in tree.leaves())

    @property
    def n_splits_(self) -> int:
        """Number of splits, which are the inner nodes."""
        return self.n_leaves_ - 1

    @property
    @undisturbed
    def n_paper_splits_(self) -> int:
        """Splits as the paper counts them: inner nodes, plus 1 (two classes) or c per leaf."""
        return count_paper_splits(self._fitted)

    @property
    @undisturbed
    def n_parameters_(self) -> int:
        """Parameters as the paper counts them: inner nodes, plus the weights of each leaf model."""
        return count_parameters(self._fitted)

    @property
    def n_rows_seen_(self) -> int:
        """Rows learnt so far; a weighted row counts as the rows it was converted to, at most 8."""
        return int(self._fitted.engine.n_rows)

    @undisturbed
    def memory_usage(self) -> int:
        """Return the bytes that the model holds.

        These are the tree's arrays, working memory, names and labels, and the history, including
        the overhead of Python and its allocator.
        """
        tree = self._tree
        return 0 if tree is None else tree.engine.memory_usage() + self._python_bytes(tree)

    def _python_bytes(self, tree: LearningTree) -> int:
        """Return the bytes of all Python objects; unchanged parts are cached."""
        engine, history = tree.engine, getattr(tree, "history", None)
        schema = engine.n_features, engine.n_columns, engine.n_classes
        parts = [(schema, self.__dict__), *(() if history is None else history.parts())]
        known = getattr(self, "_sizes", {})
        self._sizes = {
            key: known[key] if key in known else bytes_of(part, without=[history])
            for key, part in parts
        }
        return sum(self._sizes.values())

    # ------------------------------------------------------------------ files
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, which `driftree.load` of this and later versions reads.

        The file is replaced atomically: whatever happens meanwhile, it is the old one or the new
        one.

        Parameters
        ----------
        path : path
            The file, by convention `.dmt`. A link stays a link, and its target is replaced.

        See Also
        --------
        driftree.load : Reads the model.

        Notes
        -----
        A file holds no code, and reading one executes none. Names, levels and labels may be text,
        numbers, booleans, None, bytes and tuples of these. Subclasses, and models with other
        attributes, are refused: pickle supports them. See `docs/files.md`.

        Examples
        --------
        >>> import driftree
        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> model = driftree.DynamicModelTreeClassifier()
        >>> model.learn_one({"age": 31, "car": "van"}, "granted")
        >>> path = Path(mkdtemp(), "model.dmt")
        >>> model.save(path)
        >>> driftree.load(path).predict_one({"age": 31, "car": "van"})
        'granted'
        """
        models.save(self, path)

    def _take_over(self, learnt: dict[str, Any]) -> None:
        """Restore a tree from what another model has learnt, if it is valid."""
        tree = self._bare_tree(learnt)
        take_over(tree, learnt)
        self._tree = tree

    @staticmethod
    def _learnt_of(tree: Any) -> dict[str, Any]:
        """Return a copy of everything that a tree has learnt, for `_take_over`."""
        return learnt_of(tree)

    # ------------------------------------------------------------------ copying
    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__) | {"_stamp": {"state": STATE_VERSION, "driftree": __version__}}
        tree = state.pop("_tree", None)
        if tree is None:
            return state
        with tree.engine.writing():
            state["_learnt"] = self._learnt_of(tree)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        _check_stamp(state.pop("_stamp", None))
        learnt = state.pop("_learnt", None)
        self.__dict__.update(state)
        if learnt is not None:
            self._take_over(learnt)

    def _get_params(self) -> dict[str, Any]:
        # River reads the first item of every tuple, so empty ones must not reach it.
        params: dict[str, Any] = super()._get_params()  # type: ignore[misc]
        return {
            name: None if isinstance(value, tuple) and not value else value
            for name, value in params.items()
        }

    def clone(
        self,
        new_params: dict[str, Any] | None = None,
        include_attributes: bool = False,  # noqa: FBT001, FBT002 (River's signature)
    ) -> Self:
        """Return a learner with the same parameters and, optionally, the same state.

        Parameters
        ----------
        new_params : dict, optional
            Parameters to change.
        include_attributes : bool, default=False
            Whether to copy what was learnt.
        """
        clone: Self = super().clone(new_params)  # type: ignore[misc]
        if include_attributes:
            known = copy.deepcopy(self.__getstate__())
            clone.__setstate__({name: known[name] for name in known.keys() - self._get_params()})
        return clone

    @property
    def _raw_memory_usage(self) -> int:
        return self.memory_usage()


def _check_stamp(stamp: Any) -> None:
    """Raise if a pickle is of another version."""
    known = stamp if isinstance(stamp, dict) else {}
    if known.get("state") != STATE_VERSION:
        raise ValueError(
            f"the model was pickled by driftree {known.get('driftree', '(no version is given)')}, "
            f"and {__version__} does not read its pickles: load it with that version, write it "
            "with model.save(path), and read the file here with driftree.load(path)"
        )
