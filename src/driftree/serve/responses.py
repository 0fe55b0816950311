"""Responses: predictions and explanations as data for JSON, which has no NaN and only text keys.

The schemas document them in OpenAPI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, Field

from driftree.explain.changes import can_tell, count_changes
from driftree.explain.counterfactual.solver import patience
from driftree.explain.forest import ForestExplanation
from driftree.explain.sparse import unknown_names
from driftree.explain.text import export_text
from driftree.explain.tree_data import finite
from driftree.forests import DynamicModelForest
from driftree.learn.validation import distinct_texts
from driftree.serve.requests import Cell, Label, Refusal
from driftree.serve.writer import feature_names, labels_of, predicts_numbers, sparse_names

if TYPE_CHECKING:
    from driftree.explain.counterfactual import Counterfactual
    from driftree.explain.explanation import Explanation
    from driftree.learn import drifts
    from driftree.serve.requests import CounterfactualRequest
    from driftree.serve.writer import Writer

NOTHING_LEARNT = "nothing has been learnt yet: POST rows and labels to /learn first"
NO_NUMBERS_LEARNT = "nothing has been learnt yet: POST rows and targets to /learn first"


# ---------------------------------------------------------------------- schemas
class Problem(BaseModel):
    """What was wrong, and what to do."""

    detail: str


class Predictions(BaseModel):
    """The most probable label of each row, and the probabilities in the order of `classes`."""

    classes: list[Label]
    labels: list[Label]
    probabilities: list[list[float]]
    unknown: list[str] = Field(description="Names in the rows that the model does not know.")


class PredictedNumbers(BaseModel):
    """The predicted number of each row."""

    predictions: list[float]
    unknown: list[str] = Field(description="Names in the rows that the model does not know.")


class Receipt(BaseModel):
    """The batch is learnt, and survives a crash of the process."""

    sequence: int = Field(description="Its number among all batches that were learnt.")
    rows: int
    repeated: bool = Field(description="Whether it was learnt before, under the same key.")


class Logit(BaseModel):
    """Log-odds of a label (with more than two labels: its logit) as a sum over the features."""

    label: Cell
    intercept: float
    contributions: dict[str, float]


class _Why(BaseModel):
    path: list[str]
    leaf: int
    rows: float
    since_row: int | None
    deviation: float | None
    unknown: list[str]
    text: str


class WhyPrediction(_Why):
    """Why a row gets its prediction; `text` says it in words."""

    prediction: Label
    classes: list[Label]
    probabilities: list[float]
    logits: list[Logit]


class WhyNumber(_Why):
    """Why a row gets its number, a sum over the features; `text` says it in words."""

    prediction: float
    intercept: float
    contributions: dict[str, float]


class FeatureChange(BaseModel):
    """What a feature is, and what it would have to be."""

    feature: str
    before: Cell
    after: Cell


class Way(BaseModel):
    """A row with another prediction, or why there is none; `text` says it in words."""

    exists: bool
    target: Cell
    prediction: Cell
    row: dict[str, Cell] | None
    changes: list[FeatureChange]
    distance: float | None
    probability: float | None
    exact: bool
    path: list[str]
    reason: str
    text: str


class Counterfactuals(BaseModel):
    """Ways to another prediction, the best first; if there is none, one entry that says why."""

    counterfactuals: list[Way]
    unknown: list[str] = Field(description="Names in the row that the model does not know.")


class Tree(BaseModel):
    """The tree, as text and as rules."""

    text: str
    rules: list[str]


class Event(BaseModel):
    """A change of the tree; `why` says it in words."""

    kind: str
    step: int
    n_rows: int
    node: int
    path: list[str]
    condition: str | None
    old_condition: str | None
    gain: float | None
    threshold: float | None
    loss_before: float | None
    loss_after: float | None
    rows: float | None
    n_removed: int
    curves: list[str]
    why: str
    member: int | None = None
    """Which tree of a forest."""


class Events(BaseModel):
    """Changes, oldest first."""

    events: list[Event]


class InputChange(BaseModel):
    """An input that changed with a drift: "values" (medians), "missing" or "level"."""

    feature: str
    kind: str
    before: float
    after: float
    level: Label | None


class Drift(BaseModel):
    """An alarm: the rule behind the rows has changed; `why` says it in words."""

    n_rows: int
    since: int
    excess: float | None
    loss_before: float | None
    loss_since: float | None
    path: list[str]
    share: float
    inputs: list[InputChange]
    why: str


class Drifts(BaseModel):
    """Alarms, oldest first."""

    drifts: list[Drift]


class Summary(BaseModel):
    """The model: class, parameters, features, size."""

    kind: str
    parameters: dict[str, Any]
    features: list[str]
    n_features: int  # sparse ones included
    classes: list[Label]
    n_rows_seen: int
    n_nodes: int
    n_leaves: int
    depth: int
    memory: int
    sequence: int
    read_only: bool


class Health(BaseModel):
    """The server's state: "ok", "degraded" (the model could not be saved) or "failed"."""

    status: str
    learning: bool
    problem: str | None = None


# ---------------------------------------------------------------------- data
def predict(model: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return predictions of rows; the model may learn meanwhile."""
    try:
        told = _numbers(model, rows) if predicts_numbers(model) else _labels(model, rows)
    except (TypeError, ValueError) as error:
        raise Refusal(422, str(error)) from None
    return told | {"unknown": _unknown(model, *rows)}


def _labels(model: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return labels and probabilities."""
    shares = model.predict_proba_many(rows)
    if not shares:
        raise Refusal(409, NOTHING_LEARNT)
    classes = list(shares)
    probabilities = np.column_stack(list(shares.values()))
    return {
        "classes": classes,
        "labels": [classes[code] for code in model._labels.decide(probabilities)],
        "probabilities": probabilities.tolist(),
    }


def _numbers(model: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return predicted numbers."""
    if model._tree is None:
        raise Refusal(409, NO_NUMBERS_LEARNT)
    return {"predictions": model.predict_many(rows).tolist()}


def explain(model: Any, row: dict[str, Any]) -> dict[str, Any]:
    """Return why a row gets its prediction; the model must not learn meanwhile."""
    check_readable(model)
    try:
        why: Explanation | ForestExplanation = model.explain_one(row)
    except (TypeError, ValueError) as error:
        raise Refusal(422, str(error)) from None
    return _terms(why, is_number=predicts_numbers(model)) | {
        "prediction": why.prediction,
        **_place(why, model),
        "unknown": list(why.unknown),
        "text": str(why),
    }


def _place(why: Explanation | ForestExplanation, model: Any) -> dict[str, Any]:
    """Return the leaf of a row; for a forest, only `text` has the leaves."""
    if isinstance(why, ForestExplanation):
        rows = model.n_rows_seen_
        return {"path": [], "leaf": -1, "rows": rows, "since_row": None, "deviation": None}
    return {
        "path": [str(condition) for condition in why.path],
        "leaf": why.leaf,
        "rows": why.rows,
        "since_row": why.since_row,
        "deviation": None if why.deviation is None else finite(why.deviation),
    }


def counterfactuals(model: Any, wanted: CounterfactualRequest, seconds: float) -> dict[str, Any]:
    """Return ways to another prediction; the model must not learn meanwhile."""
    check_readable(model)
    try:
        with patience(seconds):
            found = _ways(model, wanted)
    except TimeoutError:
        raise Refusal(
            422,
            f"no counterfactual was found within {seconds:g} seconds: name more features in fixed, "
            "or give a smaller max_changes",
        ) from None
    except (TypeError, ValueError) as error:
        raise Refusal(422, str(error)) from None
    return {"counterfactuals": list(map(_tell_way, found)), "unknown": _unknown(model, wanted.row)}


def _ways(model: Any, wanted: CounterfactualRequest) -> list[Counterfactual]:
    wish = wanted.wish()
    is_few = wanted.n is not None or {"probability", "max_changes"} & wish.keys()
    if is_few and not hasattr(model, "counterfactuals"):
        raise Refusal(422, "a forest supports neither probability nor max_changes nor n: omit it")
    if wanted.n is not None:
        found: list[Counterfactual] = model.counterfactuals(wanted.row, n=wanted.n, **wish)
        return found
    return [model.counterfactual(wanted.row, **wish)]


def _tell_way(way: Counterfactual) -> dict[str, Any]:
    return {
        "exists": way.exists,
        "target": way.target,
        "prediction": way.prediction,
        "row": way.x,
        "changes": [
            {"feature": name, "before": before, "after": after}
            for name, (before, after) in way.changes.items()
        ],
        "distance": finite(way.distance),
        "probability": finite(way.probability),
        "exact": way.exact,
        "path": [str(condition) for condition in way.path],
        "reason": way.reason,
        "text": str(way),
    }


def _unknown(model: Any, *rows: dict[str, Any]) -> list[str]:
    """Return the names in rows that the model does not know."""
    if model._tree is None:
        return sorted({name for row in rows for name in row})
    encoder = model._tree.encoder
    return sorted({str(name) for row in rows for name in unknown_names(encoder, row)})


def _terms(why: Explanation | ForestExplanation, *, is_number: bool) -> dict[str, Any]:
    """Return what the features contribute: to the number, or to the log-odds of labels."""
    if is_number:
        return {"intercept": why.intercept, "contributions": why.contributions}
    if isinstance(why.intercept, dict):
        logits = [
            (label, why.intercept[label], why.contributions[label]) for label in why.intercept
        ]
    else:
        logits = [(why.label, why.intercept, why.contributions)]
    return {
        "classes": list(why.probabilities),
        "probabilities": list(why.probabilities.values()),
        "logits": [
            {"label": label, "intercept": intercept, "contributions": contributions}
            for label, intercept, contributions in logits
        ],
    }


def tell_tree(model: Any) -> dict[str, Any]:
    """Return the tree as text and as rules; the model must not learn meanwhile."""
    check_readable(model)
    if not isinstance(model, DynamicModelForest):
        return {"text": export_text(model), "rules": [str(rule) for rule in model.rules()]}
    trees = model.trees_
    texts = [
        f"Tree {i}, weight {weight:.2f}:\n{export_text(tree)}"
        for i, (weight, tree) in enumerate(zip(model.weights_, trees, strict=True))
    ]
    rules = [f"Tree {i}: {rule}" for i, tree in enumerate(trees) for rule in tree.rules()]
    return {"text": "\n".join(texts), "rules": rules}


def check_readable(model: Any) -> None:
    """Raise if the model cannot explain itself, or has learnt nothing yet."""
    if not hasattr(model, "explain_one"):
        raise Refusal(409, f"a {type(model).__name__} cannot explain itself")
    if model._tree is None:
        raise Refusal(409, NO_NUMBERS_LEARNT if predicts_numbers(model) else NOTHING_LEARNT)


def drifts_of(model: Any, after_row: int = 0) -> list[drifts.Drift]:
    """Return the alarms after a row; none for a model without a history."""
    if not can_tell(model) or model._tree is None:
        return []
    found: list[drifts.Drift] = model.drifts(since=after_row)
    return found


def watch_figures(model: Any) -> dict[str, float | dict[str, float]]:
    """Return the figures of a model for Prometheus; it must not learn meanwhile."""
    found = drifts_of(model)
    tree = model._tree
    figures: dict[str, float | dict[str, float]] = {
        "driftree_changes_total": count_changes(model),
        "driftree_drifts_total": len(found),
        "driftree_last_drift_row": found[-1].n_rows if found else 0,
    }
    if tree is not None and tree.recent_loss is not None:
        figures["driftree_recent_loss"] = tree.recent_loss
    rows = None if tree is None else tree.label_rows
    if rows is not None:
        shares = (rows / max(float(rows.sum()), 1e-300)).tolist()
        labels = labels_of(model)
        names = distinct_texts(map(str, labels), map(repr, labels))
        figures["driftree_label_share"] = dict(zip(names, shares, strict=True))
    return figures


def summarise(writer: Writer) -> dict[str, Any]:
    """Return class, parameters and size of the model; it must not learn meanwhile."""
    model = writer.model
    parameters = model.get_params(deep=False)
    names, categorical = feature_names(model), parameters["categorical"]
    return {
        "kind": type(model).__name__,
        "parameters": parameters
        | {"categorical": None if categorical is None else list(categorical)},
        "features": names,
        "n_features": len({*names, *sparse_names(model)}),
        "classes": labels_of(model),
        "n_rows_seen": getattr(model, "n_rows_seen_", 0),  # if it has learnt nothing
        "n_nodes": getattr(model, "n_nodes_", 1),
        "n_leaves": getattr(model, "n_leaves_", 1),
        "depth": getattr(model, "depth_", 0),
        "memory": model.memory_usage(),
        "sequence": writer.sequence,
        "read_only": writer.journal is None,
    }
