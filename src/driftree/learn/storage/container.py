"""Container: one safetensors file of a manifest and arrays, read as untrusted input.

The contents of a file are defined elsewhere (`models`); here is only how they are written and read.
The arrays are the tensors of the file, except those with at most one element: the manifest has
their names, and there is one tensor per type for their values. The manifest is text in the
metadata, under one key (several would have no fixed order). It begins with the SHA-256 of all bytes
of the file, computed with zeros in its own place, so that any change is detected. A file in the
layout that we write is split into its arrays by the kernels (`StoredArrays`); any other by the
safetensors library, which checks that the tensors fill it without gaps. What the library does not
limit is checked before: the length of the header, and the size of the file.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from driftree.learn._kernels import StoredArrays, cut_quoted, unquote
from driftree.learn.storage import ModelFileError, manifest, name_errors
from driftree.learn.storage.atomic import replace_file
from driftree.learn.storage.manifest import NO_DIGEST, Contents, Manifest
from driftree.learn.validation import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]
    Look = Callable[[dict[str, Any], Mapping[str, "Sized"], Callable[[str], NDArray[Any]]], None]

KEY = "driftree"  # of the manifest in the metadata
LENGTH = 8  # bytes before the header, with its length
START = f'{{"__metadata__":{{"{KEY}":"{{\\"sha256\\":\\"'.encode("ascii")
DIGEST = slice(LENGTH + len(START), LENGTH + len(START) + len(NO_DIGEST))
EMPTY_DIGEST, NO_DIGEST_BYTES = hashlib.sha256(), NO_DIGEST.encode("ascii")
MANIFEST_AT = START.index(b'"{\\"')  # in the header, including its quotation mark
MAX_ARRAYS = 10_000
MAX_HEADER = 2 * manifest.MAX_LENGTH + 2**22  # where quotation marks are escaped
SMALL = 2**24  # bytes of a file that is read before its lengths are checked
DTYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8", "U8": "|u1"}
NUMPY = {name: np.dtype(dtype) for name, dtype in DTYPES.items()}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
SINGLES = {name: f"short.{name.lower()}" for name in DTYPES}  # tensors of arrays of one number
MAX_NAME = 100
ARRAY_NAME = re.compile(rf"(?=.{{1,{MAX_NAME}}}\Z)[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
PLAIN = b"abcdefghijklmnopqrstuvwxyz0123456789_."  # the characters of all names


class Sized(Protocol):
    """The shape and size of an array, known before it is read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its lengths."""

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""


class FileArrays(Mapping[str, Any]):
    """The arrays of a file, created on access.

    Attributes
    ----------
    stored : StoredArrays
        The same for the kernels, without creating arrays.
    """

    __slots__ = ("stored",)

    def __init__(self, stored: StoredArrays) -> None:
        self.stored = stored

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.stored[name]

    def __contains__(self, name: object) -> bool:
        return name in self.stored

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored.names())

    def __len__(self) -> int:
        return len(self.stored)

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return self.stored.nbytes


class ArrayEntry(NamedTuple):
    """The entry of an array in the header."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return NUMPY[self.dtype].itemsize * math.prod(self.shape)


# ---------------------------------------------------------------------- whole files
def write(
    path: str | os.PathLike[str], kind: str, contents: dict[str, Any], arrays: Arrays
) -> None:
    """Write a file atomically.

    Parameters
    ----------
    path : path
        The file. A link stays a link: its target is replaced.
    kind : str
        The kind of file, such as "driftree model".
    contents : dict
        Contents for JSON.
    arrays : mapping of str to ndarray
        Arrays of one or two dimensions by name.
    """
    replace_file(path, _serialise(kind, contents, arrays))


def read(
    path: str | os.PathLike[str], kind: str, look: Look | None = None
) -> tuple[Contents, Arrays]:
    """Read the contents and the arrays of a file; raise `ModelFileError` if anything is wrong.

    Parameters
    ----------
    path : path
        The file.
    kind : str
        The expected kind.
    look : callable, optional
        Called with the contents, the shapes of the arrays, and a function that reads one of them.
        It raises if one is too large: for a large file, before memory is allocated for it.
    """
    with name_errors(path):
        return read_file(path, kind, look)


def read_file(
    path: str | os.PathLike[str], kind: str, look: Look | None = None
) -> tuple[Contents, Arrays]:
    """Read a file as `read`, within `name_errors`."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe might never open
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ModelFileError("this is not a regular file")
        data = _read_all(fd, found.st_size, kind, look)
    finally:
        os.close(fd)
    return from_bytes(data, kind, look)


def to_bytes(kind: str, contents: dict[str, Any], arrays: Arrays) -> bytes:
    """Return the bytes that `write` writes.

    Examples
    --------
    >>> data = to_bytes("driftree model", {"n": 1}, {"ids": np.arange(2, dtype=np.int32)})
    >>> contents, arrays = from_bytes(data, "driftree model")
    >>> contents, arrays["ids"]
    ({'n': 1}, array([0, 1], dtype=int32))
    """
    return b"".join(_serialise(kind, contents, arrays))


def from_bytes(data: bytes, kind: str, look: Look | None = None) -> tuple[Contents, Arrays]:
    """Return the contents and arrays in the bytes of a file."""
    told, rest = _read_manifest(data, len(data), kind)
    names = told.short, told.empty
    stored = StoredArrays.read(data, rest.start, rest.stop, *names)
    tensors = _deserialise(data) if stored is None else []
    if _digest(data) != data[DIGEST]:
        raise ModelFileError("the file is damaged: its SHA-256 is not the one it was written with")
    arrays = _arrays_of(tensors, *names) if stored is None else FileArrays(stored)
    if look is not None:
        look(told.contents, arrays, arrays.__getitem__)
    return told.contents, arrays


def _arrays_of(
    tensors: list[tuple[str, dict[str, Any]]], short: Any, empty: Any
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file with another layout than ours."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, tensor in tensors:
        dtype, shape = NUMPY.get(tensor["dtype"]), tensor["shape"]
        if dtype is None or len(shape) not in (1, 2):
            raise _wrong_tensor(name, tensor["dtype"])
        array = np.frombuffer(tensor["data"], dtype)
        arrays[name] = array if len(shape) == 1 else array.reshape(shape)
    n_names = len(tensors)
    for kind, names in _names_by_type(short).items():
        numbers = arrays.pop(SINGLES[kind], None)
        if numbers is None or numbers.dtype != NUMPY[kind] or numbers.shape != (len(names),):
            raise _wrong_singles(kind, len(names))
        arrays |= zip(names, numbers.reshape(-1, 1), strict=True)
        n_names += len(names) - 1
    for kind, names in _names_by_type(empty).items():
        arrays |= dict.fromkeys(names, np.empty(0, NUMPY[kind]))
        n_names += len(names)
    _check_names(arrays, n_names)
    return arrays


# ---------------------------------------------------------------------- writing
def _serialise(kind: str, contents: Mapping[str, Any], arrays: Arrays) -> list[bytes | memoryview]:
    tensors: dict[str, NDArray[Any]] = {}
    short: dict[str, list[str]] = {}
    empty: dict[str, list[str]] = {}
    for name in sorted(arrays):
        array = arrays[name]
        dtype = NAMES.get(array.dtype.str)
        if dtype is None or array.ndim not in (1, 2) or not _is_name(name):
            words = f"{name!r}, {array.dtype.str}, {array.ndim}-d"
            raise TypeError(f"an array {words} cannot be stored in a file")
        if array.shape == (0,):
            empty.setdefault(dtype, []).append(name)
        elif array.shape == (1,):
            short.setdefault(dtype, []).append(name)
        else:
            tensors[name] = np.ascontiguousarray(array)
    for dtype, names in short.items():
        tensors[SINGLES[dtype]] = np.concatenate([arrays[name] for name in names])
    if len(arrays) > MAX_ARRAYS:
        raise ValueError(
            f"{len(arrays):,} arrays are more than the {MAX_ARRAYS:,} that a file may have"
        )
    data = save(tensors, {KEY: manifest.to_text(kind, contents, {"empty": empty, "short": short})})
    if not data.startswith(START, LENGTH):
        raise RuntimeError("this version of safetensors does not write its metadata first")
    digest = hashlib.sha256(data).hexdigest().encode("ascii")
    view = memoryview(data)
    return [view[: DIGEST.start], digest, view[DIGEST.stop :]]


def _is_name(name: str) -> bool:
    return bool(ARRAY_NAME.fullmatch(name)) and not name.startswith("short.")


# ---------------------------------------------------------------------- reading
def _read_all(fd: int, size: int, kind: str, look: Look | None) -> bytes:
    if size <= SMALL:
        data = os.read(fd, size)
        if len(data) == size:
            return data
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        if size > SMALL:
            _look_ahead(file, size, kind, look)
        try:
            return file.read(size)
        except (MemoryError, OverflowError):
            raise _too_large(size) from None


def _look_ahead(file: BinaryIO, size: int, kind: str, look: Look | None) -> None:
    """Check a large file's lengths before memory is allocated for its arrays."""
    start = file.read(LENGTH)
    start += file.read(_header_length(start, size))
    told, _ = _read_manifest(start, size, kind)
    try:
        header = manifest.DECODER.decode(start[LENGTH:].decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise _wrong_header(error) from None
    del header["__metadata__"]
    entries: dict[str, Sized] = {
        name: _read_entry(name, item, size - len(start)) for name, item in header.items()
    }
    n_names = len(entries)
    for dtype, names in _names_by_type(told.short).items():
        if entries.pop(SINGLES[dtype], None) != ArrayEntry(dtype, (len(names),)):
            raise _wrong_singles(dtype, len(names))
        begin, width = header[SINGLES[dtype]]["data_offsets"][0], NUMPY[dtype].itemsize
        entries |= dict.fromkeys(names, ArrayEntry(dtype, (1,)))
        for i, name in enumerate(names):
            place = begin + i * width
            header[name] = {"dtype": dtype, "data_offsets": [place, place + width]}
        n_names += len(names) - 1
    for dtype, names in _names_by_type(told.empty).items():
        entries |= dict.fromkeys(names, ArrayEntry(dtype, (0,)))
        header |= {name: {"dtype": dtype, "data_offsets": [0, 0]} for name in names}
        n_names += len(names)
    _check_names(entries, n_names)
    arrays: dict[str, NDArray[Any]] = {}

    def read_one(name: str) -> NDArray[Any]:
        if name not in arrays:
            begin, end = header[name]["data_offsets"]
            file.seek(len(start) + begin)
            arrays[name] = np.frombuffer(file.read(end - begin), NUMPY[header[name]["dtype"]])
        return arrays[name]

    if look is not None:
        look(told.contents, entries, read_one)
    file.seek(0)


def _read_entry(name: str, item: Any, n_bytes: int) -> ArrayEntry:
    """Return the header's entry of an array; safetensors checks later that all of them fit."""
    match item:
        case {"dtype": str(dtype), "shape": [int(), *more] as shape, "data_offsets": [begin, end]}:
            if dtype not in NUMPY or len(more) > 1:
                raise _wrong_tensor(name, dtype)
            entry = ArrayEntry(dtype, tuple(shape))
            is_whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
            if is_whole and end - begin == entry.nbytes:
                if end > n_bytes:
                    raise ModelFileError(
                        f"the file is truncated: it ends before array {name!r} does"
                    )
                return entry
    raise ModelFileError(f"the header is damaged: it does not say where array {quoted(name)} is")


def _header_length(data: bytes, size: int) -> int:
    """Return the length of the header, after checking what the file is."""
    if size == 0:
        raise ModelFileError("the file is empty")
    if data.startswith(b"PK\3\4"):
        raise ModelFileError(
            "this is a zip: if it is a model of driftree, a version before the first release "
            "wrote it, and only that version reads it"
        )
    if size < LENGTH:
        raise ModelFileError("the file is truncated, or is not a model file")
    length = int.from_bytes(data[:LENGTH], "little")
    if length > MAX_HEADER:
        raise ModelFileError(
            f"this is not a model file, or it is damaged: its header would have {length:,} bytes, "
            f"more than the {MAX_HEADER:,} allowed"
        )
    return length


def _read_manifest(data: bytes, size: int, kind: str) -> tuple[Manifest, slice]:
    """Return the manifest of a file of which at least the header was read, and its end."""
    end = LENGTH + _header_length(data, size)
    if not data.startswith(START, LENGTH):
        is_cut = START.startswith(data[LENGTH : LENGTH + len(START)])
        words = "this is not a model file: it has no manifest of driftree's"
        raise ModelFileError("the file is truncated" if is_cut else words)
    if len(data) < end:
        raise ModelFileError("the file is truncated in its header")
    if end > manifest.SHORT and not manifest.fits(data[LENGTH:end]):
        raise ModelFileError(f"the header has too many values for its {end - LENGTH:,} bytes")
    most = manifest.MAX_COMMON, manifest.MAX_LATE
    cut = cut_quoted(data, DIGEST.stop, manifest.COMMON_ENDS, *most)
    if cut is not None and cut[2] <= end:
        told = manifest.from_parts(cut[0], cut[1], kind)
        if told is not None:
            return told, slice(cut[2], end)
    text, stop = unquote(data, LENGTH + MANIFEST_AT) or _read_text(data[LENGTH:end])
    return manifest.from_text(text, kind), slice(stop, end)


def _read_text(header: bytes) -> tuple[str, int]:
    """Return the result of `unquote`, for any escapes."""
    try:
        text, stop = manifest.DECODER.raw_decode(header.decode("ascii"), MANIFEST_AT)
    except ValueError as error:
        raise ModelFileError(f"the manifest is not JSON: {error}") from None
    return text, LENGTH + stop


def _deserialise(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    try:
        return deserialize(data)  # type: ignore[no-untyped-call,no-any-return]
    except SafetensorError as error:
        raise _wrong_header(error) from None
    except MemoryError:
        raise _too_large(len(data)) from None


def _digest(data: bytes) -> bytes:
    digest = EMPTY_DIGEST.copy()  # creating a new one takes longer
    digest.update(data[: DIGEST.start] + NO_DIGEST_BYTES)
    digest.update(memoryview(data)[DIGEST.stop :])
    return digest.hexdigest().encode("ascii")


def _names_by_type(item: Any) -> dict[str, list[str]]:
    """Return names of arrays that are not tensors, by type."""
    if type(item) is not dict or not item.keys() <= NUMPY.keys():
        raise ModelFileError("the manifest must list short and empty arrays by type")
    for dtype, names in item.items():
        if type(names) is not list or not {*map(type, names)} <= {str}:
            raise ModelFileError(f"short and empty arrays of {dtype} must be a list of names")
    return item


def _wrong_singles(dtype: str, n_names: int) -> ModelFileError:
    words = f"the array {SINGLES[dtype]!r} must have a number for each of {n_names:,} names"
    return ModelFileError(words)


def _check_names(arrays: Mapping[str, object], n_names: int) -> None:
    if n_names > MAX_ARRAYS:
        raise ModelFileError(f"the file has {n_names:,} arrays, more than the {MAX_ARRAYS:,}")
    if len(arrays) < n_names:
        raise ModelFileError("an array occurs twice")
    if not _is_plain("".join(arrays)) or max(map(len, arrays), default=0) > MAX_NAME:
        wrong = next(name for name in arrays if not _is_plain(name) or len(name) > MAX_NAME)
        raise ModelFileError(f"an array must not be named {quoted(wrong)}")


def _is_plain(text: str) -> bool:
    return not text.encode("ascii", "replace").translate(None, PLAIN)


def _wrong_tensor(name: str, dtype: str) -> ModelFileError:
    return ModelFileError(
        f"array {quoted(name)} is {dtype}: arrays are one of {', '.join(DTYPES)}, and have one or "
        "two dimensions"
    )


def _wrong_header(error: Exception) -> ModelFileError:
    if "IncompleteBuffer" in str(error) or "incomplete metadata" in str(error):
        return ModelFileError("the file is truncated or too long: its arrays do not fill it")
    return ModelFileError(f"the header is damaged: {str(error)[:100]}")


def _too_large(size: int) -> ModelFileError:
    return ModelFileError(f"the file takes {size / 2**30:,.1f} GiB, more than the memory available")
