"""The file of a data set, `<name>.csv.gz`: features first, last column `target`.

It is converted from the format of its source, read as columns, and cached as arrays.
"""

import csv
import gzip
import hashlib
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np
from numpy.typing import NDArray

from driftree.learn.storage.atomic import replace_text, whole_file
from driftree.streams.catalogue import Counts, CSVFile, DataSet
from driftree.streams.concepts import Features, Labels
from driftree.streams.csv_columns import ColumnHints
from driftree.streams.download import digest_of
from driftree.streams.rows import join
from driftree.streams.stream import open_source

ROWS_AT_ONCE = 20_000
TARGET = "target"


@dataclass(frozen=True, eq=False)
class DataColumn:
    """A column: numbers, or the codes of `levels`, which are in order of appearance.

    Missing numbers are NaN, missing texts have the code -1.
    """

    values: NDArray[Any]
    levels: NDArray[np.str_] | None = None

    def restored(self) -> NDArray[Any]:
        """Return float64 numbers, or an object array of str and None."""
        if self.levels is None:
            return self.values.astype(np.float64, copy=False)
        texts: NDArray[Any] = np.array([*self.levels.tolist(), None], dtype=object)
        restored: NDArray[Any] = texts[self.values]
        return restored

    def has_missing(self) -> bool:
        """Return whether a cell is missing."""
        missing = np.isnan(self.values) if self.levels is None else self.values == -1
        return bool(missing.any())


def read_columns(path: Path) -> dict[str, DataColumn]:
    """Read a whole CSV file as `open_stream` does; the label is the column `target`."""
    source = open_source(path, target=TARGET, hints=ColumnHints(is_plain=True))
    X, y = join(list(source.blocks(0, ROWS_AT_ONCE)))
    return {name: _to_column(cells) for name, cells in {**X, TARGET: y}.items()}


def _to_column(cells: NDArray[Any]) -> DataColumn:
    if cells.dtype != object:
        return DataColumn(cells.astype(np.float64, copy=False))
    texts = cells.tolist()
    codes: dict[str | None, int] = {None: -1}
    for text in dict.fromkeys(texts):
        codes.setdefault(text, len(codes) - 1)
    levels = np.array([text for text in codes if text is not None])
    return DataColumn(np.fromiter(map(codes.__getitem__, texts), np.int32, len(texts)), levels)


def count(columns: Mapping[str, DataColumn]) -> Counts:
    """Return the size of a table."""
    labels, n_rows_of_label = np.unique(columns[TARGET].values, return_counts=True)
    n_rows = len(columns[TARGET].values)
    return Counts(n_rows, len(columns) - 1, len(labels), int(n_rows_of_label.max(initial=0)))


def keep_columns(path: Path, columns: Mapping[str, DataColumn], key: str) -> None:
    """Cache a table as arrays, each in the smallest type that holds it exactly."""
    arrays: dict[str, NDArray[Any]] = {"key": np.array(key), "names": np.array(list(columns))}
    for i, column in enumerate(columns.values()):
        arrays[f"values{i}"] = _shrink(column.values)
        if column.levels is not None:
            arrays[f"levels{i}"] = column.levels
    with whole_file(path, is_alone=True) as file:
        np.savez(file, allow_pickle=False, **arrays)


def kept_columns(path: Path, key: str) -> dict[str, DataColumn] | None:
    """Return a cached table, or None if there is none from this source."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if str(arrays["key"]) != key:
                return None
            return {
                name: DataColumn(arrays[f"values{i}"], arrays.get(f"levels{i}"))
                for i, name in enumerate(arrays["names"].tolist())
            }
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        return None  # the table is read from its source again


def _shrink(values: NDArray[Any]) -> NDArray[Any]:
    """Return values in the smallest type that preserves them bit for bit."""
    for dtype in (np.int8, np.int16, np.int32):
        with np.errstate(invalid="ignore"):
            small = values.astype(dtype)
        if small.astype(values.dtype).tobytes() == values.tobytes():
            return small
    return values


def factorise(column: DataColumn) -> tuple[Labels, NDArray[Any]]:
    """Return codes in order of appearance, and their values."""
    if column.levels is not None:
        return column.values.astype(np.int64), column.levels.astype(object)
    values, first, codes = np.unique(column.values, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return rank[codes].astype(np.int64), narrow(values[np.argsort(first)].astype(np.float64))


def narrow(numbers: Features) -> NDArray[Any]:
    """Return whole numbers as int64, others unchanged."""
    whole = np.isfinite(numbers).all() and np.array_equal(numbers, np.round(numbers))
    return numbers.astype(np.int64) if whole else numbers


def scale_as_in_paper(
    columns: Mapping[str, DataColumn], shared_levels: Sequence[Sequence[int]]
) -> Features:
    """Return features with texts factorised and everything scaled to [0, 1] over all rows.

    Constant features become 0. Columns in a group of `shared_levels` are factorised and scaled as
    one: first all rows of the first column, then those of the second.
    """
    missing = [name for name, column in columns.items() if column.has_missing()]
    if missing:
        raise ValueError(
            f"the paper's preprocessing does not handle missing cells, but {', '.join(missing)} "
            'has some; fill them in, or load with preprocess="none"'
        )
    n_rows = len(next(iter(columns.values())).values)
    X = np.empty((n_rows, len(columns)))
    for i, column in enumerate(columns.values()):
        X[:, i] = column.values
    shared = {i for group in shared_levels for i in group}
    for group in shared_levels:
        levels: dict[str, int] = {}
        for i, column in ((i, list(columns.values())[i]) for i in group):
            if column.levels is not None:
                codes = [levels.setdefault(level, len(levels)) for level in column.levels.tolist()]
                X[:, i] = np.array(codes)[column.values]
    for group in (*shared_levels, *((i,) for i in range(X.shape[1]) if i not in shared)):
        part = X[:, list(group)]
        low, spread = part.min(), np.ptp(part)
        X[:, list(group)] = (part - low) / (spread or 1)
    return X


# ---------------------------------------------------------------------- from the source's format
# A name, quoted or not, then its type: a word such as REAL, or the levels in braces.
ATTRIBUTE = re.compile(r"""@attribute\s+(?:'(.*?)'|"(.*?)"|(\S+?))\s*(?:\s(\w+).*|(\{.*))""", re.I)


def convert(source: Path, record: DataSet, path: Path, *, target: str | None = None) -> Path:
    """Convert a downloaded file; it gets its name only if its size is that of Table I.

    ``<name>.csv.gz.sha256`` next to it keeps its checksum for later loads. To be called under
    `cache.hold`.

    Parameters
    ----------
    source : path
        CSV file without a header, the label last, if the record says so; else ARFF file.
    record : DataSet
        What to expect.
    path : path
        The file to write.
    target : str or None
        Name of the column of labels, for ARFF; None is the last one.
    """
    with source.open(encoding="utf-8", newline="") as file:
        if isinstance(record.origin, CSVFile):
            names, rows = [*record.origin.feature_names, "target"], read_plain(file)
        else:
            names, rows = read_arff(file)
        if target is not None and target not in names:
            raise ValueError(f"it has no column {target} for the labels, only {', '.join(names)}")
        position = names.index(target) if target else len(names) - 1
        with whole_file(path, is_alone=True) as output:
            found = _write_table(output, names, rows, position)
            record.check_counts(found, f"the file from {record.source}")
            output.seek(0)
            _note_checksum(hashlib.file_digest(output, "sha256").hexdigest(), path)
    return path


def write_checksum(file: Path, path: Path) -> None:
    """Store the checksum of a verified file next to its present or future path."""
    _note_checksum(digest_of(file, "sha256"), path)


def _note_checksum(digest: str, path: Path) -> None:
    replace_text(checksum_file(path), f"{digest}  {path.name}\n")


def checksum_file(path: Path) -> Path:
    """Return the path of a file's checksum, which has the format of sha256sum."""
    return path.with_name(f"{path.name}.sha256")


def read_arff(file: TextIO) -> tuple[list[str], Iterator[list[str]]]:
    r"""Read a dense ARFF file; missing cells (`?`) become empty.

    Parameters
    ----------
    file : text file
        Opened file.

    Returns
    -------
    names : list of str
        Names of the columns.
    rows : iterator of list of str
        The rows, read as they are asked for.

    Examples
    --------
    >>> import io
    >>> header = "@relation r\n@attribute 'a b' real\n@attribute c {x, 'y z'}\n@data\n"
    >>> names, rows = read_arff(io.StringIO(header + "1,'y z'\n?,x\n"))
    >>> names, list(rows)
    (['a b', 'c'], [['1', 'y z'], ['', 'x']])
    """
    names = []
    for line in file:
        text = line.strip()
        if text.lower().startswith("@data"):
            break
        if text.lower().startswith("@attribute"):
            match = ATTRIBUTE.match(text)
            if match is None:
                raise ValueError(
                    f"this line of an ARFF file has no attribute name and type: {text}"
                )
            names.append(next(name for name in match.groups()[:3] if name is not None))
    else:
        raise ValueError("an ARFF file must have a line @data, but this one has none")
    return names, _arff_rows(file)


def read_plain(file: TextIO) -> Iterator[list[str]]:
    """Read a CSV file without a header; the first line tells whether it has semicolons."""
    first = file.readline()
    return csv.reader(chain([first], file), delimiter=";" if ";" in first else ",")


def _arff_rows(file: TextIO) -> Iterator[list[str]]:
    # Weka writes single quotes, some other programs double ones.
    lines = (
        line.replace('"', "'") if '"' in line and "'" not in line else line
        for line in file
        if line.strip() and not line.startswith("%")
    )
    for row in csv.reader(lines, quotechar="'", escapechar="\\", skipinitialspace=True):
        if row[0].startswith("{"):
            raise ValueError("sparse ARFF files cannot be read; this line starts with a brace")
        yield ["" if cell == "?" else cell for cell in map(str.strip, row)]


def _write_table(
    output: BinaryIO, names: list[str], rows: Iterable[list[str]], position: int
) -> Counts:
    """Write the compressed table, the labels in its last column, and return its size."""
    classes: Counter[str] = Counter()
    # Without time and file name, so that the same rows give the same bytes.
    with (
        gzip.GzipFile("", "wb", 6, output, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="") as text,
    ):
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*names[:position], *names[position + 1 :], "target"])
        for number, row in enumerate(rows, start=1):
            if len(row) != len(names):
                raise ValueError(
                    f"row {number} has {len(row)} cells, but there are {len(names)} columns; the "
                    "file is damaged, or its source answered with something else"
                )
            label = row.pop(position).strip()
            classes[label] += 1
            row.append(label)
            writer.writerow(row)
    return Counts(classes.total(), len(names) - 1, len(classes), max(classes.values(), default=0))
