"""Dynamic Model Trees: small, readable trees that learn from streams and say why they change."""

from driftree.estimators import DynamicModelTreeClassifier as DynamicModelTreeClassifier
from driftree.explain.text import export_text as export_text
from driftree.learn.fimtdd import FIMTDDClassifier as FIMTDDClassifier

__version__ = "0.1.0"
