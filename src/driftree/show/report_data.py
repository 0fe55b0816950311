"""What the report says, as plain data for JSON: short keys, few digits, thinned curves.

Conditions and the names of inputs are listed once and then named by their number. None stands for
what is not known.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.evaluate.learners import LEARNERS
from driftree.evaluate.records import by_learner, columns, slide, summarise
from driftree.explain.changes import KINDS
from driftree.explain.describe import column_scales, inside
from driftree.explain.text import label_texts, one_line, shorten_together
from driftree.show.report_leaves import (
    leaves_over_time,
    present_leaves,
    round_number,
    rule_of,
    structure_now,
    thin,
)
from driftree.show.reproduce import settings, versions

if TYPE_CHECKING:
    from driftree.estimators import DynamicModelTreeClassifier
    from driftree.evaluate.drawing import Drifts
    from driftree.evaluate.records import Record
    from driftree.learn.events import Condition, Event
    from driftree.learn.history import History, Structure

MAX_POINTS = 400  # of a metric's curve
WINDOW = 20  # batches of the sliding mean, as in the paper's figures
CARD_NAME = 13  # characters of an input's name
MAX_TEXT = 1000  # characters; more only where names are very long
NO_HISTORY = "The model was told to keep no history, so only its present tree is known."
NO_CHANGES = "The tree has not changed so far."


def gather(
    model: DynamicModelTreeClassifier, records: list[Record] | None, drifts: Drifts = ()
) -> dict[str, Any]:
    """Return all that the page says about a model.

    Parameters
    ----------
    model : DynamicModelTreeClassifier
        A model that has learnt something.
    records : list of Record or None
        What was measured; the first learner in it is the model.
    drifts : sequence of int or (int, int)
        Rows at which the stream is known to change, or spans in which it does.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(3000, 2))
    >>> model = DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    >>> data = gather(model, None)
    >>> [event["kind"] for event in data["events"]], len(data["leaves"])
    (['split'], 2)
    """
    tree, encoder = inside(model)
    conditions = Conditions()
    history = tree.history
    events = [] if history is None else list(history.events)
    first = structure_now(tree) if history is None else history.at(history.first_step - 1)
    measured = records or []
    return {
        **_words(model, history, measured),
        "headline": _headline(model, history, measured),
        "labels": _labels(model),
        "inputs": encoder.column_names(),
        "short_inputs": _shorten_names(encoder.column_names(), len(encoder.labels)),
        "factors": [round_number(factor) for factor in column_scales(tree)[1].tolist()],
        "is_kept": history is not None,
        "first": {
            "step": 0 if history is None else history.first_step,
            "row": 0 if history is None else history.first_row,
        },
        "last": {"step": tree.engine.n_steps, "row": tree.engine.n_rows},
        "snapshot": _spots(first, conditions),
        "events": [_event(event, conditions) for event in events],
        "leaves": present_leaves(model),
        **leaves_over_time(model),
        "drifts": _spans(drifts),
        "metric": "F1",
        "curves": _curves(measured),
        "comparison": _comparison(measured),
        "code": repr(model),
        "settings": settings(model),
        "versions": list(versions().items()),
        "conditions": conditions.texts,
    }


class Conditions:
    """Conditions that the page names by their numbers.

    Attributes
    ----------
    texts : list
        Per condition the text, and how much of it is the feature's name (in UTF-16, as JavaScript
        counts): in little room the name is shortened, not the question.
    """

    def __init__(self) -> None:
        self.texts: list[tuple[str, int]] = []
        self._numbers: dict[tuple[str, int], int] = {}

    def number(self, condition: Condition | None) -> int:
        """Return the number of a condition, -1 for none."""
        if condition is None:
            return -1
        length = len(condition.feature.encode("utf-16-le", "surrogatepass")) // 2
        text = (str(condition), length)
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


def _labels(model: DynamicModelTreeClassifier) -> list[str]:
    return list(label_texts(inside(model)[1].labels, most=None).values())


def _shorten_names(names: list[str], n_labels: int) -> list[str]:
    """Return names for a leaf's card; with more than two labels a label stands before them."""
    most = CARD_NAME if n_labels <= 2 else CARD_NAME // 2 + 1
    short = shorten_together(names, lambda text, part: one_line(text, int(part * most)))
    return [short[name] for name in names]


def _spans(drifts: Drifts) -> list[list[int]]:
    if not hasattr(drifts, "__iter__"):
        raise TypeError(
            f"drifts must be a sequence of rows or (first, last) pairs of rows, got {drifts!r}: "
            f"write [{drifts!r}]"
        )
    return [[int(own)] * 2 if isinstance(own, (int, np.integer)) else list(own) for own in drifts]


# ---------------------------------------------------------------------- the tree and its changes
def _spots(structure: Structure, conditions: Conditions) -> list[list[int | str]]:
    """Return the nodes, each in the order of the page's FIELDS."""
    return [
        [
            spot.node,
            spot.parent,
            spot.depth,
            conditions.number(spot.condition),
            spot.left,
            spot.right,
            spot.since_step,
            spot.since_row,
            _shorten(rule_of(structure.path(spot.node))),
        ]
        for spot in structure.walk()
    ]


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _event(event: Event, conditions: Conditions) -> dict[str, Any]:
    condition = getattr(event, "condition", None)
    sides = () if condition is None else (condition, condition.negated())
    runner_up = event.runner_up
    return {
        "kind": event.kind,
        "step": event.step,
        "row": event.n_rows,
        "node": event.node,
        "left": getattr(event, "left", -1),
        "right": getattr(event, "right", -1),
        "condition": conditions.number(condition),
        "rules": [_shorten(rule_of((*event.path, side))) for side in sides],
        "old": conditions.number(getattr(event, "old_condition", None)),
        "sentence": _shorten(str(event)),
        "before": round_number(event.loss_before, 6),
        "after": round_number(event.loss_after, 6),
        "gain": round_number(event.gain, 6),
        "threshold": round_number(event.threshold, 6),
        "rows": round_number(event.rows, 9),
        "runner": None
        if runner_up is None
        else [conditions.number(runner_up.condition), round_number(runner_up.gain, 6)],
        "removed": [conditions.number(spot.condition) for spot in event.removed],
    }


# ---------------------------------------------------------------------- words
def _words(
    model: DynamicModelTreeClassifier, history: History | None, records: list[Record]
) -> dict[str, str]:
    """Return the sentences that depend on what there is to say."""
    marks = "Each mark is a change of the tree; move the slider, or choose a mark to read why."
    scores = f"F1 of each batch before it was learnt, mean of the last {WINDOW}."
    below = NO_HISTORY if history is None else marks
    return {
        "lead": _lead(model, history),
        "unit": "its whole range" if model.setting == "paper" else "two standard deviations",
        "notice": NO_HISTORY if history is None else NO_CHANGES,
        "time_words": f"{scores} {below}" if records else below,
        "tree_key": _tree_key(_labels(model)),
    }


def _lead(model: DynamicModelTreeClassifier, history: History | None) -> str:
    leaves = f"{model.n_leaves_} leaves, each" if model.n_leaves_ > 1 else "one leaf"
    rows = f"It has learnt {model.n_rows_seen_:,} rows as they came, "
    now = f"and now has {leaves} with a linear model of its own. This page shows"
    if history is None:
        return f"{rows}{now} what it knows."
    n_changes = len(history.events)
    times = {0: "not changed so far", 1: "changed once"}.get(
        n_changes,
        f"changed {'more than ' if history.first_step > 0 else ''}{n_changes:,} times",
    )
    return f"{rows}has {times}, {now} how it came to be, and why."


def _tree_key(labels: list[str]) -> str:
    """Say how a leaf's card is to be read."""
    side = f"for {labels[1]}" if len(labels) == 2 else "for its label"
    return (
        "Lines are as wide as their share of rows, and so is the grey bar of a leaf. Below it: the "
        "most frequent label (of the latest tree only), then the strongest weights, to the right "
        f"{side}, to the left against."
    )


# ---------------------------------------------------------------------- headline numbers
def _headline(
    model: DynamicModelTreeClassifier, history: History | None, records: list[Record]
) -> list[dict[str, str]]:
    tree, encoder = inside(model)
    labels = _labels(model)
    n_inputs = tree.engine.n_columns - 1
    nodes = _plural(model.n_nodes_, "node")
    kinds = Counter(event.kind for event in history.events) if history is not None else Counter()
    n_changes = "not kept" if history is None else f"{kinds.total():,}"
    changes = ", ".join(_plural(kinds[kind], KINDS[kind]) for kind in KINDS if kinds[kind])
    rows = [
        ("rows learnt", f"{model.n_rows_seen_:,}", f"in {_plural(tree.engine.n_steps, 'step')}"),
        ("leaves", f"{model.n_leaves_:,}", f"depth {model.depth_}, {nodes}"),
        ("splits", f"{model.n_splits_:,}", _plural(model.n_parameters_, "parameter")),
        ("changes", n_changes, changes),
        *_scores(records),
        ("labels", f"{len(labels):,}", ", ".join(labels)),
        ("features", f"{len(encoder.feature_names):,}", _plural(n_inputs, "input")),
    ]
    return [{"name": name, "value": value, "more": more} for name, value, more in rows]


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _scores(records: list[Record]) -> list[tuple[str, str, str]]:
    """Return the model's mean scores; it is the first learner."""
    if not records:
        return []
    figures = summarise(records)[records[0].learner]
    named = (("F1", figures["f1"]), ("accuracy", figures["accuracy"]))
    return [
        (name, f"{figure.mean:.3f}", f"± {figure.std:.3f} over batches")
        for name, figure in named
        if math.isfinite(figure.mean)
    ]


# ---------------------------------------------------------------------- learners
def _curves(records: list[Record]) -> list[dict[str, Any]]:
    curves = []
    for learner, group in by_learner(records).items():
        figures = columns(group)
        mean, _ = slide(figures["f1"], WINDOW)
        places = thin(len(group), MAX_POINTS)
        curves.append(
            {
                "title": _title(learner),
                "rows": [int(figures["n_rows"][place]) for place in places],
                "values": [round_number(float(mean[place])) for place in places],
            }
        )
    return curves


def _comparison(records: list[Record]) -> list[dict[str, Any]]:
    """Return how well, how simply and how fast each learner did, where there are several."""
    groups = by_learner(records)
    if len(groups) < 2:
        return []
    rows = []
    for learner, figures in summarise(records).items():
        rows.append(
            {
                "title": _title(learner),
                "f1": [round_number(figures["f1"].mean), round_number(figures["f1"].std)],
                "accuracy": round_number(figures["accuracy"].mean),
                "splits": round_number(figures["n_splits"].mean),
                "parameters": round_number(figures["n_parameters"].mean, 6),
                "seconds": round_number(sum(record.seconds for record in groups[learner])),
            }
        )
    return rows


def _title(learner: str) -> str:
    return LEARNERS[learner].title if learner in LEARNERS else learner
