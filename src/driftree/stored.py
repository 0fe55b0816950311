"""`load`, and the kinds of models that files may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftree.baselines import FIMTDDClassifier, FIMTDDRegressor
from driftree.estimators import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.forests import DynamicModelForestClassifier, DynamicModelForestRegressor
from driftree.learn.storage import models

if TYPE_CHECKING:
    import os

StoredModel = (
    DynamicModelTreeClassifier
    | DynamicModelTreeRegressor
    | DynamicModelForestClassifier
    | DynamicModelForestRegressor
    | FIMTDDClassifier
    | FIMTDDRegressor
)
CLASSES: dict[str, type[StoredModel]] = {
    kind.__name__: kind
    for kind in (
        DynamicModelTreeClassifier,
        DynamicModelTreeRegressor,
        DynamicModelForestClassifier,
        DynamicModelForestRegressor,
        FIMTDDClassifier,
        FIMTDDRegressor,
    )
}


def load(path: str | os.PathLike[str]) -> StoredModel:
    """Read a model from a file written by its `save`.

    It predicts, learns and explains exactly as the saved model would have, bit for bit. The file
    need not be trusted: reading it executes no code, and memory is bounded by a small multiple of
    its size.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    A tree, a forest or a FIMT-DD tree, a classifier or a regressor
        Of the class that was saved.

    Raises
    ------
    ModelFileError
        If the file is damaged, is not a model file, or was written by a newer version.

    Examples
    --------
    >>> import driftree
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> model = driftree.DynamicModelTreeClassifier(max_nodes=31)
    >>> path = Path(mkdtemp(), "model.dmt")
    >>> model.save(path)
    >>> driftree.load(path)
    DynamicModelTreeClassifier(max_nodes=31)
    """
    return models.load(path, CLASSES)
