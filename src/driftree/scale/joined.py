"""Joined: a model over messages, which predicts rows and learns them when their labels arrive.

It depends only on the messages and their order, not on a clock or on chance. So restarting from an
earlier state with the same messages gives the same model and the same replies.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from sklearn.base import is_regressor

from driftree.explain.changes import count_changes
from driftree.explain.tree_data import tell_event
from driftree.learn.imbalance import decide_one
from driftree.learn.times import split_texts, whole_names
from driftree.learn.validation import list_names, quoted
from driftree.streams.formats import MAX_TEXT, check_value, parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

TYPES: dict[str, tuple[type, ...]] = {"number": (int, float), "text": (str,), "boolean": (bool,)}
"""Types of features in a schema."""
RECENT_ROWS = 1000  # window of the recent quality, about
COUNTS = ("rows", "labels", "learnt", "unlabelled", "dead", "changes")

HELP = {
    "driftree_stream_messages_total": "Messages done.",
    "driftree_stream_rows_total": "Rows predicted.",
    "driftree_stream_labels_total": "Labels received on their own.",
    "driftree_stream_learnt_total": "Rows learnt.",
    "driftree_stream_unlabelled_total": "Rows whose label did not arrive within the window.",
    "driftree_stream_dead_total": "Messages that could not be used.",
    "driftree_stream_changes_total": "Changes of the tree.",
    "driftree_stream_lag": "Messages that are not processed yet.",
    "driftree_stream_waiting_rows": "Rows that wait for their label.",
    "driftree_stream_waiting_labels": "Labels that wait for their row.",
    "driftree_stream_quality": "Accuracy, or mean absolute error, over all rows.",
    "driftree_stream_recent_quality": "The same over about the last 1,000 rows.",
    "driftree_stream_model_version": "Rows that the model has learnt.",
}


class Message(NamedTuple):
    """A message as received.

    Attributes
    ----------
    topic, partition, offset : str, int, int
        Its position.
    time : int
        Its timestamp in milliseconds.
    key, value : bytes or None
        Its contents.
    """

    topic: str
    partition: int
    offset: int
    time: int
    key: bytes | None
    value: bytes | None


EVENT_KEY = b"tree"  # of all changes: those with the same key are in one partition, in order


class Reply(NamedTuple):
    """A message to send: a prediction, a dead letter, or a change of the tree."""

    kind: Literal["prediction", "dead", "event"]
    key: bytes | None
    data: dict[str, Any]


class Waiting(NamedTuple):
    """A row whose label has not arrived yet, and its prediction."""

    row: dict[str, Any]
    prediction: Any
    time: int


class Early(NamedTuple):
    """A label whose row has not arrived yet."""

    label: Any
    time: int
    place: list[Any]
    """Topic, partition and offset."""


@dataclass
class StreamQuality:
    """Quality of predictions: accuracy, or mean absolute error."""

    n: int = 0
    total: float = 0.0
    recent: float = 0.0
    """Over about the last 1,000 labelled rows."""

    def add(self, figure: float) -> None:
        """Count a row."""
        self.n += 1
        self.total += figure
        self.recent += (figure - self.recent) / min(self.n, RECENT_ROWS)

    @property
    def mean(self) -> float:
        """The mean over all rows; 0 if there are none."""
        return self.total / self.n if self.n else 0.0


@dataclass
class JoinedStream:
    """A model over messages that are JSON objects.

    A row is an object of features, which may also have an id and a label. A label on its own is an
    object with only an id and a label. A row is predicted when it arrives, and learnt as soon as
    its label has arrived, too, if they are not further apart than the window.

    Parameters
    ----------
    model : learner of driftree's
        The model that predicts and learns.
    id_field, label_field : str
        Names of the id and the label in an object. Without an id, the message's key is used.
    window : float, default=3600
        Seconds between a row and its label, by the messages' timestamps.
    max_waiting : int, default=100000
        Rows, and labels, that may wait for each other; beyond that the oldest are dropped.
    schema : dict, optional
        Features that rows may have, to "number", "text" or "boolean"; None: any.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> stream = JoinedStream(DynamicModelTreeClassifier())
    >>> def message(offset, text):
    ...     return Message("loans", 0, offset, 1000 * offset, None, text)
    >>> [reply] = stream.take(message(0, b'{"id": 7, "age": 31}'))
    >>> reply.kind, reply.data["prediction"]
    ('prediction', None)
    >>> stream.take(message(1, b'{"id": 7, "label": "granted"}'))
    []
    >>> [reply] = stream.take(message(2, b'{"id": 8, "age": 31}'))
    >>> reply.data["prediction"], reply.data["leaf"], reply.data["model"]
    ('granted', 0, 1)
    >>> [reply] = stream.take(message(3, b'{"id": 9, "age": [31]}'))
    >>> reply.data["reason"]
    "feature 'age' must be a number, text, true or false, got a list"
    """

    model: Any
    id_field: str = "id"
    label_field: str = "label"
    window: float = 3600.0
    max_waiting: int = 100_000
    schema: Mapping[str, str] | None = None
    time: int = field(default=0, init=False)
    quality: StreamQuality = field(default_factory=StreamQuality, init=False)

    def __post_init__(self) -> None:
        if self.id_field == self.label_field:
            raise ValueError(f"id and label cannot both be the field {self.id_field!r}")
        unknown = sorted(set((self.schema or {}).values()) - TYPES.keys())
        if unknown:
            raise ValueError(
                f"features in a schema must be one of {', '.join(TYPES)}, got {list_names(unknown)}"
            )
        self.is_number = is_regressor(self.model)
        self.counts = dict.fromkeys(COUNTS, 0)
        self._known: tuple[int, set[str]] = 0, set()
        self.waiting: OrderedDict[Any, Waiting] = OrderedDict()
        self.early: OrderedDict[Any, Early] = OrderedDict()

    # ------------------------------------------------------------------ messages
    def take(self, message: Message, *, only_labels: bool = False) -> list[Reply]:
        """Process a message, which may come from a topic of labels only; return the replies."""
        self.time = max(self.time, message.time)
        replies = list(self._expire())
        try:
            data = self._read(message)
            is_label = only_labels or data.keys() == {self.id_field, self.label_field}
            take = self._take_label if is_label else self._take_row
            replies.extend(take(data, message))
        except (TypeError, ValueError) as error:
            replies.append(self._dead(message, str(error)))
        return replies

    def _read(self, message: Message) -> dict[str, Any]:
        if message.value is None:
            raise ValueError("the message is empty")
        try:
            data = parse_json(message.value)
        except ValueError as error:
            raise ValueError(f"it is not valid JSON: {error}") from None
        if type(data) is not dict:
            raise ValueError("it is JSON, but not an object")
        if message.key is not None and data.get(self.id_field) is None:
            data[self.id_field] = message.key.decode("utf-8", "backslashreplace")
        return data

    def _take_row(self, data: dict[str, Any], message: Message) -> Iterator[Reply]:
        name, label = data.pop(self.id_field, None), data.pop(self.label_field, None)
        if name is not None:
            _check_id(name)
            if name in self.waiting:
                raise ValueError(f"a row with the id {quoted(name)} is still waiting for its label")
        if label is not None:
            self._check_label(label)
        self._check_row(data)
        data = dict(split_texts(data, self._times()))
        said = self._predict(data)
        self.counts["rows"] += 1
        place = {"partition": message.partition, "offset": message.offset}
        told = {"id": name, **said, "model": self.version, **place}
        yield Reply("prediction", message.key, told)
        if label is None and name in self.early:
            label = self.early.pop(name).label
        if label is not None:
            yield from self._learn(data, said["prediction"], label)
        elif name is not None:
            self.waiting[name] = Waiting(data, said["prediction"], self.time)

    def _take_label(self, data: dict[str, Any], message: Message) -> Iterator[Reply]:
        name, label = data.get(self.id_field), data.get(self.label_field)
        for needed, value in ((self.id_field, name), (self.label_field, label)):
            if value is None:
                raise ValueError(f"a label needs {needed!r}, which is missing")
        _check_id(name)
        self._check_label(label)
        row = self.waiting.get(name)
        if row is not None:
            yield from self._learn(row.row, row.prediction, label)
            del self.waiting[name]
        elif name in self.early:
            raise ValueError(f"a label with the id {quoted(name)} is still waiting for its row")
        else:
            place = [message.topic, message.partition, message.offset]
            self.early[name] = Early(label, self.time, place)
        self.counts["labels"] += 1

    def _check_label(self, label: Any) -> None:
        check_value(label, self.label_field)
        if self.is_number and type(label) not in TYPES["number"]:
            raise ValueError(f"{self.label_field} must be a number, got {quoted(label)}")

    def _check_row(self, row: dict[str, Any]) -> None:
        if not row and not self._is_sparse():
            raise ValueError("the row has no features")
        for name, cell in row.items():
            if len(name) > MAX_TEXT:
                raise ValueError(f"a feature's name exceeds {MAX_TEXT:,} characters")
            if self.schema is not None and name not in self.schema:
                raise ValueError(f"feature {quoted(name)} is not in the schema")
            if cell is not None:
                check_value(cell, f"feature {quoted(name)}")
                if self.schema is not None and type(cell) not in TYPES[self.schema[name]]:
                    kind = self.schema[name]
                    raise ValueError(f"feature {quoted(name)} must be a {kind}, got {quoted(cell)}")

    # ------------------------------------------------------------------ the model
    def _is_sparse(self) -> bool:
        """Return whether features that a row lacks are 0, as in a message without known words."""
        tree = self.model._tree
        return tree is not None and tree.encoder.sparse is not None

    def _times(self) -> set[str]:
        """Return the names of the times whose parts are features of the model."""
        tree = self.model._tree
        n_names = 0 if tree is None else len(tree.encoder.names)
        if n_names != self._known[0]:
            names = tree.encoder.names
            self._known = n_names, whole_names(names).difference(names)
        return self._known[1]

    @property
    def version(self) -> int:
        """The version of the model: how many rows it has learnt."""
        return int(getattr(self.model, "n_rows_seen_", 0))

    def _predict(self, row: dict[str, Any]) -> dict[str, Any]:
        tree = self.model._tree
        if tree is None:
            return {"prediction": None, "leaf": None}
        matrix = tree.encoder.row_face.read_row(row, learning=False)
        if matrix is None:  # the row has something new or invalid, or is sparse
            rows = tree.encoder.read_dict(row, learning=False).rows
        else:
            rows = matrix, None
        leaf = {"leaf": tree.engine.leaves(*rows)[0].tolist()}  # for a forest, one per tree
        if self.is_number:
            return {"prediction": float(tree.target.predict(*rows)[0]), **leaf}
        chances = tree.target.probabilities_of(*rows)
        lists = {"classes": list(chances), "probabilities": list(chances.values())}
        return {"prediction": decide_one(chances, tree.target.cut), **lists, **leaf}

    def _learn(self, row: dict[str, Any], prediction: Any, label: Any) -> Iterator[Reply]:
        before, n_changes = self.version, count_changes(self.model)
        self.model.learn_one(row, label)
        self.counts["learnt"] += 1
        if prediction is not None:
            is_right = float(prediction == label)
            self.quality.add(abs(prediction - label) if self.is_number else is_right)
        if count_changes(self.model) == n_changes:
            return
        for event in getattr(self.model, "events_", ()):
            if event.n_rows > before:
                self.counts["changes"] += 1
                yield Reply("event", EVENT_KEY, tell_event(event))

    # ------------------------------------------------------------------ what does not fit
    def _dead(self, message: Message, reason: str) -> Reply:
        self.counts["dead"] += 1
        value = None if message.value is None else message.value.decode("utf-8", "backslashreplace")
        place = [message.topic, message.partition, message.offset]
        return Reply("dead", message.key, _dead_data(reason, place, value))

    def _expire(self) -> Iterator[Reply]:
        """Drop rows and labels that have waited for too long."""
        oldest = self.time - 1000 * self.window
        while self.waiting and self._is_over(self.waiting, oldest):
            self.waiting.popitem(last=False)
            self.counts["unlabelled"] += 1
        while self.early and self._is_over(self.early, oldest):
            name, label = self.early.popitem(last=False)
            self.counts["dead"] += 1
            reason = f"no row with the id {quoted(name)} arrived within {self.window:g} seconds"
            value = json.dumps({self.id_field: name, self.label_field: label.label})
            yield Reply("dead", None, _dead_data(reason, label.place, value))

    def _is_over(self, queue: OrderedDict[Any, Any], oldest: float) -> bool:
        first = next(iter(queue.values()))
        return len(queue) > self.max_waiting or first.time < oldest

    # ------------------------------------------------------------------ keeping
    def state(self) -> dict[str, Any]:
        """Return the state without the model, for a checkpoint."""
        waiting = [[name, *own] for name, own in self.waiting.items()]
        early = [[name, *own] for name, own in self.early.items()]
        text = json.dumps({"waiting": waiting, "early": early}, separators=(",", ":"))
        return {
            "time": self.time,
            "counts": dict(self.counts),
            "quality": [self.quality.n, self.quality.total, self.quality.recent],
            "queues": np.frombuffer(text.encode("ascii"), dtype=np.uint8),
        }

    def restore(self, model: Any, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.model = model
        self.time = state["time"]
        self.counts = dict(state["counts"])
        self.quality = StreamQuality(*state["quality"])
        queues = json.loads(state["queues"].tobytes())
        self.waiting = OrderedDict((name, Waiting(*own)) for name, *own in queues["waiting"])
        self.early = OrderedDict((name, Early(*own)) for name, *own in queues["early"])


def _check_id(name: Any) -> None:
    if type(name) not in (str, int):
        raise ValueError(f"an id must be text or a whole number, got {quoted(name)}")
    check_value(name, "the id")


def _dead_data(reason: str, place: list[Any], value: str | None) -> dict[str, Any]:
    topic, partition, offset = place
    return {
        "reason": reason,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "value": value,
    }


# ---------------------------------------------------------------------- figures over HTTP
def to_text(figures: Mapping[str, float]) -> str:
    """Return metrics in the text format of Prometheus.

    Examples
    --------
    >>> print(to_text({"driftree_stream_lag": 3}))
    # HELP driftree_stream_lag Messages that are not processed yet.
    # TYPE driftree_stream_lag gauge
    driftree_stream_lag 3
    <BLANKLINE>
    """
    lines = []
    for name, value in figures.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} {kind}", f"{name} {value}"]
    return "\n".join([*lines, ""])


def serve_metrics(figures: Callable[[], Mapping[str, float]], port: int) -> int:
    """Serve metrics on this machine, in a daemon thread; return the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404)
                return
            body = to_text(figures()).encode("ascii")
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, name="driftree-metrics", daemon=True).start()
    return int(server.server_address[1])
