"""Checkpoints: model, position in the stream and metrics so far, in one atomic file.

A checkpoint is an extended model file (`learn/storage`). It holds no code, gets its name only when
all of it is on the disk, and is checked completely before anything of it is used.
"""

from __future__ import annotations

import os
import re
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn.storage import (
    ModelFileError,
    bounds,
    container,
    manifest,
    models,
    name_errors,
)
from driftree.learn.storage.atomic import TEMPORARY, Closing
from driftree.learn.storage.locks import take_lock
from driftree.learn.validation import check_keys, quoted
from driftree.stored import CLASSES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

KIND = "driftree checkpoint"
NAME = re.compile(r"checkpoint-(\d{12,18})\.dmt")
DAMAGED = ".damaged"
LOCK, BUSY = "lock", "close that, or give another folder"
MAX_DEPTH = 32  # of nested metrics
MAX_POSITION = 2**53
EVERY, KEEP = 50_000, 3


class CheckpointWarning(UserWarning):
    """A problem with a checkpoint; the message says how it was handled.

    Examples
    --------
    >>> import warnings
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from driftree import Checkpointer, DynamicModelTreeClassifier
    >>> with Checkpointer(mkdtemp()) as checkpointer:
    ...     for position in (100, 200):
    ...         file = checkpointer.commit(DynamicModelTreeClassifier(), position)
    ...     _ = file.write_bytes(b"torn")
    ...     with warnings.catch_warnings(record=True) as caught:
    ...         warnings.simplefilter("always")
    ...         checkpointer.resume().position
    100
    >>> print(str(caught[0].message).partition("file; ")[2])
    it was renamed to checkpoint-000000000200.dmt.damaged; resuming from row 100
    """


class Checkpoint(NamedTuple):
    """What a checkpoint holds.

    Attributes
    ----------
    model : DynamicModelTreeClassifier or FIMTDDClassifier
        The model; it continues exactly as it would have, bit for bit.
    position : int
        Rows of the stream that were processed.
    metrics : object
        As given to `Checkpointer.commit`.
    """

    model: Any
    position: int
    metrics: Any = None


class Checkpointer(Closing):
    """Keeps the last checkpoints of a stream in a folder, so that a killed process loses little.

    Parameters
    ----------
    path : path
        The folder; created if it does not exist. Only one process at a time may use it.
    every : int, default=50000
        Rows of the stream between two checkpoints: one is due after every multiple of it. The first
        and the last checkpoint are up to the caller.
    keep : int, default=3
        How many checkpoints to keep. With two or more, a damaged one does not lose everything.

    Raises
    ------
    BlockingIOError
        If another process, or another `Checkpointer`, uses the folder.

    See Also
    --------
    driftree.evaluate.prequential : Takes a checkpointer, and does all this by itself.

    Examples
    --------
    However it was ended, this loop continues where it was when started again:

    >>> from tempfile import mkdtemp
    >>> from driftree import Checkpointer, DynamicModelTreeClassifier
    >>> from driftree.streams import open_stream, sea
    >>> folder = mkdtemp()
    >>> def learn(stream):
    ...     with Checkpointer(folder, every=2000) as checkpointer:
    ...         found = checkpointer.resume()
    ...         model, position, metrics = found or (DynamicModelTreeClassifier(), 0, {"right": 0})
    ...         for X, y in stream.batches(skip_rows=position):
    ...             if position:
    ...                 metrics["right"] += int((model.predict(X) == y).sum())
    ...             model.partial_fit(X, y)
    ...             position += len(y)
    ...             if checkpointer.is_due(position):
    ...                 checkpointer.commit(model, position, metrics)
    ...     return position, metrics
    >>> learn(open_stream(sea(10_000), n_rows=5000))  # the process ends here, the last at 4,000
    (5000, {'right': 3527})
    >>> learn(open_stream(sea(10_000)))
    (10000, {'right': 7981})
    """

    def __init__(
        self, path: str | os.PathLike[str], *, every: int = EVERY, keep: int = KEEP
    ) -> None:
        for name, value in (("every", every), ("keep", keep)):
            if not _is_whole(value) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        self.folder = Path(path)
        self.every = int(every)
        self.keep = int(keep)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._release = weakref.finalize(self, os.close, take_lock(self.folder / LOCK, BUSY))
        self._last: int | None = None
        self._has_looked = False

    @property
    def positions(self) -> list[int]:
        """Rows at which there are checkpoints, oldest first."""
        return positions_in(self.folder)

    def resume(self) -> Checkpoint | None:
        """Return the newest intact checkpoint; None if the folder holds none at all.

        Damaged ones are renamed, each with a `CheckpointWarning`. Temporary files of killed
        processes are removed, and so are checkpoints beyond `keep`.

        Raises
        ------
        ModelFileError
            If there are checkpoints, but none is intact.
        """
        self._check_open()
        for path in self.folder.glob(TEMPORARY):
            path.unlink(missing_ok=True)
        damaged: list[tuple[Path, ModelFileError]] = []
        found = None
        for position in reversed(self.positions):
            path = self._path(position)
            try:
                found = _read(path, position)
                break
            except ModelFileError as error:
                damaged.append((path, error))
        if found is None and damaged:
            words = "; ".join(str(error) for _, error in damaged)
            raise ModelFileError(
                f"no checkpoint in {self.folder} is intact ({words}): to start over, remove them, "
                "or give another folder"
            )
        for path, reason in damaged:
            assert found is not None
            aside = path.with_name(path.name + DAMAGED)
            path.replace(aside)
            words = f"it was renamed to {aside.name}; resuming from row {found.position:,}"
            warnings.warn(f"{reason}; {words}", CheckpointWarning, stacklevel=2)
        self._has_looked = True
        self._last = None if found is None else found.position
        self._remove_old()
        return found

    def is_due(self, position: int) -> bool:
        """Return whether a multiple of `every` was passed since the last checkpoint."""
        return position // self.every > (self._last or 0) // self.every

    def commit(self, model: Any, position: int, metrics: Any = None) -> Path:
        """Write a checkpoint, then remove those beyond `keep`.

        Parameters
        ----------
        model : DynamicModelTreeClassifier or FIMTDDClassifier
            Other learners are refused: a checkpoint holds no code, and they could only be pickled.
        position : int
            Rows of the stream that are processed: learnt, and included in the metrics.
        metrics : object, optional
            Whatever else is to be restored with the model: dicts, lists and tuples of numbers,
            text, booleans, None, bytes, and arrays of float64, float32, int64, int32 or uint8.

        Returns
        -------
        Path
            The file. Both it and its directory entry are on the disk.
        """
        self._check_open()
        self._check_position(position)
        check_learner(model)
        inside, arrays = models.pack(model)
        arrays = {f"model.{name}": array for name, array in arrays.items()}
        told = _encode(metrics, arrays)
        contents = {"model": inside, "position": int(position), "metrics": told}
        path = self._path(position)
        try:
            container.write(path, KIND, contents, arrays)
        except OSError as error:
            before = "" if self._last is None else f", that of row {self._last:,} is intact"
            raise OSError(
                error.errno,
                f"{error.strerror}: the checkpoint of row {position:,} could not be written to "
                f"{self.folder}{before}",
            ) from error
        self._last = int(position)
        self._remove_old()
        return path

    def close(self) -> None:
        """Release the folder."""
        self._release()

    def _path(self, position: int) -> Path:
        return self.folder / _name(position)

    def _remove_old(self) -> None:
        for position in self.positions[: -self.keep]:
            self._path(position).unlink(missing_ok=True)

    def _check_open(self) -> None:
        if not self._release.alive:
            raise ValueError("the checkpointer is closed: create a new one")

    def _check_position(self, position: int) -> None:
        if not _is_whole(position) or not 0 <= position <= MAX_POSITION:
            raise ValueError(
                f"position must be a number of rows, at most 2**53, got {position!r}: keep "
                "anything else, such as a time, in the metrics"
            )
        if not self._has_looked and self.positions:
            raise ValueError(
                f"{self.folder} holds checkpoints, the last at row {self.positions[-1]:,}: "
                "continue from what resume() returns, or give another folder"
            )
        self._has_looked = True
        if position < (self._last or 0):
            raise ValueError(
                f"position is {position:,}, but there is a checkpoint of row {self._last:,}: "
                "continue from what resume() returns, or give another folder"
            )


def positions_in(folder: Path) -> list[int]:
    """Return the rows at which there are checkpoints in a folder, oldest first."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    found = (int(match[1]) for name in names if (match := NAME.fullmatch(name)))
    return sorted(position for position in found if _name(position) in names)


def remove_all(folder: Path) -> None:
    """Remove all checkpoints in a folder, including damaged ones, if no process uses it."""
    if not folder.is_dir():
        return
    fd = take_lock(folder / LOCK, BUSY)
    try:
        for path in folder.iterdir():
            if NAME.fullmatch(path.name.removesuffix(DAMAGED)):
                path.unlink()
    finally:
        os.close(fd)


def _name(position: int) -> str:
    return f"checkpoint-{position:012d}.dmt"


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_learner(model: Any) -> None:
    """Raise if a learner cannot be in a checkpoint.

    Examples
    --------
    >>> from river.tree import HoeffdingTreeClassifier
    >>> check_learner(HoeffdingTreeClassifier())
    Traceback (most recent call last):
    TypeError: a HoeffdingTreeClassifier cannot be in a checkpoint, which holds no code: ...
    """
    if type(model) not in CLASSES.values():
        raise TypeError(
            f"a {type(model).__qualname__} cannot be in a checkpoint, which holds no code: only "
            f"driftree's own learners can ({', '.join(CLASSES)}), others would have to be pickled"
        )


def _look(contents: Any, entries: Mapping[str, container.Sized], read: Any) -> None:
    """Raise if the model's arrays are larger than allowed."""
    own = {
        name.removeprefix("model."): entry
        for name, entry in entries.items()
        if name.startswith("model.")
    }
    bounds.check(contents.get("model"), own, lambda name: read(f"model.{name}"))


def _read(path: Path, position: int) -> Checkpoint:
    found, arrays = container.read(path, KIND, _look)
    with name_errors(path):
        contents = manifest.members(found, ("model", "position", "metrics"), "the checkpoint")
        said = manifest.whole(contents["position"], "the position", high=MAX_POSITION)
        if said != position:
            raise ModelFileError(
                f"it is a checkpoint of row {said:,}, which does not match its name"
            )
        rest = dict(arrays)
        own = [name for name in rest if name.startswith("model.")]
        inside = {name.removeprefix("model."): rest.pop(name) for name in own}
        model = models.unpack(contents["model"], inside, CLASSES)
        metrics = _decode(contents["metrics"], rest)
        if rest:
            raise ModelFileError(f"array {min(rest)!r} is not part of the metrics")
    return Checkpoint(model, position, metrics)


# ---------------------------------------------------------------------- metrics
def _encode(value: Any, arrays: dict[str, NDArray[Any]], depth: int = 0) -> Any:
    """Return metrics as JSON; arrays are stored separately, by number.

    A dict becomes a list of pairs, since JSON objects have no order in a file.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"metrics are nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        check_keys(value, "names of metrics")
        pairs = [
            [manifest.encode(name), _encode(one, arrays, depth + 1)] for name, one in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, list):
        return [_encode(one, arrays, depth + 1) for one in value]
    if type(value) is tuple:
        return {"tuple": [_encode(one, arrays, depth + 1) for one in value]}
    if isinstance(value, np.ndarray):
        if value.dtype.str not in container.NAMES or value.ndim not in (1, 2):
            raise TypeError(
                f"the metrics have an array of {value.dtype} with {value.ndim} dimensions: give "
                "float64, float32, int64, int32 or uint8 with one or two"
            )
        name = f"metrics.array{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    return manifest.encode(value, "one of the metrics")


def _decode(item: Any, arrays: dict[str, NDArray[Any]], depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise ModelFileError("the metrics are nested too deeply")
    if type(item) is list:
        return [_decode(one, arrays, depth + 1) for one in item]
    if type(item) is dict and item.keys() == {"tuple"} and type(item["tuple"]) is list:
        return tuple(_decode(one, arrays, depth + 1) for one in item["tuple"])
    if type(item) is dict and item.keys() == {"array"}:
        array = arrays.pop(item["array"], None) if type(item["array"]) is str else None
        if array is None:
            raise ModelFileError(f"the metrics have no array {quoted(item['array'])}")
        return array.copy()
    if type(item) is dict and item.keys() == {"dict"}:
        pairs = manifest.items(item["dict"], "the metrics")
        if not all(type(pair) is list and len(pair) == 2 for pair in pairs):
            raise ModelFileError("the metrics must be pairs of a name and a value")
        names = [manifest.decode(name) for name, _ in pairs]
        check_keys(names, "names of metrics", ModelFileError)
        inside = (_decode(one, arrays, depth + 1) for _, one in pairs)
        return dict(zip(names, inside, strict=True))
    return manifest.decode(item)
