"""Forests: what a forest has learnt, as contents and arrays of a file, and back.

Each tree is packed like the tree of a model, with `tree0.`, `tree1.`, ... before the names of its
arrays; what the trees are to each other is in arrays whose names begin with `forest.`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftree.learn.events import MemberReplaced
from driftree.learn.storage import ModelFileError, json_values, learnt
from driftree.learn.storage.bounds import (
    FOREST_PREFIX,
    SEEN_PREFIX,
    TREES,
    arrays_of,
    tree_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from driftree.learn.forest import Forest

    Arrays = Mapping[str, NDArray[Any]]

KEYS = {"parameters", "categorical", TREES, "replaced"}
REPLACED = tuple(MemberReplaced.__dataclass_fields__)


def pack_forest(forest: Forest) -> tuple[dict[str, Any], Any, dict[str, NDArray[Any]]]:
    """Return contents, histories and arrays of a forest."""
    forest.finish()
    packed = [learnt.pack_learnt(tree, tree.encoder) for tree in forest.trees]
    common = forest.arrays() | learnt.seen_arrays(forest.target)
    arrays = {FOREST_PREFIX + name: array for name, array in common.items()}
    for i, (_, _, own) in enumerate(packed):
        arrays |= {tree_prefix(i) + name: array for name, array in own.items()}
    parameters = forest.parameters
    contents = {
        "parameters": {
            name: learnt.encode_parameter(name, getattr(parameters, name))
            for name in parameters.__dataclass_fields__
            if name != "setting"  # there is only one
        },
        "categorical": packed[0][0]["categorical"],
        TREES: [told for told, _, _ in packed],
        "replaced": [
            [json_values.encode(getattr(event, name)) for name in REPLACED]
            for event in forest.core.replaced
        ],
    }
    return contents, [history for _, history, _ in packed], arrays


def unpack_forest(item: Any, histories: Any, arrays: Arrays, kind: Any) -> dict[str, Any]:
    """Return what a pickle of a forest holds, too; `kind` is its class."""
    told = json_values.members(item, KEYS, "what was learnt")
    trees = json_values.items(told[TREES], "the trees")
    logs = json_values.items(histories, "the histories")
    parameters = kind(**learnt.decode_parameters(told["parameters"], kind))._read_parameters()
    if not len(trees) == len(logs) == parameters.n_trees:
        raise ModelFileError(f"there must be {parameters.n_trees} trees, each with its history")
    members, n_used = [], 0
    for i, (one, history) in enumerate(zip(trees, logs, strict=True)):
        own = arrays_of(tree_prefix(i), arrays)
        n_used += len(own)
        member = json_values.members(one, learnt.LEARNT_KEYS, "what a tree has learnt")
        learnt.check_lists(member, own)
        read = learnt.unpack_learnt(learnt.read_told(member, kind._member), history, own)
        if read["parameters"] != parameters.of_member(0, seed=read["parameters"].seed):
            raise ModelFileError(f"tree {i} has other parameters than the forest")
        members.append(read)
    common = arrays_of(FOREST_PREFIX, arrays)
    if n_used + len(common) < len(arrays):
        raise ModelFileError("there are arrays that are not part of such a model")
    seen = arrays_of(SEEN_PREFIX, common)
    return {
        "parameters": parameters,
        "seen": seen,
        "categorical": learnt.read_categorical(told["categorical"]),
        "members": members,
        "arrays": {name: common[name] for name in common if not name.startswith(SEEN_PREFIX)},
        "replaced": [_replaced(one) for one in json_values.items(told["replaced"], "replaced")],
    }


def _replaced(item: Any) -> MemberReplaced:
    told = json_values.items(item, "a tree that was replaced")
    values = [json_values.decode(one) for one in told]
    is_sound = (
        len(values) == len(REPLACED)
        and all(type(value) is int for value in values[:2])
        and all(type(value) is float for value in values[2:-1])
        and type(values[-1]) is bool
    )
    if not is_sound:
        raise ModelFileError("a tree that was replaced must be told with its figures")
    return MemberReplaced(**dict(zip(REPLACED, values, strict=True)))
