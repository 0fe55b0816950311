"""Models: a model as the contents and arrays of a file, and back.

A file holds what a pickle would (parameters, names, levels, labels, arrays, history), as JSON and
numbers only: reading one runs no code of its own. Everything is looked at before it is used. What
the kernels would follow blindly (links, ids, lengths) is looked at by `Engine.restore`.

What is going to be written is looked at in the same way: `read_model`, and `Engine.check`. So
nothing is written that would be refused later.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.encoding import as_set
from driftree.learn.storage import bounds, container, histories, json_values
from driftree.learn.storage.container import FileArrays, ModelFileError
from driftree.learn.validation import check_codes, check_keys
from driftree.learn.words import quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Hashable, Iterator, Mapping

    from numpy.typing import NDArray

    from driftree.learn._kernels import StoredArrays

    Arrays = Mapping[str, NDArray[Any]]
    Model = TypeVar("Model")

KIND = "driftree model"
SERVED = "served"  # what a server notes of its journal in a model file: no part of the model
OWN_STATE = {"_tree", "n_features_in_", "feature_names_in_"}
MODEL_KEYS = ("class", "parameters", "n_features_in", "feature_names_in", "learnt")
LEARNT_KEYS = ("parameters", "categorical", "names", "levels", "labels", "history")


# ---------------------------------------------------------------------- files
def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to a file: see `LearntState.save`."""
    container.write(path, KIND, *pack(model))


def load(path: str | os.PathLike[str], classes: Mapping[str, type[Model]]) -> Model:
    """Return the model in a file, of one of the classes that may be in one, by their names."""
    contents, arrays = read(path)
    contents.pop(SERVED, None)
    with container.name_errors(path):
        return unpack(contents, arrays, classes)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Return the contents and arrays of a model file, none of which is larger than it may be."""
    return container.read(path, KIND, bounds.check)


# ---------------------------------------------------------------------- out
def pack(model: Any) -> tuple[dict[str, Any], Arrays]:
    """Return a model as contents and arrays; raise if they would not give the same model again."""
    _check_class(model)
    parameters = model.get_params(deep=False)
    model._read_parameters()
    names = getattr(model, "feature_names_in_", None)
    contents = {
        "class": type(model).__name__,
        "parameters": _encode_parameters(parameters),
        "n_features_in": json_values.encode(getattr(model, "n_features_in_", None)),
        "feature_names_in": None if names is None else [json_values.encode(name) for name in names],
        "learnt": None,
    }
    tree = model._tree
    if tree is None:
        return contents, {}
    with tree.engine.writing():  # a whole state, whoever learns meanwhile
        contents["learnt"], arrays = _pack_learnt(tree, tree.encoder)
    bounds.check(contents, arrays, arrays.__getitem__)
    read_model(contents, arrays, {type(model).__name__: type(model)})
    return contents, arrays


def _check_class(model: Any) -> None:
    kind = type(model)
    if "_is_stored" not in vars(kind):
        raise TypeError(
            f"a model file does not hold a {kind.__qualname__}, only driftree's own classifiers: "
            "what a subclass adds would be lost; pickle can"
        )
    extra = vars(model).keys() - model.get_params(deep=False).keys() - OWN_STATE
    if extra:
        raise TypeError(
            f"a model file has no place for {', '.join(sorted(map(repr, extra)))}, which would be "
            "lost: delete what is not the model's own; pickle can"
        )


def _encode_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    encoded = {
        name: json_values.encode(value, f"parameter {name!r}")
        for name, value in parameters.items()
        if name != "categorical"
    }
    return encoded | {"categorical": _encode_categorical(parameters["categorical"])}


def _encode_categorical(categorical: Any) -> Any:
    """Encode a tuple as one, and any other sequence as a list."""
    if categorical is None:
        return None
    order = sorted(as_set(categorical), key=repr) if isinstance(categorical, set) else categorical
    items = [json_values.encode(item, "a feature in 'categorical'") for item in order]
    return {"tuple": items} if isinstance(categorical, tuple) else items


def _pack_learnt(tree: Any, encoder: Any) -> tuple[dict[str, Any], Arrays]:
    knowledge = tree.knowledge()
    arrays, history = knowledge["arrays"], knowledge.get("history")
    tree.engine.check()
    tree.check(history)
    known = encoder.names, encoder.levels, tree.target.labels
    check_codes(tree.engine, *known, indicators=encoder.indicators)
    contents = {
        "parameters": {
            name: json_values.encode(getattr(tree.parameters, name), f"parameter {name!r}")
            for name in tree.parameters.__dataclass_fields__
        },
        "categorical": [json_values.encode(item) for item in sorted(encoder.categorical, key=repr)],
        "names": [json_values.encode(name, "a feature's name") for name in encoder.names],
        "levels": [
            None
            if codes is None
            else [json_values.encode(level, f"a level of feature {name!r}") for level in codes]
            for name, codes in zip(encoder.names, encoder.levels, strict=True)
        ],
        "labels": [json_values.encode(label, "a label") for label in tree.target.labels],
        "history": None,
    }
    if history is not None:
        contents["history"], more = histories.pack(history)
        arrays |= more
    return contents, arrays


# ---------------------------------------------------------------------- in
def unpack(contents: Any, arrays: Arrays, classes: Mapping[str, type[Model]]) -> Model:
    """Return the model that was packed, or raise `ModelFileError`."""
    model: Any
    model, learnt = read_model(contents, arrays, classes)
    if learnt is not None:
        with _as_file_error():
            model._take_over(learnt)
    return model  # type: ignore[no-any-return]


def read_model(
    contents: Any, arrays: Arrays, classes: Mapping[str, type[Model]]
) -> tuple[Model, dict[str, Any] | None]:
    """Return a model without its tree, and what makes one; raise `ModelFileError` if it is wrong.

    All that can be looked at without a tree is looked at here, when a model is read and when it is
    written.
    """
    contents = json_values.members(contents, MODEL_KEYS, "the model")
    kind: Any = classes.get(str(contents["class"]))
    if kind is None:
        raise ModelFileError(
            f"the model is a {quoted(contents['class'])}, which this driftree does not know: "
            "upgrade driftree"
        )
    with _as_file_error():
        model = kind(**_decode_parameters(contents["parameters"], kind))
        parameters = model._read_parameters()
        _set_features(model, contents["n_features_in"], contents["feature_names_in"])
        if contents["learnt"] is None:
            _need_no_arrays(arrays)
            return model, None
        learnt = json_values.members(contents["learnt"], LEARNT_KEYS, "what was learnt")
        own = _decode_parameters(learnt["parameters"], kind)
        if not _are_same(own, parameters):
            parameters = kind(**own)._read_parameters()
        return model, _unpack_learnt(learnt, arrays, parameters)


@contextlib.contextmanager
def _as_file_error() -> Iterator[None]:
    """Let what is wrong with values that a file gave be an error of the file."""
    try:
        yield
    except ModelFileError:
        raise
    except (TypeError, ValueError) as error:
        raise ModelFileError(str(error)) from error


def _decode_parameters(item: Any, kind: Any) -> dict[str, Any]:
    """Return the parameters by name; one that the file does not know yet has its default."""
    unknown = item.keys() - _parameter_names(kind) if type(item) is dict else {"no object"}
    if unknown:
        raise ModelFileError(f"the parameters have {quoted(sorted(unknown))}")
    categorical = item.get("categorical")
    is_list = type(categorical) is list
    decoded = {
        name: json_values.decode(value) for name, value in item.items() if name != "categorical"
    }
    chosen = (
        [json_values.decode(one) for one in categorical]
        if is_list
        else json_values.decode(categorical)
    )
    if chosen is not None and not isinstance(chosen, (list, tuple)):
        raise ModelFileError("the parameter 'categorical' must be a sequence")
    check_keys(chosen or (), "features in 'categorical'")
    return decoded | {"categorical": chosen}


@functools.cache
def _parameter_names(kind: Any) -> frozenset[str]:
    return frozenset(kind._get_param_names())  # which takes longer than all the rest of them


def _set_features(model: Any, n_features: Any, names: Any) -> None:
    """Give a model what scikit-learn remembers of the features."""
    if n_features is not None:
        model.n_features_in_ = json_values.whole(n_features, "n_features_in")
    if names is not None:
        texts = [
            json_values.text(name, "feature_names_in") for name in json_values.items(names, "names")
        ]
        if len(texts) != n_features:
            raise ModelFileError("feature_names_in must have one name per feature")
        model.feature_names_in_ = np.array(texts, dtype=object)


def _are_same(given: dict[str, Any], parameters: Any) -> bool:
    """Tell whether a tree was made with a model's parameters, as it is unless they were changed."""
    fields = parameters.__dataclass_fields__
    if given.keys() - {"categorical"} != fields.keys():
        return False
    own = [(getattr(parameters, name), given[name]) for name in fields]
    return all(one == other and type(one) is type(other) for one, other in own)


def _unpack_learnt(item: dict[str, Any], arrays: Arrays, parameters: Any) -> dict[str, Any]:
    """Return what a pickle holds, too."""
    names, levels, labels = _unpack_codes(item, arrays)
    history = None
    own = _of_engine(arrays)
    if item["history"] is None:
        _need_no_arrays(arrays.keys() & histories.ARRAY_NAMES)
    else:
        limits = histories.Limits(
            parameters.max_nodes,
            len(names),
            len(labels),
            _single(arrays, "n_steps"),
            _single(arrays, "n_rows"),
        )
        history = histories.unpack(item["history"], arrays, limits)
    categorical = [
        json_values.decode(one) for one in json_values.items(item["categorical"], "categorical")
    ]
    check_keys(categorical, "features in 'categorical'")
    return {
        "parameters": parameters,
        "categorical": categorical,
        "names": names,
        "levels": levels,
        "labels": labels,
        "arrays": own,
        "history": history,
    }


def _of_engine(arrays: Arrays) -> dict[str, NDArray[Any]] | StoredArrays:
    """Return all arrays but those of the history."""
    if isinstance(arrays, FileArrays) and not histories.has_samples(arrays):
        return arrays.stored
    return {name: array for name, array in arrays.items() if name not in histories.ARRAY_NAMES}


def _need_no_arrays(names: Collection[str]) -> None:
    if names:
        raise ModelFileError(f"array {min(names)!r} is not part of such a model")


def _unpack_codes(
    item: Any, arrays: Arrays
) -> tuple[dict[Hashable, int], list[dict[Hashable, int] | None], dict[Hashable, int]]:
    """Return names, levels and labels; how many there are is known before one of them is a key."""
    n_features, n_classes = len(arrays.get("is_categorical", ())), _single(arrays, "n_classes")
    keys = ("names", "levels", "labels")
    lists = {name: json_values.items(item[name], f"the {name}") for name in keys}
    if not len(lists["names"]) == len(lists["levels"]) == n_features:
        raise ModelFileError(f"the names and levels are not those of {n_features} features")
    if len(lists["labels"]) != n_classes:
        raise ModelFileError(f"the labels are not those of {n_classes} classes")
    for name, one in zip(lists["names"], lists["levels"], strict=True):
        if one is not None and len(json_values.items(one, "the levels")) > MAX_LEVELS:
            raise ModelFileError(f"the levels of feature {quoted(name)} are more than {MAX_LEVELS}")
    return (
        json_values.codes(lists["names"], "names"),
        [None if one is None else json_values.codes(one, "levels") for one in lists["levels"]],
        json_values.codes(lists["labels"], "labels"),
    )


def _single(arrays: Arrays, name: str) -> int:
    """Return an array's only number."""
    array = arrays.get(name)
    if array is None or array.shape != (1,) or array.dtype.kind != "i":
        raise ModelFileError(f"{name!r} must hold one whole number")
    return int(array[0])
