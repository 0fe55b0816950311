"""Manifest: the contents of a file besides its arrays, JSON in ASCII, read as untrusted input.

A short text may hold very many values: their memory is estimated before they are parsed (`fits`).
What many models of one kind share comes first, and is parsed once for all of them (`_read_common`).

Names, levels, labels and figures are encoded without loss (`encode`). Text, booleans, None, whole
numbers and finite floats are JSON's own; 1 and 1.0 are distinguished, and floats have all digits.
Everything else is an object with one key: ``{"float": "nan"}``, ``{"bytes": "6162"}``,
``{"tuple": [...]}``.
"""

from __future__ import annotations

import functools
import json
import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from driftree.learn._kernels import unquote
from driftree.learn.storage import ModelFileError
from driftree.learn.validation import check_keys, plain, quoted
from driftree.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

FORMAT_VERSION = 1
NO_DIGEST = "0" * 64
MAX_LENGTH = 2**25  # bytes
ROOM = 2**25  # bytes that values may take besides eight times the length of their text
KEYS = {"format", "format_version", "library_version", "contents", "empty", "short"}
LATE = ("history", "served")  # of the contents: different in every file, and therefore last
LATE_KEYS = frozenset(LATE)
COMMON_ENDS = rf",\"{LATE[0]}\":".encode("ascii")  # the same, quoted in a header
MAX_COMMON = 2**14  # bytes of it that are cached
MAX_LATE = 2**17  # bytes of the rest if it is parsed separately, which bounds its memory
MAX_DEPTH = 16  # of tuples
MAX_BITS = 4096  # of whole numbers
# A single NaN object compares equal to itself inside of tuples and records.
FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class Contents(dict[str, Any]):
    """The contents of a file besides its arrays; not to be modified.

    Attributes
    ----------
    known : dict
        Cache of what was derived from the same text, without `LATE`.
    """

    __slots__ = ("known",)

    def __init__(self, items: Mapping[str, Any], known: dict[str, Any]) -> None:
        super().__init__(items)
        self.known = known


class Manifest(NamedTuple):
    """The parts of a manifest that are used."""

    contents: Contents
    short: Any
    empty: Any


# ---------------------------------------------------------------------- writing
def to_text(kind: str, contents: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    """Return the text of a manifest; `names` are those of the arrays that are not tensors."""
    stays = {name: item for name, item in contents.items() if name not in LATE}
    parts = {
        "sha256": NO_DIGEST,
        "format": kind,
        "format_version": FORMAT_VERSION,
        "library_version": __version__,
        "contents": stays,
        **names,
        **{name: contents[name] for name in LATE if name in contents},
    }
    dump = functools.partial(json.dumps, sort_keys=True, allow_nan=False, separators=(",", ":"))
    text = "{" + ",".join(f'"{name}":{dump(part)}' for name, part in parts.items()) + "}"
    if len(text) > MAX_LENGTH:
        raise ValueError(
            f"names, levels, labels and history take {len(text):,} bytes as text, more than the "
            f"{MAX_LENGTH:,} of a model file: use shorter names, or pickle"
        )
    if not fits(text.encode("ascii")):
        raise ValueError(f"the contents have too many values for {len(text):,} bytes: use pickle")
    return text


# ---------------------------------------------------------------------- reading
def from_text(text: str, kind: str) -> Manifest:
    """Parse a manifest; raise `ModelFileError` if it is not one of such a file."""
    if len(text) > MAX_LENGTH:
        raise ModelFileError(
            f"the manifest has {len(text):,} bytes, more than the {MAX_LENGTH:,} allowed"
        )
    if len(text) > SHORT and not fits(text.encode("ascii")):
        raise ModelFileError(f"the manifest has too many values for its {len(text):,} bytes")
    try:
        return _read(text, kind)
    except RecursionError:
        raise ModelFileError("the manifest is nested too deeply") from None
    except ModelFileError:
        raise
    except ValueError as error:
        raise ModelFileError(f"the manifest is not JSON: {error}") from None


def from_parts(common: bytes, late: str, kind: str) -> Manifest | None:
    """Parse a manifest in our own layout, most of which may be cached.

    Parameters
    ----------
    common : bytes
        The part after the digest and before `LATE`, quoted as in the header.
    late : str
        The rest.
    kind : str
        The expected kind of file.

    Returns
    -------
    Manifest or None
        None if `from_text` has to read it, or to report the error.
    """
    try:
        known = _read_common(common, kind)
        found, end = DECODER.raw_decode(f"{{{late}")
    except (ValueError, RecursionError):
        return None
    if end <= len(late) or not found.keys() <= LATE_KEYS:
        return None
    contents = Contents(known.contents, known.contents.known)
    contents.update(found)
    return Manifest(contents, known.short, known.empty)


@functools.lru_cache(32)
def _read_common(common: bytes, kind: str) -> Manifest:
    """Parse the beginning of a manifest, which many similar models share."""
    text, end = unquote(b'"%b"' % common, 0) or ("", 0)
    if end < len(common) + 2 or not text.startswith('",'):
        raise ValueError("it has another layout")
    parts = DECODER.decode(f"{{{text[2:]}}}")
    _check(parts, kind, KEYS)
    return Manifest(Contents(parts["contents"], {}), parts["short"], parts["empty"])


def _read(text: str, kind: str) -> Manifest:
    parts = DECODER.decode(text)
    late = {name: parts[name] for name in LATE if name in parts}
    _check(parts, kind, KEYS | {"sha256"} | late.keys())
    return Manifest(Contents(parts["contents"] | late, {}), parts["short"], parts["empty"])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same key twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def _check(parts: dict[str, Any], kind: str, keys: set[str]) -> None:
    """Check everything except the contents."""
    found, version = parts.get("format"), parts.get("format_version")
    if not isinstance(found, str) or not found.startswith("driftree "):
        raise ModelFileError("this is not a file of driftree")
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
    if parts.keys() != keys:
        raise ModelFileError(f"the manifest does not have the keys of format {version}")
    if type(parts["contents"]) is not dict:
        raise ModelFileError("the manifest must have contents as an object")


# ---------------------------------------------------------------------- what values take
# Upper bounds once they are parsed: an object, a list, an item of either.
COSTS = ((b"{", 200), (b"[", 100), (b",", 40))
SHORT = ROOM // 200  # bytes that cannot take too much
# A string, or the rest of an unterminated one, so that it is not searched twice.
STRING = re.compile(rb'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)', re.DOTALL)


def fits(text: bytes) -> bool:
    """Return whether JSON takes little memory for its length, before it is parsed."""
    most = ROOM + 8 * len(text)
    cost = _cost(text)
    if cost > most:  # names may contain such characters
        cost -= sum(_cost(found.group()) for found in STRING.finditer(text))
    return cost <= most


def _cost(text: bytes) -> int:
    return sum(cost * text.count(sign) for sign, cost in COSTS)


# ---------------------------------------------------------------------- values
def encode(value: Any, what: str = "a value", depth: int = 0) -> Any:
    """Return a value for JSON; raise TypeError if a model file cannot hold it.

    Examples
    --------
    >>> encode((1, 1.0, "a", math.nan, b"ab"))
    {'tuple': [1, 1.0, 'a', {'float': 'nan'}, {'bytes': '6162'}]}
    """
    value = plain(value)
    kind = type(value)
    if value is None or kind in (bool, str) or (kind is int and value.bit_length() <= MAX_BITS):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is tuple and depth < MAX_DEPTH:
        return {"tuple": [encode(item, what, depth + 1) for item in value]}
    raise TypeError(
        f"{what} is {quoted(value)} of type {kind.__name__!r}, which a model file cannot hold: "
        "only text, numbers, booleans, None, bytes and tuples of these; pickle can"
    )


def decode(item: Any, depth: int = 0) -> Any:
    """Return the value that was encoded.

    Examples
    --------
    >>> decode({"tuple": [1, 1.0, "a", {"float": "-inf"}, {"bytes": "6162"}]})
    (1, 1.0, 'a', -inf, b'ab')
    """
    if item is None or type(item) in (bool, str):
        return item
    if type(item) is int and item.bit_length() <= MAX_BITS:
        return item
    if type(item) is float and math.isfinite(item):
        return item
    if type(item) is dict and len(item) == 1:
        ((kind, inner),) = item.items()
        if kind == "float" and type(inner) is str and inner in FLOATS:
            return FLOATS[inner]
        if kind == "bytes" and type(inner) is str and inner.isascii() and inner == inner.lower():
            try:
                return bytes.fromhex(inner)
            except ValueError:
                pass
        if kind == "tuple" and type(inner) is list and depth < MAX_DEPTH:
            return tuple(decode(part, depth + 1) for part in inner)
    raise ModelFileError(f"unsupported value: {quoted(item)}")


# ---------------------------------------------------------------------- values as keys
def codes(item: Any, what: str) -> dict[Hashable, int]:
    """Return the indices of values, which must all differ."""
    found = [decode(one) for one in items(item, what)]
    check_keys(found, what, ModelFileError)
    by_value = {value: code for code, value in enumerate(found)}
    if len(by_value) < len(found):
        raise ModelFileError(f"the {what} must all be different")
    return by_value


# ---------------------------------------------------------------------- parts of an object
def members(item: Any, keys: Iterable[str], what: str) -> dict[str, Any]:
    """Return an object with exactly these keys."""
    keys = set(keys)
    if not isinstance(item, dict) or item.keys() != keys:
        raise ModelFileError(f"{what} must be an object with the keys {', '.join(sorted(keys))}")
    return item


def items(item: Any, what: str) -> list[Any]:
    """Return a list."""
    if type(item) is not list:
        raise ModelFileError(f"{what} must be a list, got {quoted(item)}")
    return item


def whole(item: Any, what: str, low: int = 0, high: int = 2**53) -> int:
    """Return a whole number in a range."""
    if type(item) is not int or not low <= item <= high:
        raise ModelFileError(
            f"{what} must be a whole number from {low} to {high}, got {quoted(item)}"
        )
    return item


def number(item: Any, what: str) -> float:
    """Return a float of any kind."""
    value = decode(item)
    if type(value) is not float:
        raise ModelFileError(f"{what} must be a float, got {quoted(item)}")
    return value


def text(item: Any, what: str) -> str:
    """Return a text."""
    if type(item) is not str:
        raise ModelFileError(f"{what} must be text, got {quoted(item)}")
    return item


def maybe(read: Callable[..., Any], item: Any, what: str) -> Any:
    """Return None, or an item read by `read`."""
    return None if item is None else read(item, what)
