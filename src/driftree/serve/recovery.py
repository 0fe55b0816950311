"""Recovery: from a model file and its journal to a writer that goes on where the last one ended."""

from __future__ import annotations

import math
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftree.estimators import CLASSES, DynamicModelTreeClassifier
from driftree.learn.storage import container, models
from driftree.learn.storage.container import ModelFileError
from driftree.learn.storage.locks import take_lock
from driftree.serve.batches import LearnBatch, LearntKeys
from driftree.serve.journal import (
    INSTEAD,
    Found,
    Journal,
    JournalError,
    read_count,
    read_journal,
)
from driftree.serve.limits import UNLIMITED, Limits, Refusal
from driftree.serve.writer import Writer, feature_names, labels_of

SUFFIX = ".journal"


@dataclass(frozen=True, slots=True)
class Note:
    """What a server has written into the model file: up to where the journal is in it."""

    journal_id: str
    sequence: int
    keys: LearntKeys


@dataclass(frozen=True, slots=True)
class Recovered:
    """A writer, and what had to be done to get there."""

    writer: Writer
    n_batches: int = 0  # learnt again from the journal
    n_cut: int = 0  # bytes that were never acknowledged,
    n_torn: int = 0  # and the batches that they may have been, at most
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
) -> Recovered:
    """Return a writer of the model in a file, with all that was ever acknowledged.

    Parameters
    ----------
    path : Path
        The model file; its journal is the folder beside it, with `.journal` added to the name.
    new : bool, default=False
        Begin with a model that has learnt nothing, in a file that is not there yet.
    read_only : bool, default=False
        Serve the file as it is; neither it nor the journal is touched, nor looked at again.
    limits : Limits, optional
        What is allowed.
    snapshot_every : int, default=10_000
        Rows after which the model is saved.
    without_journal : bool, default=False
        Go on from the file alone, although its journal is missing.

    Raises
    ------
    ModelFileError, JournalError, OSError, ValueError
        If anything is wrong with the files, if another server has them, if the model is none that
        JSON can speak of.
    """
    limits = Limits() if limits is None else limits
    path = Path(os.path.realpath(path))
    if new and read_only:
        raise ValueError("--new is for learning, --read-only against it: give one of them")
    if new and path.exists():
        raise ValueError(f"{path} exists: leave --new out to go on with it, or name another file")
    if not new and not path.exists():
        raise ValueError(f"{path} does not exist: add --new to begin with an empty model")
    if read_only:
        model, _ = read_model(path)
        check_model(model, limits)
        return Recovered(Writer(model, path, None, limits=limits))
    folder = path.with_name(path.name + SUFFIX)
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = take_lock(folder / "lock", "stop that server, or use --read-only")
    try:
        found = read_journal(folder)
        if without_journal and found.journal_id is not None:
            raise ValueError(
                f"{folder} has a journal: leave --without-journal out, or move it away"
            )
        return _recover(path, found, lock, limits, snapshot_every, without_journal=without_journal)
    except BaseException:
        os.close(lock)
        raise


def read_model(path: Path) -> tuple[Any, Note | None]:
    """Return the model in a file, and what a server has noted there."""
    contents, arrays = models.read(path)
    with container.name_errors(path):
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
    """Raise if JSON cannot name the features or labels, or if they are more than allowed."""
    names, labels = feature_names(model), labels_of(model)
    for name in names:
        if type(name) is not str:
            raise ValueError(
                f"the model knows a feature as {name!r}, but names are text in JSON: let it learn "
                "with names that are text"
            )
    for label in labels:
        is_finite = type(label) is float and math.isfinite(label)
        if not is_finite and type(label) not in (str, bool, int):
            raise ValueError(
                f"the model has a label {label!r}, which JSON does not know: use text, numbers or "
                "truth values"
            )
    for what, n, most in (
        ("features", len(names), limits.max_features),
        ("labels", len(labels), limits.max_labels),
    ):
        if n > most:
            raise ValueError(f"the model has {n:,} {what}: start the server with --max-{what} {n}")


def _recover(
    path: Path,
    found: Found,
    lock: int,
    limits: Limits,
    snapshot_every: int,
    *,
    without_journal: bool,
) -> Recovered:
    folder = path.with_name(path.name + SUFFIX)
    if path.exists():
        model, note = read_model(path)
    else:
        model, note = DynamicModelTreeClassifier(), None
    check_model(model, limits)
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
        limits=UNLIMITED,  # they held when it was acknowledged
        snapshot_every=snapshot_every,
    )
    if is_first:  # before the file speaks of a journal, it is there
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
    """Let a writer learn what its model does not know yet; return how many batches."""
    later = [entry for entry in found.entries if entry.sequence > writer.sequence]
    for entry in later:
        try:
            batch = LearnBatch.from_text(entry.data)
            writer.learn(batch, entry.data)
        except Refusal as refusal:
            raise JournalError(
                f"{folder}: record {entry.sequence} was learnt once, and is refused now "
                f"({refusal.words}): use the version of driftree that wrote it"
            ) from None
        if writer.sequence != entry.sequence:
            raise JournalError(f"{folder}: record {entry.sequence} is there twice")
        writer.rows_unsaved += len(batch.rows)
    return len(later)


# ---------------------------------------------------------------------- damage
def _check_fit(path: Path, folder: Path, found: Found, note: Note | None) -> None:
    """Raise if the journal is not that of the file, or not all of it."""
    if found.journal_id is None:
        assert note is not None
        raise JournalError(
            f"{path} was served, up to batch {note.sequence} and maybe further, but its journal is "
            f"missing in {folder}: put it back; or give --without-journal to go on from the file "
            "alone, without what was learnt after it was saved"
        )
    first, last = found.first, found.last
    if note is None or note.journal_id != found.journal_id:
        holds = f"holds batches {first} to {last}" if found.entries else "has a journal"
        what = "is not there" if not path.exists() else "is another model than the one it is of"
        raise JournalError(
            f"{folder} {holds}, but {path} {what}: put the file back, or move the folder away, to "
            "begin without it (--without-journal, if the file has been served elsewhere)"
        )
    if first > note.sequence + 1:
        raise JournalError(
            f"{path} knows batches up to {note.sequence}, but {folder} begins with {first}: the "
            "file is older than the journal; put the newer one back"
        )
    if last < note.sequence:
        raise JournalError(
            f"{path} knows batches up to {note.sequence}, but {folder} ends with {last}: the "
            "journal is older than the file, or cut; put the newer one back"
        )


def _check_count(folder: Path, found: Found, n_known: int) -> int | None:
    """Raise if more was acknowledged than is there; return the count, None if there is none."""
    assert found.journal_id is not None
    count = read_count(folder, found.journal_id)
    last = max(found.last, n_known)
    if count is not None and count > last:
        raise JournalError(
            f"{folder} ends with batch {last}, but {count} were acknowledged: its last file is cut "
            f"or damaged, and {count - last} are missing; {INSTEAD}"
        )
    return count
