"""Models: a model as the contents and arrays of a file, and back.

A file holds what a pickle would (parameters, names, levels, labels, arrays, history), but only as
JSON and numbers: reading one executes no code. Everything is checked before it is used. What the
kernels would follow blindly (links, ids, lengths) is checked by `Engine.restore`. What is written
is checked in the same way, by `read_model` and `Engine.check`, so that nothing is written that
would be refused later.

Each tree of a forest is packed like a single tree, with the prefix `tree0.`, `tree1.`, ... for its
arrays; those of the forest itself have the prefix `forest.`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from driftree.learn._kernels import MAX_LEVELS, StoredArrays
from driftree.learn.encoding import as_set
from driftree.learn.events import MemberReplaced
from driftree.learn.forest import Forest
from driftree.learn.losses import Loss
from driftree.learn.storage import (
    ModelFileError,
    bounds,
    container,
    histories,
    manifest,
    name_errors,
)
from driftree.learn.storage.bounds import (
    FOREST_PREFIX,
    SEEN_PREFIX,
    SPARSE_NAMES,
    TREES,
    arrays_of,
    tree_prefix,
)
from driftree.learn.storage.container import FileArrays
from driftree.learn.storage.manifest import Contents
from driftree.learn.validation import as_objects, check_codes, check_keys, quoted
from driftree.learn.vocabulary import Vocabulary

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Hashable

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]
    Model = TypeVar("Model")

KIND = "driftree model"
SERVED = "served"  # a server's position in its journal: not part of the model
NOT_STORED = {"n_jobs"}  # parameters that are not properties of a model
LEARNT_KEYS = {"parameters", "categorical", "names", "levels", "labels"}
FOREST_KEYS = {"parameters", "categorical", TREES, "replaced"}
REPLACED = tuple(own.name for own in fields(MemberReplaced))
OWN_STATE = {"_tree", "n_features_in_", "feature_names_in_", *NOT_STORED}
MODEL_KEYS = {"class", "parameters", "n_features_in", "feature_names_in", "learnt", "history"}


# ---------------------------------------------------------------------- files
def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to a file: see `LearntState.save`."""
    container.write(path, KIND, *pack(model))


def load(path: str | os.PathLike[str], classes: Mapping[str, type[Model]]) -> Model:
    """Return the model in a file; `classes` are the possible classes by name."""
    with name_errors(path):
        return unpack(*container.read_file(path, KIND, bounds.check), classes)


def to_bytes(model: Any) -> bytes:
    """Return the bytes that `save` writes."""
    return container.to_bytes(KIND, *pack(model))


def from_bytes(data: bytes, classes: Mapping[str, type[Model]]) -> Model:
    """Return the model in the bytes of a file."""
    return unpack(*container.from_bytes(data, KIND, bounds.check), classes)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Return the contents and arrays of a model file, with their sizes checked."""
    return container.read(path, KIND, bounds.check)


# ---------------------------------------------------------------------- a model: out
def pack(model: Any) -> tuple[dict[str, Any], Arrays]:
    """Return a model as contents and arrays; raise if they would not restore the same model."""
    _check_class(model)
    kind: Any = type(model)
    parameters = {name: getattr(model, name) for name in parameter_names(kind)}
    model._read_parameters()
    names = getattr(model, "feature_names_in_", None)
    contents = {
        "class": kind.__name__,
        "parameters": _encode_parameters(parameters),
        "n_features_in": manifest.encode(getattr(model, "n_features_in_", None)),
        "feature_names_in": None
        if names is None
        else [manifest.encode(name, "a feature's name") for name in names],
        "learnt": None,
        "history": None,
    }
    tree = model._tree
    if tree is None:
        return contents, {}
    with tree.engine.writing():  # a consistent state, even if another thread learns
        packed = pack_forest(tree) if isinstance(tree, Forest) else pack_learnt(tree, tree.encoder)
        contents["learnt"], contents["history"], arrays = packed
    bounds.check(contents, arrays, arrays.__getitem__)
    read_model(contents, arrays, {kind.__name__: kind})
    return contents, arrays


def _check_class(model: Any) -> None:
    kind: Any = type(model)
    if "_is_stored" not in vars(kind):
        raise TypeError(
            f"a model file cannot hold a {kind.__qualname__}, only driftree's own classes, as "
            "additions of a subclass would be lost: use pickle"
        )
    extra = vars(model).keys() - parameter_names(kind) - OWN_STATE
    if extra:
        raise TypeError(
            f"a model file cannot hold {', '.join(sorted(map(repr, extra)))}, which would be "
            "lost: delete attributes that are not the model's own, or use pickle"
        )


def _encode_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    encoded = {
        name: encode_parameter(name, value.name if type(value) is Loss else value)
        for name, value in parameters.items()
        if name != "categorical"
    }
    return encoded | {"categorical": _encode_categorical(parameters["categorical"])}


def _encode_categorical(categorical: Any) -> Any:
    """Encode a tuple as a tuple, and any other sequence as a list."""
    if categorical is None:
        return None
    order = sorted(as_set(categorical), key=repr) if isinstance(categorical, set) else categorical
    items = [manifest.encode(item, "a feature in 'categorical'") for item in order]
    return {"tuple": items} if isinstance(categorical, tuple) else items


# ---------------------------------------------------------------------- a model: in
def unpack(contents: Any, arrays: Arrays, classes: Mapping[str, type[Model]]) -> Model:
    """Return the model that was packed, or raise `ModelFileError`."""
    model: Any
    model, learnt = read_model(contents, arrays, classes)
    if learnt is not None:
        with AsFileError():
            model._take_over(learnt)
    return model  # type: ignore[no-any-return]


def read_model(
    contents: Any, arrays: Arrays, classes: Mapping[str, type[Model]]
) -> tuple[Model, dict[str, Any] | None]:
    """Return a model without its tree, and the tree's state; raise `ModelFileError` if invalid.

    All checks that need no tree are made here, both when a model is read and when it is written.
    """
    if type(contents) not in (dict, Contents) or contents.keys() - {SERVED} != MODEL_KEYS:
        raise ModelFileError(f"the model must have the keys {', '.join(sorted(MODEL_KEYS))}")
    kind: Any = classes.get(str(contents["class"]))
    if kind is None:
        raise ModelFileError(
            f"the model is a {quoted(contents['class'])}, which this driftree does not know: "
            "upgrade driftree"
        )
    is_forest = hasattr(kind, "_member")
    with AsFileError():
        known = getattr(contents, "known", {})
        told: _Preamble | None = known.get("model")
        if told is None:
            learnt = contents["learnt"]
            if learnt is not None and not is_forest:
                check_lists(manifest.members(learnt, LEARNT_KEYS, "what was learnt"), arrays)
            told = known.setdefault("model", _read_preamble(contents, kind))
        model = told.make(kind)
        if contents["learnt"] is None:
            need_no_arrays(arrays)
            return model, None
        if is_forest:
            return model, unpack_forest(
                contents["learnt"], contents["history"], arrays, kind, known
            )
        assert told.learnt is not None
        return model, unpack_learnt(told.learnt, contents["history"], arrays)


class _Preamble(NamedTuple):
    """The parts of a model file without numbers and history: immutable, and cached."""

    state: dict[str, Any]
    """The attributes of a model that has learnt nothing."""
    learnt: dict[str, Any] | None
    """The state of a tree without arrays and history, and the vocabulary."""
    copied: list[str]
    """Mutable attributes, of which each model has a copy."""

    def make(self, kind: Any) -> Any:
        """Return such a model, as if unpickled."""
        model = kind.__new__(kind)
        model.__dict__.update(self.state)
        for name in self.copied:
            setattr(model, name, self.state[name].copy())
        return model


def _read_preamble(contents: Mapping[str, Any], kind: Any) -> _Preamble:
    model = kind(**decode_parameters(contents["parameters"], kind))
    model._read_parameters()
    features = _read_features(contents["n_features_in"], contents["feature_names_in"])
    state = vars(model) | features
    copied = [name for name, value in state.items() if isinstance(value, (dict, list, np.ndarray))]
    item = contents["learnt"]
    is_tree = item is not None and not hasattr(kind, "_member")
    return _Preamble(state, read_told(item, kind) if is_tree else None, copied)


def _read_features(n_features: Any, names: Any) -> dict[str, Any]:
    """Return scikit-learn's attributes of the features."""
    found: dict[str, Any] = {}
    if n_features is not None:
        found["n_features_in_"] = manifest.whole(n_features, "n_features_in")
    if names is not None:
        known = list(manifest.codes(names, "feature_names_in"))
        if len(known) != n_features:
            raise ModelFileError("feature_names_in must have one name per feature")
        found["feature_names_in_"] = as_objects(known)
    return found


# ---------------------------------------------------------------------- a tree: out
def pack_learnt(tree: Any, encoder: Any) -> tuple[dict[str, Any], Any, dict[str, NDArray[Any]]]:
    """Return contents, history and arrays of a tree; raise if they could not be read again."""
    knowledge = tree.knowledge()
    arrays, history = knowledge["arrays"], knowledge.get("history")
    tree.engine.check()
    tree.check(history)
    known = encoder.names, encoder.levels, tree.target.labels
    check_codes(tree.engine, *known, indicators=encoder.indicators)
    contents = {
        "parameters": {
            name: encode_parameter(name, getattr(tree.parameters, name))
            for name in tree.parameters.__dataclass_fields__
        },
        "categorical": [manifest.encode(item) for item in sorted(encoder.categorical, key=repr)],
        "names": [manifest.encode(name, "a feature's name") for name in encoder.names],
        "levels": [
            None
            if codes is None
            else [manifest.encode(level, f"a level of feature {name!r}") for level in codes]
            for name, codes in zip(encoder.names, encoder.levels, strict=True)
        ],
        "labels": [manifest.encode(label, "a label") for label in tree.target.labels],
    }
    log, more = (None, {}) if history is None else histories.pack(history)
    more |= seen_arrays(tree.target)
    return contents, log, arrays | more | _pack_sparse_names(encoder.row_face)


def encode_parameter(name: str, value: Any) -> Any:
    """Return a parameter for JSON, which may be a dict or a list."""
    what = f"parameter {name!r}"
    if isinstance(value, (list, np.ndarray)):
        return [manifest.encode(one, what) for one in value]
    if not isinstance(value, Mapping):
        return manifest.encode(value, what)
    pairs = [[manifest.encode(one, what) for one in pair] for pair in value.items()]
    return {"dict": pairs}


def _decode_parameter(item: Any) -> Any:
    if type(item) is list:
        return [manifest.decode(one) for one in item]
    if type(item) is not dict or item.keys() != {"dict"}:
        return manifest.decode(item)
    pairs = [manifest.items(pair, "a pair") for pair in manifest.items(item["dict"], "a dict")]
    if any(len(pair) != 2 for pair in pairs):
        raise ModelFileError("a dict among the parameters must have pairs")
    found = {manifest.decode(key): manifest.decode(value) for key, value in pairs}
    check_keys(found, "keys of a parameter", ModelFileError)
    return found


def seen_arrays(target: Any) -> dict[str, NDArray[Any]]:
    """Return the label statistics, by their names in a file."""
    seen = {} if target.imbalance is None else target.imbalance.seen()
    return {SEEN_PREFIX + name: array for name, array in seen.items()}


def _pack_sparse_names(row_face: Any) -> dict[str, NDArray[np.uint8]]:
    """Return the names of sparse features as JSON in an array: there may be very many.

    A place without a name has its rank instead: the place of the highest rank gets the next name.
    """
    names = row_face.sparse_names()
    if not names:
        return {}
    ranks = {place: rank for rank, place in enumerate(row_face.free_places())}
    encoded = [
        [ranks[place]] if name is None else _encode_name(name) for place, name in enumerate(names)
    ]
    text = json.dumps(encoded, ensure_ascii=False, separators=(",", ":"))
    return {SPARSE_NAMES: np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)}


def _encode_name(name: Hashable) -> Any:
    return manifest.encode(name, "a sparse feature's name")


def _unpack_sparse_names(arrays: Arrays) -> dict[str, list[Any]]:
    """Return the names by place, None if a place is free, and the free places by their rank."""
    if SPARSE_NAMES not in arrays:
        return {}
    text = np.asarray(arrays[SPARSE_NAMES], dtype=np.uint8).tobytes()
    try:
        encoded = json.loads(text.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise ModelFileError(f"{SPARSE_NAMES!r} is not JSON") from None
    names: list[Any] = []
    ranks: dict[int, int] = {}
    for place, one in enumerate(manifest.items(encoded, SPARSE_NAMES)):
        if isinstance(one, list) and [*map(type, one)] in ([], [int]):
            ranks[place] = one[0] if one else -place  # older files have no rank
            names.append(None)
        else:
            names.append(manifest.decode(one))
    check_keys([name for name in names if name is not None], "names of sparse features")
    return {"sparse_names": names, "free_places": sorted(ranks, key=ranks.__getitem__)}


# ---------------------------------------------------------------------- a tree: in
def read_told(item: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Return the state of a tree without arrays and history, and the vocabulary."""
    own = kind(**decode_parameters(item["parameters"], kind))._read_parameters()
    names, levels, labels = _read_codes(item)
    known = Vocabulary.of(names, levels, labels)
    known.classes.flags.writeable = False  # shared by many models
    return {
        "parameters": own,
        "categorical": read_categorical(item["categorical"]),
        "names": known.names,
        "levels": known.levels,
        "labels": known.labels,
        "known": known,
    }


def read_categorical(item: Any) -> list[Any]:
    """Return the features named in `categorical`."""
    categorical = [manifest.decode(one) for one in manifest.items(item, "categorical")]
    check_keys(categorical, "features in 'categorical'")
    return categorical


class AsFileError:
    """Convert errors about values in a file to errors of the file."""

    def __enter__(self) -> None:
        """Do nothing yet."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (TypeError, ValueError)) and not isinstance(error, ModelFileError):
            raise ModelFileError(str(error)) from error


def decode_parameters(item: Any, kind: Any) -> dict[str, Any]:
    """Return the parameters by name; one that the file lacks has its default."""
    unknown = item.keys() - parameter_names(kind) if type(item) is dict else {"no object"}
    if unknown:
        raise ModelFileError(f"the parameters have {quoted(sorted(unknown))}")
    categorical = item.get("categorical")
    is_list = type(categorical) is list
    decoded = {
        name: _decode_parameter(value) for name, value in item.items() if name != "categorical"
    }
    chosen = (
        [manifest.decode(one) for one in categorical] if is_list else manifest.decode(categorical)
    )
    if chosen is not None and not isinstance(chosen, (list, tuple)):
        raise ModelFileError("the parameter 'categorical' must be a sequence")
    check_keys(chosen or (), "features in 'categorical'")
    return decoded | {"categorical": chosen}


@functools.cache
def parameter_names(kind: Any) -> frozenset[str]:
    """Return the names of the parameters of a class of models that a file holds."""
    names = kind._get_param_names()  # which takes longest
    return frozenset(names) - NOT_STORED


def unpack_learnt(told: dict[str, Any], history: Any, arrays: Arrays) -> dict[str, Any]:
    """Return the state of a tree, as in a pickle."""
    n_names, n_labels = len(told["names"]), len(told["labels"])
    _check_counts(n_names, n_labels, arrays)
    own = _of_engine(arrays)
    is_all = len(own) == len(arrays)  # as of a young tree
    if history is None:
        need_no_arrays(() if is_all else arrays.keys() & histories.ARRAY_NAMES)
    else:
        is_sampled = not is_all and histories.has_samples(arrays)
        parameters = told["parameters"]
        n_bends = getattr(parameters, "max_bends", 0)
        limits = histories.HistoryLimits(
            parameters.max_nodes,
            n_names,
            bounds.count_inputs(arrays, arrays.__getitem__) + n_bends if is_sampled else 1,
            max(n_labels, len(getattr(parameters, "quantiles", ()))),
            _single(arrays, "n_steps"),
            _single(arrays, "n_rows"),
        )
        history = histories.unpack(history, arrays if is_sampled else {}, limits)
    return {
        **told,
        "arrays": own,
        "history": history,
        **({} if is_all else _unpack_sparse_names(arrays)),
        "seen": {} if is_all else arrays_of(SEEN_PREFIX, arrays),
    }


def _of_engine(arrays: Arrays) -> dict[str, NDArray[Any]] | StoredArrays:
    """Return all arrays except those of the history, sparse names and label statistics."""
    if not isinstance(arrays, FileArrays):
        others = histories.ARRAY_NAMES | {SPARSE_NAMES}
        return {
            name: array
            for name, array in arrays.items()
            if name not in others and not name.startswith(SEEN_PREFIX)
        }
    starts = [SPARSE_NAMES, SEEN_PREFIX]
    if histories.has_samples(arrays):
        starts.append(histories.PREFIX)
    own = arrays.stored.without(starts)
    if len(own) < len(arrays):
        left_out = {*arrays} - {*own.names()} - histories.ARRAY_NAMES - {SPARSE_NAMES}
        need_no_arrays({name for name in left_out if not name.startswith(SEEN_PREFIX)})
    return own


def need_no_arrays(names: Collection[str]) -> None:
    """Raise if there are unknown arrays."""
    if names:
        raise ModelFileError(f"array {min(names)!r} is not part of such a model")


def check_lists(item: dict[str, Any], arrays: Arrays) -> None:
    """Check the number of names, levels and labels, before they are used as keys."""
    names, levels, labels = (
        manifest.items(item[name], f"the {name}") for name in ("names", "levels", "labels")
    )
    n_names = len(names) if len(names) == len(levels) else -1  # always an error
    _check_counts(n_names, len(labels), arrays)
    for name, one in zip(names, levels, strict=True):
        if one is not None and len(manifest.items(one, "the levels")) > MAX_LEVELS:
            raise ModelFileError(f"the levels of feature {quoted(name)} are more than {MAX_LEVELS}")


def _check_counts(n_names: int, n_labels: int, arrays: Arrays) -> None:
    """Check the numbers of names and labels against those of features and classes."""
    n_classes = _single(arrays, "n_classes")
    if isinstance(arrays, FileArrays):
        n_features = arrays.stored.length("is_categorical")
    else:
        n_features = len(arrays.get("is_categorical", ()))
    if n_names != n_features:
        raise ModelFileError(f"the names and levels are not those of {n_features} features")
    if n_labels != n_classes:
        raise ModelFileError(f"the labels are not those of {n_classes} classes")


def _read_codes(
    item: Mapping[str, Any],
) -> tuple[dict[Hashable, int], list[dict[Hashable, int] | None], dict[Hashable, int]]:
    """Return names, levels and labels."""
    return (
        manifest.codes(item["names"], "names"),
        [None if one is None else manifest.codes(one, "levels") for one in item["levels"]],
        manifest.codes(item["labels"], "labels"),
    )


def _single(arrays: Arrays, name: str) -> int:
    """Return the only value of an array."""
    if isinstance(arrays, FileArrays):
        number = arrays.stored.whole(name)
    else:
        array = arrays.get(name)
        is_one = array is not None and array.shape == (1,) and array.dtype.kind == "i"
        number = int(array[0]) if array is not None and is_one else None
    if number is None:
        raise ModelFileError(f"{name!r} must hold one whole number")
    return number


# ---------------------------------------------------------------------- forests
def pack_forest(forest: Forest) -> tuple[dict[str, Any], Any, dict[str, NDArray[Any]]]:
    """Return contents, histories and arrays of a forest."""
    forest.finish()
    packed = [pack_learnt(tree, tree.encoder) for tree in forest.trees]
    common = forest.arrays() | seen_arrays(forest.target)
    arrays = {FOREST_PREFIX + name: array for name, array in common.items()}
    for i, (_, _, own) in enumerate(packed):
        arrays |= {tree_prefix(i) + name: array for name, array in own.items()}
    parameters = forest.parameters
    contents = {
        "parameters": {
            name: encode_parameter(name, getattr(parameters, name))
            for name in parameters.__dataclass_fields__
            if name != "setting"  # a single tree
        },
        "categorical": packed[0][0]["categorical"],
        TREES: [told for told, _, _ in packed],
        "replaced": [
            [manifest.encode(getattr(event, name)) for name in REPLACED]
            for event in forest.core.replaced
        ],
    }
    return contents, [history for _, history, _ in packed], arrays


def unpack_forest(
    item: Any, histories: Any, arrays: Arrays, kind: Any, known: dict[str, Any]
) -> dict[str, Any]:
    """Return the state of a forest, as in a pickle.

    Parameters
    ----------
    item, histories, arrays : object
        The packed forest.
    kind : type
        The class of the forest.
    known : dict
        Cache of what was read from the same `item`.
    """
    told = manifest.members(item, FOREST_KEYS, "what was learnt")
    trees = manifest.items(told[TREES], "the trees")
    own = [arrays_of(tree_prefix(i), arrays) for i in range(len(trees))]
    if "trees" not in known:
        known["parameters"], known["trees"] = _read_trees(told["parameters"], trees, own, kind)
    logs = manifest.items(histories, "the histories")
    if len(logs) != len(trees):
        raise ModelFileError(f"there must be a history of each of {len(trees)} trees")
    members = [unpack_learnt(*one) for one in zip(known["trees"], logs, own, strict=True)]
    common = arrays_of(FOREST_PREFIX, arrays)
    if sum(map(len, own)) + len(common) < len(arrays):
        raise ModelFileError("there are arrays that are not part of such a model")
    return {
        "parameters": known["parameters"],
        "categorical": read_categorical(told["categorical"]),
        "members": members,
        "arrays": {name: common[name] for name in common if not name.startswith(SEEN_PREFIX)},
        "seen": arrays_of(SEEN_PREFIX, common),
        "replaced": [_replaced(one) for one in manifest.items(told["replaced"], "replaced")],
    }


def _read_trees(
    item: Any, trees: list[Any], arrays: list[Arrays], kind: Any
) -> tuple[Any, list[dict[str, Any]]]:
    """Return the parameters of a forest, and the result of `read_told` for each tree."""
    parameters = kind(**decode_parameters(item, kind))._read_parameters()
    if len(trees) != parameters.n_trees:
        raise ModelFileError(f"there must be {parameters.n_trees} trees")
    found = []
    for i, (one, own) in enumerate(zip(trees, arrays, strict=True)):
        member = manifest.members(one, LEARNT_KEYS, "what a tree has learnt")
        check_lists(member, own)
        told = read_told(member, kind._member)
        if not parameters.may_have(i, told["parameters"]):
            raise ModelFileError(f"tree {i} has other parameters than the forest")
        found.append(told)
    return parameters, found


def _replaced(item: Any) -> MemberReplaced:
    told = manifest.items(item, "a tree that was replaced")
    values = [manifest.decode(one) for one in told]
    is_sound = (
        len(values) == len(REPLACED)
        and all(type(value) is int for value in values[:2])
        and all(type(value) is float for value in values[2:-1])
        and type(values[-1]) is bool
    )
    if not is_sound:
        raise ModelFileError("a replaced tree must have its figures")
    return MemberReplaced(**dict(zip(REPLACED, values, strict=True)))
