"""Container: one zip of a manifest and arrays, written whole or not at all, read with suspicion.

What is in a file is up to others (`models`); here is only how it gets there and back. A file has
exactly one form: its members are stored without compression, in a fixed order, with fixed headers,
and the sizes of all of them follow from the manifest, which comes first. So the reader does not
interpret a zip, it compares: what is not byte for byte as it would have been written is refused.
Nothing in a file can make it take more memory than a small multiple of the file's size.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import stat
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn.storage.atomic import replace_file
from driftree.learn.storage.zips import (
    CHECKSUM,
    LOCAL,
    LOCAL_EXTRA,
    Member,
    directory_of,
    header_size,
    npy_header_of,
    size_of,
)
from driftree.learn.words import quoted
from driftree.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]
    Look = Callable[[dict[str, Any], Mapping[str, "Entry"], Callable[[str], NDArray[Any]]], None]

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST = 2**25  # bytes
MANIFEST_ROOM = 2**25  # bytes that its values may take beyond eight times its length
MAX_LENGTH = 2**40
PIECE = 2**20  # bytes that are read at a time
DTYPES = ("<f4", "<f8", "<i4", "<i8", "|u1")
ARRAY_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
MAX_NAME = 100

Contents = dict[str, Any]


class ModelFileError(ValueError):
    """A model file is damaged, hostile, or from a newer version; the message says which.

    Examples
    --------
    >>> import driftree
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "model.dmt")
    >>> _ = path.write_bytes(b"")
    >>> driftree.load(path)
    Traceback (most recent call last):
    driftree.learn.storage.container.ModelFileError: ...model.dmt: the file is empty
    """


# ---------------------------------------------------------------------- whole files
def write(path: str | os.PathLike[str], kind: str, contents: Contents, arrays: Arrays) -> None:
    """Write a file; readers see the old one or the new one, never a part.

    Parameters
    ----------
    path : path
        The file. A link stays a link: the file that it points to is replaced.
    kind : str
        What the file is, such as "driftree model".
    contents : dict
        What JSON can hold.
    arrays : mapping of str to ndarray
        Arrays of one or two dimensions by name.
    """
    replace_file(path, _serialise(kind, contents, arrays))


def read(
    path: str | os.PathLike[str], kind: str, look: Look | None = None
) -> tuple[Contents, dict[str, NDArray[Any]]]:
    """Read the contents and the arrays of a file; raise `ModelFileError` if anything is wrong.

    Parameters
    ----------
    path : path
        The file.
    kind : str
        What it must be.
    look : callable, optional
        Is given the contents, what the file says of its arrays, and a function that reads one of
        them. It raises if one cannot be so large, before memory is made for it.
    """
    with name_errors(path):
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe might never end
            raise ModelFileError("this is no file")
        with open(path, "rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size, kind, look)


def to_bytes(kind: str, contents: Contents, arrays: Arrays) -> bytes:
    """Return what `write` writes.

    Examples
    --------
    >>> data = to_bytes("driftree model", {"n": 1}, {"ids": np.arange(2, dtype=np.int32)})
    >>> from_bytes(data, "driftree model")
    ({'n': 1}, {'ids': array([0, 1], dtype=int32)})
    """
    return b"".join(_serialise(kind, contents, arrays))


def from_bytes(
    data: bytes, kind: str, look: Look | None = None
) -> tuple[Contents, dict[str, NDArray[Any]]]:
    """Return what `read` reads from a file with these bytes."""
    return _read(io.BytesIO(data), len(data), kind, look)


@contextlib.contextmanager
def name_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let what goes wrong with a file name the file."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{os.fsdecode(path)}: {error}") from error.__cause__


# ---------------------------------------------------------------------- arrays
def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _sha256(header: bytes, data: memoryview) -> str:
    digest = hashlib.sha256(header)
    digest.update(data)
    return digest.hexdigest()


# ---------------------------------------------------------------------- writing
def _serialise(kind: str, contents: Contents, arrays: Arrays) -> list[bytes | memoryview]:
    entries: dict[str, Any] = {}
    members: list[Member] = []
    chunks: list[bytes | memoryview] = []
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        dtype = array.dtype.str
        if not _is_name(name) or dtype not in DTYPES or array.ndim not in (1, 2):
            raise TypeError(f"an array {name!r}, {dtype}, {array.ndim}-d does not go into a file")
        header, data = npy_header_of(dtype, array.shape), _bytes_of(array)
        sha256 = _sha256(header, data)
        entries[name] = {"dtype": dtype, "shape": list(array.shape), "sha256": sha256}
        checksum = zlib.crc32(data, zlib.crc32(header))
        members.append(Member(f"{name}.npy", len(header) + len(data), checksum))
        chunks += [members[-1].local_header(), header, data]
    manifest = {
        "format": kind,
        "format_version": FORMAT_VERSION,
        "library_version": __version__,
        "contents": contents,
        "arrays": entries,
    }
    text = json.dumps(manifest, sort_keys=True, allow_nan=False, separators=(",", ":"))
    if len(text) > MAX_MANIFEST:
        raise ValueError(
            f"names, levels, labels and history take {len(text):,} bytes as text, more than the "
            f"{MAX_MANIFEST:,} of a model file: use shorter names, or pickle"
        )
    encoded = text.encode("ascii")
    if not _fits(encoded):
        raise ValueError(f"the contents have too many values for {len(text):,} bytes: use pickle")
    first = Member(MANIFEST, len(encoded), zlib.crc32(encoded))
    start = [first.local_header(), encoded]
    return [*start, *chunks, directory_of([first, *members])]


def _is_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= MAX_NAME and bool(ARRAY_NAME.fullmatch(name))


# ---------------------------------------------------------------------- reading
def _read(
    file: io.BufferedIOBase, size: int, kind: str, look: Look | None
) -> tuple[Contents, dict[str, NDArray[Any]]]:
    first, text = _read_manifest(file, size)
    manifest = _parse(text)
    del text
    entries = _check_manifest(manifest, kind)
    sizes = {f"{name}.npy": entry.header_size + entry.n_bytes for name, entry in entries.items()}
    whole = size_of({MANIFEST: first.size, **sizes})
    if size != whole:
        raise ModelFileError(
            f"the file is cut off or too long: {size:,} bytes instead of {whole:,}"
        )
    places, end = {}, header_size(MANIFEST) + first.size
    for name in entries:
        places[name] = end
        end += header_size(f"{name}.npy") + sizes[f"{name}.npy"]
    known: dict[str, tuple[NDArray[Any], Member]] = {}

    def read_one(name: str) -> NDArray[Any]:
        if name not in known:
            file.seek(places[name])
            known[name] = _read_array(file, name, entries[name])
        return known[name][0]

    if look is not None:
        look(manifest["contents"], entries, read_one)
    arrays = {name: read_one(name) for name in entries}
    directory = directory_of([first, *(known[name][1] for name in entries)])
    file.seek(end)
    if file.read(len(directory) + 1) != directory:
        raise ModelFileError("the directory of the zip does not fit its members")
    return manifest["contents"], arrays


def _read_manifest(file: io.BufferedIOBase, size: int) -> tuple[Member, bytes]:
    if size == 0:
        raise ModelFileError("the file is empty")
    header = file.read(header_size(MANIFEST))
    start = LOCAL.size
    if not header.startswith(b"PK\3\4"):
        raise ModelFileError("this is no model file: it does not begin like a zip")
    if len(header) < header_size(MANIFEST):
        raise ModelFileError("the file is cut off")
    if header[start : start + len(MANIFEST)] != MANIFEST.encode("ascii"):
        raise ModelFileError(f"this is no model file: its first member is not {MANIFEST!r}")
    length, checksum = (
        LOCAL_EXTRA.unpack(header[-LOCAL_EXTRA.size :])[2],
        LOCAL.unpack(header[:start])[6],
    )
    member = Member(MANIFEST, length, checksum)
    if member.local_header() != header:
        raise ModelFileError("this zip is not as driftree writes them: was it packed anew?")
    if length > MAX_MANIFEST:
        raise ModelFileError(
            f"member {MANIFEST!r} has {length:,} bytes, more than the {MAX_MANIFEST:,} allowed"
        )
    text = file.read(length)
    if len(text) < length:
        raise ModelFileError(f"the file is cut off in member {MANIFEST!r}")
    if zlib.crc32(text) != checksum:
        raise ModelFileError(f"member {MANIFEST!r} is damaged: it does not fit its checksum")
    return member, text


# What a value takes once it is read, at most: an object, a list, an item of either.
COSTS = ((b"{", 200), (b"[", 100), (b",", 40))
# A string, or what is left of one that does not end: so it is never looked for twice.
STRING = re.compile(rb'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)', re.DOTALL)


def _cost(text: bytes) -> int:
    return sum(cost * text.count(sign) for sign, cost in COSTS)


def _fits(text: bytes) -> bool:
    """Tell whether a manifest takes little memory for its length, before it is read."""
    most = MANIFEST_ROOM + 8 * len(text)
    cost = _cost(text)
    if cost > most:  # there may be such signs in names
        cost -= sum(_cost(found.group()) for found in STRING.finditer(text))
    return cost <= most


def _parse(text: bytes) -> dict[str, Any]:
    if not _fits(text):
        raise ModelFileError(f"member {MANIFEST!r} has too many values for its {len(text):,} bytes")
    try:
        manifest = json.loads(
            text.decode("ascii"), object_pairs_hook=_unique, parse_constant=_no_constant
        )
    except RecursionError:
        raise ModelFileError(f"member {MANIFEST!r} is nested too deeply") from None
    except ValueError as error:
        raise ModelFileError(f"member {MANIFEST!r} is no JSON: {error}") from None
    if not isinstance(manifest, dict):
        raise ModelFileError(f"member {MANIFEST!r} must hold an object")
    return manifest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def entries_of(arrays: Arrays) -> dict[str, Entry]:
    """Return what a manifest would say of arrays, but for their sums."""
    return {name: Entry(array.dtype.str, array.shape, "") for name, array in arrays.items()}


class Entry(NamedTuple):
    """What a manifest says of an array."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def header_size(self) -> int:
        """Bytes before the numbers."""
        return len(npy_header_of(self.dtype, self.shape))

    @property
    def n_bytes(self) -> int:
        """Bytes of the numbers."""
        n = np.dtype(self.dtype).itemsize
        for length in self.shape:
            n *= length
        return n


def _check_manifest(manifest: dict[str, Any], kind: str) -> dict[str, Entry]:
    """Return the entries of the arrays, after a look at everything but the contents."""
    found, version = manifest.get("format"), manifest.get("format_version")
    if not isinstance(found, str) or not found.startswith("driftree "):
        raise ModelFileError("this is no file of driftree's")
    if type(version) is not int or version < 1:
        raise ModelFileError(
            f"the format version must be a whole number from 1, got {quoted(version)}"
        )
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"the file was written by a newer driftree (format {version}; this one reads "
            f"{FORMAT_VERSION}): upgrade driftree"
        )
    if found != kind:
        raise ModelFileError(f"this is a {quoted(found)}, not a {kind!r}")
    entries = manifest.get("arrays")
    if manifest.keys() != {"format", "format_version", "library_version", "contents", "arrays"}:
        raise ModelFileError(f"member {MANIFEST!r} has other keys than format {version} has")
    if not isinstance(manifest["contents"], dict) or not isinstance(entries, dict):
        raise ModelFileError(f"member {MANIFEST!r} must have contents and arrays as objects")
    if list(entries) != sorted(entries):
        raise ModelFileError("the arrays are not in order")
    return {name: _check_entry(name, entry) for name, entry in entries.items()}


def _check_entry(name: str, entry: Any) -> Entry:
    if not _is_name(name):
        raise ModelFileError(f"an array must not be named {quoted(name)}")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "sha256"}:
        raise ModelFileError(f"array {name!r} must have a dtype, a shape and a sha256")
    shape = entry["shape"]
    if entry["dtype"] not in DTYPES:
        raise ModelFileError(f"array {name!r} must be one of {', '.join(DTYPES)}")
    if not isinstance(shape, list) or len(shape) not in (1, 2):
        raise ModelFileError(f"array {name!r} must have one or two dimensions")
    if not all(type(length) is int and 0 <= length < MAX_LENGTH for length in shape):
        raise ModelFileError(f"array {name!r} has a length out of range")
    return Entry(entry["dtype"], tuple(shape), entry["sha256"])


def _read_array(file: io.BufferedIOBase, name: str, entry: Entry) -> tuple[NDArray[Any], Member]:
    header = file.read(header_size(f"{name}.npy"))
    npy_header = file.read(entry.header_size)
    said = int.from_bytes(header[CHECKSUM], "little")
    member = Member(f"{name}.npy", len(npy_header) + entry.n_bytes, said)
    if npy_header != npy_header_of(entry.dtype, entry.shape) or member.local_header() != header:
        raise ModelFileError(f"member '{name}.npy' is damaged: its headers do not fit the manifest")
    try:
        array: NDArray[Any] = np.empty(entry.shape, dtype=entry.dtype)
    except (MemoryError, ValueError):  # more than there is, or than can be
        gib = entry.n_bytes / 2**30
        raise ModelFileError(f"array {name!r} takes {gib:,.1f} GiB, more than there is") from None
    data = _bytes_of(array)
    checksum, digest = zlib.crc32(npy_header), hashlib.sha256(npy_header)
    for start in range(0, len(data), PIECE):  # a file that was cut off takes no more than it has
        piece = data[start : start + PIECE]
        if file.readinto(piece) != len(piece):
            raise ModelFileError(f"the file is cut off in member '{name}.npy'")
        checksum = zlib.crc32(piece, checksum)
        digest.update(piece)
    if checksum != said:
        raise ModelFileError(f"member '{name}.npy' is damaged: it does not fit its checksum")
    if digest.hexdigest() != entry.sha256:
        raise ModelFileError(f"member '{name}.npy' is damaged: its SHA-256 is not the manifest's")
    return array, member
