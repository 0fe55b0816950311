"""Estimator: how all stream estimators of this library learn, for any kind of target.

A call that learns is one pipeline. Everything is read and checked first, which changes nothing;
then new names are committed, and the rows are learnt in steps. The first step and its new names are
under one lock, so that readers see the model before the call or after a whole step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from driftree.learn.columns import Batch, News
from driftree.learn.encoding import FIRST_ROWS, check_dicts, check_news, register
from driftree.learn.parameters import count_threads
from driftree.learn.sparse import look_sparse
from driftree.learn.state import LearntState, undisturbed
from driftree.learn.tables import DictRows, NamedTable, check_rows, plain_columns, read_rows
from driftree.learn.target import Labels
from driftree.learn.times import split_row
from driftree.learn.validation import printable
from driftree.learn.weights import read_weights

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from driftree.learn._kernels import SparseRows
    from driftree.learn.state import LearningTree
    from driftree.learn.tables import Frame, Seen
    from driftree.learn.target import Answers, Codes
    from driftree.learn.validation import Rows
    from driftree.learn.weights import Weights

SEEN = ("n_features_in_", "feature_names_in_")
FEW = 5  # names that are listed


class Intake(NamedTuple):
    """The input of a call, read and checked, before anything of it is learnt."""

    tree: LearningTree
    X: NDArray[np.float64]
    answers: Answers
    w: NDArray[np.float64]
    wholes: NDArray[np.float64]
    """The weight of each row at its first copy, 0 at the others."""
    news: News
    """New features, levels and missing values."""
    seen: Seen | None = None
    """scikit-learn's attributes, if this is the first batch."""
    step_rows: int | None = None
    """Largest number of rows of a step; None is the tree's own."""
    sparse: SparseRows | None = None
    """The sparse features of the rows."""
    judged: NDArray[np.float64] | None = None
    """Weight of each row for the threshold, if there is one,"""
    counts: list[float] | None = None
    """and the label counts after all of them, with class weights."""

    @classmethod
    def of(
        cls,
        tree: LearningTree,
        batch: Batch,
        answers: Answers,
        weights: Weights,
        *,
        seen: Seen | None = None,
        step_rows: int | None = None,
    ) -> Intake:
        """Repeat each row by its weight and that of its label."""
        known, judged, counts = tree.target.imbalance, None, None
        if known is not None and known.weights is not None:
            labels = [*tree.target.label_list, *answers.new]
            factors, counts = known.weights.weigh(answers.codes, labels, weights.given)
            weights = weights.times(factors)
        if known is not None and known.threshold is not None:
            judged = weights.wholes
        X, sparse, copies = batch.matrix, batch.sparse, weights.copies
        if copies is not None:
            X, answers = X[copies], answers._replace(codes=answers.codes[copies])
            sparse = None if sparse is None else sparse.take(copies.astype(np.int64))
        w, wholes, news = weights.shares, weights.wholes, batch.news
        return cls(tree, X, answers, w, wholes, news, seen, step_rows, sparse, judged, counts)


class StreamEstimator(LearntState):
    """Base of all estimators: learning, and everything else that does not depend on the target."""

    FIT_ROWS: int | None = None
    """Rows per step in `fit`; None is all of them."""
    n_jobs: int | None = None
    """Number of threads; not a parameter of all estimators, nor in old pickles."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        return tags

    def __str__(self) -> str:
        """Summarise the model in three lines."""
        if self._tree is None:
            return repr(self)
        return "\n".join((repr(self), self._tell_what(), self._tell_size()))

    @undisturbed
    def _tell_what(self) -> str:
        """Describe what is predicted, and from what."""
        tree = self._fitted
        names = sorted(tree.encoder.given_names, key=tree.encoder.names.__getitem__)
        what = "a number"
        if isinstance(tree.target, Labels):
            labels = tree.target.label_list
            what = f"{_count(len(labels), 'label')} ({_few(labels)})"
        n_names = len(names) if tree.encoder.sparse is None else tree.encoder.row_face.n_sparse
        shown = f" ({_few(names)})" if names else ""
        return f"Predicts {what} from {_count(n_names, 'feature')}{shown}."

    def _tell_size(self) -> str:
        """Describe how much was learnt, and the size of the model."""
        n_leaves, events = self.n_leaves_, getattr(self, "events_", [])
        words = f"{_count(self.n_rows_seen_, 'row')} learnt; {n_leaves} "
        words += "leaf" if n_leaves == 1 else "leaves"
        if events:
            words += f", {_count(len(events), 'change')}, the last at row {events[-1].n_rows:,}"
        return f"{words}; {self.memory_usage() / 1e6:.1f} MB."

    def __sklearn_is_fitted__(self) -> bool:
        return self._tree is not None

    # ------------------------------------------------------------------ scikit-learn
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything, then learn the rows in their order.

        Parameters
        ----------
        X : array, data frame or dict of columns, of shape (n_rows, n_features)
            Numbers, text or booleans; None and NaN are missing.
        y : array of shape (n_rows,)
            Labels of any hashable type.
        sample_weight : array of shape (n_rows,), optional
            Weight 2 is the row twice, weight 0 is no row.

        Returns
        -------
        self
            If anything in the input is wrong, an error is raised and the model is unchanged.
        """
        with self._learning(), self._all_or_nothing():
            self._learn(self._read(X, y, sample_weight, is_first=True, afresh=True))
        return self

    def _learn_batch(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, expected: Any = None
    ) -> Self:
        """Learn a batch by scikit-learn's rules."""
        with self._learning():
            if expected is None and sample_weight is None and self._learn_ready(X, y):
                return self
            if self._tree is not None and "n_features_in_" in self.__dict__:
                if not (_is_empty(y) and _is_empty(X)):
                    self._learn(self._read(X, y, sample_weight, expected))
                return self
            undoing = self._all_or_nothing() if self._tree is None else contextlib.nullcontext()
            with undoing:  # what a tree of `learn_one` learns, only `_whole` can undo
                self._learn(self._read(X, y, sample_weight, expected, is_first=True))
        return self

    # ------------------------------------------------------------------ River
    def learn_one(self, x: Mapping[Hashable, Any], y: Hashable, w: float = 1.0) -> None:
        """Learn one row.

        Parameters
        ----------
        x : dict
            Feature names to values; absent keys, None and NaN are missing.
        y : hashable
            The label.
        w : float, default=1.0
            Weight; 2 is a batch of the row twice, 0 is no row.
        """
        tree = self._tree
        if tree is not None and w == 1.0 and tree.target.imbalance is None:
            turn = tree.encoder.row_face.learn(x, y)
            if turn is None:
                return
            if turn is not NotImplemented:
                with turn:  # one lock for the row and the decisions
                    tree.decide()
                return
        with self._learning():
            if tree is None or w != 1.0 or not _learn_weighed(tree, x, y):
                self._learn(self._read_one(x, y, w))  # something is new, invalid or weighted

    def _takes(self, x: Mapping[Hashable, Any], y: Hashable) -> bool:
        """Return whether nothing in a row is new or wrong, so that it will not be refused."""
        return self._tree is not None and self._tree.encoder.row_face.takes(x, y)

    def _check_one(self, x: Mapping[Hashable, Any], y: Hashable, w: float) -> None:
        """Raise if `learn_one` would; nothing is learnt."""
        with self._learning():
            self._read_one(x, y, w)

    def learn_many(self, X: Any, y: Any, w: ArrayLike | None = None) -> None:
        """Learn a data frame (pandas, polars, pyarrow, ...), whose columns may vary between calls.

        Parameters
        ----------
        X : data frame or dict of columns
            Columns are matched by name, in any order.
        y : series or sequence
            Labels of any hashable type.
        w : sequence of float, optional
            Weight 2 is the row twice, weight 0 is no row.
        """
        with self._learning():
            if w is None and self._learn_ready(X, y, by_name=True):
                return
            self._learn(self._read(X, y, w, by_name=True))

    # ------------------------------------------------------------------ first, read
    def _read(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None,
        expected: Any = None,
        *,
        by_name: bool = False,
        is_first: bool = False,
        afresh: bool = False,
    ) -> Intake | None:
        """Read rows, targets and weights; raise if any of them is wrong. Nothing changes.

        Parameters
        ----------
        X, y, sample_weight : any
            As given.
        expected : sequence, optional
            Targets to expect.
        by_name : bool
            River's rules: columns are matched by name, and may vary.
        is_first : bool
            Whether these are the first rows for scikit-learn's attributes.
        afresh : bool
            Whether to ignore what was learnt before.
        """
        rows = read_rows(X) if by_name else check_rows(X, self, is_first=is_first)
        n_rows = rows.table.shape[0]
        weights = read_weights(sample_weight, n_rows)
        if is_first and not len(weights.shares):
            raise ValueError("Sample weights must contain at least one non-zero number.")
        tree = self._tree_for(rows, weights.rows, afresh=afresh)
        answers = tree.target.read(
            y,
            n_rows,
            strict=not by_name,
            expected=expected,
            rows=weights.rows,
            are_all=afresh,
        )
        _expect(tree, answers)
        if isinstance(rows.table, DictRows) and tree.encoder.sparse is None:
            check_dicts(tree, rows.table, weights.rows)
        batch = tree.encoder.read(
            rows.table, rows.names, learning=True, rows=weights.rows, is_first=is_first
        )
        if not len(weights.shares):
            return None
        size = self.FIT_ROWS if afresh else None
        return Intake.of(tree, batch, answers, weights, seen=rows.seen, step_rows=size)

    def _read_one(self, x: Mapping[Hashable, Any], y: Hashable, w: float) -> Intake | None:
        """Read one row."""
        weights = read_weights(None if type(w) is float and w == 1 else [w], 1)
        tree = self._own_tree()
        if not len(weights.shares):
            return None
        if hasattr(x, "items"):  # raises if it is not a dict
            x = split_row(x, tree.encoder.names)
        if self._look_sparse([x], tree):
            tree = self._sparse_tree(tree)
        answers = tree.target.read([y], 1)
        _expect(tree, answers)
        batch = tree.encoder.read_dict(x, learning=True)
        return Intake.of(tree, batch, answers, weights)

    def _tree_for(self, rows: NamedTable, kept: Rows, *, afresh: bool) -> LearningTree:
        """Return the tree that is to learn rows of a table: the present one, or a new one."""
        tree = None if afresh else self._manned_tree
        if isinstance(rows.table, DictRows):
            dicts = rows.table.rows
            first = dicts if kept is None else [dicts[i] for i in kept[:FIRST_ROWS]]
            if self._look_sparse(first, tree):
                return self._sparse_tree(tree)
        if tree is not None:
            return tree
        is_told = getattr(self, "absent", None) is not None
        if isinstance(rows.table, DictRows) and not is_told:
            rows = NamedTable.of(rows.table.to_columns())
        is_wide = rows.is_wide and not self.categorical  # whose columns would be numbers there
        tree = self._own_tree(afresh=afresh, is_sparse=is_wide or rows.is_sparse)
        if is_wide and tree.encoder.sparse and not is_told:
            tree.encoder.sparse.is_wide = True
        return tree

    def _look_sparse(
        self, rows: Sequence[Mapping[Hashable, Any]], tree: LearningTree | None
    ) -> bool:
        """Return whether the first dicts of a model show that absent features are 0."""
        if (
            not getattr(self, "_takes_sparse", False)
            or getattr(self, "absent", None) is not None
            or "n_features_in_" in self.__dict__
        ):
            return False
        if tree is None:
            return look_sparse(rows[:FIRST_ROWS], ())
        n_left = FIRST_ROWS - tree.engine.n_rows
        if n_left <= 0 or tree.encoder.sparse is not None:
            return False
        return look_sparse(rows[:n_left], tree.encoder.given_names)

    def _sparse_tree(self, before: LearningTree | None) -> LearningTree:
        """Return a new tree of sparse features, with the labels that are known so far."""
        tree = self._own_tree(afresh=True, is_sparse=True)
        if before is not None:
            with tree.engine.writing():
                register(tree, News(), before.target.label_list)
        return tree

    def _own_tree(self, *, afresh: bool = False, is_sparse: bool = False) -> LearningTree:
        """Return the tree, or a new one, which `_learn` stores once nothing can fail."""
        tree = None if afresh else self._manned_tree
        if tree is not None:
            return tree
        return self._manned(
            self._new_tree(self._read_parameters(is_sparse=is_sparse), self.categorical)
        )

    @property
    def _manned_tree(self) -> LearningTree | None:
        """The tree, with the number of threads set."""
        tree = self._tree
        return None if tree is None else self._manned(tree)

    def _manned(self, tree: LearningTree) -> LearningTree:
        tree.engine.n_threads = count_threads(self.n_jobs)
        return tree

    # ------------------------------------------------------------------ then commit, then steps
    def _learn(self, intake: Intake | None) -> None:
        """Learn what has been read and checked."""
        if intake is None:
            return
        with self._whole(intake.tree, len(intake.X), intake.news), ended(intake.tree):
            self._take_steps(intake.tree, intake.X, intake.answers.codes, intake.w, intake)

    def _whole(
        self, tree: LearningTree, n_rows: int, news: News
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context that undoes the steps of a call if one fails; mostly none can."""
        return contextlib.nullcontext()

    def _take_steps(
        self,
        tree: LearningTree,
        X: NDArray[np.float64],
        y: Codes,
        w: NDArray[np.float64],
        intake: Intake | None = None,
    ) -> None:
        """Cut rows into steps and learn them; the first step also commits what is new."""
        fresh, most = intake, None if intake is None else intake.step_rows
        sparse = None if intake is None else intake.sparse
        wholes = w if intake is None else intake.wholes
        begin = None if sparse is None else sparse.begin
        start = 0
        while start < len(X):
            with tree.engine.writing():  # one lock for the sums and the decisions
                if fresh is not None:
                    commit(tree, fresh)
                size = tree.step_rows if most is None else min(most, tree.step_rows)
                if begin is not None and tree.encoder.sparse is not None:
                    size = tree.encoder.sparse.step_rows(begin, start, size)
                rows = slice(start, start + size)
                own = X[rows], None if sparse is None else sparse[rows]
                if intake is not None and intake.judged is not None:
                    judge(tree, *own, y[rows], intake.judged[rows])
                tree.learn(own[0], y[rows], w[rows], own[1], wholes[rows])
                if fresh is not None:
                    self._keep(tree, fresh.seen)
                    fresh = None
                start += size
                if start >= len(X):
                    tree.end_call()

    def _keep(self, tree: LearningTree, seen: Seen | None) -> None:
        """Make a tree the model's tree, atomically."""
        before = self._tree
        if before is tree and seen is None:
            return
        with contextlib.nullcontext() if before is None else before.engine.writing():
            if seen is None:
                self._tree = tree
                return
            kept = {name: value for name, value in vars(self).items() if name not in SEEN}
            self.__dict__ = kept | vars(seen) | {"_tree": tree}  # atomic

    @contextlib.contextmanager
    def _all_or_nothing(self, learnt: dict[str, Any] | None = None) -> Iterator[None]:
        """Restore the model if not all rows are learnt.

        `learnt` is its state if its own tree learns; otherwise a new tree does.
        """
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__ = before
            if learnt is not None:
                self.__setstate__(learnt)
            raise

    # ------------------------------------------------------------------ without all checks
    def _ready(
        self, X: Any, tree: LearningTree | None, *, learning: bool = False
    ) -> NDArray[np.float64] | None:
        """Return the matrix of an array or a frame with the usual columns, else None."""
        known = self.__dict__
        if tree is None or "n_features_in_" not in known:
            return None
        if "feature_names_in_" in known:
            return tree.encoder.ready(X, known["feature_names_in_"].tolist(), learning=learning)
        is_array = type(X) is np.ndarray and X.ndim == 2 and X.shape[1] == known["n_features_in_"]
        return tree.encoder.ready(X, None, learning=learning) if is_array else None

    def _learn_ready(self, X: Any, y: Any, *, by_name: bool = False) -> bool:
        """Learn rows in which nothing is new and return True; otherwise do nothing."""
        tree = self._manned_tree
        if tree is None or tree.target.imbalance is not None or not tree.encoder.only_numbers:
            return False
        if by_name:
            matrix = tree.encoder.ready(X, tree.encoder.row_names, learning=True)
        else:
            matrix = self._ready(X, tree, learning=True)
        if matrix is None:
            return False
        codes = tree.target.known_codes(y, len(matrix))
        if codes is None:
            return False
        with self._whole(tree, len(matrix), News()), ended(tree):
            self._take_steps(tree, matrix, codes, np.ones(len(matrix)))
        return True

    # ------------------------------------------------------------------ rows to leaves
    def _encoded(self, X: Any) -> Batch:
        tree = self._manned_tree
        matrix = self._ready(X, tree)
        if matrix is not None:
            return Batch(matrix, News())
        check_is_fitted(self)
        assert tree is not None
        table, names, *_ = check_rows(X, self, is_first=False)
        return tree.encoder.read(table, names, learning=False)

    @staticmethod
    def _encoded_by_name(X: Any, frame: Frame, tree: LearningTree) -> Batch:
        """Read rows to be predicted by River's rules; `frame` is X as it was recognised."""
        encoder = tree.encoder
        matrix = encoder.ready(X, encoder.row_names, learning=False)
        if matrix is not None:
            return Batch(matrix, News())
        table = plain_columns(X)
        return encoder.read(frame if table is None else table, learning=False)

    @undisturbed
    def apply(self, X: Any) -> NDArray[np.int32]:
        """Return the id of the leaf that each row reaches."""
        batch = self._encoded(X)
        assert self._tree is not None
        return self._tree.engine.leaves(*batch.rows)


def _expect(tree: LearningTree, answers: Answers) -> None:
    """Prepare for new labels; raise if they take too much memory.

    Names of sparse features are registered as they are read. So this, and all else that may fail,
    comes before that.
    """
    if tree.encoder.sparse is not None:
        check_news(tree, News(), answers.new)
        tree.encoder.sparse.expect(len(answers.new))


def _learn_weighed(tree: LearningTree, x: Mapping[Hashable, Any], y: Hashable) -> bool:
    """Learn a row without anything new, with a weight of at most 1, and return True."""
    known, face = tree.target.imbalance, tree.encoder.row_face
    code = None if known is None else face.read_target(y)
    if known is None or code is None:
        return False
    weight, counts = known.weigh_one(int(code), y)
    if weight > 1.0:
        return False
    threshold = known.threshold
    with tree.engine.writing():
        before = {} if threshold is None else face.probabilities(x)
        turn = NotImplemented if before is None else face.learn(x, y, weight)
        if before is None or turn is NotImplemented:
            return False
        known.keep_counts(counts)
        if threshold is not None and len(before) == 2:
            positive = threshold.positive
            threshold.note_one(before[positive], is_positive=y == positive)
        if turn is not None:
            with turn:
                tree.decide()
    return True


@contextlib.contextmanager
def ended(tree: LearningTree) -> Iterator[None]:
    """End a call that is interrupted with the steps that it has taken."""
    try:
        yield
    except BaseException:
        with tree.engine.writing():
            tree.end_call()
        raise


def commit(tree: LearningTree, intake: Intake) -> None:
    """Register what is new in an intake; the caller holds the engine's lock."""
    register(tree, intake.news, intake.answers.new)
    tree.finish()
    if tree.target.imbalance is not None:
        tree.target.imbalance.keep_counts(intake.counts)


def judge(
    tree: LearningTree,
    X: NDArray[np.float64],
    sparse: SparseRows | None,
    y: Codes,
    w: NDArray[np.float64],
) -> None:
    """Update a threshold with the predictions of rows that are learnt next."""
    known = tree.target.imbalance
    cut = None if known is None else known.cut(tree.target.labels)
    if known is not None and cut is not None:
        known.note(tree.engine.probabilities(X, sparse), y, w, cut)


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _few(values: Iterable[Any]) -> str:
    """List values as text; if there are many, the first."""
    texts = [printable(str(value)) for value in values]
    return ", ".join(texts[:FEW]) + (", ..." if len(texts) > FEW else "")


def _is_empty(values: Any) -> bool:
    """Return whether a table or a sequence has no rows."""
    shape = getattr(values, "shape", None)
    if shape is not None:
        return bool(shape[:1] == (0,))
    has_order = hasattr(values, "__len__") and not isinstance(values, (str, bytes, Set, Mapping))
    return has_order and len(values) == 0
