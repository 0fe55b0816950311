"""Files: one zip of a manifest and arrays, written whole or not at all, read with suspicion.

What is in a file is up to others (`storage`); here is only how it gets there and back. A file has
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
import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.learn.durable import replace_file
from driftree.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
MAX_MANIFEST = 2**25  # bytes
MAX_LENGTH = 2**40
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
    driftree.learn.files.ModelFileError: ...model.dmt: the file is empty
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


def read(path: str | os.PathLike[str], kind: str) -> tuple[Contents, dict[str, NDArray[Any]]]:
    """Read the contents and the arrays of a file; raise `ModelFileError` if anything is wrong."""
    with name_errors(path):
        if not stat.S_ISREG(os.stat(path).st_mode):  # reading a pipe might never end
            raise ModelFileError("this is no file")
        with open(path, "rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size, kind)


def to_bytes(kind: str, contents: Contents, arrays: Arrays) -> bytes:
    """Return what `write` writes.

    Examples
    --------
    >>> data = to_bytes("driftree model", {"n": 1}, {"ids": np.arange(2, dtype=np.int32)})
    >>> from_bytes(data, "driftree model")
    ({'n': 1}, {'ids': array([0, 1], dtype=int32)})
    """
    return b"".join(_serialise(kind, contents, arrays))


def from_bytes(data: bytes, kind: str) -> tuple[Contents, dict[str, NDArray[Any]]]:
    """Return what `read` reads from a file with these bytes."""
    return _read(io.BytesIO(data), len(data), kind)


def shown(value: object) -> str:
    """Return a value as an error may show it: a file may say anything, at any length."""
    text = ascii(value)
    return text if len(text) <= MAX_NAME else text[:MAX_NAME] + "..."


@contextlib.contextmanager
def name_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let what goes wrong with a file name the file."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{os.fsdecode(path)}: {error}") from error.__cause__


# ---------------------------------------------------------------------- the zip
# All members have the 64-bit sizes of ZIP64 (PKWARE's APPNOTE 4.5.3): one form, however large.
LOCAL = struct.Struct("<4s5HI2I2H")
LOCAL_EXTRA = struct.Struct("<2H2Q")
CENTRAL = struct.Struct("<4s6H3I5H2I")
CENTRAL_EXTRA = struct.Struct("<2H3Q")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")
END = struct.Struct("<4s4H2IH")
VERSION, UNIX = 45, 3  # of ZIP64; the system that permissions are of
NEW_YEAR_1980 = 0x21  # no clock gets into a file
FULL, HALF = 0xFFFFFFFF, 0xFFFF  # "see the 64 bits"
PERMISSIONS = 0o100644 << 16


class Member(NamedTuple):
    """What the zip says of a member."""

    name: str
    size: int
    checksum: int

    def local_header(self) -> bytes:
        """Return what stands before the member."""
        name = self.name.encode("ascii")
        sizes = LOCAL_EXTRA.pack(1, 16, self.size, self.size)
        # no flags, method 0: stored
        fields = (VERSION, 0, 0, 0, NEW_YEAR_1980, self.checksum, FULL, FULL, len(name), len(sizes))
        return LOCAL.pack(b"PK\3\4", *fields) + name + sizes

    def central_header(self, offset: int) -> bytes:
        """Return what the directory says of the member, which begins at `offset`."""
        name = self.name.encode("ascii")
        sizes = CENTRAL_EXTRA.pack(1, 24, self.size, self.size, offset)
        made_by, date = UNIX << 8 | VERSION, (0, NEW_YEAR_1980)
        lengths = (len(name), len(sizes), 0)
        fields = (made_by, VERSION, 0, 0, *date, self.checksum, FULL, FULL, *lengths, 0, 0)
        return CENTRAL.pack(b"PK\1\2", *fields, PERMISSIONS, FULL) + name + sizes


def _header_size(name: str) -> int:
    return LOCAL.size + len(name) + LOCAL_EXTRA.size


def _size_of(sizes: Mapping[str, int]) -> int:
    """Return the bytes of a zip whose members have these sizes."""
    headers = LOCAL.size + LOCAL_EXTRA.size + CENTRAL.size + CENTRAL_EXTRA.size
    inside = sum(headers + 2 * len(name) + size for name, size in sizes.items())
    return inside + END64.size + LOCATOR.size + END.size


def _directory(members: Iterable[Member]) -> bytes:
    """Return what follows the last member."""
    headers, offset = [], 0
    for member in members:
        headers.append(member.central_header(offset))
        offset += _header_size(member.name) + member.size
    listed = b"".join(headers)
    n, made_by = len(headers), UNIX << 8 | VERSION
    end64 = END64.pack(b"PK\6\6", 44, made_by, VERSION, 0, 0, n, n, len(listed), offset)
    locator = LOCATOR.pack(b"PK\6\7", 0, offset + len(listed), 1)
    return listed + end64 + locator + END.pack(b"PK\5\6", 0, 0, HALF, HALF, FULL, FULL, 0)


# ---------------------------------------------------------------------- arrays
def _npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of an .npy file, version 1.0, always the same for the same array."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    padding = -(len(text) + 11) % 64
    return (
        b"\x93NUMPY\1\0"
        + struct.pack("<H", len(text) + padding + 1)
        + (text + " " * padding + "\n").encode("ascii")
    )


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
        header, data = _npy_header(dtype, array.shape), _bytes_of(array)
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
    first = Member(MANIFEST, len(text), zlib.crc32(text.encode("ascii")))
    start = [first.local_header(), text.encode("ascii")]
    return [*start, *chunks, _directory([first, *members])]


def _is_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= MAX_NAME and bool(ARRAY_NAME.fullmatch(name))


# ---------------------------------------------------------------------- reading
def _read(
    file: io.BufferedIOBase, size: int, kind: str
) -> tuple[Contents, dict[str, NDArray[Any]]]:
    first, text = _read_manifest(file, size)
    manifest = _parse(text)
    entries = _check_manifest(manifest, kind)
    sizes = {f"{name}.npy": entry.header_size + entry.n_bytes for name, entry in entries.items()}
    whole = _size_of({MANIFEST: first.size, **sizes})
    if size != whole:
        raise ModelFileError(
            f"the file is cut off or too long: {size:,} bytes instead of {whole:,}"
        )
    arrays, members = {}, [first]
    for name, entry in entries.items():  # no memory is made before this point
        arrays[name], member = _read_array(file, name, entry)
        members.append(member)
    directory = _directory(members)
    if file.read(len(directory) + 1) != directory:
        raise ModelFileError("the directory of the zip does not fit its members")
    return manifest["contents"], arrays


def _read_manifest(file: io.BufferedIOBase, size: int) -> tuple[Member, bytes]:
    if size == 0:
        raise ModelFileError("the file is empty")
    header = file.read(_header_size(MANIFEST))
    start = LOCAL.size
    if not header.startswith(b"PK\3\4"):
        raise ModelFileError("this is no model file: it does not begin like a zip")
    if len(header) < _header_size(MANIFEST):
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


def _parse(text: bytes) -> dict[str, Any]:
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


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def header_size(self) -> int:
        return len(_npy_header(self.dtype, self.shape))

    @property
    def n_bytes(self) -> int:
        n = np.dtype(self.dtype).itemsize
        for length in self.shape:
            n *= length
        return n


def _check_manifest(manifest: dict[str, Any], kind: str) -> dict[str, _Entry]:
    """Return the entries of the arrays, after a look at everything but the contents."""
    found, version = manifest.get("format"), manifest.get("format_version")
    if not isinstance(found, str) or not found.startswith("driftree "):
        raise ModelFileError("this is no file of driftree's")
    if type(version) is not int or version < 1:
        raise ModelFileError(
            f"the format version must be a whole number from 1, got {shown(version)}"
        )
    if version > FORMAT_VERSION:
        raise ModelFileError(
            f"the file was written by a newer driftree (format {version}; this one reads "
            f"{FORMAT_VERSION}): upgrade driftree"
        )
    if found != kind:
        raise ModelFileError(f"this is a {shown(found)}, not a {kind!r}")
    entries = manifest.get("arrays")
    if manifest.keys() != {"format", "format_version", "library_version", "contents", "arrays"}:
        raise ModelFileError(f"member {MANIFEST!r} has other keys than format {version} has")
    if not isinstance(manifest["contents"], dict) or not isinstance(entries, dict):
        raise ModelFileError(f"member {MANIFEST!r} must have contents and arrays as objects")
    if list(entries) != sorted(entries):
        raise ModelFileError("the arrays are not in order")
    return {name: _check_entry(name, entry) for name, entry in entries.items()}


def _check_entry(name: str, entry: Any) -> _Entry:
    if not _is_name(name):
        raise ModelFileError(f"an array must not be named {shown(name)}")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "sha256"}:
        raise ModelFileError(f"array {name!r} must have a dtype, a shape and a sha256")
    shape = entry["shape"]
    if entry["dtype"] not in DTYPES:
        raise ModelFileError(f"array {name!r} must be one of {', '.join(DTYPES)}")
    if not isinstance(shape, list) or len(shape) not in (1, 2):
        raise ModelFileError(f"array {name!r} must have one or two dimensions")
    if not all(type(length) is int and 0 <= length < MAX_LENGTH for length in shape):
        raise ModelFileError(f"array {name!r} has a length out of range")
    return _Entry(entry["dtype"], tuple(shape), entry["sha256"])


def _read_array(file: io.BufferedIOBase, name: str, entry: _Entry) -> tuple[NDArray[Any], Member]:
    header = file.read(_header_size(f"{name}.npy"))
    npy_header = file.read(entry.header_size)
    array: NDArray[Any] = np.empty(entry.shape, dtype=entry.dtype)
    data = _bytes_of(array)
    if file.readinto(data) != len(data):
        raise ModelFileError(f"the file is cut off in member '{name}.npy'")
    checksum = zlib.crc32(data, zlib.crc32(npy_header))
    member = Member(f"{name}.npy", len(npy_header) + len(data), checksum)
    if npy_header != _npy_header(entry.dtype, entry.shape) or member.local_header() != header:
        raise ModelFileError(f"member '{name}.npy' is damaged: its headers do not fit the manifest")
    if _sha256(npy_header, data) != entry.sha256:
        raise ModelFileError(f"member '{name}.npy' is damaged: its SHA-256 is not the manifest's")
    return array, member
