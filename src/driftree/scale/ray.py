"""Models by key on many cores and machines: `KeyedModels`, sharded over Ray actors.

Ray restarts an actor that has died, but does not know what it had learnt: calls may be lost, and
its own retries may do one twice. So calls are never retried by Ray. Every batch carries its first
and last position in the stream. An actor commits its models and its position in one transaction,
accepts a batch only if it continues from that position, and skips rows that it already has. The
driver keeps the batches since the last commit, and sends them again when an actor is restarted.
"""

from __future__ import annotations

import os
import pickle
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from driftree.learn.storage.atomic import Closing
from driftree.learn.tables import Columns, DictRows, array_names, read_frame
from driftree.learn.validation import as_objects
from driftree.scale.keyed import MEMORY, KeyedModels
from driftree.scale.keys import (
    Summary,
    check_batch,
    check_key,
    check_made,
    key_column,
    read_key,
    read_targets,
    refusal,
    take_keys,
    to_answers,
)
from driftree.streams.rows import count_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from driftree.explain.explanation import Explanation
    from driftree.learn.events import Event
    from driftree.scale.keys import KeyDrift, KeyRecord
    from driftree.stored import StoredModel

EVERY = 50_000
IN_FLIGHT = 4  # batches in a shard's queue
RESTART_SECONDS = 600  # in which a shard must be restarted
PAUSE_SECONDS = 0.2  # between two checks of it
KNOWN_KEYS = 2**17  # whose shards the driver remembers
# Ray sends arguments of up to 100 kB along with a call. Larger ones go through its object store,
# which takes more CPU time than copying, unless there are very many pieces.
PIECE = 90_000
MOST_IN_PIECES = 600_000
NO_RAY = "models on many machines need Ray: pip install ray"


Batch = dict[Any, NDArray[Any]] | list[Any]
"""Arrays by name, or dicts, which may be sparse."""


class ShardRows(NamedTuple):
    """The rows of a batch that belong to one shard."""

    before: int
    """Position up to which the shard must have learnt before,"""
    end: int
    """and after these rows."""
    rows: NDArray[np.int64]
    """Their numbers in the stream."""
    X: Batch
    y: NDArray[Any]


class GapError(RuntimeError):
    """Rows do not continue from a shard's position: those before must be sent again."""


class Shard:
    """Some of the keys, in a process of their own."""

    def __init__(self, make: Callable[[], StoredModel], key: Hashable, **options: Any) -> None:
        self.models = KeyedModels(make, key, **options)
        self.done = self.models.position

    def learn(self, *pieces: bytes) -> str | None:
        """Learn rows that are new; return the errors of refused ones, as text."""
        return self.learn_rows(pickle.loads(b"".join(pieces)))

    def learn_rows(self, sent: ShardRows) -> str | None:
        """Learn rows that are new, as `learn`."""
        self._check(sent.before)
        places = np.flatnonzero(sent.rows >= self.done)
        taken = take_keys(_pick(sent.X, places), self.models.key)
        errors = self.models._learn_taken(taken, sent.y[places], np.ones(len(places)))
        self.done = max(self.done, sent.end)
        return str(refusal(errors, taken, sent.rows[places])) if errors else None

    def commit(self, before: int, position: int) -> None:
        """Write all models, with the position."""
        self._check(before)
        self.done = max(self.done, position)
        self.models.commit(self.done)

    def _check(self, before: int) -> None:
        if before > self.done:
            raise GapError(f"row {before:,} is next, but the shard has learnt up to {self.done:,}")

    def position(self) -> int:
        """Return the position up to which everything was learnt."""
        return self.done

    def pid(self) -> int:
        """Return the id of the process."""
        return os.getpid()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the models."""
        return getattr(self.models, method)(*arguments)

    def keys(self) -> list[Hashable]:
        """Return all keys."""
        return list(self.models)


class RayKeyedModels(Closing):
    """A model per key, with the keys distributed over Ray actors.

    The shard of a key depends on the key alone. Every shard has its own parent, which learns the
    rows of the shard's keys; so results depend on the number of shards, but not on where these run.

    Parameters
    ----------
    make, key, parent, memory : optional
        As for `KeyedModels`; the memory is per shard.
    path : path
        A folder that all machines with shards can access. If it holds models, they are resumed from
        row `position` of the stream.
    shards : int, default=2
        Number of actors; one per core is best.
    every : int, default=50000
        Rows between two commits. The driver keeps those since the last one.

    Attributes
    ----------
    position : int
        Rows of the stream that all shards have committed: where to resume after a crash.

    See Also
    --------
    KeyedModels : The same in one process.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> from driftree.scale.ray import RayKeyedModels
    >>> def learn(stream, folder):
    ...     with RayKeyedModels(DynamicModelTreeClassifier, "customer", path=folder) as models:
    ...         for X, y in stream.batches(skip_rows=models.position):
    ...             models.learn_many(X, y)
    ...         models.commit()
    ...         print(models.summary())
    """

    def __init__(
        self,
        make: Callable[[], StoredModel],
        key: Hashable,
        *,
        path: str | os.PathLike[str],
        shards: int = 2,
        every: int = EVERY,
        parent: bool = True,
        memory: int = MEMORY,
    ) -> None:
        for name, value in (("shards", shards), ("every", every)):
            if not value >= 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        self.key = key
        self.every = every
        self._of_labels = hasattr(check_made(make()), "predict_proba_one")
        self._ray = import_ray()
        folder = Path(path).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        _check_shards(folder, shards)
        actor = self._ray.remote(Shard).options(max_restarts=-1, max_task_retries=0)
        self._actors = [
            actor.remote(make, key, path=folder / f"shard-{i}", parent=parent, memory=memory)
            for i in range(shards)
        ]
        self._kept: list[list[ShardRows]] = [[] for _ in self._actors]
        self._flying: list[list[Any]] = [[] for _ in self._actors]
        self._refused: list[str] = []
        self._is_open = True
        self._shard_by_key = ShardByKey(shards, key)
        self._sent = self._ray.get([one.position.remote() for one in self._actors])
        self.position: int = min(self._sent)
        self._at = self.position

    # ------------------------------------------------------------------ learning
    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the next rows of the stream; returns before all of them are learnt.

        Parameters
        ----------
        X : data frame, dict of columns, list of dicts, or array
            The rows, with the key.
        y : series or sequence
            Labels, or numbers.

        Raises
        ------
        TypeError, ValueError
            If a row lacks its key or its target, or its key is not one; then nothing is learnt. If
            rows of this or an earlier batch are invalid, a ValueError; then all others are learnt.
        """
        self._check_open()
        batch = _to_batch(X, self.key)
        shard_of = self._shards_of(batch)
        targets = read_targets(y, len(shard_of), of_labels=self._of_labels)
        begin, end = self._at, self._at + len(targets)
        for i in range(len(self._actors)):
            places = np.flatnonzero(shard_of == i)
            if not len(places) or end <= self._sent[i]:
                continue
            before, taken = min(begin, self._sent[i]), _pick(batch, places)
            rows = ShardRows(before, end, begin + places, taken, targets[places])
            self._kept[i].append(rows)
            self._sent[i] = end
            self._send(i, rows)
        self._at = end
        if self._at // self.every > self.position // self.every:
            self.commit()
        self._tell_refused()

    def learn_one(self, x: Mapping[Hashable, Any], y: Hashable) -> None:
        """Learn one row. A call takes much longer than a row: prefer batches."""
        self.learn_many({name: [cell] for name, cell in x.items()}, [y])

    def commit(self) -> None:
        """Wait until everything is learnt, and let all shards commit."""
        self._for_all(lambda i: self._actors[i].commit.remote(self._sent[i], self._at))
        for kept in self._kept:
            kept.clear()
        self._sent = [self._at] * len(self._actors)
        self.position = self._at
        self._tell_refused()

    def _send(self, i: int, rows: ShardRows) -> None:
        self._flying[i].append(self._call_learn(i, rows))
        if len(self._flying[i]) > IN_FLIGHT:
            self._land(i, 1)

    def _call_learn(self, i: int, rows: ShardRows) -> Any:
        """Let a shard learn rows, sent in pieces if these are few."""
        data = self._ray.cloudpickle.dumps(rows)
        size = PIECE if len(data) <= MOST_IN_PIECES else len(data)
        pieces = (data[start : start + size] for start in range(0, len(data), size))
        return self._actors[i].learn.remote(*pieces)

    def _land(self, i: int, n: int | None = None) -> None:
        """Wait for the first batches sent to a shard, or for all of them."""
        waiting = self._flying[i][:n]
        try:
            answers = self._ray.get(waiting)
        except (self._ray.exceptions.RayActorError, GapError):
            self._bring_back(i)
        else:
            del self._flying[i][:n]
            self._refused += [words for words in answers if words]

    def _bring_back(self, i: int) -> None:
        """Send a restarted shard everything that it had not committed."""
        give_up = time.monotonic() + RESTART_SECONDS
        while time.monotonic() < give_up:
            try:
                done = self._ray.get(self._actors[i].position.remote())
                again = [rows for rows in self._kept[i] if rows.end > done]
                answers = self._ray.get([self._call_learn(i, rows) for rows in again])
            except (self._ray.exceptions.ActorUnavailableError, GapError):
                time.sleep(PAUSE_SECONDS)
                continue
            self._flying[i] = []
            self._refused += [words for words in answers if words]
            return
        raise RuntimeError(
            f"shard {i} of {len(self._actors)} was not restarted within {RESTART_SECONDS} "
            f"seconds: see Ray's log; what was committed up to row {self.position:,} is intact"
        )

    def _for_all(self, call: Callable[[int], Any]) -> list[Any]:
        """Call shards after their queues; repeat a call if its shard dies. None: no call."""
        self._check_open()
        asked = [call(i) for i in range(len(self._actors))]  # queued after their batches
        answers = []
        for i, answer in enumerate(asked):
            self._land(i)
            answers.append(None if answer is None else self._get(i, answer, call))
        return answers

    def _get(self, i: int, answer: Any, call: Callable[[int], Any]) -> Any:
        while True:
            try:
                return self._ray.get(answer)
            except (self._ray.exceptions.RayActorError, GapError):
                self._bring_back(i)
                answer = call(i)

    def _tell_refused(self) -> None:
        refused, self._refused = self._refused, []
        if refused:
            raise ValueError("; ".join(refused))

    # ------------------------------------------------------------------ predicting and reading
    def predict_many(self, X: Any) -> NDArray[Any]:
        """Return the predictions of a batch, after learning all rows sent before."""
        batch = _to_batch(X, self.key)
        shard_of = self._shards_of(batch)
        places = [np.flatnonzero(shard_of == i) for i in range(len(self._actors))]
        taken = [_pick(batch, rows) for rows in places]
        found = self._for_all(
            lambda i: self._actors[i].ask.remote("predict", taken[i]) if len(places[i]) else None
        )
        answers = as_objects([None] * len(shard_of))
        for rows, answer in zip(places, found, strict=True):
            if len(rows):
                answers[rows] = answer
        return to_answers(answers.tolist())

    def predict_one(self, x: Mapping[Hashable, Any]) -> Any:
        """Return the prediction for one row."""
        return self._ask(self._key_of(x), "predict_one", dict(x))

    def explain_one(self, x: Mapping[Hashable, Any]) -> Explanation:
        """Explain the prediction for one row."""
        return self._ask(self._key_of(x), "explain_one", dict(x))  # type: ignore[no-any-return]

    def _key_of(self, x: Mapping[Hashable, Any]) -> Any:
        return read_key(x.get(self.key), self.key, x)

    def __getitem__(self, key: Hashable) -> Any:
        """Return a copy of a key's own model."""
        return self._ask(key, "__getitem__", key)

    def events(self, key: Hashable) -> list[Event]:
        """Return the changes of a key's tree, oldest first."""
        return self._ask(key, "events", key)  # type: ignore[no-any-return]

    def drifts(self, key: Hashable) -> list[KeyDrift]:
        """Return the periods in which a key's loss was well above its usual one."""
        return self._ask(key, "drifts", key)  # type: ignore[no-any-return]

    def record(self, key: Hashable) -> KeyRecord:
        """Return the record of a key."""
        return self._ask(key, "record", key)  # type: ignore[no-any-return]

    def summary(self, most: int = 10) -> Summary:
        """Summarise all keys, as `KeyedModels.summary`."""
        return Summary.of(
            self._for_all(lambda i: self._actors[i].ask.remote("summary", most)), most
        )

    def __iter__(self) -> Iterator[Hashable]:
        """Iterate over all keys."""
        found = self._for_all(lambda i: self._actors[i].keys.remote())
        return iter([key for keys in found for key in keys])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _ask(self, key: Any, method: str, *arguments: Any) -> Any:
        self._check_open()
        i = _shard_of(check_key(key), len(self._actors))
        self._land(i)

        def call(i: int) -> Any:
            return self._actors[i].ask.remote(method, *arguments)

        return self._get(i, call(i), call)

    # ------------------------------------------------------------------ the end
    def close(self) -> None:
        """Stop the shards. What was not committed is lost."""
        self._is_open = False
        for actor in self._actors:
            self._ray.kill(actor)

    def _check_open(self) -> None:
        if not self._is_open:
            raise ValueError("the models are closed: open them again, with the same folder")

    # ------------------------------------------------------------------ which shard
    def _shards_of(self, batch: Batch) -> NDArray[np.intp]:
        if isinstance(batch, list):
            keys = [x.get(self.key) for x in batch]
        elif self.key in batch:
            keys = batch[self.key].tolist()
        elif count_rows(batch):
            raise ValueError(f"the rows have no column {self.key!r}, which should hold their keys")
        else:
            keys = []
        if not {*map(type, keys)} <= {str, int, float, bytes}:  # True would be found as 1
            keys = [read_key(key, self.key) for key in keys]
        if len(self._shard_by_key) > KNOWN_KEYS:
            self._shard_by_key.clear()
        shards = map(self._shard_by_key.__getitem__, keys)
        return np.fromiter(shards, dtype=np.intp, count=len(keys))


class ShardByKey(dict[Any, int]):
    """Shards of keys, worked out when they are first asked for."""

    def __init__(self, n_shards: int, name: Hashable) -> None:
        super().__init__()
        self.n_shards = n_shards
        self.name = name

    def __missing__(self, key: Any) -> int:
        shard = self[key] = _shard_of(read_key(key, self.name), self.n_shards)
        return shard


def _shard_of(key: Any, n_shards: int) -> int:
    """Return the shard of a key: the same in all processes, unlike Python's hash."""
    return zlib.crc32(repr(key).encode()) % n_shards


def _to_batch(X: Any, key: Hashable) -> Batch:
    """Return rows in a form that shards can be given some of, with their keys in column `key`."""
    X = check_batch(X)
    if isinstance(X, np.ndarray):
        columns = dict(zip(array_names(X.shape[1]), X.T, strict=True))
        return {key if name == key_column(X, key) else name: columns[name] for name in columns}
    frame = read_frame(X)
    if isinstance(frame, DictRows):
        return list(frame.rows)
    if isinstance(frame, Columns):
        return frame.arrays
    return {name: _to_array(frame.get_column(name)) for name in frame.columns}


def _pick(batch: Batch, places: NDArray[np.intp]) -> Batch:
    """Return copies of some rows."""
    if isinstance(batch, list):
        return [dict(batch[i]) for i in places]
    return {name: cells[places] for name, cells in batch.items()}


def _to_array(column: nw.Series[Any]) -> NDArray[Any]:
    is_number = column.dtype.is_numeric() and not column.null_count()
    return column.to_numpy() if is_number else as_objects(column.to_list())


def _check_shards(folder: Path, n_shards: int) -> None:
    """Raise if a folder was created with another number of shards."""
    n_found = len(list(folder.glob("shard-*")))
    if n_found not in (0, n_shards):
        raise ValueError(
            f"{folder} holds {n_found} shards, got shards={n_shards}: give as many, or another "
            "folder"
        )


def import_ray() -> Any:
    """Import Ray; the error says how to install it."""
    try:
        import ray
    except ImportError:
        raise ImportError(NO_RAY) from None
    return ray
