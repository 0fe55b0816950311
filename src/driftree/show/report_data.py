"""The contents of the report, as plain data for JSON: short keys, few digits, thinned curves.

Conditions and the names of inputs are listed once and then referred to by number. None is unknown.
Rules and sentences repeat the same few features: in the data each name, unless it is short and
plain, is written as a number between two `MARK`s, which the page looks up in the list of names.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.evaluate.learners import title_of
from driftree.evaluate.quality import NOTHING, label_blocks, names_in
from driftree.evaluate.records import by_learner, columns, slide, summarise
from driftree.explain.changes import KINDS
from driftree.explain.describe import (
    inside,
    leaf_models,
    mean_prediction,
    number_unit,
    outputs,
)
from driftree.explain.sparse import say_forgotten
from driftree.explain.text import label_texts, one_line, shorten_together, write_number
from driftree.learn.events import Condition, RunnerUp, join_path
from driftree.learn.history import Structure
from driftree.learn.validation import printable
from driftree.show.provenance import parameters, versions
from driftree.show.report_leaves import (
    Inputs,
    leaves_over_time,
    present_leaves,
    present_shares,
    present_splits,
    round_number,
    structure_now,
    thin,
)
from driftree.show.scores import drift_spans, metrics_of, more_metrics

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from driftree.evaluate.quality import LabelBlock
    from driftree.evaluate.records import Record
    from driftree.learn.encoding import Encoder
    from driftree.learn.events import Curve, Event
    from driftree.learn.history import History
    from driftree.show.scores import Drifts, Metric
    from driftree.show.style import AnyTree

MAX_POINTS = 400  # of a metric's curve
MAX_BLOCKS = 60  # of labels or targets over time
MAX_FEATURES = 15  # whose importance is shown
CARD_NAME = 13  # characters of an input's name
CARD_LABEL = 7  # and of a label's
NATS_DIGITS = 9  # as many as in the sentences, also in losses of many rows
MARK = "\x7f"  # in no name: `printable` escapes it
MAX_NAME = 1000  # characters
MAX_PLAIN = 12  # characters of a name that stays in the text
# Characters that would disturb the text around them: controls, and changes of direction.
CONTROLS = re.compile("[\x00-\x1f\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

MODEL_KINDS = ("bend", "unbend", "memory")  # kinds of changes, for a short summary
WINDOW = 20  # batches of the sliding mean, as in the paper's figures
NO_HISTORY = "The model keeps no history, so only its present tree is known."
NO_CHANGES = "The tree has not changed so far."


def gather(
    model: AnyTree,
    records: list[Record] | None,
    drifts: Drifts = (),
    settings: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Return all that the page shows about a model.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that has learnt something.
    records : list of Record or None
        Results of an evaluation; the first learner in it is the model.
    drifts : sequence of int or (int, int)
        Rows at which the stream is known to change, or spans in which it does.
    settings : mapping, optional
        Settings of the run.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(2000, 2))
    >>> model = DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    >>> data = gather(model, None)
    >>> [event["kind"] for event in data["events"]], len(data["leaves"])
    (['split'], 2)
    """
    tree, _ = inside(model)
    words, inputs, metrics = Words(), Inputs(model), metrics_of(model)
    history = tree.history
    events = [] if history is None else list(history.events)
    first = structure_now(tree) if history is None else history.at(history.first_step - 1)
    measured = records or []
    n_rows = max([tree.engine.n_rows, *(record.n_rows for record in measured)])
    leaves, lives = present_leaves(model, words, inputs), leaves_over_time(model, inputs)
    splits = present_splits(model, words, inputs)
    data = {
        **say_words(model, history, measured),
        "headline": say_headline(model, history, measured),
        "labels": label_names(model),
        "number": None if tree.engine.has_labels else tree.target.outputs(1)[0],
        "n_outputs": tree.engine.n_outputs,
        "inputs": inputs.names,
        "short_inputs": _shorten_names(inputs.names, len(tree.target.labels)),
        "short_labels": _shorten(label_names(model), CARD_LABEL),
        "factors": [round_number(factor) for factor in inputs.factors],
        "is_kept": history is not None,
        "first": {
            "step": 0 if history is None else history.first_step,
            "row": 0 if history is None else history.first_row,
        },
        "last": {"step": tree.engine.n_steps, "row": tree.engine.n_rows},
        "snapshot": _spots(first, words),
        "events": _events(first, events, words),
        "leaves": leaves,
        "splits": splits,
        "shares": present_shares(model),
        "importance": _importance(model),
        **lives,
        "drifts": drift_spans(drifts, n_rows),
        "alarms": [] if history is None else [[one.n_rows, str(one)] for one in history.drifts],
        "metric": metrics[0].title,
        "metrics": [metric._asdict() for metric in metrics],
        "more_metrics": [metric._asdict() for metric in more_metrics(metrics)],
        "curves": _curves(measured, metrics[0]),
        "comparison": compare_learners(measured, metrics) if len(by_learner(measured)) > 1 else [],
        **over_stream(measured),
        "code": repr(model),
        "run": [[str(name), str(value)] for name, value in (settings or {}).items()],
        "settings": parameters(model),
        "versions": list(versions().items()),
        "conditions": words.conditions,
        "names": words.names,
    }
    return {key: _show_controls(part) for key, part in data.items()}


def _show_controls(part: Any) -> Any:
    """Return data with direction and control characters made visible."""
    if isinstance(part, str):
        return visible(part)
    if isinstance(part, dict):
        return {name: _show_controls(value) for name, value in part.items()}
    return [_show_controls(value) for value in part] if isinstance(part, list | tuple) else part


def _shorten_names(names: list[str], n_labels: int) -> list[str]:
    """Return names for a leaf's card; with more than two labels, prefixed by a label."""
    return _shorten(names, CARD_NAME if n_labels <= 2 else CARD_NAME // 2 + 1)


def _shorten(names: list[str], most: int) -> list[str]:
    """Return shortened names, of which no two are the same."""
    short = shorten_together(names, lambda text, part: one_line(text, int(part * most)))
    return [short[name] for name in names]


# ---------------------------------------------------------------------- the tree and its changes
def _spots(structure: Structure, words: Words) -> list[list[int | str]]:
    """Return the nodes, each in the order of the page's FIELDS."""
    return [
        [
            spot.node,
            spot.parent,
            spot.depth,
            words.number(spot.condition),
            spot.left,
            spot.right,
            spot.since_step,
            spot.since_row,
            words.rule(structure.path(spot.node)),
        ]
        for spot in structure.walk()
    ]


def _events(first: Structure, events: list[Event], words: Words) -> list[dict[str, Any]]:
    """Return the changes of a tree, given what it was before them."""
    now, told = Structure(dict(first.nodes)), []
    for event in events:
        now.change(event)
        told.append(_event(event, now, words))
    return told


def _event(event: Event, after: Structure, words: Words) -> dict[str, Any]:
    """Return a change; its `rules` are those of the nodes below it, if they are new or changed."""
    condition = getattr(event, "condition", None)
    below = () if condition is None else after.below(event.node)
    runner_up = event.runner_up
    return {
        "kind": event.kind,
        "step": event.step,
        "row": event.n_rows,
        "node": event.node,
        "left": getattr(event, "left", -1),
        "right": getattr(event, "right", -1),
        "condition": words.number(condition),
        "rules": [words.rule(after.path(spot.node)) for spot in below],
        "old": words.number(getattr(event, "old_condition", None)),
        "sentence": words.sentence(event),
        "curves": _features(getattr(event, "curves", ())),
        "memory": round_number(getattr(event, "memory", None)),
        "before": round_number(event.loss_before, NATS_DIGITS),
        "after": round_number(event.loss_after, NATS_DIGITS),
        "gain": round_number(event.gain, NATS_DIGITS),
        "threshold": round_number(event.threshold, NATS_DIGITS),
        "rows": round_number(event.rows, NATS_DIGITS),
        "runner": None
        if runner_up is None
        else [words.number(runner_up.condition), round_number(runner_up.gain, NATS_DIGITS)],
        "removed": [words.number(spot.condition) for spot in event.removed],
    }


def _features(curves: tuple[Curve, ...], most: int = 3) -> list[str]:
    """Return the features that have curves; if there are many, the first few."""
    names = [one_line(curve.feature) for curve in curves]
    return names if len(names) <= most else [*names[:most], f"{len(names) - most} more"]


def _importance(model: AnyTree) -> dict[str, Any]:
    """Return the most important features, by their splits and inside the leaves."""
    found = model.feature_importance()
    strongest = [
        [name, round_number(one.earned), round_number(one.weight)]
        for name, one in list(found.items())[:MAX_FEATURES]
        if one.earned or one.weight
    ]
    return {"features": strongest, "n_features": len(found)}


# ---------------------------------------------------------------------- learners
def _curves(records: list[Record], metric: Metric) -> list[dict[str, Any]]:
    curves = []
    for learner, group in by_learner(records).items():
        figures = columns(group)
        mean, _ = slide(metric.of(figures), WINDOW)
        places = thin(len(group), MAX_POINTS)
        curves.append(
            {
                "title": title_of(learner),
                "rows": [int(figures["n_rows"][place]) for place in places],
                "values": [round_number(float(mean[place])) for place in places],
            }
        )
    return curves


def compare_learners(records: list[Record], metrics: tuple[Metric, Metric]) -> list[dict[str, Any]]:
    """Return scores, size and speed of each learner."""
    groups = by_learner(records)
    rows = []
    (first, second), more = metrics, more_metrics(metrics)
    for learner, figures in summarise(records).items():
        rows.append(
            {
                "title": title_of(learner),
                first.field: [round_number(part) for part in first.of(figures)],
                second.field: round_number(second.of(figures).mean),
                **{one.field: round_number(one.of(figures).mean) for one in more},
                "splits": round_number(figures["n_splits"].mean),
                "parameters": round_number(figures["n_parameters"].mean),
                "seconds": round_number(sum(record.seconds for record in groups[learner])),
            }
        )
    return rows


# ---------------------------------------------------------------------- labels or targets over time
def over_stream(records: list[Record]) -> dict[str, Any]:
    """Return targets and predictions over time; None without records.

    Parameters
    ----------
    records : list of Record
        Results of an evaluation; the first learner in it is the model.

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.streams import sea
    >>> told = over_stream(list(prequential("dmt", sea(3000))))
    >>> told["label_mix"]["names"], told["number_means"]
    (['1', '0'], None)
    """
    own = by_learner(records)[records[0].learner] if records else []
    return {"label_mix": _label_mix(own), "number_means": _number_means(own)}


def _label_mix(records: Sequence[Record]) -> dict[str, Any] | None:
    """Return the labels' names, and per block the confusion matrix."""
    blocks = label_blocks(records, MAX_BLOCKS)
    if not blocks:
        return None
    names = names_in(blocks)
    places = {name: place for place, name in enumerate([*names, NOTHING])}
    [whole] = label_blocks(records, 1)
    figures = columns(records)
    return {
        "names": names,
        "blocks": [
            [
                block.first,
                block.last,
                [
                    [places[label], places[other], count]
                    for label, said in block.confusion.items()
                    for other, count in said.items()
                ],
            ]
            for block in blocks
        ],
        "found": _found(whole),
        "majority": round_number(float(np.nanmean(figures["majority"]))),
        "accuracy": round_number(float(np.nanmean(figures["accuracy"]))),
        **{name: round_number(float(figures[name][-1])) for name in ("macro_f1", "auc", "ece")},
    }


def _found(block: LabelBlock) -> list[list[Any]]:
    return [[one.label, *map(round_number, one[1:])] for one in block.labels()]


def _number_means(records: Sequence[Record]) -> dict[str, Any] | None:
    """Return the means of targets and predictions in blocks of batches."""
    if not records or records[0].task == "classification":
        return None
    figures = columns(records)
    parts = np.array_split(np.arange(len(records)), min(len(records), MAX_BLOCKS))
    return {
        "rows": [int(figures["n_rows"][part[-1]]) for part in parts],
        "target": [_mean(figures["target_mean"][part]) for part in parts],
        "predicted": [_mean(figures["predicted_mean"][part]) for part in parts],
    }


def _mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    with np.errstate(over="ignore", invalid="ignore"):
        return round_number(float(values.mean()))


# ---------------------------------------------------------------------- names that are sent once
def visible(text: str) -> str:
    r"""Return a text with its control characters escaped as in Python.

    Examples
    --------
    >>> print(visible("evil\u202ename"))
    evil\u202ename
    """
    return CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


class _Name:
    """A name in a condition that is written as its number."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __repr__(self) -> str:
        return self._token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Name) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(self._token)


class Words:
    """The conditions and names of a page, and the texts that use them.

    Attributes
    ----------
    names : list of str
        The names by their numbers in the texts.
    conditions : list
        Per condition the text, and the length of the feature's name in it: if there is little room
        the name is shortened, not the comparison.

    Examples
    --------
    >>> words = Words()
    >>> income = "yearly household income"
    >>> path = Condition("age", "<=", 60.0), Condition(income, ">", 40.0)
    >>> print(words.rule(path).replace(MARK, "|"), words.names)
    age <= 60 and |0| > 40 ['yearly household income']
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.conditions: list[tuple[str, int]] = []
        self._name_numbers: dict[str, int] = {}
        self._condition_numbers: dict[tuple[str, int], int] = {}

    def number(self, condition: Condition | None) -> int:
        """Return the number of a condition, -1 for none."""
        if condition is None:
            return -1
        folded = self._fold_condition(condition)
        key = (str(folded), len(folded.feature))
        if key not in self._condition_numbers:
            self._condition_numbers[key] = len(self.conditions)
            self.conditions.append(key)
        return self._condition_numbers[key]

    def rule(self, path: tuple[Condition, ...]) -> str:
        """Describe the rows that follow a path."""
        return join_path(self._fold(path)) or "all rows"

    def sentence(self, event: Event) -> str:
        """Describe an event."""
        parts = {field.name: self._fold(getattr(event, field.name)) for field in fields(event)}
        if parts.get("third_label") is not None:
            parts["third_label"] = _Name(self._token(repr(parts["third_label"])))
        return str(replace(event, **parts))

    def _fold(self, part: Any) -> Any:
        """Return a condition, or an object that contains some, with numbers for names."""
        if isinstance(part, Condition):
            return self._fold_condition(part)
        if isinstance(part, RunnerUp):
            return replace(part, condition=self._fold(part.condition))
        return tuple(map(self._fold, part)) if isinstance(part, tuple) else part

    def _fold_condition(self, condition: Condition) -> Condition:
        value = condition.value
        if value is not None and not isinstance(value, float):
            value = _Name(self._token(repr(value)))
        return replace(condition, feature=self._token(condition.feature), value=value)

    def _token(self, name: str) -> str:
        if len(name) <= MAX_PLAIN and name.isascii() and name.isprintable():
            return name
        if name not in self._name_numbers:
            self._name_numbers[name] = len(self.names)
            text = printable(name)
            self.names.append(text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}…")
        return f"{MARK}{self._name_numbers[name]}{MARK}"


# ---------------------------------------------------------------------- words
def label_names(model: AnyTree) -> list[str]:
    """Return the labels, or the names of the quantiles."""
    tree, _ = inside(model)
    labels: Iterable[Hashable] = tree.target.labels
    if not tree.engine.has_labels and tree.engine.n_outputs > 1:
        labels = outputs(tree, tree.engine.n_outputs)
    return list(label_texts(labels, most=None).values())


def say_words(model: AnyTree, history: History | None, records: list[Record]) -> dict[str, str]:
    """Return the sentences that depend on the model and its records."""
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
    """Describe the change of a number to which effects refer."""
    if model.setting == "paper":
        return "its whole range"
    _, encoder = inside(model)
    sparse = ", a sparse one from 0 to its usual size" if encoder.sparse is not None else ""
    return f"two standard deviations{sparse}"


def _lead(model: AnyTree, history: History | None) -> str:
    leaves = f"{model.n_leaves_} leaves, each" if model.n_leaves_ > 1 else "one leaf"
    rows = f"It has learnt {model.n_rows_seen_:,} rows in the order of their arrival, "
    now = f"and now has {leaves} with a simple model of its own. This page shows"
    if history is None:
        return f"{rows}{now} what it has learnt."
    n_changes = len(history.events)
    times = {0: "not changed so far", 1: "changed once"}.get(
        n_changes,
        f"changed {'more than ' if history.first_step > 0 else ''}{n_changes:,} times",
    )
    return f"{rows}has {times}, {now} how it came to be, and why."


def _tree_key(model: AnyTree) -> str:
    """Explain how to read a leaf's card."""
    labels = label_names(model)
    what = "the most frequent label (latest tree only)"
    sides = (
        f"to the right for {labels[1] if len(labels) == 2 else 'its label'}, to the left against"
    )
    if not inside(model)[0].engine.has_labels:
        what = (
            "the mean prediction, its position among those of all leaves, and the band of its "
            "error, the higher the more yellow (latest tree only)"
        )
        sides = "to the right those that raise the number, to the left those that lower it"
    return (
        f"Lines are as wide as their share of rows, and so is the grey bar of a leaf. Below it: "
        f"{what}, then the strongest weights, {sides}; the bars of all leaves have one scale. "
        "Bent lines are drawn as curves (latest tree only)."
    )


def _loss_words(model: AnyTree) -> str:
    """Explain what a loss is."""
    if inside(model)[0].engine.has_labels:
        return (
            "The loss of a row is minus the natural logarithm of the probability that was "
            "predicted for its label before it was known, in nats: ln 2 = 0.69 for a coin flip, 0 "
            "for certainty. "
            "Losses here are sums over rows."
        )
    return (
        "The loss of a row is minus the natural logarithm of the probability density that was "
        "predicted for its target before it was known, in nats, with the target's standard "
        "deviation as the unit: about 1.4 if only the mean is known, 1 less if the error is a "
        "third of that. Losses here are sums over rows, and may be below 0."
    )


# ---------------------------------------------------------------------- headline numbers
def say_headline(
    model: AnyTree, history: History | None, records: list[Record]
) -> list[dict[str, Any]]:
    """Return the headline numbers, as text or, if the page rounds, as mean and deviation."""
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
        ("splits", f"{model.n_splits_:,}", _plural(model.n_parameters_, "parameter")),
        ("changes", n_changes, changes),
        *_scores(records, metrics_of(model)),
        ("labels", f"{len(labels):,}", ", ".join(labels))
        if tree.engine.has_labels
        else _mean_of_all(model),
        _features_known(encoder, n_inputs),
    ]
    return [{"name": name, "value": value, "more": more} for name, value, more in rows]


def _mean_of_all(model: AnyTree) -> tuple[str, str, str]:
    """Return the mean prediction of a regressor, and its error."""
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
    """Return the number of features; for sparse ones, how many have a column or were forgotten."""
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
    """Return mean and standard deviation of the model's scores; it is the first learner."""
    if not records:
        return []
    figures = summarise(records)[records[0].learner]
    named = [(metric.title, metric.of(figures)) for metric in metrics]
    return [
        (name, round_number(figure.mean), round_number(figure.std))
        for name, figure in named
        if math.isfinite(figure.mean)
    ]
