"""Models: a model as the contents and arrays of a file, and back.

A file holds what a pickle would (parameters, names, levels, labels, arrays, history), as JSON and
numbers only: reading one runs no code of its own. Everything is looked at before it is used. What
the kernels would follow blindly (links, ids, lengths) is looked at by `Engine.restore`.

What is going to be written is looked at in the same way: `read_model`, and `Engine.check`. So
nothing is written that would be refused later.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from driftree.learn._kernels import MAX_LEVELS, StoredArrays
from driftree.learn.encoding import as_set
from driftree.learn.losses import Loss
from driftree.learn.storage import (
    ModelFileError,
    bounds,
    container,
    histories,
    json_values,
    name_errors,
)
from driftree.learn.storage.bounds import SPARSE_NAMES
from driftree.learn.storage.container import FileArrays
from driftree.learn.storage.manifest import Contents
from driftree.learn.validation import check_codes, check_keys
from driftree.learn.vocabulary import Vocabulary
from driftree.learn.words import quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]
    Model = TypeVar("Model")

KIND = "driftree model"
SERVED = "served"  # what a server notes of its journal in a model file: no part of the model
OWN_STATE = {"_tree", "n_features_in_", "feature_names_in_"}
MODEL_KEYS = {"class", "parameters", "n_features_in", "feature_names_in", "learnt", "history"}
LEARNT_KEYS = {"parameters", "categorical", "names", "levels", "labels"}


# ---------------------------------------------------------------------- files
def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model to a file: see `LearntState.save`."""
    container.write(path, KIND, *pack(model))


def load(path: str | os.PathLike[str], classes: Mapping[str, type[Model]]) -> Model:
    """Return the model in a file, of one of the classes that may be in one, by their names."""
    with name_errors(path):
        return unpack(*container.read_file(path, KIND, bounds.check), classes)


def to_bytes(model: Any) -> bytes:
    """Return what `save` writes."""
    return container.to_bytes(KIND, *pack(model))


def from_bytes(data: bytes, classes: Mapping[str, type[Model]]) -> Model:
    """Return what `load` returns for a file of these bytes."""
    return unpack(*container.from_bytes(data, KIND, bounds.check), classes)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Return the contents and arrays of a model file, none of which is larger than it may be."""
    return container.read(path, KIND, bounds.check)


# ---------------------------------------------------------------------- out
def pack(model: Any) -> tuple[dict[str, Any], Arrays]:
    """Return a model as contents and arrays; raise if they would not give the same model again."""
    _check_class(model)
    kind: Any = type(model)
    parameters = {name: getattr(model, name) for name in _parameter_names(kind)}
    model._read_parameters()
    names = getattr(model, "feature_names_in_", None)
    contents = {
        "class": kind.__name__,
        "parameters": _encode_parameters(parameters),
        "n_features_in": json_values.encode(getattr(model, "n_features_in_", None)),
        "feature_names_in": None if names is None else [json_values.encode(name) for name in names],
        "learnt": None,
        "history": None,
    }
    tree = model._tree
    if tree is None:
        return contents, {}
    with tree.engine.writing():  # a whole state, whoever learns meanwhile
        contents["learnt"], contents["history"], arrays = _pack_learnt(tree, tree.encoder)
    bounds.check(contents, arrays, arrays.__getitem__)
    read_model(contents, arrays, {kind.__name__: kind})
    return contents, arrays


def _check_class(model: Any) -> None:
    kind: Any = type(model)
    if "_is_stored" not in vars(kind):
        raise TypeError(
            f"a model file does not hold a {kind.__qualname__}, only driftree's own classifiers: "
            "what a subclass adds would be lost; pickle can"
        )
    extra = vars(model).keys() - _parameter_names(kind) - OWN_STATE
    if extra:
        raise TypeError(
            f"a model file has no place for {', '.join(sorted(map(repr, extra)))}, which would be "
            "lost: delete what is not the model's own; pickle can"
        )


def _encode_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    encoded = {
        name: json_values.encode(
            value.name if type(value) is Loss else value, f"parameter {name!r}"
        )
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


def _pack_learnt(tree: Any, encoder: Any) -> tuple[dict[str, Any], Any, dict[str, NDArray[Any]]]:
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
    }
    log, more = (None, {}) if history is None else histories.pack(history)
    return contents, log, arrays | more | _pack_sparse_names(encoder.row_face.sparse_names())


def _pack_sparse_names(names: Sequence[Any]) -> dict[str, NDArray[np.uint8]]:
    """Return the names of sparse features as JSON in an array: there may be very many."""
    if not names:
        return {}
    encoded = [[] if name is None else _encode_name(name) for name in names]  # None: a free place
    text = json.dumps(encoded, ensure_ascii=False, separators=(",", ":"))
    return {SPARSE_NAMES: np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)}


def _encode_name(name: Hashable) -> Any:
    return json_values.encode(name, "a sparse feature's name")


def _unpack_sparse_names(arrays: Arrays) -> list[Any]:
    if SPARSE_NAMES not in arrays:
        return []
    text = np.asarray(arrays[SPARSE_NAMES], dtype=np.uint8).tobytes()
    try:
        encoded = json.loads(text.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise ModelFileError(f"{SPARSE_NAMES!r} is no JSON") from None
    names = [
        None if one == [] else json_values.decode(one)
        for one in json_values.items(encoded, SPARSE_NAMES)
    ]
    check_keys([name for name in names if name is not None], "names of sparse features")
    return names


# ---------------------------------------------------------------------- in
def unpack(contents: Any, arrays: Arrays, classes: Mapping[str, type[Model]]) -> Model:
    """Return the model that was packed, or raise `ModelFileError`."""
    model: Any
    model, learnt = read_model(contents, arrays, classes)
    if learnt is not None:
        with _AsFileError():
            model._take_over(learnt)
    return model  # type: ignore[no-any-return]


def read_model(
    contents: Any, arrays: Arrays, classes: Mapping[str, type[Model]]
) -> tuple[Model, dict[str, Any] | None]:
    """Return a model without its tree, and what makes one; raise `ModelFileError` if it is wrong.

    All that can be looked at without a tree is looked at here, when a model is read and when it is
    written.
    """
    if type(contents) not in (dict, Contents) or contents.keys() - {SERVED} != MODEL_KEYS:
        raise ModelFileError(f"the model must have the keys {', '.join(sorted(MODEL_KEYS))}")
    kind: Any = classes.get(str(contents["class"]))
    if kind is None:
        raise ModelFileError(
            f"the model is a {quoted(contents['class'])}, which this driftree does not know: "
            "upgrade driftree"
        )
    with _AsFileError():
        known = getattr(contents, "known", {})
        told: _Told | None = known.get("model")
        if told is None:
            learnt = contents["learnt"]
            if learnt is not None:
                _check_lists(json_values.members(learnt, LEARNT_KEYS, "what was learnt"), arrays)
            told = known.setdefault("model", _read_told(contents, kind))
        model = told.make(kind)
        if told.learnt is None:
            _need_no_arrays(arrays)
            return model, None
        return model, _unpack_learnt(told.learnt, contents["history"], arrays)


class _Told(NamedTuple):
    """What a file tells of a model beside numbers and history: never changed, and used again."""

    state: dict[str, Any]
    """The attributes of a model that has learnt nothing."""
    learnt: dict[str, Any] | None
    """What a pickle holds, but for arrays and history; and the vocabulary."""
    copied: list[str]
    """Attributes that a user might change, so that each model has its own."""

    def make(self, kind: Any) -> Any:
        """Return such a model, as if it were unpickled."""
        model = kind.__new__(kind)
        model.__dict__.update(self.state)
        for name in self.copied:
            setattr(model, name, self.state[name].copy())
        return model


def _read_told(contents: Mapping[str, Any], kind: Any) -> _Told:
    model = kind(**_decode_parameters(contents["parameters"], kind))
    model._read_parameters()
    features = _read_features(contents["n_features_in"], contents["feature_names_in"])
    state = vars(model) | features
    copied = [name for name, value in state.items() if isinstance(value, (list, np.ndarray))]
    item = contents["learnt"]
    if item is None:
        return _Told(state, None, copied)
    own = kind(**_decode_parameters(item["parameters"], kind))._read_parameters()
    names, levels, labels = _read_codes(item)
    categorical = [
        json_values.decode(one) for one in json_values.items(item["categorical"], "categorical")
    ]
    check_keys(categorical, "features in 'categorical'")
    known = Vocabulary.of(names, levels, labels)
    known.classes.flags.writeable = False  # many models may have it
    learnt = {
        "parameters": own,
        "categorical": categorical,
        "names": known.names,
        "levels": known.levels,
        "labels": known.labels,
        "known": known,
    }
    return _Told(state, learnt, copied)


class _AsFileError:
    """Let what is wrong with values that a file gave be an error of the file."""

    def __enter__(self) -> None:
        """Do nothing yet."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (TypeError, ValueError)) and not isinstance(error, ModelFileError):
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


def _read_features(n_features: Any, names: Any) -> dict[str, Any]:
    """Return what scikit-learn remembers of the features."""
    found: dict[str, Any] = {}
    if n_features is not None:
        found["n_features_in_"] = json_values.whole(n_features, "n_features_in")
    if names is not None:
        texts = [
            json_values.text(name, "feature_names_in") for name in json_values.items(names, "names")
        ]
        if len(texts) != n_features:
            raise ModelFileError("feature_names_in must have one name per feature")
        found["feature_names_in_"] = np.array(texts, dtype=object)
    return found


def _unpack_learnt(told: dict[str, Any], history: Any, arrays: Arrays) -> dict[str, Any]:
    """Return what a pickle holds, too."""
    _check_counts(len(told["names"]), len(told["labels"]), arrays)
    own = _of_engine(arrays)
    sparse_names = _unpack_sparse_names(arrays)
    if history is None:
        _need_no_arrays(() if len(own) == len(arrays) else arrays.keys() & histories.ARRAY_NAMES)
    else:
        is_sampled = histories.has_samples(arrays)
        parameters = told["parameters"]
        n_bends = getattr(parameters, "max_bends", 0)
        limits = histories.Limits(
            parameters.max_nodes,
            len(told["names"]),
            bounds.count_inputs(arrays, arrays.__getitem__) + n_bends if is_sampled else 1,
            max(len(told["labels"]), len(getattr(parameters, "quantiles", ()))),
            _single(arrays, "n_steps"),
            _single(arrays, "n_rows"),
        )
        history = histories.unpack(history, arrays, limits)
    return {**told, "arrays": own, "history": history, "sparse_names": sparse_names}


def _of_engine(arrays: Arrays) -> dict[str, NDArray[Any]] | StoredArrays:
    """Return all arrays but those of the history."""
    if not isinstance(arrays, FileArrays):
        others = histories.ARRAY_NAMES | {SPARSE_NAMES}
        return {name: array for name, array in arrays.items() if name not in others}
    own = (
        arrays.stored.without(histories.PREFIX) if histories.has_samples(arrays) else arrays.stored
    )
    if len(arrays) - len(own) > len(histories.ARRAY_NAMES):
        _need_no_arrays({*arrays} - {*own.names()} - histories.ARRAY_NAMES)
    return own.without(SPARSE_NAMES) if SPARSE_NAMES in own else own


def _need_no_arrays(names: Collection[str]) -> None:
    if names:
        raise ModelFileError(f"array {min(names)!r} is not part of such a model")


def _check_lists(item: dict[str, Any], arrays: Arrays) -> None:
    """Look at how many names, levels and labels there are, before one of them is a key."""
    names, levels, labels = (
        json_values.items(item[name], f"the {name}") for name in ("names", "levels", "labels")
    )
    n_names = len(names) if len(names) == len(levels) else -1  # which is never right
    _check_counts(n_names, len(labels), arrays)
    for name, one in zip(names, levels, strict=True):
        if one is not None and len(json_values.items(one, "the levels")) > MAX_LEVELS:
            raise ModelFileError(f"the levels of feature {quoted(name)} are more than {MAX_LEVELS}")


def _check_counts(n_names: int, n_labels: int, arrays: Arrays) -> None:
    """Compare numbers of names and labels with those of features and classes."""
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
    item: dict[str, Any],
) -> tuple[dict[Hashable, int], list[dict[Hashable, int] | None], dict[Hashable, int]]:
    """Return names, levels and labels."""
    return (
        json_values.codes(item["names"], "names"),
        [None if one is None else json_values.codes(one, "levels") for one in item["levels"]],
        json_values.codes(item["labels"], "labels"),
    )


def _single(arrays: Arrays, name: str) -> int:
    """Return an array's only number."""
    if isinstance(arrays, FileArrays):
        number = arrays.stored.whole(name)
    else:
        array = arrays.get(name)
        is_one = array is not None and array.shape == (1,) and array.dtype.kind == "i"
        number = int(array[0]) if array is not None and is_one else None
    if number is None:
        raise ModelFileError(f"{name!r} must hold one whole number")
    return number
