"""What it takes to reproduce results: settings and versions."""

from __future__ import annotations

import os
import platform
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from driftree.learn._kernels import instruction_set, instruction_sets
from driftree.learn.parameters import read_parameters

if TYPE_CHECKING:
    from driftree.evaluate.runs import RunResult, RunSettings
    from driftree.show.style import AnyTree

OTHER_LIBRARIES = ("narwhals", "rich", "scipy", "typer")  # results do not depend on these
EXTRA_LIBRARIES = ("matplotlib", "pandas", "polars", "pyarrow", "shap")


def versions() -> dict[str, str]:
    """Return the versions that results depend on.

    Examples
    --------
    >>> list(versions())
    ['driftree', 'python', 'numpy', 'river', 'scikit-learn', 'kernels']
    """
    from driftree.version import __version__

    libraries = {name: version(name) for name in ("numpy", "river", "scikit-learn")}
    return {
        "driftree": __version__,
        "python": platform.python_version(),
        **libraries,
        "kernels": instruction_set(),
    }


def show_versions() -> None:
    """Print versions, instruction set, machine and threads, for bug reports.

    Examples
    --------
    >>> import driftree
    >>> driftree.show_versions()
    driftree      0...
    python        3...
    numpy         2...
    kernels       ... (this processor has baseline...; DRIFTREE_ISA picks one)
    ...
    """
    for name, words in _environment().items():
        print(f"{name:<13} {words}")  # noqa: T201 (to print is what it is for, in any script)


def _environment() -> dict[str, str]:
    """Return what `show_versions` prints, name by name."""
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    told = versions()
    told["kernels"] += (
        f" (this processor has {', '.join(instruction_sets())}; DRIFTREE_ISA picks one)"
    )
    for name in OTHER_LIBRARIES + EXTRA_LIBRARIES:
        try:
            told[name] = version(name)
        except PackageNotFoundError:
            told[name] = "not installed"
    has_affinity = hasattr(os, "sched_getaffinity")
    n_usable = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count()
    blas = {
        f"{pool['internal_api']} {pool['num_threads']}"
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }
    return told | {
        "system": platform.platform(),
        "cores": f"{os.cpu_count()}, {n_usable} of them for this process",
        "threads": f"1 in a call of the kernels; linear algebra: {', '.join(sorted(blas))}",
    }


def parameters(model: AnyTree) -> list[dict[str, Any]]:
    """Return each parameter of a model's setting as text, and whether it is not the default.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> [row["name"] for row in parameters(DynamicModelTreeClassifier(bins=32)) if row["changed"]]
    ['bins']
    """
    chosen, defaults = read_parameters(model, model._settings), type(model)().get_params()
    given = {name: value for name, value in model.get_params().items() if hasattr(chosen, name)}
    given["categorical"] = model.categorical
    return [
        {
            "name": name,
            "value": repr(getattr(chosen, name, value)),
            "changed": repr(value) != repr(defaults[name]),
        }
        for name, value in sorted(given.items())
    ]


def tell_run(settings: RunSettings, result: RunResult) -> dict[str, str]:
    """Return the settings of a run, as text for `report`.

    Examples
    --------
    >>> from driftree.evaluate.runs import RunResult, RunSettings
    >>> settings = RunSettings(source="loans.csv", learners=("dmt", "efdt"), categorical=("car",))
    >>> result = RunResult(True, 5000, 100, 0, [], {}, {}, {}, [])
    >>> tell_run(settings, result)["learners"], tell_run(settings, result)["rows"]
    ('dmt, efdt', '5,000 in batches of 100')
    """
    told = {
        "source": settings.source,
        **_tell_input(settings, result),
        "rows": f"{result.n_rows:,} in batches of {result.batch_rows:,}",
        "learners": ", ".join(settings.learners),
        "seed": str(settings.seed),
    }
    if settings.parameters:
        told["parameters"] = ", ".join(f"{name}={value!r}" for name, value in settings.parameters)
    if settings.categorical:
        told["categories despite numbers"] = ", ".join(settings.categorical)
    if settings.text:
        told["text, as words"] = ", ".join(settings.text)
    if settings.step_rows is not None:
        told["rows per step"] = f"{settings.step_rows:,}"
    if settings.delay:
        told["label delay, rows"] = f"{settings.delay:,} rows"
    if settings.on_bad_row == "skip":
        told["malformed rows"] = f"{result.n_bad_rows:,} skipped"
    return told


def _tell_input(settings: RunSettings, result: RunResult) -> dict[str, str]:
    """Return what the first rows showed."""
    if result.findings is None:
        return {} if settings.target is None else {"target column": settings.target}
    lines = replace(result.findings, task=settings.task).lines("--{} ".format)
    return {f"input, by its first {result.findings.n_rows:,} rows": ". ".join(lines)}
