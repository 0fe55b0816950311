"""Model store: the models of many keys, the most recently used in memory, all others on disk.

On disk it is one SQLite file with a write-ahead log. Everything written between two commits belongs
to one transaction: evicted models are read back from it, and a killed process leaves the state of
its last commit, for all keys. Where SQLite itself rolls it back, as with a full disk, what is on
disk and what is in memory no longer belong together: then every later call is an error.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driftree.learn.storage import ModelFileError, models
from driftree.learn.storage.locks import take_lock
from driftree.scale.keys import Tally
from driftree.stored import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from driftree.scale.keys import KeyRecord

FILE, LOCK = "models.sqlite", "lock"
BUSY = "close that, or give another folder"
IS_LOST = (
    "and what was learnt since the last commit is lost: close the models, open the folder again "
    "and resume at `position`"
)
ALL_IS_LOST = "and what was learnt is lost: start again, with path=... a folder that has room"
FORMAT_VERSION = 1
SCHEMA = """
    CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS keys (
        id INTEGER PRIMARY KEY, key UNIQUE NOT NULL, n_rows INTEGER NOT NULL, loss REAL,
        excess REAL, is_cold INTEGER NOT NULL, is_drifting INTEGER NOT NULL, unchanged INTEGER,
        tally TEXT NOT NULL
    );
    CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""
# A key's figures are columns, so that a summary queries only these and loads no model.
WRITE_KEY = """
    INSERT INTO keys (key, n_rows, loss, excess, is_cold, is_drifting, unchanged, tally)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET n_rows = excluded.n_rows, loss = excluded.loss,
        excess = excluded.excess, is_cold = excluded.is_cold, is_drifting = excluded.is_drifting,
        unchanged = excluded.unchanged, tally = excluded.tally
    RETURNING id
"""
MIN_GROWTH = 1.25  # growth of a key's rows before its model's size is measured again


@dataclass(slots=True)
class KeptModel:
    """A key's model in memory."""

    key: Any
    model: Any
    tally: Tally = field(default_factory=Tally)
    n_bytes: int = 0
    measure_at: int = 0
    """Rows of the key at which its size is measured again."""
    is_written: bool = False
    """Whether the copy on disk is up to date."""


class ModelStore:
    """Models by key; at most `memory` bytes of them in memory.

    Parameters
    ----------
    folder : path or None
        Folder of the file; None is a temporary folder, removed with the store.
    memory : int
        Bytes of models in memory. The model in use is never evicted, however large.
    of_labels, has_parent : bool
        Whether targets are labels, and whether there is a parent.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        memory: int,
        *,
        of_labels: bool,
        has_parent: bool,
    ) -> None:
        self.of_labels = of_labels
        self.has_parent = has_parent
        self.is_temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="driftree-") if folder is None else folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.memory = memory
        self.entries: OrderedDict[Any, KeptModel] = OrderedDict()
        self.n_bytes = 0
        self._has_begun = self._is_given_up = False
        fd = take_lock(self.folder / LOCK, BUSY)
        try:
            self._connection = self._connect()
        except BaseException:
            os.close(fd)
            raise
        gone = self.folder if self.is_temporary else None
        self._release = weakref.finalize(self, _release, self._connection, fd, gone)

    def _connect(self) -> sqlite3.Connection:
        path = self.folder / FILE
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            safe = "OFF" if self.is_temporary else "FULL"  # not needed after a crash
            connection.execute(f"PRAGMA synchronous = {safe}")
            connection.executescript(SCHEMA)
        except sqlite3.DatabaseError as error:
            connection.close()
            raise ModelFileError(f"{path}: {error}") from error
        return connection

    def close(self) -> None:
        """Close the file, in the state of the last commit."""
        self._release()

    @property
    def is_open(self) -> bool:
        """Whether it is open."""
        return self._release.alive

    def _check_open(self) -> None:
        if not self.is_open:
            raise ValueError("the models are closed: open them again, with the same folder")
        is_rolled_back = self._has_begun and not self._connection.in_transaction
        if self._is_given_up or is_rolled_back:
            words = ALL_IS_LOST if self.is_temporary else IS_LOST
            raise OSError(f"{self.folder / FILE}: the disk failed before, {words}")

    def give_up(self) -> None:
        """Let every later call fail: rows were learnt in part, or by a call that failed."""
        self._is_given_up = True

    # ------------------------------------------------------------------ models
    def get(self, key: Any) -> KeptModel | None:
        """Return a key's model, from disk if necessary; None if there is none."""
        self._check_open()
        entry = self.entries.get(key)
        if entry is not None:
            self.entries.move_to_end(key)
            return entry
        found = self._ask(
            "SELECT tally, data FROM keys JOIN models USING (id) WHERE key = ?", key
        ).fetchone()
        if found is None:
            return None
        with self._named(key):
            model = models.from_bytes(found[1], CLASSES)
        entry = KeptModel(key, model, Tally.from_text(found[0]), is_written=True)
        self._hold(entry)
        return entry

    def tally(self, key: Any) -> Tally | None:
        """Return the losses of a key, without its model; None if there is none."""
        self._check_open()
        entry = self.entries.get(key)
        if entry is not None:
            return entry.tally
        found = self._ask("SELECT tally FROM keys WHERE key = ?", key).fetchone()
        return None if found is None else Tally.from_text(found[0])

    def keep(self, entry: KeptModel) -> None:
        """Store a model that has learnt, and evict others if it has grown."""
        if entry.key not in self.entries or entry.tally.n_rows >= entry.measure_at:
            try:
                self._hold(entry)
            except Exception:  # the row seems refused, but is learnt
                self.give_up()
                raise

    def keep_tally(self, key: Any, tally: Tally) -> None:
        """Store the losses of a key that has learnt; its model may have been evicted since."""
        if key not in self.entries:
            self._write_figures(key, tally)

    def _hold(self, entry: KeptModel) -> None:
        self.entries[entry.key] = entry
        self._measure(entry)
        self._make_room(entry)

    def _measure(self, entry: KeptModel) -> None:
        n_bytes = entry.model.memory_usage()
        self.n_bytes += n_bytes - entry.n_bytes
        entry.n_bytes = n_bytes
        entry.measure_at = int(MIN_GROWTH * entry.tally.n_rows) + 1

    def _make_room(self, in_use: KeptModel) -> None:
        """Evict the least recently used models to disk until the rest fit."""
        while self.n_bytes > self.memory and len(self.entries) > 1:
            key, entry = next(iter(self.entries.items()))
            if entry is in_use:
                self.entries.move_to_end(key)
                continue
            self._write(entry)
            del self.entries[key]
            self.n_bytes -= entry.n_bytes

    # ------------------------------------------------------------------ the disk
    def _write(self, entry: KeptModel) -> None:
        if entry.is_written:
            return
        try:
            data = models.to_bytes(entry.model)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"the model of key {entry.key!r} cannot be kept on disk: {error}") from error
        id_ = self._write_figures(entry.key, entry.tally)
        self._change("INSERT OR REPLACE INTO models VALUES (?, ?)", id_, data)
        entry.is_written = True

    def record(self, key: Any, tally: Tally) -> KeyRecord:
        """Return the record of a key."""
        return tally.record(key, of_labels=self.of_labels, has_parent=self.has_parent)

    def _write_figures(self, key: Any, tally: Tally) -> int:
        record = self.record(key, tally)
        found = self._change(
            WRITE_KEY,
            record.key,
            record.n_rows,
            record.loss,
            record.loss - record.usual_loss,
            record.is_cold,
            record.drift_since is not None,
            None if record.changed_at is None else record.n_rows - record.changed_at,
            tally.to_text(),
        )
        return int(found.fetchone()[0])

    def write_figures(self) -> None:
        """Write the figures of all keys to disk, without their models."""
        for entry in self.entries.values():
            if not entry.is_written:
                self._write_figures(entry.key, entry.tally)

    def commit(self, notes: dict[str, Any]) -> None:
        """Write all models, and notes, in one transaction."""
        self._check_open()
        for entry in self.entries.values():
            self._write(entry)
        for name, value in notes.items():
            self._change("INSERT OR REPLACE INTO notes VALUES (?, ?)", name, value)
        if self._connection.in_transaction:
            self._has_begun = False  # first: Ctrl-C may come right after the commit
            try:
                with self._named():
                    self._connection.execute("COMMIT")
            except Exception:
                self._has_begun = True
                raise

    def note(self, name: str) -> Any:
        """Return a note of the last commit, or None."""
        found = self._ask("SELECT value FROM notes WHERE name = ?", name).fetchone()
        return None if found is None else found[0]

    def ask(self, query: str, *values: Any) -> list[Any]:
        """Return the result of a query."""
        return self._ask(query, *values).fetchall()

    def _ask(self, query: str, *values: Any) -> sqlite3.Cursor:
        self._check_open()
        with self._named():
            return self._connection.execute(query, values)

    def _change(self, query: str, *values: Any) -> sqlite3.Cursor:
        self._check_open()
        if not self._connection.in_transaction:
            self._ask("BEGIN IMMEDIATE")
        self._has_begun = True  # until a commit
        return self._ask(query, *values)

    @contextlib.contextmanager
    def _named(self, key: Any = None) -> Iterator[None]:
        """Add the folder to errors."""
        where = self.folder / FILE
        try:
            yield
        except sqlite3.OperationalError as error:
            raise OSError(f"{where}: {error}; what was committed before is intact") from error
        except sqlite3.DatabaseError as error:
            raise ModelFileError(f"{where}: {error}") from error
        except ModelFileError as error:
            raise ModelFileError(f"{where}, key {key!r}: {error}") from error


def _release(connection: sqlite3.Connection, fd: int, gone: Path | None) -> None:
    connection.close()
    if gone is not None:
        shutil.rmtree(gone, ignore_errors=True)
    os.close(fd)
