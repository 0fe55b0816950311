"""Budget: the memory that a tree of one leaf would take, so that too much is refused in time.

Memory grows with the square of the inputs of a simple model, and with their product with the
classes. Names and labels may come at any time, and a stream may bring ten thousand of them by
mistake (identifiers, a regression target): such a row is refused before anything has changed.
Whether a row is refused depends on the features and labels alone, not on the machine or the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

MOST_BYTES = 2 * 2**30
LANES = 8  # the kernels' arrays are whole vectors


@dataclass(frozen=True, slots=True)
class Size:
    """How many features, inputs of the simple models (with the intercept) and classes there are.

    Examples
    --------
    >>> Size(n_features=10, n_categorical=0, n_columns=11, n_classes=2).n_weights
    16
    >>> Size(n_features=10, n_categorical=0, n_columns=11, n_classes=5).n_weights
    80
    """

    n_features: int
    n_categorical: int
    n_columns: int
    n_classes: int

    @property
    def stride(self) -> int:
        """Inputs as the kernels lay them out."""
        return -(-self.n_columns // LANES) * LANES

    @property
    def n_weights(self) -> int:
        """Weights of one simple model."""
        return self.stride * (self.n_classes if self.n_classes > 2 else 1)


class Sized(Protocol):
    """A tree that knows what it takes."""

    @property
    def savers(self) -> str:
        """The parameters that make it smaller, in words."""

    def leaf_bytes(self, size: Size) -> int:
        """Return the bytes of a tree of one leaf."""


def check_budget(tree: Sized, size: Size) -> None:
    """Raise if a tree of one leaf would take too much."""
    needed = tree.leaf_bytes(size)
    if needed <= MOST_BYTES:
        return
    raise ValueError(
        f"{size.n_features:,} features as {size.n_columns:,} inputs and {size.n_classes:,} classes "
        f"would take {needed / 2**30:.1f} GiB in a tree of one leaf, at most "
        f"{MOST_BYTES / 2**30:.1f} GiB are allowed: choose, hash or project the features, merge "
        f"rare classes{tree.savers}"
    )
