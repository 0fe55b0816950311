"""What the report says, as plain data for JSON: short keys, few digits, thinned curves.

Conditions and the names of inputs are listed once and then named by their number. None stands for
what is not known. A rule or a sentence names the same few features over and over: on its way to the
page each name, unless it is short and plain, is written as a number between two `MARK`s, which the
page looks up in the list of names.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from driftree.evaluate.learners import LEARNERS
from driftree.evaluate.records import by_learner, columns, slide, summarise
from driftree.explain.describe import inside
from driftree.explain.text import one_line, shorten_together
from driftree.learn.events import Condition, RunnerUp, join_path
from driftree.learn.words import printable
from driftree.show.metrics import metrics_of, more_metrics
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
from driftree.show.report_stream import over_stream
from driftree.show.report_words import WINDOW, label_names, say_headline, say_words
from driftree.show.scores import drift_spans

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driftree.evaluate.records import Record
    from driftree.learn.events import Curve, Event
    from driftree.learn.history import Structure
    from driftree.show.metrics import Metric
    from driftree.show.scores import Drifts
    from driftree.show.style import AnyTree

MAX_POINTS = 400  # of a metric's curve
MAX_FEATURES = 15  # whose importance is told
CARD_NAME = 13  # characters of an input's name
CARD_LABEL = 9  # and of a label's
NATS_DIGITS = 9  # as many as the sentences have, also in losses of many rows
MARK = "\x7f"  # in no name: `printable` writes it in another way
MAX_NAME = 1000  # characters
MAX_PLAIN = 12  # characters of a name that may as well stand in the text
# What turns or breaks the line that it stands in: controls, and those of the direction of writing.
CONTROLS = re.compile("[\x00-\x1f\x80-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def gather(
    model: AnyTree,
    records: list[Record] | None,
    drifts: Drifts = (),
    settings: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Return all that the page says about a model.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that has learnt something.
    records : list of Record or None
        What was measured; the first learner in it is the model.
    drifts : sequence of int or (int, int)
        Rows at which the stream is known to change, or spans in which it does.
    settings : mapping, optional
        How the run was made.

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
        "events": [_event(event, words) for event in events],
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
        "comparison": _comparison(measured, metrics),
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
    """Return data with the characters visible that would turn the text around them."""
    if isinstance(part, str):
        return visible(part)
    if isinstance(part, dict):
        return {name: _show_controls(value) for name, value in part.items()}
    return [_show_controls(value) for value in part] if isinstance(part, list | tuple) else part


def _shorten_names(names: list[str], n_labels: int) -> list[str]:
    """Return names for a leaf's card; with more than two labels a label stands before them."""
    return _shorten(names, CARD_NAME if n_labels <= 2 else CARD_NAME // 2 + 1)


def _shorten(names: list[str], most: int) -> list[str]:
    """Return names that were shortened together, so that no two are the same."""
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


def _event(event: Event, words: Words) -> dict[str, Any]:
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
        "condition": words.number(condition),
        "rules": [words.rule((*event.path, side)) for side in sides],
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
    """Return the features that have curves, of many the first few."""
    names = [one_line(curve.feature) for curve in curves]
    return names if len(names) <= most else [*names[:most], f"{len(names) - most} more"]


def _importance(model: AnyTree) -> dict[str, Any]:
    """Return the features that contribute most, by their splits and inside the leaves."""
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
                "title": _title(learner),
                "rows": [int(figures["n_rows"][place]) for place in places],
                "values": [round_number(float(mean[place])) for place in places],
            }
        )
    return curves


def _comparison(records: list[Record], metrics: tuple[Metric, Metric]) -> list[dict[str, Any]]:
    """Return how well, how simply and how fast each learner did, where there are several."""
    groups = by_learner(records)
    if len(groups) < 2:
        return []
    rows = []
    (first, second), more = metrics, more_metrics(metrics)
    for learner, figures in summarise(records).items():
        rows.append(
            {
                "title": _title(learner),
                first.field: [round_number(part) for part in first.of(figures)],
                second.field: round_number(second.of(figures).mean),
                **{one.field: round_number(one.of(figures).mean) for one in more},
                "splits": round_number(figures["n_splits"].mean),
                "parameters": round_number(figures["n_parameters"].mean),
                "seconds": round_number(sum(record.seconds for record in groups[learner])),
            }
        )
    return rows


def _title(learner: str) -> str:
    return LEARNERS[learner].title if learner in LEARNERS else learner


# ---------------------------------------------------------------------- names that are sent once
def visible(text: str) -> str:
    r"""Return a text with its control characters written as in Python.

    Examples
    --------
    >>> print(visible("evil\u202ename"))
    evil\u202ename
    """
    return CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


class _Name:
    """A value in a condition that is written as its number."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __repr__(self) -> str:
        return self._token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Name) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(self._token)


class Words:
    """The conditions and names of a page, and texts that are made of them.

    Attributes
    ----------
    names : list of str
        What the numbers in the texts stand for.
    conditions : list
        Per condition the text, and how much of it is the feature's name: in little room the name is
        shortened, not the question.

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
        """Say which rows a path leads to."""
        return join_path(self._fold(path)) or "all rows"

    def sentence(self, event: Event) -> str:
        """Say what an event says."""
        parts = {field.name: self._fold(getattr(event, field.name)) for field in fields(event)}
        if parts.get("third_label") is not None:
            parts["third_label"] = _Name(self._token(repr(parts["third_label"])))
        return str(replace(event, **parts))

    def _fold(self, part: Any) -> Any:
        """Return a condition, or what contains some, with numbers for names."""
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
