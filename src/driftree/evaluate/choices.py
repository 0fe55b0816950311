"""A learner that has a name."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

Categorical = Sequence[Hashable]


@dataclass(frozen=True)
class LearnerChoice:
    """A learner that has a name.

    Attributes
    ----------
    name, title : str
        What to type, and how the paper's tables call it.
    words : str
        What it is.
    make : callable
        Takes the categorical features and a seed, returns a learner that knows nothing.
    cost : float
        Its time for a row, roughly, as a multiple of a linear model's (Table V of docs/paper.md).
    is_ensemble : bool
        Whether the paper sets it apart from the trees that stand alone.
    is_ours : bool
        Whether its results change with the code of driftree, not with River's.
    takes_text : bool
        Whether it can learn from words, of which a row holds few, and new ones keep coming.
    is_told_of_text_only : bool
        Whether, in the paper's experiments, it is told which features were text, rather than which
        features the authors call categorical: numbers it takes as they come.
    """

    name: str
    title: str
    words: str
    make: Callable[[Categorical, int], Any]
    cost: float = 1.0
    is_ensemble: bool = False
    is_ours: bool = False
    takes_text: bool = False
    is_told_of_text_only: bool = False
