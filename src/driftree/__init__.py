"""Dynamic Model Trees: small, readable trees that learn from streams and say why they change."""

from typing import TYPE_CHECKING, Any

from driftree.estimators import DynamicModelTreeClassifier as DynamicModelTreeClassifier
from driftree.explain.text import export_text as export_text
from driftree.learn.fimtdd import FIMTDDClassifier as FIMTDDClassifier

if TYPE_CHECKING:
    from driftree.show.report import report as report

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the report when it is asked for: learning needs nothing of it."""
    if name == "report":
        from driftree.show.report import report

        return report
    raise AttributeError(f"module 'driftree' has no attribute {name!r}")
