"""What it takes to get the same results again: the settings, and the versions of what ran."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from driftree.learn._kernels import instruction_set

if TYPE_CHECKING:
    from driftree.estimators import DynamicModelTreeClassifier
    from driftree.evaluate.runs import RunResult, RunSettings


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


def parameters(model: DynamicModelTreeClassifier) -> list[dict[str, Any]]:
    """Return each parameter of a model as text, and whether it is not the default.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> [row["name"] for row in parameters(DynamicModelTreeClassifier(bins=32)) if row["changed"]]
    ['bins']
    """
    defaults = type(model)().get_params()
    return [
        {"name": name, "value": repr(value), "changed": repr(value) != repr(defaults[name])}
        for name, value in model.get_params().items()
    ]


def tell_run(settings: RunSettings, result: RunResult) -> dict[str, str]:
    """Return what a run was made with, in words for `report`.

    Examples
    --------
    >>> from driftree.evaluate.runs import RunResult, RunSettings
    >>> settings = RunSettings(source="loans.csv", learners=("dmt", "efdt"), categorical=("car",))
    >>> result = RunResult(True, 5000, 100, 0, [], {}, {})
    >>> tell_run(settings, result)["learners"], tell_run(settings, result)["rows"]
    ('dmt, efdt', '5,000 in batches of 100')
    """
    told = {
        "source": settings.source,
        "rows": f"{result.n_rows:,} in batches of {result.batch_rows:,}",
        "learners": ", ".join(settings.learners),
        "seed": str(settings.seed),
    }
    if settings.target is not None:
        told["column of the labels"] = settings.target
    if settings.categorical:
        told["categories despite numbers"] = ", ".join(settings.categorical)
    if settings.step_rows is not None:
        told["rows learnt at a time"] = f"{settings.step_rows:,}"
    if settings.delay:
        told["labels known after"] = f"{settings.delay:,} rows"
    if settings.on_bad_row == "skip":
        told["malformed rows"] = f"{result.n_bad_rows:,} skipped"
    return told
