"""Encoding: from features and levels by name to a float64 matrix, and back to names.

The encoder has the names of features and the levels of categorical ones. It only reads. Once
everything in a batch was read and checked, `register` adds its new features, levels, missing
values and labels: `RowFace.commit` replaces the vocabulary and grows the engine atomically.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from driftree.learn._kernels import MAX_LEVELS, all_finite
from driftree.learn.columns import ColumnReader, News, level_names, start_matrix
from driftree.learn.events import ALL_DIGITS, DIGITS, Condition
from driftree.learn.memory import MOST_BYTES, SchemaSize, check_budget, text_bytes
from driftree.learn.tables import DictRows, SparseMatrix, array_names, numbers_of
from driftree.learn.times import split_row, whole_names
from driftree.learn.validation import (
    InputWarning,
    check_codes,
    distinct_texts,
    is_missing,
    list_names,
    plain,
    shown,
    unhashable,
)
from driftree.learn.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from driftree.learn._kernels import _RowFace, _TreeEngine
    from driftree.learn.columns import Batch
    from driftree.learn.sparse import SparseFeatures
    from driftree.learn.tables import Table
    from driftree.learn.validation import Rows

FIRST_ROWS = 10  # dicts that may show that rows are sparse


class Encoder:
    """Features and levels that a model has seen.

    Parameters
    ----------
    row_face : RowFace or FimtddRowFace
        Holds the vocabulary, which encoder and target share: both change at once.
    engine : Engine or FimtddEngine
        Holds the columns.
    categorical : iterable of names or positions, or None
        Features whose values are categories although they may be numbers.
    indicators : bool
        True: every level gets its own 0/1 input. False (the paper's setting): numbers stay numbers
        and strings become numbers in order of appearance; only the splits treat them as categories.
    sparse : SparseFeatures, optional
        Reads all rows instead, if absent features are 0. The encoder's features are then those with
        a column.

    Attributes
    ----------
    known : Vocabulary
        The present vocabulary; its `names`, `levels`, `feature_names` and `display_names` are
        properties of the encoder, too.
    """

    def __init__(
        self,
        row_face: _RowFace,
        engine: _TreeEngine,
        categorical: Iterable[Hashable] | None,
        *,
        indicators: bool,
        sparse: SparseFeatures | None = None,
    ) -> None:
        self.sparse = sparse
        self.row_face = row_face
        self.engine = engine
        self._categorical = as_set(categorical)
        self.indicators = indicators
        self._has_warned = False

    # ------------------------------------------------------------------ words
    @property
    def known(self) -> Vocabulary:
        """The present vocabulary."""
        return self.row_face.known  # type: ignore[no-any-return]

    @property
    def categorical(self) -> frozenset[Hashable]:
        """Names or positions of the features that the user lists as categorical."""
        return self._categorical if self.sparse is None else self.sparse.categorical

    @property
    def names(self) -> dict[Hashable, int]:
        """Feature names to column indices."""
        return self.known.names

    @property
    def given_names(self) -> set[Hashable]:
        """Names of the features of rows: all except those for recent targets."""
        return self.known.names.keys() - {*level_names(self.engine)}

    @property
    def readable_names(self) -> set[Hashable]:
        """Names that rows may use: of the features, and of the times whose parts they are."""
        return {*self.names, *whole_names(self.names)}

    @property
    def levels(self) -> list[dict[Hashable, int] | None]:
        """Per feature the codes of its levels, or None for a numeric one."""
        return self.known.levels

    @property
    def feature_names(self) -> list[Hashable]:
        """Feature names by index."""
        return self.known.feature_names

    @property
    def display_names(self) -> list[str]:
        """The names as text, each different from all others."""
        return self.known.display_names

    # ------------------------------------------------------------------ rows
    def read(
        self,
        X: Table,
        names: Sequence[Hashable] | None = None,
        *,
        learning: bool,
        rows: Rows = None,
        is_first: bool = False,
    ) -> Batch:
        """Read an array, a frame or columns; a frame's columns may have any order.

        Parameters
        ----------
        X : ndarray, data frame or Columns
            The batch.
        names : sequence, optional
            Names of the columns, if they are not the frame's own, or x0, x1, ... for an array.
        learning : bool
            Whether new features and levels are to be registered; otherwise they are ignored.
        rows : array of int, optional
            The rows that count; None is all of them.
        is_first : bool
            Whether there are no other features; then all in `categorical` must be among these.
        """
        if self.sparse is not None:
            self._check_own(getattr(X, "columns", ()) if names is None else names)
            if self.categorical and learning:
                self._declare(X, names, is_first=is_first)
            return self.sparse.read(X, names, learning=learning, rows=rows)
        if names is None:
            names = self._own_names(X)
        if not learning:
            self._check_known(names)
            if isinstance(X, DictRows):  # there may be very many others
                known = self.readable_names
                names = [name for name in names if name in known]
                X = X.with_columns(names)
        if is_first:
            self.check_declared(names)
        declared = self.declared(names) if learning else frozenset()
        self._check_own(names)
        reader = ColumnReader(self.known, self.engine, self.indicators, learning, declared, rows)
        return reader.read(X, names)

    def read_dict(self, x: Mapping[Hashable, Any], *, learning: bool) -> Batch:
        """Read one row."""
        if not hasattr(x, "items"):
            raise TypeError(f"a row must be a dict of feature names to values, got {x!r}")
        self._check_own(x)
        if self.sparse is not None:
            return self.sparse.read_dicts([x], learning=learning)
        x = split_row(x, self.names)
        if not learning:
            self._check_known(list(x))
        declared = self.declared(list(x)) if learning else frozenset()
        return ColumnReader(self.known, self.engine, self.indicators, learning, declared).read_row(
            x
        )

    def _check_own(self, names: Collection[Hashable]) -> None:
        """Raise if rows have a feature with the name of one of the model's own inputs."""
        for name in level_names(self.engine):
            if name in names:
                raise ValueError(
                    f"the rows have a feature {name!r}, which is the name of the model's own "
                    "input for recent targets: rename the feature, or give follow_target=False"
                )

    def _check_known(self, names: Sequence[Hashable]) -> None:
        """Warn, once, about rows without any known feature."""
        if not names or not self.given_names or self._has_warned:
            return
        if self.engine.n_rows < FIRST_ROWS:  # they may turn out to be sparse
            return
        known = self.readable_names
        if known.isdisjoint(names):
            self._has_warned = True
            given = [name for name in self.feature_names if name in self.given_names]
            warnings.warn(
                f"the rows hold no feature that the model knows: it knows {list_names(given)}, "
                f"but they hold {list_names(names)}. All features count as missing",
                InputWarning,
                stacklevel=5,
            )

    @property
    def row_names(self) -> list[Hashable]:
        """Names of the features of rows, by index."""
        return self.feature_names[len(level_names(self.engine)) :]

    @property
    def only_numbers(self) -> bool:
        """Whether all features are numeric, and none is sparse."""
        return self.sparse is None and self.known.is_numeric

    def ready(
        self, X: Any, names: Sequence[Hashable] | None, *, learning: bool
    ) -> NDArray[np.float64] | None:
        """Return the matrix of rows in which nothing is new, missing or text; otherwise None.

        `X` is an array, or with `names` a frame that must have just these columns.
        """
        known, n_levels = self.known, len(level_names(self.engine))
        if not self.only_numbers:
            return None
        if names is None:
            n_features = len(known.names) - n_levels
            is_known = known.array_begin == n_levels and X.shape[1] == n_features
        else:
            is_known = names == self.row_names
        numbers = numbers_of(X, names) if is_known else None
        if numbers is None or not all_finite(numbers, self.engine.n_threads):
            return None
        if n_levels == 0:
            return numbers
        matrix = start_matrix(self.engine, len(numbers), learning=learning)
        matrix[:, n_levels:] = numbers
        return matrix

    def _own_names(self, X: Table) -> Sequence[Hashable]:
        if not isinstance(X, (np.ndarray, SparseMatrix)):
            return list(X.columns)
        known, width = self.known, X.shape[1]
        if known.array_begin == 0 and width == len(known.names):
            return known.feature_names
        names = array_names(width)
        if self.given_names and known.names.keys().isdisjoint(names):
            raise ValueError(
                f"the model knows its features by name ({list_names(self.feature_names)}), but "
                "the array's columns have no names: give a data frame, or dicts to learn_one and "
                "predict_one"
            )
        return names

    # ------------------------------------------------------------------ keeping
    def knowledge(self) -> dict[str, Any]:
        """Return a copy of names and levels, for `restore_names`, and of declared categories."""
        return {
            "names": dict(self.names),
            "levels": [None if codes is None else dict(codes) for codes in self.levels],
            "categorical": sorted(self.categorical, key=repr),
            "sparse_names": self.row_face.sparse_names(),
            "free_places": self.row_face.free_places(),
        }

    # ------------------------------------------------------------------ names
    def declared(self, names: Sequence[Hashable]) -> frozenset[Hashable]:
        """Return the names listed in `categorical`, by name or position; names take precedence."""
        found = self.categorical.intersection(names)
        return found.union(
            names[place]
            for place in self.categorical - found
            if isinstance(place, int) and 0 <= place < len(names)
        )

    def _declare(self, X: Table, names: Sequence[Hashable] | None, *, is_first: bool) -> None:
        """Replace positions in `categorical` by names: sparse rows have no order."""
        assert self.sparse is not None
        is_table = not isinstance(X, DictRows) and self.sparse.row_face.n_sparse == 0
        if not is_first and not is_table:
            return
        if names is None:
            if isinstance(X, (np.ndarray, SparseMatrix)):
                names = array_names(X.shape[1])
            else:
                names = list(X.columns)
        if is_first:
            self.check_declared(names)
        places = set(range(len(names)))
        self.sparse.declare(self.declared(names) | (self.categorical - places))

    def check_declared(self, names: Sequence[Hashable]) -> None:
        """Raise if `categorical` lists a feature that does not exist."""
        if len(self.declared(names)) < len(self.categorical):
            for place in self.categorical:
                is_position = isinstance(place, int) and 0 <= place < len(names)
                if place not in names and not is_position:
                    raise ValueError(
                        f"`categorical` names {place!r}, but the features are "
                        f"{list_names(names)}: use their names, or positions from 0"
                    )

    # ------------------------------------------------------------------ in the user's words
    def level(self, feature: int, code: float) -> Hashable:
        """Return the level with a code."""
        codes = self.levels[feature]
        if codes is None:
            return code
        names = list(codes)
        return names[int(code)] if 0 <= code < len(names) else "any other level"

    def condition(
        self, feature: int, threshold: float, *, equality: bool, missing_left: bool
    ) -> Condition:
        """Return a split in the user's names and units."""
        name = self.display_names[feature]
        if threshold == -math.inf:
            return Condition(name, "is missing", None, missing_passes=True)
        was_missing = self.engine.missing_column[feature] >= 0
        passes = missing_left if was_missing else None
        if equality:
            return Condition(name, "==", self.level(feature, threshold), passes)
        return Condition(name, "<=", float(threshold), passes, self.digits(feature, threshold))

    def digits(self, feature: int, value: float) -> int:
        """Return the number of significant digits of a value: down to a hundredth of the scale."""
        scale = float(self.engine.scale_factor[feature])  # 0: it has never varied
        size = abs(value) * scale
        if not 0 < size < math.inf:
            return DIGITS
        return max(DIGITS, min(ALL_DIGITS, 3 + math.ceil(math.log10(size))))

    def column_names(self) -> list[str]:
        """Name the inputs of the simple models, the intercept first; no two have the same name."""
        engine = self.engine
        names = ["intercept"] * engine.n_columns
        precise = ["the intercept"] * engine.n_columns
        levels = engine.level_column.reshape(-1, MAX_LEVELS + 1)
        for j, name in enumerate(self.display_names):
            if (column := engine.value_column[j]) >= 0:
                names[column], precise[column] = name, repr(self.feature_names[j])
            if (column := engine.missing_column[j]) >= 0:
                names[column] = precise[column] = f"{name} is missing"
            for code in np.flatnonzero(levels[j] >= 0):
                column, level = levels[j, code], self.level(j, int(code))
                names[column] = str(Condition(name, "==", level))
                precise[column] = f"{name} == {level!r}"
        return distinct_texts(names, precise)


def as_set(categorical: Iterable[Hashable] | None) -> frozenset[Hashable]:
    """Return the features that a user lists as categorical."""
    if categorical is None:
        return frozenset()
    if isinstance(categorical, (str, bytes)) or not hasattr(categorical, "__len__"):
        raise TypeError(
            "categorical must be a sequence of feature names or positions, or None, got "
            f"{categorical!r}: write [{categorical!r}]"
        )
    places = list(map(plain, categorical))
    if any(isinstance(place, bool) for place in places):
        raise TypeError(
            "categorical must be a sequence of feature names or positions, or None, got "
            f"{shown(categorical)}: the positions of a mask are numpy.flatnonzero(mask)"
        )
    try:
        return frozenset(places)
    except TypeError:
        raise unhashable("categorical", places, None) from None


# ---------------------------------------------------------------------- what is new
class GrowingTree(Protocol):
    """A tree to which features, levels and labels can be added."""

    @property
    def encoder(self) -> Encoder:
        """Its features and levels."""

    @property
    def parameters(self) -> Any:
        """Its validated parameters."""

    def leaf_bytes(self, size: SchemaSize) -> int:
        """Return the bytes of a tree of one leaf."""

    def expect_classes(self, labels: Sequence[Hashable]) -> None:
        """Prepare for new labels."""


def check_news(tree: GrowingTree, news: News, labels: Sequence[Hashable] = ()) -> None:
    """Raise if what is new in a batch would take too much memory."""
    if labels or news.brings_columns:
        check_budget(tree, _size_with(tree.encoder, news, labels))


def check_dicts(tree: GrowingTree, table: DictRows, rows: Rows) -> None:
    """Raise if dicts would take too much memory as a table, or their new features in the models.

    A table has a cell for each row and name: with very many names that may be more than a machine
    has, though the rows themselves are small.
    """
    known = tree.encoder.readable_names
    new = [name for name in table.columns if name not in known]
    if new:
        dicts = table.rows if rows is None else [table.rows[i] for i in rows]
        held = {name for row in dicts for name, value in row.items() if not is_missing(value)}
        check_news(tree, News(features=[(name, False, True) for name in new if name in held]))
    n_cells = table.shape[0] * table.shape[1]
    if 8 * n_cells > MOST_BYTES and 2 * sum(map(len, table.rows)) < n_cells:
        raise ValueError(
            f"{table.shape[0]:,} rows with {table.shape[1]:,} names would take "
            f"{8 * n_cells / 2**30:.1f} GiB as a table, at most {MOST_BYTES / 2**30:.1f} GiB are "
            "allowed: give fewer rows at a time"
        )


def register(tree: GrowingTree, news: News, labels: Sequence[Hashable] = ()) -> None:
    """Register what is new in a batch; raise before that if it would take too much memory.

    All of it is registered or, if this is interrupted, nothing.
    """
    encoder = tree.encoder
    check_news(tree, news, labels)
    if labels:
        tree.expect_classes([*encoder.known.labels, *labels])
    known = encoder.known.with_labels(labels)
    if news.brings_words:
        names = [name for name, *_ in news.features]
        known = known.with_features(names, _levels_with(encoder, news), news.n_text)
    if known is not encoder.known or news.brings_columns:
        _exchange(encoder, known, news)


def restore_names(tree: GrowingTree, learnt: Mapping[str, Any]) -> None:
    """Restore names, levels and labels of another tree; raise if they do not fit."""
    encoder = tree.encoder
    names, levels, labels = learnt["names"], list(learnt["levels"]), learnt["labels"]
    check_codes(encoder.engine, names, levels, labels, indicators=encoder.indicators)
    known = learnt.get("known") or Vocabulary.of(names, levels, labels)
    sparse_names, free_places = learnt.get("sparse_names", []), learnt.get("free_places", [])
    encoder.row_face.restore(known, sparse_names, free_places)
    if encoder.sparse is not None:
        encoder.sparse.restored()


def _exchange(encoder: Encoder, known: Vocabulary, news: News) -> None:
    new_levels: list[tuple[int, int]] = []
    if encoder.indicators:
        for j, value in news.levels:
            codes = known.levels[j]
            assert codes is not None
            new_levels.append((j, codes[value]))
    encoder.row_face.commit(
        known,
        features=[(categorical, has_value) for _, categorical, has_value in news.features],
        categorical=[(j, not encoder.indicators) for j in news.categorical],
        levels=new_levels + [(j, MAX_LEVELS) for j in news.shared],
        missing=news.missing,
        n_classes=len(known.labels),
    )


def _levels_with(encoder: Encoder, news: News) -> list[dict[Hashable, int] | None]:
    """Return the levels of all features once a batch is registered."""
    with_levels = {j for j, _ in news.levels}
    first = len(encoder.names)
    levels = encoder.levels + [
        {} if first + i in with_levels or not has_value else None
        for i, (*_, has_value) in enumerate(news.features)
    ]
    for j in news.categorical:
        levels[j] = {}
    for j in with_levels:
        levels[j] = {} | (levels[j] or {})
    for j, value in news.levels:
        codes = levels[j]
        assert codes is not None
        codes[value] = len(codes)
    return levels


def _size_with(encoder: Encoder, news: News, labels: Sequence[Hashable]) -> SchemaSize:
    """Return the size of the models once a batch and its labels are registered."""
    engine, known = encoder.engine, encoder.known
    n_indicators = len(news.levels) + len(news.shared) if encoder.indicators else 0
    n_values = sum(has_value for *_, has_value in news.features)
    n_new_categorical = sum(categorical for _, categorical, _ in news.features)
    return SchemaSize(
        n_features=len(known.names) + len(news.features),
        n_categorical=engine.n_categorical + n_new_categorical,
        n_columns=engine.n_columns + n_values + n_indicators + len(news.missing),
        n_classes=len(known.labels) + len(labels),
        n_text=known.n_text + news.n_text + text_bytes(labels),
    )
