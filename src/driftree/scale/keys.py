"""Keys: valid keys, the keys of rows, and the record of each key.

Every row is predicted before it is learnt, by its key's own model and by the parent, so that both
losses are over the same rows. The loss is the negative log-probability of the label, or the
absolute error of a number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.utils.validation import column_or_1d

from driftree.learn.storage import ModelFileError, manifest
from driftree.learn.tables import Columns
from driftree.learn.target import check_numbers, distinct_labels, to_labels
from driftree.learn.validation import as_objects, is_missing, list_names, plain, quoted, shown
from driftree.stored import CLASSES
from driftree.streams.rows import Rows, count_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Sequence

    from numpy.typing import NDArray

    from driftree.stored import StoredModel

RECENT = 0.99
"""Discount of losses per row: the recent loss is over about 100 rows,"""
USUAL = 0.999
"""and the usual one over about 1,000."""
LEAD = 1.0
"""Nats by which the loss of a key's own model must be below the parent's to predict instead of it.

`benchmarks/cold_keys.py` compares this with other rules."""
ALARM = 5.0
"""Standard errors by which the recent loss exceeds the usual one when a drift begins,"""
ALL_CLEAR = 2.0
"""and when it ends."""
CERTAIN_ROWS = 200
"""Rows of a key before a drift can be detected."""
LEAST_PROBABILITY = 1e-3
"""So a single row never costs more than 7 nats."""
MAX_DRIFTS = 20  # that are kept of a key
RECENT_ROWS = (1 + RECENT) / (1 - RECENT)  # of a plain mean with the same variance

KIND = "driftree keyed models"
INTEGERS = range(-(2**63), 2**63)  # of SQLite
MAX_ERRORS = 5  # listed in an error


class KeyDrift(NamedTuple):
    """A period in which a key's loss was well above its usual one.

    Attributes
    ----------
    begin : int
        Rows of the key when it was detected.
    end : int or None
        Rows of the key when it ended; None if it has not.
    """

    begin: int
    end: int | None = None


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """The record of a key.

    Attributes
    ----------
    key : str, int or bytes
        The key.
    n_rows : int
        Its rows.
    loss : float
        Mean loss of the recent rows, as predicted: in nats, or the mean absolute error of numbers.
    usual_loss : float
        The same in the long run.
    own_loss, parent_loss : float
        Losses of the key's own model and of the parent on the recent rows.
    is_cold : bool
        Whether the parent predicts: the key's own model is not better yet.
    drift_since : int or None
        Rows of the key when its drift began; None if it does not drift.
    changed_at : int or None
        Rows of the key when its tree last changed; None if never.
    """

    key: Hashable
    n_rows: int
    loss: float
    usual_loss: float
    own_loss: float
    parent_loss: float
    is_cold: bool
    drift_since: int | None
    changed_at: int | None

    def __str__(self) -> str:
        words = [f"{self.key!r}: {self.n_rows:,} rows, loss {self.loss:.3g}"]
        words.append(f"usually {self.usual_loss:.3g}")
        if self.is_cold:
            words.append("predicted by the parent")
        if self.drift_since is not None:
            words.append(f"drifts since row {self.drift_since:,}")
        if self.changed_at is not None:
            words.append(f"tree changed at row {self.changed_at:,}")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of all keys; `print` shows it as text.

    Attributes
    ----------
    n_keys, n_rows : int
        Keys, and rows of all of them.
    n_cold, n_drifting : int
        Keys predicted by the parent; keys that drift now.
    n_in_memory, memory : int
        Models in memory, and their bytes.
    drifting, changed, worst : tuple of KeyRecord
        Keys that drift now, the largest excess over the usual loss first; keys whose tree changed
        within their last 100 rows, the latest first; keys of at least 20 rows with the largest
        recent loss.
    """

    n_keys: int
    n_rows: int
    n_cold: int
    n_drifting: int
    n_in_memory: int
    memory: int
    drifting: tuple[KeyRecord, ...]
    changed: tuple[KeyRecord, ...]
    worst: tuple[KeyRecord, ...]

    @classmethod
    def of(cls, shards: Sequence[Summary], most: int) -> Summary:
        """Return the summary over the keys of several shards."""
        counts = ("n_keys", "n_rows", "n_cold", "n_drifting", "n_in_memory", "memory")
        sums = [sum(getattr(shard, name) for shard in shards) for name in counts]
        orders: dict[str, Callable[[KeyRecord], float]] = {
            "drifting": lambda record: record.usual_loss - record.loss,
            "changed": lambda record: record.n_rows - (record.changed_at or 0),
            "worst": lambda record: -record.loss,
        }
        named = (
            tuple(sorted(chain(*(getattr(shard, name) for shard in shards)), key=order)[:most])
            for name, order in orders.items()
        )
        return cls(*sums, *named)

    def __str__(self) -> str:
        lines = [
            f"{self.n_keys:,} keys, {self.n_rows:,} rows; {self.n_cold:,} keys are predicted by "
            f"the parent, {self.n_drifting:,} drift; {self.n_in_memory:,} models in memory take "
            f"{self.memory / 1e6:,.1f} MB."
        ]
        for title in ("drifting", "changed", "worst"):
            records: tuple[KeyRecord, ...] = getattr(self, title)
            if records:
                lines += [f"{title.capitalize()}:", *(f"  {record}" for record in records)]
        return "\n".join(lines)


class Tally:
    """The losses of one key so far: discounted sums over rows, and figures derived from them."""

    __slots__ = (
        "changed_at",
        "drifts",
        "given",
        "n_rows",
        "own",
        "parent",
        "usual",
        "usual_squares",
        "usual_weight",
        "weight",
    )

    def __init__(self) -> None:
        self.n_rows = 0
        self.weight = self.own = self.parent = self.given = 0.0
        self.usual_weight = self.usual = self.usual_squares = 0.0
        self.changed_at: int | None = None
        self.drifts: list[KeyDrift] = []

    def add(self, own: float, parent: float, *, is_cold: bool) -> None:
        """Add the losses of both models on a row; `is_cold` tells which of them predicted it."""
        given = parent if is_cold else own
        self.n_rows += 1
        self.weight = RECENT * self.weight + 1
        self.own = RECENT * self.own + own
        self.parent = RECENT * self.parent + parent
        self.given = RECENT * self.given + given
        self.usual_weight = USUAL * self.usual_weight + 1
        self.usual = USUAL * self.usual + given
        self.usual_squares = USUAL * self.usual_squares + given * given
        if self.n_rows >= CERTAIN_ROWS:
            self._look_for_drift()

    def _look_for_drift(self) -> None:
        usual = self.usual / self.usual_weight
        variance = self.usual_squares / self.usual_weight - usual * usual
        excess = self.given / self.weight - usual
        error = math.sqrt(max(variance, 0.0) / RECENT_ROWS)
        if self.drift_since is None:
            if excess > ALARM * error:
                self.drifts = [*self.drifts[1 - MAX_DRIFTS :], KeyDrift(self.n_rows)]
        elif excess <= ALL_CLEAR * error:
            self.drifts[-1] = self.drifts[-1]._replace(end=self.n_rows)

    @property
    def drift_since(self) -> int | None:
        """Rows of the key when its drift began; None if it does not drift."""
        return self.drifts[-1].begin if self.drifts and self.drifts[-1].end is None else None

    def is_cold(self, *, of_labels: bool) -> bool:
        """Return whether the key's own model is not yet better than the parent."""
        if self.n_rows == 0:
            return True
        if of_labels:
            return self.parent - self.own < LEAD
        if self.own == 0.0 or self.parent == 0.0:
            return self.parent == 0.0
        return self.weight * math.log(self.parent / self.own) < LEAD  # for Laplace errors

    def record(self, key: Hashable, *, of_labels: bool, has_parent: bool) -> KeyRecord:
        """Return the record of the key."""
        weight = self.weight or math.nan
        return KeyRecord(
            key,
            self.n_rows,
            self.given / weight,
            self.usual / (self.usual_weight or math.nan),
            self.own / weight,
            self.parent / weight,
            has_parent and self.is_cold(of_labels=of_labels),
            self.drift_since,
            self.changed_at,
        )

    # ------------------------------------------------------------------ on disk
    def to_text(self) -> str:
        """Return the state as JSON, with all digits of floats."""
        return json.dumps([getattr(self, name) for name in self.__slots__])

    @classmethod
    def from_text(cls, text: str) -> Tally:
        """Restore the state from JSON."""
        tally = cls()
        for name, value in zip(cls.__slots__, json.loads(text), strict=True):
            setattr(tally, name, value)
        tally.drifts = [KeyDrift(*drift) for drift in tally.drifts]
        return tally


def label_loss(probabilities: Mapping[Any, float], label: Hashable) -> float:
    """Return the negative log-probability of a label; an unknown one has a probability, too.

    Examples
    --------
    >>> print(f"{label_loss({'yes': 0.5, 'no': 0.5}, 'no'):.2f}")
    0.69
    >>> print(f"{label_loss({'yes': 1.0}, 'no'):.2f}")  # one of three: yes, no, or another
    1.10
    """
    given = probabilities.get(label)
    if given is None:
        given = 1 / (len(probabilities) + 2)
    return -math.log(max(given, LEAST_PROBABILITY))


# ---------------------------------------------------------------------- keys
def check_key(key: Any) -> Any:
    """Return a key as it is stored; floats must be whole numbers."""
    key = plain(key)
    if type(key) is float and key.is_integer():
        key = int(key)
    if type(key) not in (str, int, bytes) or (type(key) is int and key not in INTEGERS):
        raise TypeError(
            f"{shown(key)} of type {type(key).__name__!r} cannot be a key: keys are text, whole "
            "numbers and bytes; make it text"
        )
    if type(key) is str and not key.isascii():
        try:
            key.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{shown(key)} cannot be a key: it holds a lone surrogate, which is not text; "
                "repair its encoding, or give bytes"
            ) from None
    return key


def read_key(key: Any, name: Hashable, others: Collection[Hashable] = ()) -> Any:
    """Return the key in a row's cell as it is stored; raise if it is missing."""
    if is_missing(key):
        rest = f", only {list_names(others)}" if others else ""
        raise ValueError(f"a row has no key in {name!r}{rest}: give one, or leave the row out")
    return check_key(key)


def key_column(X: Any, key: Hashable) -> Hashable:
    """Return the name of the column that holds the keys: in arrays, `key` may be its position."""
    return f"x{key}" if isinstance(X, np.ndarray) and isinstance(key, int) else key


def take_key(x: Mapping[Hashable, Any], name: Hashable) -> tuple[Any, dict[Hashable, Any]]:
    """Return the key of a row, and the rest of the row.

    Examples
    --------
    >>> take_key({"shop": "north", "day": 3}, "shop")
    ('north', {'day': 3})
    """
    rest = dict(x)
    key = rest.pop(name, None)
    if (type(key) is str and key.isascii()) or (type(key) is int and key in INTEGERS):
        return key, rest
    return read_key(key, name, rest), rest


def take_keys(X: Any, key: Hashable) -> list[tuple[Any, Any]]:
    """Return key and rest of each row of a batch; columns may be lists."""
    X = check_batch(X)
    rows = Rows(X, np.zeros(count_rows(X)))
    name = key_column(X, key)
    return [take_key(x, name) for x in rows.dicts]


def check_batch(X: Any) -> Any:
    """Return a batch, columns as arrays; raise if it cannot hold keys."""
    if scipy.sparse.issparse(X):
        raise TypeError(
            f"a {type(X).__name__} cannot hold keys, since it does not store 0: give a list of "
            "dicts, whose absent features are 0, too"
        )
    if isinstance(X, np.ndarray) and X.ndim != 2:
        raise ValueError(f"X must have two dimensions, rows and columns, got the shape {X.shape}")
    if isinstance(X, tuple):
        return list(X)
    return Columns(X).arrays if isinstance(X, Mapping) else X


def by_key(taken: list[tuple[Any, Any]]) -> dict[Any, list[int]]:
    """Group rows by key, in their order."""
    places: dict[Any, list[int]] = {}
    for i, (key, _) in enumerate(taken):
        places.setdefault(key, []).append(i)
    return places


def check_storable(value: Any, what: str) -> None:
    """Raise if a model with such a label, name or level could not be kept on disk.

    Examples
    --------
    >>> from datetime import date
    >>> check_storable(date(2024, 12, 31), "a label")
    Traceback (most recent call last):
    TypeError: a label is datetime.date(2024, 12, 31) of type 'date', which cannot be kept on disk
    with the model of its key: only text, numbers, booleans, None, bytes and tuples of these; make
    it text
    """
    if type(value) in (str, bool, float):  # nearly always
        return
    try:
        manifest.encode(value)
    except TypeError:
        raise TypeError(
            f"{what} is {shown(value)} of type {type(value).__name__!r}, which cannot be kept on "
            "disk with the model of its key: only text, numbers, booleans, None, bytes and tuples "
            "of these; make it text"
        ) from None


# ---------------------------------------------------------------------- targets and answers
def read_targets(y: Any, n_rows: int, *, of_labels: bool) -> NDArray[Any]:
    """Return labels or numbers, one per row; raise if one is missing."""
    targets = _read_labels(y) if of_labels else check_numbers(y)
    if len(targets) != n_rows:
        raise ValueError(f"X has {n_rows:,} rows, but y has {len(targets):,}: give one per row")
    return targets


def _read_labels(y: Any) -> NDArray[Any]:
    labels = to_labels(y)
    if getattr(labels, "ndim", 1) == 2:
        labels = column_or_1d(labels, warn=True)
    if isinstance(labels, np.ndarray):
        if labels.dtype.kind in "biuU":  # none can be missing
            return labels
        labels = list(labels) if labels.dtype.kind in "mM" else labels.tolist()
    distinct_labels(labels)  # raises if one is missing
    return as_objects(list(labels))


def to_answers(answers: list[Any]) -> NDArray[Any]:
    """Return predictions as an array; NumPy would convert labels of several types to text.

    Examples
    --------
    >>> to_answers(["no", "yes"]), to_answers([1, "no"])
    (array(['no', 'yes'], dtype='<U3'), array([1, 'no'], dtype=object))
    """
    kinds = {*map(type, answers)}
    is_plain = len(kinds) == 1 and kinds <= {bool, int, float, str}
    return np.asarray(answers) if is_plain else as_objects(answers)


# ---------------------------------------------------------------------- models
def check_made(model: Any) -> StoredModel:
    """Return a model if it can be stored and sent; raise otherwise."""
    if type(model) not in CLASSES.values():
        raise TypeError(
            f"make() must return one of driftree's own learners ({', '.join(CLASSES)}), which can "
            f"be kept on disk; got {shown(model)}"
        )
    return model  # type: ignore[no-any-return]


def as_parent(model: Any) -> Any:
    """Return a model for the rows of all keys, which does not follow the target."""
    if getattr(model, "follow_target", False) is None:
        model.set_params(follow_target=False)
    return model


# ---------------------------------------------------------------------- errors
def refusal(
    errors: dict[int, ValueError | TypeError],
    taken: list[Any],
    rows: NDArray[np.int64] | None = None,
) -> ValueError:
    """Return the error that lists refused rows; `rows` are the numbers of all in the stream."""
    first = sorted(errors)[:MAX_ERRORS]
    names = {i: f"row {i}" if rows is None else f"row {rows[i]} of the stream" for i in first}
    words = "; ".join(f"{names[i]} (key {taken[i][0]!r}): {errors[i]}" for i in first)
    rest = f"; and {len(errors) - MAX_ERRORS:,} more" if len(errors) > MAX_ERRORS else ""
    what = f"{len(errors):,} of {len(taken):,} rows were refused, all others learnt"
    return ValueError(f"{what}: {words}{rest}")


def difference(found: Any, own: Mapping[str, Any], folder: str) -> str:
    """Describe how settings differ from those that a folder was created with."""
    if not isinstance(found, dict) or found.get("format") != KIND:
        raise ModelFileError(f"{folder} holds no keyed models")
    names = [name for name, value in own.items() if found.get(name) != value]
    words = "; ".join(
        f"{name} was {quoted(found.get(name))}, is {quoted(own[name])}" for name in names
    )
    return f"{folder} holds models with other settings: {words}; give the same, or another folder"
