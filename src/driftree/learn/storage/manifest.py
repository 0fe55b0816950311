"""Manifest: the contents of a file besides its arrays, JSON in ASCII, read as untrusted input.

A short text may hold very many values: their memory is estimated before they are parsed (`fits`).
What many models of one kind share comes first, and is parsed once for all of them (`_read_common`).
"""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from driftree.learn._kernels import unquote
from driftree.learn.storage import ModelFileError
from driftree.learn.validation import quoted
from driftree.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

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
