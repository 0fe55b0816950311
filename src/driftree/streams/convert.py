"""From the format of a source to `<name>.csv.gz`: features first, last column `target`."""

import csv
import gzip
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, TextIO

from driftree.streams.cache import digest_of, put_in_place, write_whole
from driftree.streams.catalogue import Counts, CSVFile, DataSet

# A name, quoted or not, then its type: a word such as REAL, or the levels in braces.
ATTRIBUTE = re.compile(r"""@attribute\s+(?:'(.*?)'|"(.*?)"|(\S+?))\s*(?:\s(\w+).*|(\{.*))""", re.I)


def convert(source: Path, record: DataSet, path: Path, *, target: str | None = None) -> Path:
    """Convert a downloaded file; it gets its name only if its size is that of Table I.

    Beside it, ``<name>.csv.gz.sha256`` keeps its checksum for later loads. To be called under
    `cache.hold`.

    Parameters
    ----------
    source : path
        CSV file without a header, the label last, if the record says so; else ARFF file.
    record : DataSet
        What to expect.
    path : path
        The file to be.
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
        checked = path.with_name(f".{path.name}.checked")
        with write_whole(checked) as output:
            found = _write_table(output, names, rows, position)
    try:
        record.check_counts(found, f"the file from {record.source}")
        write_checksum(checked, path)
        put_in_place(checked, path)
    finally:
        checked.unlink(missing_ok=True)
    return path


def write_checksum(file: Path, path: Path) -> None:
    """Keep the checksum of a verified file beside the place that it has, or is to get."""
    with write_whole(checksum_file(path)) as output:
        output.write(f"{digest_of(file, 'sha256')}  {path.name}\n".encode())


def checksum_file(path: Path) -> Path:
    """Return where the checksum of a file is kept, in the format of sha256sum."""
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
                raise ValueError(f"this line of an ARFF file names no attribute and type: {text}")
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
    # No time and no file name in it: the same rows give the same bytes.
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
