"""Sizes: the bytes that Python objects hold."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)  # with everybody
_VIEW_BYTES = 256  # what the kernels' bindings need for a view of their memory
_KEPT_READY = (None, True, False, (), *range(-5, 257))  # by Python itself


def bytes_of(*objects: object, without: Iterable[object] = ()) -> int:
    """Return the bytes of objects and all that they refer to, each counted once.

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
    seen = {id(one) for one in (*without, *_KEPT_READY)}
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
    """Return what an allocator takes for so many bytes: it deals in sixteens."""
    return (size + 15) // 16 * 16
