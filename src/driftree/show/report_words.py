"""The words and headline numbers of the report: they depend on what there is to say."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from driftree.evaluate.records import summarise
from driftree.explain.changes import KINDS
from driftree.explain.describe import (
    inside,
    leaf_models,
    mean_prediction,
    number_unit,
    outputs,
)
from driftree.explain.sparse import say_forgotten
from driftree.explain.text import label_texts, write_number
from driftree.show.metrics import metrics_of
from driftree.show.report_leaves import round_number

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from driftree.evaluate.records import Record
    from driftree.learn.encoding import Encoder
    from driftree.learn.history import History
    from driftree.show.metrics import Metric
    from driftree.show.style import AnyTree

MODEL_KINDS = ("bend", "unbend", "memory")  # of changes, told together where there is little room
WINDOW = 20  # batches of the sliding mean, as in the paper's figures
NO_HISTORY = "The model was told to keep no history, so only its present tree is known."
NO_CHANGES = "The tree has not changed so far."


def label_names(model: AnyTree) -> list[str]:
    """Return the labels; of several quantiles, what they are called."""
    tree, _ = inside(model)
    labels: Iterable[Hashable] = tree.target.labels
    if not tree.engine.has_labels and tree.engine.n_outputs > 1:
        labels = outputs(tree, tree.engine.n_outputs)
    return list(label_texts(labels, most=None).values())


def say_words(model: AnyTree, history: History | None, records: list[Record]) -> dict[str, str]:
    """Return the sentences that depend on what there is to say."""
    metric, _ = metrics_of(model)
    scores = (
        f"{metric.title} of each batch before it was learnt, mean of the last {WINDOW}. "
        f"{metric.words}"
    )
    below = NO_HISTORY if history is None else "Each mark is a change of the tree."
    return {
        "lead": _lead(model, history),
        "unit": _unit(model),
        "notice": NO_HISTORY if history is None else NO_CHANGES,
        "time_words": f"{scores} {below}" if records else below,
        "tree_key": _tree_key(model),
        "loss_words": _loss_words(model),
    }


def _unit(model: AnyTree) -> str:
    """Say by how much a number grows that has an effect."""
    if model.setting == "paper":
        return "its whole range"
    _, encoder = inside(model)
    sparse = ", a sparse one from 0 to its usual size" if encoder.sparse is not None else ""
    return f"two standard deviations{sparse}"


def _lead(model: AnyTree, history: History | None) -> str:
    leaves = f"{model.n_leaves_} leaves, each" if model.n_leaves_ > 1 else "one leaf"
    rows = f"It has learnt {model.n_rows_seen_:,} rows as they came, "
    now = f"and now has {leaves} with a simple model of its own. This page shows"
    if history is None:
        return f"{rows}{now} what it knows."
    n_changes = len(history.events)
    times = {0: "not changed so far", 1: "changed once"}.get(
        n_changes,
        f"changed {'more than ' if history.first_step > 0 else ''}{n_changes:,} times",
    )
    return f"{rows}has {times}, {now} how it came to be, and why."


def _tree_key(model: AnyTree) -> str:
    """Say how a leaf's card is to be read."""
    labels = label_names(model)
    what = "the most frequent label (of the latest tree only)"
    sides = (
        f"to the right for {labels[1] if len(labels) == 2 else 'its label'}, to the left against"
    )
    if not inside(model)[0].engine.has_labels:
        what = (
            "the mean prediction, and where it lies among those of all leaves, in the band of its "
            "error, the yellower the higher (of the latest tree only)"
        )
        sides = "to the right those that raise the number, to the left those that lower it"
    return (
        f"Lines are as wide as their share of rows, and so is the grey bar of a leaf. Below it: "
        f"{what}, then the strongest weights, {sides}; the bars of all leaves have one scale. A "
        "line that is bent is drawn as its curve (of the latest tree only)."
    )


def _loss_words(model: AnyTree) -> str:
    """Say what a loss is."""
    if inside(model)[0].engine.has_labels:
        return (
            "The loss of a row is minus the natural logarithm of the probability that its label "
            "was given before it was known, in nats: ln 2 = 0.69 for a coin flip, 0 for certainty. "
            "Losses here are sums over rows."
        )
    return (
        "The loss of a row is minus the natural logarithm of the probability density that its "
        "number was given before it was known, in nats, with the target's standard deviation as "
        "the unit: about 1.4 where nothing is known but the mean, 1 less where the error is a "
        "third of that. Losses here are sums over rows, and may be below 0."
    )


# ---------------------------------------------------------------------- headline numbers
def say_headline(
    model: AnyTree, history: History | None, records: list[Record]
) -> list[dict[str, Any]]:
    """Return the numbers on top, as text or, where the page rounds, as number and spread."""
    tree, encoder = inside(model)
    labels = label_names(model)
    n_inputs = tree.engine.n_columns - 1
    nodes = _plural(model.n_nodes_, "node")
    kinds = Counter(event.kind for event in history.events) if history is not None else Counter()
    shaping = {kind: word for kind, word in KINDS.items() if kind not in MODEL_KINDS}
    counts = [_plural(kinds[kind], word) for kind, word in shaping.items() if kinds[kind]]
    n_models = sum(kinds[kind] for kind in MODEL_KINDS)
    changes = ", ".join([*counts, f"{n_models:,} of models"] if n_models else counts)
    n_changes = "not kept" if history is None else f"{kinds.total():,}"
    if history is not None and history.first_step > 0:
        n_changes, changes = f"{n_changes}+", f"the latest: {changes}"
    rows = [
        ("rows learnt", f"{model.n_rows_seen_:,}", f"in {_plural(tree.engine.n_steps, 'step')}"),
        ("leaves", f"{model.n_leaves_:,}", f"depth {model.depth_}, {nodes}"),
        ("splits", f"{model.n_leaves_ - 1:,}", _plural(model.n_parameters_, "parameter")),
        ("changes", n_changes, changes),
        *_scores(records, metrics_of(model)),
        ("labels", f"{len(labels):,}", ", ".join(labels))
        if tree.engine.has_labels
        else _mean_of_all(model),
        _features_known(encoder, n_inputs),
    ]
    return [{"name": name, "value": value, "more": more} for name, value, more in rows]


def _mean_of_all(model: AnyTree) -> tuple[str, str, str]:
    """Return what a regressor predicts on the average, and with which error."""
    tree, encoder = inside(model)
    unit, mean = number_unit(tree), mean_prediction(tree, encoder, 0)
    assert unit is not None
    assert mean is not None
    parts = [
        ((leaf.error or 0.0) ** 2, 0.0 if math.isnan(leaf.share) else leaf.share)
        for leaf in leaf_models(model)
    ]
    total = sum(share for _, share in parts)
    error = math.sqrt(sum(square * share for square, share in parts) / total) if total else 0.0
    return "mean prediction", write_number(mean, unit), f"error about {write_number(error, unit)}"


def _features_known(encoder: Encoder, n_inputs: int) -> tuple[str, str, str]:
    """Return how many features there are; of sparse ones, how many have a column or were lost."""
    if encoder.sparse is None:
        return "features", f"{len(encoder.feature_names):,}", _plural(n_inputs, "input")
    columns = f"{n_inputs:,} held by most rows"
    more = ", ".join(filter(None, [columns, say_forgotten(encoder)]))
    return "features", f"{encoder.row_face.n_sparse:,}", more


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _scores(
    records: list[Record], metrics: tuple[Metric, Metric]
) -> list[tuple[str, float | None, float | None]]:
    """Return the model's mean scores and their spread over batches; it is the first learner."""
    if not records:
        return []
    figures = summarise(records)[records[0].learner]
    named = [(metric.title, metric.of(figures)) for metric in metrics]
    return [
        (name, round_number(figure.mean), round_number(figure.std))
        for name, figure in named
        if math.isfinite(figure.mean)
    ]
