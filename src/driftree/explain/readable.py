"""Readable: the methods by which a tree explains itself. What they return is made next door."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftree.explain.describe import LeafModel, leaf_models

if TYPE_CHECKING:
    from driftree.learn.encoding import Encoder
    from driftree.learn.tree import Tree


class Readable:
    """What a Dynamic Model Tree knows, why it changed, why it predicts; a part of the estimator."""

    _tree: Tree | None
    _encoder: Encoder | None

    def leaf_models(self) -> list[LeafModel]:
        """Return the leaves from left to right, each with its linear model in your units."""
        return leaf_models(self)
