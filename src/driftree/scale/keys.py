"""Keys: which there may be, rows by key, and what else keyed models ask of models and folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.learn.storage import ModelFileError
from driftree.learn.tables import Columns
from driftree.learn.validation import is_missing, plain
from driftree.learn.words import list_names, quoted, shown
from driftree.stored import CLASSES
from driftree.streams.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from driftree.stored import StoredModel

KIND = "driftree keyed models"
MAX_ERRORS = 5  # that an error names


# ---------------------------------------------------------------------- keys
def check_key(key: Any) -> Any:
    """Return a key as it is kept; numbers of a column of floats are whole ones."""
    key = plain(key)
    if type(key) is float and key.is_integer():
        key = int(key)
    if type(key) not in (str, int, bytes) or (type(key) is int and abs(key) >= 2**63):
        raise TypeError(
            f"{shown(key)} of type {type(key).__name__!r} cannot be a key: keys are text, whole "
            "numbers and bytes; make it text"
        )
    return key


def key_column(X: Any, key: Hashable) -> Hashable:
    """Return the name of the column that holds the keys: in arrays, `key` may be its position."""
    return f"x{key}" if isinstance(X, np.ndarray) and isinstance(key, int) else key


def take_key(x: Mapping[Hashable, Any], name: Hashable) -> tuple[Any, dict[Hashable, Any]]:
    """Return the key of a row, and the rest of the row.

    Examples
    --------
    >>> take_key({"shop": "north", "day": 3}, "shop")
    ('north', {'day': 3})
    """
    rest = dict(x)
    key = rest.pop(name, None)
    if type(key) is str or type(key) is int:
        return key, rest
    if is_missing(key):
        raise ValueError(
            f"a row has no key in {name!r}, only {list_names(rest)}: give one, or leave the row out"
        )
    return check_key(key), rest


def take_keys(X: Any, y: NDArray[Any], key: Hashable) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """Return key and rest of each row of a batch, and its target; columns may be lists."""
    rows = Rows(Columns(X).arrays if isinstance(X, Mapping) else X, y)
    name = key_column(X, key)
    return [take_key(x, name) for x in rows.dicts], rows.labels


def by_key(taken: list[tuple[Any, Any]]) -> dict[Any, list[int]]:
    """Return the rows of each key, in their order."""
    places: dict[Any, list[int]] = {}
    for i, (key, _) in enumerate(taken):
        places.setdefault(key, []).append(i)
    return places


# ---------------------------------------------------------------------- models
def check_made(model: Any) -> StoredModel:
    """Return a model that can be kept on disk and sent elsewhere; raise if it cannot."""
    if type(model) not in CLASSES.values():
        raise TypeError(
            f"make() must return one of driftree's own learners ({', '.join(CLASSES)}), which can "
            f"be kept on disk; got {shown(model)}"
        )
    return model  # type: ignore[no-any-return]


def as_parent(model: Any) -> Any:
    """Return a model that learns the rows of all keys, in which those before are of other keys."""
    if getattr(model, "follow_target", False) is None:
        model.set_params(follow_target=False)
    return model


def count_changes(model: Any) -> int:
    """Return how often a model's tree has changed; FIMT-DD does not say."""
    return int(getattr(model._tree.engine, "n_changes", 0))


# ---------------------------------------------------------------------- errors
def refusal(errors: dict[int, ValueError | TypeError], taken: list[Any]) -> ValueError:
    """Return the error that names rows which models have refused."""
    first = sorted(errors)[:MAX_ERRORS]
    words = "; ".join(f"row {i} (key {taken[i][0]!r}): {errors[i]}" for i in first)
    rest = f"; and {len(errors) - MAX_ERRORS:,} more" if len(errors) > MAX_ERRORS else ""
    what = f"{len(errors):,} of {len(taken):,} rows were refused, all others learnt"
    return ValueError(f"{what}: {words}{rest}")


def difference(found: Any, own: Mapping[str, Any], folder: str) -> str:
    """Say what is not as it was when a folder was made."""
    if not isinstance(found, dict) or found.get("format") != KIND:
        raise ModelFileError(f"{folder} holds no keyed models")
    names = [name for name, value in own.items() if found.get(name) != value]
    words = "; ".join(
        f"{name} was {quoted(found.get(name))}, is {quoted(own[name])}" for name in names
    )
    return f"{folder} holds models made otherwise: {words}; give the same, or another folder"
