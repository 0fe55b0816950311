"""The paper's data sets by name: found, downloaded or generated, and preprocessed.

The folder ``DRIFTREE_DATA`` with ``<name>.csv.gz`` in it (features first, last column `target`)
comes first, then the cache, then a download. Parsed files are cached as arrays, so that only the
first load is slow. Samples are small synthetic tables as CSV, to try things on.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from driftree.learn.storage.atomic import whole_file
from driftree.streams.catalogue import (
    DATA_SETS,
    ByHand,
    CSVFile,
    DataSet,
    Generated,
    OpenMLFile,
    find_data_set,
)
from driftree.streams.concepts import Features, Labels
from driftree.streams.data_files import (
    TARGET,
    DataColumn,
    checksum_file,
    convert,
    count,
    factorise,
    keep_columns,
    kept_columns,
    narrow,
    read_columns,
    scale_as_in_paper,
    write_checksum,
)
from driftree.streams.download import DownloadError, Progress, digest_of, download, fetch, hold

Row = tuple[Any, ...]
TOWNS = {"Ulm": 100, "Bonn": 160, "Jena": 40}
SPAM = ("win", "prize", "claim", "urgent", "free", "cash", "offer", "reply", "now", "call")
HAM = ("lunch", "home", "meeting", "later", "thanks", "train", "dinner", "sorry", "see", "call")
BOTH = ("the", "a", "you", "to", "and", "is", "in", "it", "for", "we")


class DataSetUnavailable(RuntimeError):  # noqa: N818
    """A data set is not available and cannot be downloaded; the message says what to put where."""


@dataclass(frozen=True, eq=False)
class LoadedData:
    """A data set in memory.

    Attributes
    ----------
    name : str
        Name of the data set.
    X : array of float64, shape (n_rows, n_features), or dict of str to array
        Features: a matrix with the paper's preprocessing, else one array per column, float64 for
        numbers (missing ones are not-a-number) and object for text (missing ones are None).
    y : array
        Labels: codes with the paper's preprocessing, otherwise as in the file.
    feature_names : tuple of str
        Names of the features.
    classes : array
        The labels as in the file, in the order of the codes.
    text_features : tuple of int
        Positions of the features that were text.
    categorical : tuple of int
        Positions of the features that the authors treat as categorical.
    """

    name: str
    X: NDArray[np.float64] | dict[str, NDArray[Any]]
    y: NDArray[Any]
    feature_names: tuple[str, ...]
    classes: NDArray[Any]
    text_features: tuple[int, ...]
    categorical: tuple[int, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.y)


@dataclass(frozen=True)
class DataSetStatus:
    """Whether a data set is available, and where.

    Attributes
    ----------
    name, title : str
        Name in driftree, and in the paper's tables.
    found : str
        ``"DRIFTREE_DATA"``, ``"cache"``, ``"generated"``, ``"not here: download"`` or
        ``"not here: by hand"``.
    path : path or None
        The file; None if there is none (yet).
    n_bytes : int
        Its size.
    """

    name: str
    title: str
    found: str
    path: Path | None
    n_bytes: int


def load_data_set(
    data_set: str | DataSet,
    *,
    preprocess: Literal["paper", "none"] = "paper",
    max_rows: int | None = None,
    progress: Progress | None = None,
) -> LoadedData:
    """Load a data set of the paper; download it if necessary.

    The paper's preprocessing factorises texts in order of appearance and scales each feature to
    [0, 1] over ALL rows. That looks ahead: the first rows are scaled by the range of the last.
    `normalise_online` does not. The three synthetic streams are scaled either way, as the
    authors published them.

    Parameters
    ----------
    data_set : str or DataSet
        Name, one of `DATA_SETS`, or a custom record.
    preprocess : {"paper", "none"}, default="paper"
        Whether to factorise and scale. Rows that the authors shuffled are shuffled either way.
    max_rows : int or None, default=None
        Only the first rows, scaled as part of the whole.
    progress : callable or None, default=None
        Called with the bytes received and in total while downloading; see `download`.

    Returns
    -------
    LoadedData
        Features, labels and their names.

    Raises
    ------
    DataSetUnavailable
        If it is not available and cannot be downloaded.
    ValueError
        If its size is not the one in Table I of the paper.

    Examples
    --------
    >>> load_data_set("electricty")
    Traceback (most recent call last):
    ValueError: there is no data set 'electricty' (did you mean electricity?): choose from ...
    """
    if preprocess not in ("paper", "none"):
        raise ValueError(f'preprocess must be "paper" or "none", but is {preprocess!r}')
    if max_rows is not None and max_rows < 1:
        raise ValueError(f"max_rows must be at least 1 or None, but is {max_rows}")
    record = find_data_set(data_set) if isinstance(data_set, str) else data_set
    if isinstance(record.origin, Generated):
        return _load_generated(record, record.origin, preprocess, max_rows)
    columns = _read(record, fetch_data_set(record, progress=progress))
    target = columns.pop(TARGET)
    codes, classes = factorise(target)
    rows: Any = slice(max_rows)
    if record.shuffle_seed is not None:
        order = np.random.default_rng(record.shuffle_seed).permutation(len(codes))
        rows = order[:max_rows]
    X: NDArray[np.float64] | dict[str, NDArray[Any]]
    if preprocess == "paper":
        X, y = scale_as_in_paper(columns, record.shared_levels)[rows], codes[rows]
    else:
        X = {name: column.restored()[rows] for name, column in columns.items()}
        y = target.restored()[rows]
        y = narrow(y) if target.levels is None else y
    text = tuple(i for i, column in enumerate(columns.values()) if column.levels is not None)
    return LoadedData(record.name, X, y, tuple(columns), classes, text, record.categorical)


def fetch_data_set(data_set: str | DataSet, *, progress: Progress | None = None) -> Path:
    """Return the file of a data set that is not synthetic; download it if necessary.

    Parameters
    ----------
    data_set : str or DataSet
        Name, one of `DATA_SETS`, or a custom record.
    progress : callable or None, default=None
        Called with the bytes received and in total while downloading; see `download`.

    Returns
    -------
    path
        ``<name>.csv.gz`` in the folder that ``DRIFTREE_DATA`` names, or in the cache.

    Examples
    --------
    >>> fetch_data_set("sea")
    Traceback (most recent call last):
    ValueError: sea is generated, not downloaded: use load_data_set
    """
    record = find_data_set(data_set) if isinstance(data_set, str) else data_set
    if isinstance(record.origin, Generated):
        raise ValueError(f"{record.name} is generated, not downloaded: use load_data_set")
    status = _look_up(record)
    if status.path is not None:
        return status.path
    if isinstance(record.origin, ByHand):
        raise _unavailable(record, f"has to be created by hand: {record.origin.steps}")
    path = cache_folder() / record.file_name
    try:
        with hold(path):
            if not path.exists():  # another process may have been faster
                _download(record, record.origin, path, progress)
    except DownloadError as error:
        raise _unavailable(record, f"could not be downloaded ({error})") from error
    except OSError as error:
        raise _unavailable(
            record,
            f"could not be written into the cache ({error}); set DRIFTREE_CACHE to a folder that "
            "can be written to",
        ) from error
    return path


def list_data_sets(data_sets: Iterable[DataSet] = tuple(DATA_SETS.values())) -> list[DataSetStatus]:
    """List which data sets are available, and where; nothing is downloaded.

    Parameters
    ----------
    data_sets : iterable of DataSet
        The data sets to look for, by default all.

    Returns
    -------
    list of DataSetStatus
        One record for each, in the same order.

    Examples
    --------
    >>> [status.found for status in list_data_sets([DATA_SETS["sea"]])]
    ['generated']
    """
    return [_look_up(record) for record in data_sets]


def _look_up(record: DataSet) -> DataSetStatus:
    """Look for a data set in all locations, in order of preference."""
    if isinstance(record.origin, Generated):
        kept = _generated_file(record.origin)
        places = [("generated", kept)]
        missing = "generated"
    else:
        folder = data_folder()
        places = [("DRIFTREE_DATA", folder / record.file_name)] if folder else []
        places.append(("cache", cache_folder() / record.file_name))
        by_hand = isinstance(record.origin, ByHand)
        missing = "not here: by hand" if by_hand else "not here: download"
    for found, path in places:
        if os.path.isfile(path):  # Path.is_file raises if the folder is not accessible
            return DataSetStatus(record.name, record.title, found, path, path.stat().st_size)
    return DataSetStatus(record.name, record.title, missing, None, 0)


def _download(
    record: DataSet, origin: OpenMLFile | CSVFile, path: Path, progress: Progress | None
) -> None:
    """Download the file of the source and convert it."""
    target: str | None = None
    checksum: str | None
    if isinstance(origin, OpenMLFile):
        try:
            description = json.loads(fetch(origin.description_url))["data_set_description"]
            url, target = description["url"], description.get("default_target_attribute")
            checksum = f"md5:{description['md5_checksum']}"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DownloadError(
                f"{origin.description_url} does not describe a data set as OpenML does"
            ) from error
        suffix = ".arff"
    else:
        url, checksum, suffix = origin.url, origin.checksum, ".csv"
    raw = path.parent / "downloads" / f"{record.name}{suffix}"
    try:
        download(url, raw, checksum=checksum, progress=progress)
    except ValueError as error:  # such as an address of another kind
        raise DownloadError(str(error)) from error
    try:
        convert(raw, record, path, target=target)
    except (ValueError, csv.Error) as error:
        raw.unlink()  # so that the next call does not find it
        raise DownloadError(f"{url} is not what was expected: {error}") from error
    raw.unlink()


def _unavailable(record: DataSet, reason: str) -> DataSetUnavailable:
    counts = record.counts
    return DataSetUnavailable(
        f"the data set {record.name} is not available and {reason}. Put {record.file_name} "
        f"(a header, features first, last column target; {counts.n_rows:,} rows, "
        f"{counts.n_features} features, {counts.n_classes} classes) into {cache_folder()}, or into "
        f"a folder that you name with DRIFTREE_DATA; source: {record.source}"
    )


def _read(record: DataSet, path: Path) -> dict[str, DataColumn]:
    """Return the columns of a file, from cached arrays if it has not changed."""
    is_ours = path.parent == cache_folder()
    if is_ours:
        _verify(path)
    facts = path.stat()
    key = f"2 {path.resolve()} {facts.st_size} {facts.st_mtime_ns}"
    kept = cache_folder() / "arrays" / f"{record.name}.npz"
    columns = kept_columns(kept, key)
    if columns is None:
        columns = read_columns(path)
        record.check_counts(count(columns), str(path))
        try:
            with hold(kept):
                keep_columns(kept, columns, key)
                if is_ours and not checksum_file(path).exists():  # put there by hand
                    write_checksum(path, path)
        except OSError as error:
            _warn_not_kept(record, error)
    return columns


def _warn_not_kept(record: DataSet, error: OSError) -> None:
    warnings.warn(
        f"{record.name} could not be cached for a faster load next time ({error}); set "
        "DRIFTREE_CACHE to a folder that can be written to",
        stacklevel=4,
    )


def _verify(path: Path) -> None:
    """Compare a file in the cache with the checksum of its first load."""
    beside = checksum_file(path)
    if beside.exists() and digest_of(path, "sha256") != beside.read_text().split()[0]:
        raise ValueError(
            f"{path} has changed since it was verified; if that was on purpose, delete "
            f"{beside.name} next to it, otherwise delete both to download it again"
        )


def _generated_file(origin: Generated) -> Path:
    return cache_folder() / f"{origin.draw.__name__}.npz"


def _kept_stream(path: Path) -> tuple[Features, Labels] | None:
    """Return a cached stream, or None if there is none, or if its file is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return arrays["X"], arrays["y"]
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None


def _load_generated(
    record: DataSet, origin: Generated, preprocess: str, max_rows: int | None
) -> LoadedData:
    """Return a synthetic stream, generated the first time and cached."""
    path = _generated_file(origin)
    kept = _kept_stream(path)
    if kept is not None:
        X, y = kept
    else:
        X, y = origin.draw()
        try:
            with hold(path), whole_file(path, is_alone=True) as file:
                np.savez(file, X=X, y=y)
        except OSError as error:
            _warn_not_kept(record, error)
    X, y = X[:max_rows], y[:max_rows]
    names, classes = origin.feature_names, np.arange(record.counts.n_classes)
    columns = X if preprocess == "paper" else dict(zip(names, X.T.copy(), strict=True))
    return LoadedData(record.name, columns, y, names, classes, (), record.categorical)


# ---------------------------------------------------------------------- folders
def cache_folder() -> Path:
    """Return the cache folder of driftree, for downloaded and generated data.

    It is ``DRIFTREE_CACHE`` if set, otherwise ``driftree`` in the platform's cache folder, and need
    not exist yet.

    Examples
    --------
    >>> import os, unittest.mock
    >>> with unittest.mock.patch.dict(os.environ, DRIFTREE_CACHE="kept"):
    ...     str(cache_folder())
    'kept'
    """
    chosen = os.environ.get("DRIFTREE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        variable, default = "LOCALAPPDATA", Path("AppData", "Local")
    elif sys.platform == "darwin":
        variable, default = "", Path("Library", "Caches")
    else:
        variable, default = "XDG_CACHE_HOME", Path(".cache")
    platform_folder = Path(os.environ.get(variable, ""))
    if not platform_folder.is_absolute():  # XDG: a relative path is to be ignored
        platform_folder = Path.home() / default
    return platform_folder / "driftree"


def data_folder() -> Path | None:
    """Return the folder that ``DRIFTREE_DATA`` names, or None if it is not set.

    Examples
    --------
    >>> import os, unittest.mock
    >>> with unittest.mock.patch.dict(os.environ, DRIFTREE_DATA="no/such"):
    ...     data_folder()
    Traceback (most recent call last):
    NotADirectoryError: DRIFTREE_DATA is set to no/such, which is not a folder; ...
    """
    chosen = os.environ.get("DRIFTREE_DATA")
    if not chosen:
        return None
    folder = Path(chosen).expanduser()
    if not folder.is_dir():
        raise NotADirectoryError(
            f"DRIFTREE_DATA is set to {chosen}, which is not a folder; name the folder that holds "
            "files such as electricity.csv.gz, or unset it to use the cache and downloads"
        )
    return folder


# ---------------------------------------------------------------------- samples
def _loans(n_rows: int, rng: np.random.Generator) -> Iterator[Row]:
    """Loan applications; halfway through, the rule for owners is reversed."""
    yield "id", "applied", "age", "income", "owner", "purpose", "granted"
    start = dt.datetime(2024, 1, 1, 8)
    for i in range(n_rows):
        age, income = int(rng.integers(20, 80)), round(float(rng.uniform(0, 90)), 2)
        is_owner, purpose = bool(rng.random() < 0.5), str(rng.choice(["car", "house", "travel"]))
        is_other_way = is_owner and i >= n_rows // 2
        is_granted = bool(rng.normal(income, 6) > 45) != is_other_way
        when = (start + dt.timedelta(minutes=37 * i)).isoformat(sep=" ", timespec="minutes")
        shown_age = "" if rng.random() < 0.03 else age
        owner, granted = ("yes" if one else "no" for one in (is_owner, is_granted))
        yield f"A{10_000 + i}", when, shown_age, f"{1000 * income:,.0f}", owner, purpose, granted


def _rents(n_rows: int, rng: np.random.Generator) -> Iterator[Row]:
    """Rents of flats, a number."""
    yield "area", "floor", "town", "rent"
    for _ in range(n_rows):
        area, floor = round(float(rng.uniform(20, 120)), 1), int(rng.integers(0, 6))
        town = str(rng.choice(list(TOWNS)))
        yield area, floor, town, round(300 + 8 * area + TOWNS[town] + float(rng.normal(0, 30)))


def _messages(n_rows: int, rng: np.random.Generator) -> Iterator[Row]:
    """Text messages, some of them spam."""
    yield "message", "length", "spam"
    for _ in range(n_rows):
        is_spam = bool(rng.random() < 0.3)
        words = rng.choice(SPAM if is_spam else HAM, 3).tolist() + rng.choice(BOTH, 4).tolist()
        text = " ".join(rng.permutation(words).tolist())
        yield text, len(text), "yes" if is_spam else "no"


SAMPLES: dict[str, Callable[[int, np.random.Generator], Iterator[Row]]] = {
    "loans": _loans,
    "rents": _rents,
    "messages": _messages,
}


def sample_lines(name: str, n_rows: int, seed: int = 1) -> Iterator[str]:
    """Yield the lines of a sample as CSV, the header first.

    Examples
    --------
    >>> print(*sample_lines("loans", 2), sep="")
    id,applied,age,income,owner,purpose,granted
    A10000,2024-01-01 08:00,48,"85,540",yes,house,yes
    A10001,2024-01-01 08:37,...
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in SAMPLES[name](n_rows, np.random.default_rng(seed)):
        writer.writerow(row)
        yield text.getvalue()
        text.seek(0)
        text.truncate()
