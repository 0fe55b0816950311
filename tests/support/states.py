"""What a model has learnt as one text, whether all of it is finite, and a model taken out again."""

import hashlib

import numpy as np

from driftree import DynamicModelTreeClassifier, FIMTDDClassifier
from driftree import stored as stored_models
from driftree.learn.storage import container, models

MODELS = {
    "measured": DynamicModelTreeClassifier,
    "paper": DynamicModelTreeClassifier.paper,
    "FIMT-DD": FIMTDDClassifier,
}
# Ranges of features without a value, levels that nothing may reach, "is missing" as a threshold,
# edges that a slot does not have, rows as they came; and keys, which hold whole numbers as well.
MAY_BE_INFINITE = {
    *("scale_low", "scale_high", "node.threshold", "trial.threshold"),
    *("grid.edges", "grid.first_rows", "split_points.keys", "watch_rows"),
}


def state_hash(model):
    """A digest of parameters, arrays, features, levels, labels and history, without pickle."""
    digest = hashlib.sha256()

    def take(name, value):
        digest.update(f"{name}={value!r};".encode(errors="backslashreplace"))

    for name, value in sorted(vars(model).items()):
        if name not in ("_tree",):
            take(name, value.tolist() if isinstance(value, np.ndarray) else value)
    if model._tree is not None:
        encoder = model._tree.encoder
        for name, array in model._tree.engine.arrays().items():
            take(name, array.dtype.str)
            digest.update(array.tobytes())
        for name in ("names", "levels", "labels", "feature_names", "label_list", "display_names"):
            take(name, getattr(encoder.known, name))
        take("categorical", sorted(encoder.categorical, key=repr))
        history = getattr(model._tree, "history", None)
        take("history", history and history._facts())
    return digest.hexdigest()


def infinite_arrays(model):
    """The learnt arrays that should be finite and are not."""
    return [
        name
        for name, array in model._tree.engine.arrays().items()
        if name not in MAY_BE_INFINITE and array.dtype.kind == "f" and not np.isfinite(array).all()
    ]


def check_probabilities(proba):
    """Rows of probabilities: finite, from 0 to 1, and 1 together."""
    proba = np.asarray(proba, dtype=float)
    assert ((proba >= 0) & (proba <= 1)).all()
    np.testing.assert_allclose(proba.sum(axis=-1), 1, rtol=0, atol=1e-9)


def reborn(model):
    """The model after it was put away and taken out again."""
    stored = container.to_bytes(models.KIND, *models.pack(model))
    return models.unpack(*container.from_bytes(stored, models.KIND), stored_models.CLASSES)
