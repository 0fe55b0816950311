"""Requests: from the bytes of a request to checked rows and batches, within limits.

JSON is read strictly: UTF-8, no NaN, no duplicate keys, no numbers beyond float64. Whatever is
wrong gets a `Refusal` that says where.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from driftree.learn.times import split_texts, whole_names
from driftree.learn.validation import list_names, quoted
from driftree.streams import formats
from driftree.streams.formats import MAX_TEXT

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from fastapi import Request

Model = TypeVar("Model", bound=BaseModel)
MAX_KEY = 64  # characters of an idempotency key
MAX_LISTED = 1000  # levels of a category
# Bytes beyond the limit that are still read, and dropped: most clients read no response before they
# have sent everything, and would only see a broken connection.
DROPPED = 2**24
CLOSE = {"Connection": "close"}  # where the rest of a body is not read


# ---------------------------------------------------------------------- limits
@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request, and of all of them together.

    Attributes
    ----------
    max_body : int
        Bytes of a request's body, counted while it is read.
    max_rows : int
        Rows of a request.
    max_features, max_labels : int
        Features that the model, and the rows of a request, may have; labels of the model. They keep
        clients from exhausting the memory: models are quadratic in the inputs. Sparse features do
        not count: the model's own `max_features` limits them.
    max_waiting : int
        Batches that may wait for the writer.
    body_seconds : float
        Time in which a body must arrive.
    max_requests : int
        Requests that may be in progress at the same time; those whose client is still sending do
        not count, nor do idle connections.
    search_seconds : float
        Time in which a counterfactual must be found.
    labels : tuple, optional
        Labels that may be learnt; by default all, up to `max_labels`.
    """

    max_body: int = 2**20
    max_rows: int = 1000
    max_features: int = 1000
    max_labels: int = 1000
    max_waiting: int = 256
    body_seconds: float = 30.0
    max_requests: int = 256
    search_seconds: float = 10.0
    labels: tuple[Any, ...] | None = None


# For batches in the journal: they were within the limits when they were acknowledged.
UNLIMITED = Limits(max_rows=2**31, max_features=2**31, max_labels=2**31)


@dataclass
class Refusal(Exception):  # noqa: N818 (a response, not an error of ours)
    """A request is refused: the status and the message for the client.

    Examples
    --------
    >>> raise Refusal(422, "row 3 has no features: give at least one")
    Traceback (most recent call last):
    driftree.serve.requests.Refusal: 422: row 3 has no features: give at least one
    """

    status: int
    words: str
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.status}: {self.words}"


def busy(words: str) -> Refusal:
    """Return the refusal of a request that may be retried soon."""
    return Refusal(503, words, {"Retry-After": "1"})


# ---------------------------------------------------------------------- schemas
# The values of cells and labels are checked below, where an error can say row and column.
_JSON_TYPES: list[dict[str, Any]] = [{"type": "number"}, {"type": "string"}, {"type": "boolean"}]
Cell = Annotated[Any, WithJsonSchema({"anyOf": [*_JSON_TYPES, {"type": "null"}]})]
Label = Annotated[Any, WithJsonSchema({"anyOf": _JSON_TYPES})]
Number = Annotated[Any, WithJsonSchema({"type": "number"})]
Weight = Annotated[Any, WithJsonSchema({"type": "number", "minimum": 0})]
Row = Annotated[dict[str, Cell], Field(json_schema_extra={"minProperties": 1})]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PredictRequest(_Request):
    """Rows to predict: names of features to numbers, text, booleans or null (missing)."""

    rows: list[Row] = Field(min_length=1)


class _LearnRequest(_Request):
    rows: list[Row] = Field(min_length=1)
    weights: list[Weight] | None = Field(
        default=None, description="One per row: 2 counts the row twice, 0 leaves it out."
    )


class LearnRequest(_LearnRequest):
    """A batch to learn: all of it, or nothing if any part is invalid."""

    labels: list[Label] = Field(description="One per row.")


class LearnNumbersRequest(_LearnRequest):
    """A batch to learn: all of it, or nothing if any part is invalid."""

    targets: list[Number] = Field(description="One per row.")


class ExplainRequest(_Request):
    """A row whose prediction is to be explained."""

    row: Row


class CounterfactualRequest(_Request):
    """A row, and what is to be predicted for it instead; options as in Python."""

    row: Row
    target: Label | None = Field(
        default=None, description="The wanted label; by default any other."
    )
    fixed: list[str] = Field(default=[], description="Names of features that must not change.")
    ranges: dict[str, Annotated[list[Cell], Field(min_length=1, max_length=MAX_LISTED)]] = Field(
        default={},
        description="By name: [low, high] of a number, null where open, or the levels of a text.",
    )
    below: float | None = Field(default=None, description="Regressors: the wanted range.")
    above: float | None = None
    between: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    probability: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Classifiers: the least probability of the wanted label.",
    )
    max_changes: int | None = Field(
        default=None, ge=1, le=10, description="Features that may change; the fewest come first."
    )
    n: int | None = Field(
        default=None, ge=1, le=10, description="Number of different ways, each with few changes."
    )

    def wish(self) -> dict[str, Any]:
        """Return the given options, as `counterfactual` takes them."""
        return self.model_dump(exclude={"row", "n"}, exclude_defaults=True)


# ---------------------------------------------------------------------- bytes
async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the body, within the limits of size and time."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, "the body must be JSON: send the header Content-Type: application/json")
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > limits.max_body + DROPPED:
        raise _too_large(limits)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.max_body + DROPPED:
                    break
                if size > limits.max_body:
                    parts.clear()
                else:
                    parts.append(part)
    except TimeoutError:
        words = f"the body did not arrive within {limits.body_seconds:g} seconds"
        raise Refusal(408, words, CLOSE) from None
    if size > limits.max_body:  # whatever Content-Length says
        raise _too_large(limits)
    return b"".join(parts)


def _too_large(limits: Limits) -> Refusal:
    words = f"the body has more than {limits.max_body:,} bytes: send the rows in several requests"
    return Refusal(413, words, CLOSE)


# ---------------------------------------------------------------------- JSON
def parse(body: bytes) -> Any:
    """Parse JSON strictly."""
    try:
        return formats.parse_json(body)
    except ValueError as error:
        raise Refusal(400, f"the body is not valid JSON: {error}") from None


def read(kind: type[Model], data: Any) -> Model:
    """Check parsed JSON against the schema of a request.

    Examples
    --------
    >>> read(PredictRequest, {"rows": [7]})
    Traceback (most recent call last):
    driftree.serve.requests.Refusal: 422: rows, 0: Input should be a valid dictionary
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ", ".join(quoted(part) if i else str(part) for i, part in enumerate(first["loc"]))
        raise Refusal(422, f"{place or 'the body'}: {first['msg']}") from None


# ---------------------------------------------------------------------- rows
def check_rows(rows: list[dict[str, Any]], limits: Limits, *, are_sparse: bool = False) -> None:
    """Raise if there are too many rows or names, or a cell has an unsupported value.

    Sparse rows may be empty, as a message without any words, and have any number of names.
    """
    if len(rows) > limits.max_rows:
        raise Refusal(
            413,
            f"{len(rows):,} rows are more than the {limits.max_rows:,} allowed: send them in "
            "several requests",
        )
    names: set[str] = set()
    for i, row in enumerate(rows):
        if not row and not are_sparse:
            raise Refusal(422, f"row {i} has no features: give at least one")
        names.update(row)
        for name, cell in row.items():
            if cell is not None:
                check_value(cell, f"column {quoted(name)}, row {i}")
    if len(names) > limits.max_features and not are_sparse:
        raise Refusal(
            422,
            f"the rows name {len(names):,} features, more than the {limits.max_features:,} "
            "allowed: send fewer, or start the server with a larger --max-features",
        )
    for name in names:
        if len(name) > MAX_TEXT:
            raise Refusal(422, f"a feature's name exceeds {MAX_TEXT:,} characters: shorten it")


def split_rows(rows: list[dict[str, Any]], names: Collection[Hashable]) -> list[dict[str, Any]]:
    """Return rows with times split into their parts, if the model knows these.

    Examples
    --------
    >>> split_rows([{"opens": "09:30", "age": 31}], ["age", "opens: hour"])
    [{'age': 31, 'opens: hour': 9.5}]
    """
    times = whole_names(names).difference(names)
    if not times:
        return rows
    found = []
    for i, row in enumerate(rows):
        try:
            found.append(dict(split_texts(row, times)))
        except ValueError as error:
            raise Refusal(422, f"row {i}: {error}") from None
    return found


def check_batch(
    labels: list[Any],
    weights: list[Any] | None,
    *,
    are_numbers: bool = False,
    allowed: tuple[Any, ...] | None = None,
) -> None:
    """Raise if a label, a numeric target or a weight is unsupported.

    Examples
    --------
    >>> check_batch(["yes", "maybe"], None, allowed=("yes", "no"))
    Traceback (most recent call last):
    driftree.serve.requests.Refusal: 422: labels, row 1 is 'maybe', but the labels are 'yes', 'no':
    correct it, or start the server with it in --labels
    """
    if are_numbers:
        for i, target in enumerate(labels):
            check_number(target, f"targets, row {i}")
        labels = []
    for i, label in enumerate(labels):
        if label is not None:  # the model's own error is clearer
            check_value(label, f"labels, row {i}")
            if allowed is not None and label not in allowed:
                raise Refusal(
                    422,
                    f"labels, row {i} is {quoted(label)}, but the labels are "
                    f"{list_names(allowed)}: correct it, or start the server with it in --labels",
                )
    for i, weight in enumerate(weights or ()):
        check_number(weight, f"weights, row {i}")


def check_number(value: Any, where: str) -> None:
    """Raise unless a value is a finite number.

    Examples
    --------
    >>> check_number("12", "targets, row 0")
    Traceback (most recent call last):
    driftree.serve.requests.Refusal: 422: targets, row 0 must be a number, got '12'
    """
    if type(value) not in (int, float):
        raise Refusal(422, f"{where} must be a number, got {quoted(value)}")
    check_value(value, where)


def check_value(value: Any, where: str) -> None:
    """Raise unless a value is text, a boolean or a finite number, of reasonable size."""
    try:
        formats.check_value(value, where)
    except ValueError as error:
        raise Refusal(422, str(error)) from None


def check_key(key: str | None) -> None:
    """Raise unless an idempotency key is short, printable ASCII."""
    if key is not None and not (0 < len(key) <= MAX_KEY and key.isascii() and key.isprintable()):
        raise Refusal(
            400,
            f"Idempotency-Key must be 1 to {MAX_KEY} printable ASCII characters, e.g. a UUID",
        )


# ---------------------------------------------------------------------- a batch to learn
@dataclass(frozen=True, slots=True)
class LearnBatch:
    """A batch to learn, in one call of `learn_many`; labels may be numbers.

    Examples
    --------
    >>> batch = LearnBatch([{"age": 31}], ["old"], key="a1")
    >>> LearnBatch.from_text(batch.to_text()) == batch
    True
    """

    rows: list[dict[str, Any]]
    labels: list[Any]
    weights: list[float] | None = None
    key: str | None = None

    def to_text(self) -> bytes:
        """Return the batch as a line of JSON, from which `from_text` restores it exactly."""
        data = {"rows": self.rows, "labels": self.labels, "weights": self.weights, "key": self.key}
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_text(cls, text: bytes) -> LearnBatch:
        """Return the batch in a record of the journal; raise `Refusal` if it is invalid."""
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict) or data.keys() != {"rows", "labels", "weights", "key"}:
            raise Refusal(422, "it is not a batch")
        rows, labels, weights, key = (data[name] for name in ("rows", "labels", "weights", "key"))
        if not (isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)):
            raise Refusal(422, "its rows are not a list of objects")
        if not isinstance(labels, list) or not isinstance(weights, list | None):
            raise Refusal(422, "its labels or weights are not a list")
        if not isinstance(key, str | None):
            raise Refusal(422, "its key is not text")
        check_rows(rows, UNLIMITED, are_sparse=True)
        check_batch(labels, weights)
        check_key(key)
        return cls(rows, labels, weights, key)
