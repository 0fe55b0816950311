"""Writer: the single writer, which owns the model, its file and the journal.

Batches wait in a queue for one thread. It takes all that are waiting, learns them one after the
other, appends them to the journal with one fsync, and only then acknowledges them. A batch that the
model refuses, or that crashes the process while it is learnt, is never in the journal, so a restart
does not encounter it again. As in any database the log is ahead of the *file*: the model in memory
may know a batch that is not durable yet, the file on disk never does. If a batch cannot be
appended, learning stops for good, and file and journal stay as they are. If the model cannot be
saved, the journal still has everything, and learning continues.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import queue
import threading
from collections import OrderedDict
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sklearn.base import is_regressor

from driftree.learn.storage import ModelFileError, container, models
from driftree.serve.journal import MAX_GROUP
from driftree.serve.requests import Limits, Refusal, busy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from driftree.explain.changes import Listener
    from driftree.serve.journal import Journal
    from driftree.serve.requests import LearnBatch

REMEMBERED = 10_000  # idempotency keys
MAX_JOURNAL = 2**26  # bytes, whatever the number of rows
NOT_SAVED = (MemoryError, OSError, RuntimeError, TypeError, ValueError)
logger = logging.getLogger("driftree.serve")


# ---------------------------------------------------------------------- idempotency keys
class Learnt(NamedTuple):
    """A batch that was learnt: its number, its rows, and the digest of its text."""

    sequence: int
    n_rows: int
    digest: str


class LearntKeys:
    """The latest batches with an idempotency key: a repeated one is not learnt again."""

    def __init__(self, learnt: OrderedDict[str, Learnt] | None = None) -> None:
        self._learnt = OrderedDict() if learnt is None else learnt

    def __len__(self) -> int:
        return len(self._learnt)

    def find(self, key: str, text: bytes) -> Learnt | None:
        """Return the batch that was learnt under a key; raise if it was another one."""
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
        """Return the keys for a model file."""
        return [[key, *learnt] for key, learnt in self._learnt.items()]

    @classmethod
    def from_json(cls, data: Any) -> LearntKeys:
        """Return the keys in a model file."""
        found: OrderedDict[str, Learnt] = OrderedDict()
        for item in data if isinstance(data, list) else [None]:
            if not isinstance(item, list) or list(map(type, item)) != [str, int, int, str]:
                raise ModelFileError("the server's note of idempotency keys is damaged")
            found[item[0]] = Learnt(*item[1:])
        return cls(found)


def digest_of(text: bytes) -> str:
    """Return the digest that identifies a batch."""
    return hashlib.sha256(text).hexdigest()[:32]


# ---------------------------------------------------------------------- the writer
@dataclass(slots=True)
class Task:
    """A batch to learn, and the future of its result."""

    batch: LearnBatch
    answer: Future[tuple[Learnt, bool]] = field(default_factory=Future)


class Writer:
    """The single writer of a model.

    Parameters
    ----------
    model : learner of driftree's
        The model, with all batches up to `sequence`.
    path : Path
        Its file.
    journal : Journal or None
        None: the model is read-only.
    sequence : int
        Number of batches that the model has learnt.
    keys : LearntKeys, optional
        The batches that were learnt under idempotency keys.
    limits : Limits, optional
        Limits of requests and of the model.
    snapshot_every : int, default=10_000
        Rows after which the model is saved and the journal starts over.
    """

    def __init__(
        self,
        model: Any,
        path: Path,
        journal: Journal | None,
        *,
        sequence: int = 0,
        keys: LearntKeys | None = None,
        limits: Limits | None = None,
        snapshot_every: int = 10_000,
    ) -> None:
        self.model = model
        self.listener: Listener | None = None  # called with changes and drifts, if set
        self.path = path
        self.journal = journal
        self.sequence = sequence
        self.keys = LearntKeys() if keys is None else keys
        self.limits = Limits() if limits is None else limits
        self.snapshot_every = snapshot_every
        self.failure: str | None = None  # why learning has stopped
        self.problem: str | None = None  # why the model could not be saved last time
        self.rows_learnt = 0  # since the start
        self.rows_unsaved = 0
        self.snapshots = 0
        self.failed_snapshots = 0
        self._due_rows, self._due_size = snapshot_every, MAX_JOURNAL
        self._tasks: queue.Queue[Task | None] = queue.Queue()
        self._is_open = True
        self._entry = threading.Lock()
        self._changing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="driftree-writer", daemon=True)

    # ------------------------------------------------------------------ for requests
    def start(self) -> None:
        """Start the thread, unless the model is read-only."""
        if self.journal is not None:
            self._thread.start()

    def submit(self, batch: LearnBatch) -> Future[tuple[Learnt, bool]]:
        """Queue a batch; its future is done when the batch is durable, or refused."""
        if self.journal is None:
            raise Refusal(
                403, "this server is read-only: it predicts and explains, but does not learn"
            )
        with self._entry:
            if self.failure is not None or not self._is_open:
                raise busy(self.failure or "the server is shutting down")
            if self._tasks.qsize() >= self.limits.max_waiting:
                raise busy("too many batches are waiting to be learnt: try again")
            task = Task(batch)
            self._tasks.put(task)
        return task.answer

    @contextmanager
    def still(self) -> Iterator[Any]:
        """Block learning, for reads that take more than one call."""
        with self._changing:
            yield self.model

    def snapshot(self) -> Any:
        """Return a model for long reads: a copy, unless the model is read-only."""
        with self.still() as model:
            return model if self.journal is None else copy.deepcopy(model)

    def replace(self, model: Any, sequence: int) -> None:
        """Serve another model from now on."""
        assert self.journal is None
        with self._changing:
            self.model, self.sequence, self.problem = model, sequence, None

    # ------------------------------------------------------------------ the thread
    def _run(self) -> None:
        try:
            while tasks := self._take():
                self.commit(tasks)
                self._save_if_due()
        except BaseException as error:
            self._stop_learning(error)
            if not isinstance(error, OSError):
                raise
        finally:
            self._refuse_waiting()

    def _take(self) -> list[Task]:
        """Wait for tasks and return all that are queued; none at shutdown."""
        task = self._tasks.get()
        tasks: list[Task] = []
        while task is not None:
            if task.answer.set_running_or_notify_cancel():
                tasks.append(task)
            if tasks and (self._tasks.empty() or len(tasks) >= MAX_GROUP):
                return tasks
            task = self._tasks.get()
        if tasks:
            self._tasks.put(None)  # for the next time
        return tasks

    def commit(self, tasks: Sequence[Task]) -> None:
        """Learn batches, make them durable, acknowledge them: in this order."""
        assert self.journal is not None
        first = self.sequence + 1
        done: list[tuple[Task, Learnt, bool]] = []
        texts: list[bytes] = []
        try:
            for task in tasks:
                text = task.batch.to_text()
                try:
                    learnt, is_new = self.learn(task.batch, text)
                except Refusal as refusal:
                    task.answer.set_exception(refusal)
                    continue
                done.append((task, learnt, is_new))
                if is_new:
                    texts.append(text)
            if texts:
                self.journal.append(first, texts)
        except BaseException:
            words = "the batch could not be made durable: repeat it, with its Idempotency-Key"
            for task in tasks:
                if not task.answer.done():
                    task.answer.set_exception(busy(words))
            raise
        for task, learnt, is_new in done:
            n_rows = learnt.n_rows if is_new else 0
            self.rows_learnt += n_rows
            self.rows_unsaved += n_rows
            task.answer.set_result((learnt, is_new))
        if texts and self.listener is not None:
            self._tell()

    def _tell(self) -> None:
        """Report changes and drifts; errors in the callbacks do not stop learning."""
        assert self.listener is not None
        try:
            self.listener.look(self.model)
        except Exception:
            logger.exception("on_change or on_drift failed; learning continues")

    def learn(self, batch: LearnBatch, text: bytes) -> tuple[Learnt, bool]:
        """Learn a batch, unless it was learnt before; raise `Refusal` if anything is wrong with it.

        Returns
        -------
        Learnt, bool
            What was learnt, and whether it is new.
        """
        if batch.key is not None and (known := self.keys.find(batch.key, text)) is not None:
            return known, False
        self._check_size(batch)
        with self._changing:
            before = _mark(self.model)
            try:
                self.model.learn_many(batch.rows, batch.labels, batch.weights)
            except (TypeError, ValueError) as error:
                if _mark(self.model) != before:  # a bug of ours, not a refusal
                    raise RuntimeError("the model changed while it refused a batch") from error
                raise Refusal(422, str(error)) from None
        self.sequence += 1
        learnt = Learnt(self.sequence, len(batch.rows), digest_of(text))
        if batch.key is not None:
            self.keys.add(batch.key, learnt)
        return learnt, True

    def _check_size(self, batch: LearnBatch) -> None:
        """Raise if the model would have more features or labels than allowed."""
        names: set[Any] = set()
        takes_sparse = is_sparse(self.model)
        if self.model._tree is None:  # a new one decides by its first rows
            takes_sparse |= self.model._look_sparse(batch.rows, None)
        if not takes_sparse:  # else its names are limited by its own `max_features`
            names = {name for row in batch.rows for name in row}.union(feature_names(self.model))
        labels = set(labels_of(self.model))
        if not predicts_numbers(self.model):
            labels |= {label for label in batch.labels if label is not None}
        for what, n, most in (
            ("features", len(names), self.limits.max_features),
            ("labels", len(labels), self.limits.max_labels),
        ):
            if n > most:
                raise Refusal(
                    422,
                    f"the model would have {n:,} {what}, more than the {most:,} allowed: start the "
                    f"server with a larger --max-{what}",
                )

    # ------------------------------------------------------------------ files
    def _save_if_due(self) -> None:
        assert self.journal is not None
        if self.rows_unsaved >= self._due_rows or self.journal.size >= self._due_size:
            self.try_save()

    def try_save(self) -> bool:
        """Save the model; if that fails, report it and continue with the journal."""
        assert self.journal is not None
        try:
            self._write_file()
            self.journal.prepare(self.sequence + 1)
        except NOT_SAVED as error:  # the journal still has everything
            self.failed_snapshots += 1
            self._due_rows = self.rows_unsaved + self.snapshot_every  # not after every batch
            self._due_size = self.journal.size + MAX_JOURNAL
            # /health shows it without a token: names and paths are for the log only.
            cause = error.strerror if isinstance(error, OSError) else type(error).__name__
            self.problem = f"the model could not be saved ({cause}); the journal has everything"
            logger.error("the model could not be saved, the journal has everything: %s", error)
            return False
        self.journal.switch()
        self.problem = None
        return True

    def save(self) -> None:
        """Write the model, with the number of its last batch; empty the journal."""
        assert self.journal is not None
        self._write_file()
        self.journal.restart(self.sequence + 1)

    def _write_file(self) -> None:
        assert self.journal is not None
        contents, arrays = models.pack(self.model)
        contents[models.SERVED] = {
            "journal": self.journal.journal_id,
            "sequence": self.sequence,
            "keys": self.keys.to_json(),
        }
        container.write(self.path, models.KIND, contents, arrays)
        self.rows_unsaved = 0
        self.snapshots += 1
        self._due_rows, self._due_size = self.snapshot_every, MAX_JOURNAL

    def close(self) -> None:
        """Learn what is queued, save the model if possible, stop; after a failure, only stop."""
        if self.journal is None:
            return
        with self._entry:
            self._is_open = False
            self._tasks.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        if self.failure is None and self.rows_unsaved:
            self.try_save()
        self.journal.close()

    # ------------------------------------------------------------------ when it fails
    def _stop_learning(self, error: BaseException) -> None:
        cause = error.strerror if isinstance(error, OSError) else type(error).__name__
        with self._entry:
            self.failure = f"learning has stopped ({cause}): restart the server"
        logger.error("%s", self.failure)

    def _refuse_waiting(self) -> None:
        while True:
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                return
            if task is not None and task.answer.set_running_or_notify_cancel():
                task.answer.set_exception(busy(self.failure or "the server is shutting down"))


# ---------------------------------------------------------------------- looking at a model
def is_sparse(model: Any) -> bool:
    """Return whether features that a row lacks are 0: it may then hold few of very many."""
    if model._tree is None:
        return getattr(model, "absent", None) == "zero"
    return model._tree.encoder.sparse is not None


def feature_names(model: Any) -> list[Any]:
    """Return the names of the features that a model has seen in rows, except sparse ones."""
    if model._tree is None:
        return []
    given = model._tree.encoder.given_names
    return [name for name in model._tree.encoder.names if name in given]


def sparse_names(model: Any) -> list[Any]:
    """Return the names of sparse features, also of those with a column; none if rows are dense."""
    if model._tree is None or not is_sparse(model):
        return []
    return [name for name in model._tree.encoder.row_face.sparse_names() if name is not None]


def predicts_numbers(model: Any) -> bool:
    """Return whether the target is a number, rather than a label."""
    return bool(is_regressor(model))


def labels_of(model: Any) -> list[Any]:
    """Return the labels that a model has seen; none if its target is a number."""
    return [] if model._tree is None else list(model._tree.target.labels)


def _mark(model: Any) -> tuple[object, ...]:
    """Return figures that change whenever the model learns."""
    if model._tree is None:
        return (None,)
    engine = model._tree.engine
    return engine.n_rows, engine.n_columns, engine.n_classes, engine.n_features, engine.clock
