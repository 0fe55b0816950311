"""Models: a model as the contents and arrays of a file, and back.

A file holds what a pickle would (parameters, names, levels, labels, arrays, history), but only as
JSON and numbers: reading one executes no code. Everything is checked before it is used. What the
kernels would follow blindly (links, ids, lengths) is checked by `Engine.restore`. What is written
is checked in the same way, by `read_model` and `Engine.check`, so that nothing is written that
would be refused later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from driftree.learn.encoding import as_set
from driftree.learn.forest import Forest
from driftree.learn.losses import Loss
from driftree.learn.storage import ModelFileError, bounds, container, manifest, name_errors
from driftree.learn.storage.learnt import (
    LEARNT_KEYS,
    NOT_STORED,
    AsFileError,
    check_lists,
    decode_parameters,
    encode_parameter,
    need_no_arrays,
    pack_forest,
    pack_learnt,
    parameter_names,
    read_told,
    unpack_forest,
    unpack_learnt,
)
from driftree.learn.storage.manifest import Contents
from driftree.learn.validation import quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]
    Model = TypeVar("Model")

KIND = "driftree model"
SERVED = "served"  # a server's position in its journal: not part of the model
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


# ---------------------------------------------------------------------- out
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
        "feature_names_in": None if names is None else [manifest.encode(name) for name in names],
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


# ---------------------------------------------------------------------- in
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
            told = known.setdefault("model", _read_told(contents, kind))
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


def _read_told(contents: Mapping[str, Any], kind: Any) -> _Preamble:
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
        texts = [manifest.text(name, "feature_names_in") for name in manifest.items(names, "names")]
        if len(texts) != n_features:
            raise ModelFileError("feature_names_in must have one name per feature")
        found["feature_names_in_"] = np.array(texts, dtype=object)
    return found
