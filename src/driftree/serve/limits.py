"""Limits: how much a client may ask for, and the words when it is not granted."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request, and all of them together, may be.

    Attributes
    ----------
    max_body : int
        Bytes of a request's body, counted while it is read.
    max_rows : int
        Rows of a request.
    max_features, max_labels : int
        Names of features that the model, and the rows of a request, may have; labels of the model.
        Without them a client could make the models, which are quadratic in the inputs, outgrow the
        memory.
    max_waiting : int
        Requests to learn that may wait for the one writer.
    body_seconds : float
        Time in which a body must arrive.
    max_requests : int
        Requests that may be answered at the same time. Connections without one do not count.
    """

    max_body: int = 2**20
    max_rows: int = 1000
    max_features: int = 1000
    max_labels: int = 1000
    max_waiting: int = 256
    body_seconds: float = 30.0
    max_requests: int = 256


# For batches that were within the limits when they were acknowledged.
UNLIMITED = Limits(max_rows=2**31, max_features=2**31, max_labels=2**31)


@dataclass
class Refusal(Exception):  # noqa: N818 (an answer, no mistake of ours)
    """A request is not granted: the status and the words that the client gets.

    Examples
    --------
    >>> raise Refusal(422, "row 3 has no features: give at least one")
    Traceback (most recent call last):
    driftree.serve.limits.Refusal: 422: row 3 has no features: give at least one
    """

    status: int
    words: str
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.status}: {self.words}"


def busy(words: str) -> Refusal:
    """Return the refusal of a request that may be repeated soon."""
    return Refusal(503, words, {"Retry-After": "1"})
