"""Dynamic Model Trees: small, readable trees that learn from data streams and say why they change."""

from driftree.learn.estimators import DynamicModelTreeClassifier as DynamicModelTreeClassifier

__version__ = "0.1.0"
