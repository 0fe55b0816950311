"""Memory: bytes of objects, of a tree of one leaf, and of the text in its file.

Memory grows with the square of the inputs of a simple model, and with their product with the
classes. Names and labels may come at any time, and a stream may contain ten thousand of them by
mistake (identifiers, a regression target): such a row is refused before anything has changed.
Whether a row is refused depends only on features and labels, not on the machine or the tree. Names,
levels and labels are text in a model file, which holds a limited amount of it: a model that learns
more could never be saved.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from driftree.learn._kernels import LANES

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_BYTES = 2 * 2**30
# A quarter of the text in a model file (`manifest.MAX_LENGTH`): the history repeats names.
MOST_TEXT = 2**23
MOST_DEPTH = 16  # of tuples; a file holds no deeper ones
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)  # by all objects
_VIEW_BYTES = 256  # overhead of the bindings for an array view
_CACHED = (None, True, False, (), *range(-5, 257))  # cached by Python


# ---------------------------------------------------------------------- limits
@dataclass(frozen=True, slots=True)
class SchemaSize:
    """Number of features, inputs of the simple models (with the intercept) and classes.

    The last one is the bytes that names, levels and labels take as text in a model file.

    Examples
    --------
    >>> SchemaSize(n_features=10, n_categorical=0, n_columns=11, n_classes=2).n_weights
    16
    >>> SchemaSize(n_features=10, n_categorical=0, n_columns=11, n_classes=5).n_weights
    80
    """

    n_features: int
    n_categorical: int
    n_columns: int
    n_classes: int
    n_text: int = 0

    @property
    def stride(self) -> int:
        """Inputs as the kernels lay them out."""
        return -(-self.n_columns // LANES) * LANES

    @property
    def n_weights(self) -> int:
        """Weights of one simple model."""
        return self.stride * (self.n_classes if self.n_classes > 2 else 1)


class SizedTree(Protocol):
    """A tree that knows how much memory it takes."""

    @property
    def parameters(self) -> Any:
        """The checked parameters that made it."""

    def leaf_bytes(self, size: SchemaSize) -> int:
        """Return the bytes of a tree of one leaf."""


def text_bytes(values: Iterable[Any], depth: int = 0) -> int:
    """Return the bytes that values take in a model file, where JSON is ASCII, with their commas.

    Examples
    --------
    >>> text_bytes(["age"]), text_bytes(["\N{GRINNING FACE}"]), text_bytes([b"ab", ("age", 1)])
    (6, 15, 42)
    """
    return sum(_text_of(value, depth) + 1 for value in values)


def _text_of(value: Any, depth: int) -> int:
    if isinstance(value, str):
        return len(encode_basestring_ascii(value))
    if isinstance(value, bytes):
        return 2 * len(value) + len('{"bytes":""}')
    if isinstance(value, tuple) and depth < MOST_DEPTH:
        return text_bytes(value, depth + 1) + len('{"tuple":[]}')
    if isinstance(value, int):
        return max(5, value.bit_length() // 3 + 2)
    return 24  # floats; other types cannot be saved


def check_budget(tree: SizedTree, size: SchemaSize) -> None:
    """Raise if a tree of one leaf would take too much, or if no file could hold its text."""
    if size.n_text > MOST_TEXT:
        raise ValueError(
            f"names, levels and labels would take {size.n_text / 2**20:.1f} MiB as text in a model "
            f"file, at most {MOST_TEXT / 2**20:.1f} MiB are allowed: use shorter ones, in which "
            "characters beyond ASCII count 6 or 12 bytes"
        )
    needed = tree.leaf_bytes(size)
    if needed <= MOST_BYTES:
        return
    raise ValueError(
        f"{size.n_features:,} features as {size.n_columns:,} inputs and {size.n_classes:,} classes "
        f"would take {needed / 2**30:.1f} GiB in a tree of one leaf, at most "
        f"{MOST_BYTES / 2**30:.1f} GiB are allowed: select, hash or project the features, "
        f"{_ways_out(tree)}merge rare classes{_savers(tree)}"
    )


def _ways_out(tree: SizedTree) -> str:
    is_open = getattr(tree.parameters, "absent", "zero") == "missing"
    return "start a new model with absent='zero', " if is_open else ""


def _savers(tree: SizedTree) -> str:
    names = [name for name in ("trials", "candidates") if hasattr(tree.parameters, name)]
    return "".join(f", or lower `{name}`" for name in names)


# ---------------------------------------------------------------------- what is held now
def bytes_of(*objects: object, without: Iterable[object] = ()) -> int:
    """Return the bytes of objects and everything that they refer to, each counted once.

    Parameters
    ----------
    *objects : object
        Where to begin.
    without : iterable
        Objects that are not counted, nor what only they refer to.

    Examples
    --------
    >>> numbers = [1.5, 2.5]
    >>> bytes_of(numbers, numbers) == bytes_of(numbers) > sys.getsizeof(numbers)
    True
    >>> bytes_of(np.zeros(1000)) // 1000
    8
    """
    seen = {id(one) for one in (*without, *_CACHED)}
    size, rest = 0, list(objects)
    while rest:
        fresh = []
        for one in rest:
            if id(one) in seen or isinstance(one, _SHARED):
                continue
            seen.add(id(one))
            size += _held(sys.getsizeof(one))
            if isinstance(one, np.ndarray):
                size += 16 * one.ndim + (0 if one.base is None else _VIEW_BYTES)
            fresh.append(one)
        rest = gc.get_referents(*fresh)
    return size


def _held(size: int) -> int:
    """Return what an allocator takes for so many bytes: a multiple of 16."""
    return (size + 15) // 16 * 16
