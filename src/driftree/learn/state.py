"""State: what an estimator has learnt (a tree and an encoder), its size, how it is kept, copied."""

from __future__ import annotations

import contextlib
import copy
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

import numpy as np

from driftree.learn._kernels import Lock
from driftree.learn.memory import bytes_of, check_budget
from driftree.learn.storage import models
from driftree.learn.tables import array_names
from driftree.learn.validation import apply_weights, check_weights
from driftree.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from driftree.learn._kernels import Turn, _TreeEngine
    from driftree.learn.encoding import Batch, Encoder
    from driftree.learn.memory import Size
    from driftree.learn.tables import Table

STATE_VERSION = 2  # of what is pickled: to be raised with every change of it
State = TypeVar("State", bound="HasTree")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class LearningTree(Protocol):
    """What the estimators need of a tree; all else about it is its own business."""

    @property
    def parameters(self) -> Any:
        """The checked parameters that made it."""

    @property
    def engine(self) -> _TreeEngine:
        """The kernels that hold its arrays."""

    @property
    def encoder(self) -> Any:
        """The encoder: names, levels and labels."""

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""

    @property
    def step_rows(self) -> int:
        """Rows of a batch that are learnt at a time, at most."""

    def learn(self, X: NDArray[np.float64], y: NDArray[np.int32], w: NDArray[np.float64]) -> None:
        """Learn rows."""

    def decide(self) -> None:
        """Decide the nodes that are due."""

    def leaves(self) -> list[int]:
        """Return the leaves from left to right."""

    @property
    def savers(self) -> str:
        """The parameters that make it smaller, in words."""

    def leaf_bytes(self, size: Size) -> int:
        """Return the bytes of a tree of one leaf."""

    def expect_classes(self, labels: Sequence[Hashable]) -> None:
        """Make ready for labels to come."""

    def finish(self) -> None:
        """Bring to an end what is new or was interrupted: thresholds, the last event."""

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing to finish."""

    def knowledge(self) -> dict[str, Any]:
        """Return a copy of all that was learnt."""

    def restore(self, knowledge: dict[str, Any]) -> None:
        """Take over the knowledge of another tree; raise ValueError if it is not sound."""


class HasTree(Protocol):
    """Whatever may have learnt a tree."""

    @property
    def _tree(self) -> LearningTree | None: ...


def undisturbed(
    method: Callable[Concatenate[State, Arguments], Result],
) -> Callable[Concatenate[State, Arguments], Result]:
    """Let a method see one whole state of the model: no other thread learns meanwhile."""

    @wraps(method)
    def look(self: State, /, *arguments: Arguments.args, **more: Arguments.kwargs) -> Result:
        while (tree := self._tree) is not None:
            if not tree.is_finished:
                tree.finish()
            with tree.engine.reading():
                if tree is self._tree:  # `fit` makes a new one
                    return method(self, *arguments, **more)
        return method(self, *arguments, **more)

    return look


class Unsaved:
    """What is no part of a model: not in its __dict__, which is what others copy and compare."""

    __slots__ = ("_lock", "_sizes")
    _lock: Lock
    _sizes: dict[Hashable, int]

    def __new__(cls, *_: Any, **__: Any) -> Self:  # noqa: D102
        self = super().__new__(cls)
        self._lock = Lock()
        return self

    def _learning(self) -> Turn:
        """Return the turn that a thread has for all of a call that learns."""
        return self._lock.hold()


class LearntState(Unsaved):
    """What the estimators share; nothing is kept before something was learnt.

    Threads take turns. Those that predict share theirs; one that learns has its own for each step,
    which includes the decisions and all that is new. So whoever looks sees the model after a whole
    step (`undisturbed`). Calls that learn come one after the other (`_learning`), but for rows of
    `learn_one` in which nothing is new: these may come between the steps of a batch.
    """

    categorical: Sequence[Hashable] | None
    _tree: LearningTree | None = None

    @property
    def _encoder(self) -> Encoder | None:
        return None if self._tree is None else self._tree.encoder

    def _read_parameters(self) -> Any:
        """Return the parameters, checked."""
        raise NotImplementedError

    @staticmethod
    def _new_parts(
        parameters: Any, categorical: Sequence[Hashable] | None
    ) -> tuple[LearningTree, Encoder]:
        """Return a new tree and its encoder."""
        raise NotImplementedError

    # ------------------------------------------------------------------ learning
    def _parts(self, *, afresh: bool = False) -> tuple[LearningTree, Encoder]:
        """Return tree and encoder, or new ones; `_learn` keeps them when nothing can fail."""
        if self._tree is not None and not afresh:
            return self._tree, self._tree.encoder
        return self._new_parts(self._read_parameters(), self.categorical)

    def _learn(
        self,
        parts: tuple[LearningTree, Encoder],
        batch: Batch,
        labels: tuple[NDArray[np.int32], list[Hashable]],
        weights: NDArray[np.float64] | None,
        step_rows: int | None = None,
    ) -> None:
        """Learn what has been read and checked."""
        tree, encoder = parts
        codes, new_labels = labels
        if new_labels or batch.brings_columns:
            check_budget(tree, encoder.size_with(batch, new_labels))
        X, y, w = apply_weights(batch.matrix, codes, weights)
        with tree.engine.writing():  # what is new comes with the step that brings it
            tree.expect_classes([*encoder.labels, *new_labels])
            encoder.commit(batch, new_labels)
            tree.finish()
            size = min(step_rows or tree.step_rows, tree.step_rows)
            tree.learn(X[:size], y[:size], w[:size])
            self._keep(tree)
        for start in range(size, len(X), size):
            rows = slice(start, start + size)
            tree.learn(X[rows], y[rows], w[rows])

    def _keep(self, tree: LearningTree) -> None:
        """Let a tree be the model's, while nobody looks at the one before it."""
        before = self._tree
        if before is tree:
            return
        with contextlib.nullcontext() if before is None else before.engine.writing():
            self._tree = tree

    def _learn_checked(
        self,
        X: Table,
        names: list[Hashable] | None,
        labels: Any,
        sample_weight: ArrayLike | None,
        *,
        expected: Iterable[Any] | None = None,
        is_first: bool = False,
        afresh: bool = False,
        step_rows: int | None = None,
    ) -> None:
        """Read rows, labels and weights; if all of them are right, learn."""
        if len(labels) != len(X):
            raise ValueError(
                f"X has {len(X)} rows, but y has {len(labels)} labels: give one per row"
            )
        weights = check_weights(sample_weight, len(X))
        rows = None
        if weights is not None and not weights.all():
            rows = np.flatnonzero(weights)
            weights = weights[rows]
            if is_first and not len(rows):
                raise ValueError("Sample weights must contain at least one non-zero number.")
        if len(X if rows is None else rows) == 0:
            return
        parts = self._parts(afresh=afresh)
        encoder = parts[1]
        if is_first:
            own_names = array_names(X.shape[1]) if isinstance(X, np.ndarray) else X.columns
            encoder.check_declared(names or own_names)
        batch = encoder.read(X, names, learning=True, rows=rows)
        codes = encoder.read_labels(labels, expected, rows=rows)
        self._learn(parts, batch, codes, weights, step_rows)

    def _is_ready(self, X: Any, tree: LearningTree | None) -> bool:
        """Tell whether nothing in an array has to be read: as many plain numbers as always."""
        known = self.__dict__
        return (
            type(X) is np.ndarray
            and X.dtype == np.float64
            and X.ndim == 2
            and len(X) > 0
            and known.get("n_features_in_") == X.shape[1]
            and "feature_names_in_" not in known
            and tree is not None
            and tree.encoder.is_ready(X)
        )

    def _learn_ready(self, X: Any, y: Any) -> bool:
        """Learn arrays in which nothing is new, and say so; otherwise do nothing."""
        tree = self._tree
        if type(y) is not np.ndarray or y.ndim != 1 or not self._is_ready(X, tree):
            return False
        assert tree is not None
        codes = tree.encoder.known_codes(y) if len(y) == len(X) else None
        if codes is None:
            return False
        tree.learn(X, codes, np.ones(len(codes)))
        return True

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            raise

    # ------------------------------------------------------------------ what it knows
    @property
    def _fitted(self) -> LearningTree:
        """The tree, for attributes that are there once something was learnt."""
        tree = self._tree
        if tree is None:
            raise AttributeError(
                f"this {type(self).__name__} has learnt nothing yet: such attributes come with "
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
    @undisturbed
    def n_splits_(self) -> int:
        """Splits as the paper counts them: inner nodes, plus 1 (two classes) or c per leaf."""
        n_classes = len(self._fitted.encoder.labels)
        per_leaf = n_classes if n_classes > 2 else 1
        return self.n_leaves_ - 1 + self.n_leaves_ * per_leaf

    @property
    @undisturbed
    def n_parameters_(self) -> int:
        """Parameters as the paper counts them: inner nodes, plus the weights of each leaf model."""
        engine = self._fitted.engine
        weights = (engine.n_columns - 1) * max(1, engine.n_classes - 1)
        return self.n_leaves_ - 1 + self.n_leaves_ * int(weights)

    @property
    def n_rows_seen_(self) -> int:
        """Rows learnt so far; a weight counts as the rows it was turned into, at most 8."""
        return int(self._fitted.engine.n_rows)

    @undisturbed
    def memory_usage(self) -> int:
        """Return the bytes that the model holds.

        These are the tree's arrays, what learning keeps ready for its next step, names and labels,
        and the history; with what Python and its allocator need for them.
        """
        tree = self._tree
        return 0 if tree is None else tree.engine.memory_usage() + self._python_bytes(tree)

    def _python_bytes(self, tree: LearningTree) -> int:
        """Return the bytes of all Python objects; of the parts that have not changed, as before."""
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
        """Write the model to a file, which `driftree.load` reads; later versions will, too.

        The file is replaced whole: whatever happens meanwhile, it is the old one or the new one.

        Parameters
        ----------
        path : path
            The file, by convention `.dmt`. A link stays a link, and what it points to is replaced.

        See Also
        --------
        driftree.load : The model again.

        Notes
        -----
        A file holds no code, and reading one runs none. Names, levels and labels may be text,
        numbers, truth values, None, bytes and tuples of these. Subclasses, and models with
        attributes of others, are refused: pickle takes them. See `docs/files.md`.

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
        """Make tree and encoder of what another model has learnt, if that is sound."""
        parameters, arrays = learnt["parameters"], learnt["arrays"]
        n_trials = parameters.max_nodes * getattr(parameters, "trials", 0)
        for name, n in (("parent", parameters.max_nodes), ("trial_feature", n_trials)):
            if len(arrays.get(name, ())) != n:  # before a tree of this size is made
                raise ValueError(f"{name!r} must have a length of {n}, as the parameters say")
        tree, encoder = self._new_parts(parameters, learnt["categorical"])
        tree.restore(learnt)
        encoder.restore(learnt["names"], learnt["levels"], learnt["labels"])
        self._tree = tree

    # ------------------------------------------------------------------ copying
    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__) | {"_stamp": {"state": STATE_VERSION, "driftree": __version__}}
        tree = state.pop("_tree", None)
        if tree is None:
            return state
        encoder = tree.encoder
        with tree.engine.writing():
            state["_learnt"] = {
                **tree.knowledge(),
                "names": dict(encoder.names),
                "levels": [None if codes is None else dict(codes) for codes in encoder.levels],
                "labels": dict(encoder.labels),
                "parameters": tree.parameters,
                "categorical": sorted(encoder.categorical, key=repr),
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        _check_stamp(state.pop("_stamp", None))
        learnt = state.pop("_learnt", None)
        self.__dict__.update(state)
        if learnt is not None:
            self._take_over(learnt)

    def _get_params(self) -> dict[str, Any]:
        # River looks at the first item of every tuple: an empty one must not reach it.
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
        """Return a learner with the same parameters, and on demand the same knowledge.

        Parameters
        ----------
        new_params : dict, optional
            Parameters to change.
        include_attributes : bool, default=False
            True copies what was learnt.
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
    """Raise if a pickle is of another version than this one reads."""
    known = stamp if isinstance(stamp, dict) else {}
    if known.get("state") != STATE_VERSION:
        raise ValueError(
            f"the model was pickled by driftree {known.get('driftree', '(no version is given)')}, "
            f"and {__version__} does not read its pickles: load it with that version, write it "
            "with model.save(path), and read the file here with driftree.load(path)"
        )
