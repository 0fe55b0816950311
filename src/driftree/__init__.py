"""Dynamic Model Trees: small, readable trees that learn from streams and say why they change."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from driftree.version import __version__ as __version__

if TYPE_CHECKING:
    from driftree import evaluate as evaluate
    from driftree import explain as explain
    from driftree import export as export
    from driftree import learn as learn
    from driftree import paper as paper
    from driftree import scale as scale
    from driftree import show as show
    from driftree import streams as streams
    from driftree.baselines import FIMTDDClassifier as FIMTDDClassifier
    from driftree.baselines import FIMTDDRegressor as FIMTDDRegressor
    from driftree.estimators import DynamicModelTreeClassifier as DynamicModelTreeClassifier
    from driftree.estimators import DynamicModelTreeRegressor as DynamicModelTreeRegressor
    from driftree.evaluate.checkpoints import Checkpointer as Checkpointer
    from driftree.explain.text import export_text as export_text
    from driftree.export import to_code as to_code
    from driftree.export import to_onnx as to_onnx
    from driftree.forests import DynamicModelForestClassifier as DynamicModelForestClassifier
    from driftree.forests import DynamicModelForestRegressor as DynamicModelForestRegressor
    from driftree.learn.losses import Loss as Loss
    from driftree.learn.storage import ModelFileError as ModelFileError
    from driftree.show.provenance import show_versions as show_versions
    from driftree.show.report import report as report
    from driftree.stored import load as load

__all__ = [
    "Checkpointer",
    "DynamicModelForestClassifier",
    "DynamicModelForestRegressor",
    "DynamicModelTreeClassifier",
    "DynamicModelTreeRegressor",
    "FIMTDDClassifier",
    "FIMTDDRegressor",
    "Loss",
    "ModelFileError",
    "evaluate",
    "explain",
    "export",
    "export_text",
    "learn",
    "load",
    "paper",
    "report",
    "scale",
    "show",
    "show_versions",
    "streams",
    "to_code",
    "to_onnx",
]

# Public names are imported on first access: scikit-learn alone takes a second of CPU time, and
# `driftree --help` does not need it. Names not listed here are subpackages.
_MODULE_OF = {
    "Checkpointer": "driftree.evaluate.checkpoints",
    "DynamicModelForestClassifier": "driftree.forests",
    "DynamicModelForestRegressor": "driftree.forests",
    "DynamicModelTreeClassifier": "driftree.estimators",
    "DynamicModelTreeRegressor": "driftree.estimators",
    "FIMTDDClassifier": "driftree.baselines",
    "FIMTDDRegressor": "driftree.baselines",
    "Loss": "driftree.learn.losses",
    "ModelFileError": "driftree.learn.storage",
    "export_text": "driftree.explain.text",
    "load": "driftree.stored",
    "report": "driftree.show.report",
    "show_versions": "driftree.show.provenance",
    "to_code": "driftree.export",
    "to_onnx": "driftree.export",
}


if not TYPE_CHECKING:  # which would regard every name as public

    def __getattr__(name: str) -> Any:
        """Import public names lazily."""
        if name not in __all__:
            raise AttributeError(f"module 'driftree' has no attribute {name!r}")
        if name not in _MODULE_OF:
            return import_module(f"driftree.{name}")
        found = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return found


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted({*__all__, "__version__"})
