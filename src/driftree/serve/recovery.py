"""Recovery: from a model file and its journal to a writer that continues from both.

A read-only server may follow the file (`Follower`): it is replaced atomically whenever the learning
server saves the model, so a reader gets one model or the next, never a mixture.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from driftree.evaluate.learners import make_learner
from driftree.learn.storage import ModelFileError, models, name_errors
from driftree.learn.storage.locks import take_lock
from driftree.learn.validation import list_names
from driftree.serve.journal import (
    INSTEAD,
    Found,
    Journal,
    JournalError,
    read_count,
    read_journal,
)
from driftree.serve.requests import UNLIMITED, LearnBatch, Limits, Refusal
from driftree.serve.writer import (
    NOT_SAVED,
    LearntKeys,
    Writer,
    feature_names,
    labels_of,
    predicts_numbers,
    sparse_names,
)
from driftree.stored import CLASSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from driftree.streams.stream import Task

SUFFIX = ".journal"
LOOK_SECONDS = 0.5  # between two checks of a followed file
logger = logging.getLogger("driftree.serve")


@dataclass(frozen=True, slots=True)
class Note:
    """What a server stores in the model file: up to which record it contains the journal."""

    journal_id: str
    sequence: int
    keys: LearntKeys


class Known(NamedTuple):
    """A model, the note of the server that saved it, and the file, which may not exist yet."""

    model: Any
    note: Note | None
    path: Path


@dataclass(frozen=True, slots=True)
class Recovered:
    """A writer, and what was recovered."""

    writer: Writer
    n_batches: int = 0  # learnt again from the journal
    n_cut: int = 0  # bytes that were never acknowledged,
    n_torn: int = 0  # and the most batches that they may have held
    is_counted: bool = True  # whether it is known how many batches were acknowledged
    lock: int | None = None  # file descriptor, to be kept open


def open_model(
    path: Path,
    *,
    new: bool = False,
    read_only: bool = False,
    limits: Limits | None = None,
    snapshot_every: int = 10_000,
    without_journal: bool = False,
    task: Task | None = None,
    categorical: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
) -> Recovered:
    """Return a writer for the model in a file, with everything that was acknowledged.

    Parameters
    ----------
    path : Path
        The model file; its journal is the folder next to it, with `.journal` added to the name.
    new : bool, default=False
        Start with an empty model in a new file.
    read_only : bool, default=False
        Serve the file as it is; neither it nor the journal is written.
    limits : Limits, optional
        Limits of requests and of the model.
    snapshot_every : int, default=10_000
        Rows after which the model is saved.
    without_journal : bool, default=False
        Continue from the file alone, although its journal is missing.
    task : {"classification", "regression"}, optional
        What a new model predicts; by default labels.
    categorical : sequence of str, default=()
        Features of a new model whose numbers are categories.
    parameters : mapping, optional
        Parameters of a new model that are not the default.

    Raises
    ------
    ModelFileError, JournalError, OSError, ValueError
        If the files are damaged, missing or in use by another server, or if JSON cannot express the
        names or labels of the model.
    """
    limits = Limits() if limits is None else limits
    path = Path(os.path.realpath(path))
    made = {"--task": task, "--categorical": categorical, "--param": parameters}
    _check_options(path, made, new=new, read_only=read_only)
    if read_only:
        model, note = read_model(path)
        check_model(model, limits)
        sequence = 0 if note is None else note.sequence
        return Recovered(Writer(model, path, None, sequence=sequence, limits=limits))
    model, note = None, None
    if new:
        model = make_learner(
            "dmt", categorical=categorical, task=task or "classification", parameters=parameters
        )
        check_model(model, limits)  # before anything is written
    folder = path.with_name(path.name + SUFFIX)
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = take_lock(folder / "lock", "stop that server, or use --read-only")
    try:
        found = read_journal(folder)
        if without_journal and found.journal_id is not None:
            raise ValueError(
                f"{folder} has a journal: omit --without-journal, or move the folder away"
            )
        if model is None or path.exists():
            model, note = read_model(path)
            check_model(model, limits)
        return _recover(
            Known(model, note, path),
            found,
            lock,
            limits,
            snapshot_every,
            without_journal=without_journal,
        )
    except BaseException:
        os.close(lock)
        raise


def _check_options(path: Path, made: Mapping[str, Any], *, new: bool, read_only: bool) -> None:
    """Raise if options contradict each other or the file; `made` are those of a new model."""
    if new and read_only:
        raise ValueError(
            "--new creates a model that learns, --read-only forbids learning: give only one of them"
        )
    for option, value in made.items():
        if value and not new:
            raise ValueError(f"{option} is for --new: an existing model has it in its file")
    if new and path.exists():
        raise ValueError(f"{path} exists: omit --new to continue with it, or choose another file")
    if not new and not path.exists():
        raise ValueError(f"{path} does not exist: add --new to start with an empty model")


def read_model(path: Path) -> tuple[Any, Note | None]:
    """Return the model in a file, and the note of the server that saved it."""
    contents, arrays = models.read(path)
    with name_errors(path):
        note = _read_note(contents.get(models.SERVED))
        return models.unpack(contents, arrays, CLASSES), note


def _read_note(data: Any) -> Note | None:
    if data is None:
        return None
    fine = isinstance(data, dict) and data.keys() == {"journal", "sequence", "keys"}
    if not fine or type(data["journal"]) is not str or type(data["sequence"]) is not int:
        raise ModelFileError("the server's note is damaged")
    return Note(data["journal"], data["sequence"], LearntKeys.from_json(data["keys"]))


def check_model(model: Any, limits: Limits) -> None:
    """Raise if JSON cannot express the features or labels, or if there are too many."""
    names, labels = feature_names(model), labels_of(model)
    sparse = sparse_names(model)
    if limits.labels is not None:
        if predicts_numbers(model):
            raise ValueError("--labels is for classifiers, but this model predicts numbers")
        if stray := [label for label in labels if label not in limits.labels]:
            raise ValueError(
                f"the model has learnt {list_names(stray)}, but --labels has only "
                f"{list_names(limits.labels)}: add the others, or start with a new model"
            )
    for name in (*names, *sparse):
        if type(name) is not str:
            raise ValueError(
                f"the model has a feature named {name!r}, but names are text in JSON: train it "
                "with names that are text"
            )
    for label in labels:
        is_finite = type(label) is float and math.isfinite(label)
        if not is_finite and type(label) not in (str, bool, int):
            raise ValueError(
                f"the model has a label {label!r}, which JSON cannot express: use text, numbers or "
                "booleans"
            )
    for what, n, most in (
        ("features", 0 if sparse else len(names), limits.max_features),
        ("labels", len(labels), limits.max_labels),
    ):
        if n > most:
            raise ValueError(f"the model has {n:,} {what}: start the server with --max-{what} {n}")


def _recover(
    known: Known,
    found: Found,
    lock: int,
    limits: Limits,
    snapshot_every: int,
    *,
    without_journal: bool,
) -> Recovered:
    model, note, path = known
    folder = path.with_name(path.name + SUFFIX)
    is_first = note is None or without_journal
    if not is_first or found.entries:
        _check_fit(path, folder, found, note)
    journal_id = secrets.token_hex(16) if is_first or note is None else note.journal_id
    journal = Journal(folder, journal_id)
    writer = Writer(
        model,
        path,
        journal,
        sequence=0 if note is None else note.sequence,
        keys=None if note is None else note.keys,
        limits=UNLIMITED,  # the limits held when it was acknowledged
        snapshot_every=snapshot_every,
    )
    if is_first:  # the journal exists before the file refers to it
        journal.restart(writer.sequence + 1)
        writer.save()
        writer.limits = limits
        return Recovered(writer, lock=lock)
    count = _check_count(folder, found, writer.sequence)
    n_later = _learn_again(folder, found, writer)
    writer.limits = limits
    journal.resume(found)
    if found.entries:  # the journal is short
        writer.try_save()
    return Recovered(writer, n_later, found.n_cut, found.n_torn, count is not None, lock)


def _learn_again(folder: Path, found: Found, writer: Writer) -> int:
    """Replay the batches that the model does not contain yet; return how many."""
    later = [entry for entry in found.entries if entry.sequence > writer.sequence]
    for entry in later:
        try:
            batch = LearnBatch.from_text(entry.data)
            writer.learn(batch, entry.data)
        except Refusal as refusal:
            raise JournalError(
                f"{folder}: record {entry.sequence} was learnt before, but is refused now "
                f"({refusal.words}): use the version of driftree that wrote it"
            ) from None
        if writer.sequence != entry.sequence:
            raise JournalError(f"{folder}: record {entry.sequence} occurs twice")
        writer.rows_unsaved += len(batch.rows)
    return len(later)


# ---------------------------------------------------------------------- damage
def _check_fit(path: Path, folder: Path, found: Found, note: Note | None) -> None:
    """Raise if the journal does not belong to the file, or is incomplete."""
    if found.journal_id is None:
        assert note is not None
        raise JournalError(
            f"{path} was served up to batch {note.sequence} or later, but its journal is missing "
            f"in {folder}: restore it; or give --without-journal to continue from the file "
            "alone, without what was learnt after it was saved"
        )
    first, last = found.first, found.last
    if note is None or note.journal_id != found.journal_id:
        holds = f"holds batches {first} to {last}" if found.entries else "has a journal"
        what = "does not exist" if not path.exists() else "is not the model that it belongs to"
        raise JournalError(
            f"{folder} {holds}, but {path} {what}: restore the file, or move the folder away to "
            "start without it (with --without-journal, if the file has been served elsewhere)"
        )
    if first > note.sequence + 1:
        raise JournalError(
            f"{path} contains batches up to {note.sequence}, but {folder} begins with {first}: the "
            "file is older than the journal; restore the newer file"
        )
    if last < note.sequence:
        raise JournalError(
            f"{path} contains batches up to {note.sequence}, but {folder} ends with {last}: the "
            "journal is older than the file, or truncated; restore the newer one"
        )


def _check_count(folder: Path, found: Found, n_known: int) -> int | None:
    """Raise if acknowledged batches are missing; return the count, None if it is unknown."""
    assert found.journal_id is not None
    count = read_count(folder, found.journal_id)
    last = max(found.last, n_known)
    if count is not None and count > last:
        raise JournalError(
            f"{folder} ends with batch {last}, but {count} were acknowledged: its last file is "
            f"truncated or damaged, and {count - last} are missing; {INSTEAD}"
        )
    return count


# ---------------------------------------------------------------------- following a file
class Follower:
    """Reloads a model file whenever it is replaced, in a thread, within a `with` block.

    A replaced file has another inode or time; it is then loaded in the background, and the model is
    swapped between two requests. If it cannot be read, the old one stays.

    Parameters
    ----------
    writer : Writer
        The holder of the model; it must be read-only.
    path : Path
        The file as it was named: it may be a link that later points to another file.
    """

    def __init__(self, writer: Writer, path: Path) -> None:
        self.writer = writer
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="driftree-follower", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> bool:
        """Load the file if it has changed; return whether its model is served."""
        writer = self.writer
        try:
            status = os.stat(self.path)  # first: a file that changes meanwhile is read once more
            found = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)
            if found == self._seen:
                writer.problem = None  # it exists again, if it was missing
                return False
            model, note = read_model(self.path)
            check_model(model, writer.limits)
            if predicts_numbers(model) != predicts_numbers(writer.model):
                raise ModelFileError(f"{self.path}: it predicts another kind of target")
        except NOT_SAVED as error:
            self._tell(error)
            return False
        self._seen = found
        writer.replace(model, 0 if note is None else note.sequence)
        return True

    def _tell(self, error: Exception) -> None:
        """Report that the old model stays; it names no paths, as /health needs no token."""
        cause = error.strerror if isinstance(error, OSError) else type(error).__name__
        words = f"the file cannot be read ({cause}); the model read last is served"
        if self.writer.problem != words:
            logger.error("the old model stays: %s", error)
        self.writer.problem = words
