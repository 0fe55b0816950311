"""Growth: new features, levels and labels of a batch enter engine and vocabulary together.

Everything was read and checked before. Only here features, levels, missing values and labels are
registered: `RowFace.commit` replaces the vocabulary and grows the engine atomically.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.columns import News
from driftree.learn.memory import MOST_BYTES, SchemaSize, check_budget, text_bytes
from driftree.learn.validation import check_codes, is_missing
from driftree.learn.vocabulary import Vocabulary

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from driftree.learn.encoding import Encoder
    from driftree.learn.tables import DictRows
    from driftree.learn.validation import Rows


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


def check(tree: GrowingTree, news: News, labels: Sequence[Hashable] = ()) -> None:
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
        check(tree, News(features=[(name, False, True) for name in new if name in held]))
    n_cells = table.shape[0] * table.shape[1]
    if 8 * n_cells > MOST_BYTES and 2 * sum(map(len, table.rows)) < n_cells:
        raise ValueError(
            f"{table.shape[0]:,} rows with {table.shape[1]:,} names would take "
            f"{8 * n_cells / 2**30:.1f} GiB as a table, at most {MOST_BYTES / 2**30:.1f} GiB are "
            "allowed: give fewer rows at a time"
        )


def commit(tree: GrowingTree, news: News, labels: Sequence[Hashable] = ()) -> None:
    """Register what is new in a batch; raise before that if it would take too much memory.

    All of it is registered or, if this is interrupted, nothing.
    """
    encoder = tree.encoder
    check(tree, news, labels)
    if labels:
        tree.expect_classes([*encoder.known.labels, *labels])
    known = encoder.known.with_labels(labels)
    if news.brings_words:
        names = [name for name, *_ in news.features]
        known = known.with_features(names, _levels_with(encoder, news), news.n_text)
    if known is not encoder.known or news.brings_columns:
        _exchange(encoder, known, news)


def restore(tree: GrowingTree, learnt: Mapping[str, Any]) -> None:
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
