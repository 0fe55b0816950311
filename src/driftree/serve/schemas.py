"""Schemas: what requests and answers look like, for checking the former and documenting both."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

# What is in cells and labels is checked in `requests`, which can say row and column.
_KINDS: list[dict[str, Any]] = [{"type": "number"}, {"type": "string"}, {"type": "boolean"}]
Cell = Annotated[Any, WithJsonSchema({"anyOf": [*_KINDS, {"type": "null"}]})]
Label = Annotated[Any, WithJsonSchema({"anyOf": _KINDS})]
Weight = Annotated[Any, WithJsonSchema({"type": "number", "minimum": 0})]
Row = Annotated[dict[str, Cell], Field(json_schema_extra={"minProperties": 1})]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


# ---------------------------------------------------------------------- requests
class PredictRequest(_Request):
    """Rows to predict: names of features to numbers, text, truth values or null (missing)."""

    rows: list[Row] = Field(min_length=1)


class LearnRequest(_Request):
    """A batch to learn, in one go: all of it, or nothing if anything in it is wrong."""

    rows: list[Row] = Field(min_length=1)
    labels: list[Label] = Field(description="One per row.")
    weights: list[Weight] | None = Field(
        default=None, description="One per row: 2 is the row twice, 0 is no row."
    )


class ExplainRequest(_Request):
    """A row whose prediction is to be explained."""

    row: Row


# ---------------------------------------------------------------------- answers
class Problem(BaseModel):
    """What was wrong, and what to do."""

    detail: str


class Predictions(BaseModel):
    """The most probable label of each row, and the probabilities in the order of `classes`."""

    classes: list[Label]
    labels: list[Label]
    probabilities: list[list[float]]
    unknown: list[str] = Field(description="Names in the rows that the model does not know.")


class Receipt(BaseModel):
    """The batch is learnt, and survives whatever happens to the process."""

    sequence: int = Field(description="Its place among all batches that were learnt.")
    rows: int
    repeated: bool = Field(description="Learnt before, under the same Idempotency-Key.")


class Logit(BaseModel):
    """Log-odds of a label (with more than two labels: its logit) as a sum over the features."""

    label: Cell
    intercept: float
    contributions: dict[str, float]


class WhyPrediction(BaseModel):
    """Why a row is predicted as it is; `text` says it in words."""

    prediction: Label
    classes: list[Label]
    probabilities: list[float]
    logits: list[Logit]
    path: list[str]
    leaf: int
    rows: float
    since_row: int | None
    deviation: float | None
    unknown: list[str]
    text: str


class Tree(BaseModel):
    """What the tree knows, as text and as rules."""

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
    why: str


class Events(BaseModel):
    """Changes, oldest first."""

    events: list[Event]


class Summary(BaseModel):
    """What kind of model it is, and how large."""

    kind: str
    parameters: dict[str, Any]
    features: list[str]
    classes: list[Label]
    n_rows_seen: int
    n_nodes: int
    n_leaves: int
    depth: int
    memory: int
    sequence: int
    read_only: bool


class Health(BaseModel):
    """Whether it can do its work: "ok", "degraded" (it could not save the model) or "failed"."""

    status: str
    learning: bool
    problem: str | None = None
