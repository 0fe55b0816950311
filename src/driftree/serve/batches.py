"""Batches to learn, as the journal notes them, and which of them were learnt before."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

from driftree.learn.storage.container import ModelFileError
from driftree.serve.limits import UNLIMITED, Refusal
from driftree.serve.requests import check_batch, check_key, check_rows

REMEMBERED = 10_000  # idempotency keys


@dataclass(frozen=True, slots=True)
class LearnBatch:
    """A batch to learn, in one call of `learn_many`.

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
        """Return it as a line of JSON, from which exactly the same batch comes back."""
        data = {"rows": self.rows, "labels": self.labels, "weights": self.weights, "key": self.key}
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_text(cls, text: bytes) -> LearnBatch:
        """Return the batch that was noted; raise `Refusal` if it is none that could have been."""
        try:
            data: Any = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict) or data.keys() != {"rows", "labels", "weights", "key"}:
            raise Refusal(422, "it is no batch")
        rows, labels, weights, key = (data[name] for name in ("rows", "labels", "weights", "key"))
        if not (isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)):
            raise Refusal(422, "its rows are no list of objects")
        if not isinstance(labels, list) or not isinstance(weights, list | None):
            raise Refusal(422, "its labels or weights are no list")
        if not isinstance(key, str | None):
            raise Refusal(422, "its key is no text")
        check_rows(rows, UNLIMITED)
        check_batch(labels, weights)
        check_key(key)
        return cls(rows, labels, weights, key)


class Learnt(NamedTuple):
    """That a batch was learnt: its place in the order, its rows, and what it was."""

    sequence: int
    n_rows: int
    digest: str


class LearntKeys:
    """The last batches that came with an idempotency key; what is repeated is not learnt again."""

    def __init__(self, learnt: OrderedDict[str, Learnt] | None = None) -> None:
        self._learnt = OrderedDict() if learnt is None else learnt

    def __len__(self) -> int:
        return len(self._learnt)

    def find(self, key: str, text: bytes) -> Learnt | None:
        """Return what was learnt under a key; raise if it was something else."""
        found = self._learnt.get(key)
        if found is not None and found.digest != digest_of(text):
            raise Refusal(
                422,
                f"Idempotency-Key {key!r} was used for another batch: choose a new one for each "
                "batch, and repeat it only with the same rows, labels and weights",
            )
        return found

    def add(self, key: str, learnt: Learnt) -> None:
        """Remember a key, and forget the oldest if there are too many."""
        self._learnt[key] = learnt
        if len(self._learnt) > REMEMBERED:
            self._learnt.popitem(last=False)

    def to_json(self) -> list[list[Any]]:
        """Return all of them for a file."""
        return [[key, *learnt] for key, learnt in self._learnt.items()]

    @classmethod
    def from_json(cls, data: Any) -> LearntKeys:
        """Return the keys that were in a file."""
        found: OrderedDict[str, Learnt] = OrderedDict()
        for item in data if isinstance(data, list) else [None]:
            if not isinstance(item, list) or list(map(type, item)) != [str, int, int, str]:
                raise ModelFileError("the server's note of idempotency keys is damaged")
            found[item[0]] = Learnt(*item[1:])
        return cls(found)


def digest_of(text: bytes) -> str:
    """Return by what two batches are told apart."""
    return hashlib.sha256(text).hexdigest()[:32]
