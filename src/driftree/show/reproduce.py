"""What it takes to get the same results again: the settings, and the versions of what ran."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from driftree.learn._kernels import instruction_set

if TYPE_CHECKING:
    from driftree.estimators import DynamicModelTreeClassifier


def versions() -> dict[str, str]:
    """Return the versions that results depend on.

    Examples
    --------
    >>> list(versions())
    ['driftree', 'python', 'numpy', 'river', 'scikit-learn', 'kernels']
    """
    from driftree import __version__

    libraries = {name: version(name) for name in ("numpy", "river", "scikit-learn")}
    return {
        "driftree": __version__,
        "python": platform.python_version(),
        **libraries,
        "kernels": instruction_set(),
    }


def settings(model: DynamicModelTreeClassifier) -> list[dict[str, Any]]:
    """Return each parameter of a model as text, and whether it is not the default.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> [row["name"] for row in settings(DynamicModelTreeClassifier(bins=32)) if row["changed"]]
    ['bins']
    """
    defaults = type(model)().get_params()
    return [
        {"name": name, "value": repr(value), "changed": repr(value) != repr(defaults[name])}
        for name, value in model.get_params().items()
    ]
