"""The paper's learners by name, each with the paper's settings.

The Hoeffding trees and the ensembles are River's. The authors used scikit-multiflow 0.5.3, from
which River's descend; docs/paper.md says where the two differ in their results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from driftree.estimators import DynamicModelTreeClassifier
from driftree.learn.fimtdd import FIMTDDClassifier
from driftree.streams.catalogue import check_name

Categorical = Sequence[Hashable]

# scikit-multiflow's and the paper's: only binary splits, majority votes in the leaves.
HOEFFDING: dict[str, Any] = {"delta": 0.01, "binary_split": True, "leaf_prediction": "mc"}


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
    is_told_of_text_only: bool = False


def _tree(name: str, **parameters: Any) -> Any:
    from river import tree

    return getattr(tree, name)(**{**HOEFFDING, **parameters})


def _adaptive_forest(seed: int) -> Any:
    from river import forest

    return forest.ARFClassifier(n_models=3, seed=seed, **HOEFFDING)


def _leveraging_bagging(seed: int) -> Any:
    from river import ensemble

    return ensemble.LeveragingBaggingClassifier(
        _tree("HoeffdingTreeClassifier"), n_models=3, seed=seed
    )


def _dummy(name: str) -> Any:
    from river import dummy

    return getattr(dummy, name)()


_CHOICES = (
    LearnerChoice(
        "dmt",
        "DMT (driftree)",
        "Dynamic Model Tree, driftree's own setting",
        lambda categorical, seed: DynamicModelTreeClassifier(categorical=categorical, seed=seed),
        cost=3,
        is_ours=True,
        is_told_of_text_only=True,
    ),
    LearnerChoice(
        "dmt-paper",
        "DMT (paper's setting)",
        "Dynamic Model Tree as published",
        lambda categorical, seed: DynamicModelTreeClassifier.paper(
            categorical=categorical, seed=seed
        ),
        is_ours=True,
    ),
    LearnerChoice(
        "fimtdd",
        "FIMT-DD",
        "fast incremental model tree with drift detection, as a classifier",
        lambda categorical, _: FIMTDDClassifier(categorical=categorical),
        cost=2,
        is_ours=True,
    ),
    LearnerChoice(
        "vfdt-mc",
        "VFDT (MC)",
        "Hoeffding tree, majority votes in the leaves (River)",
        lambda *_: _tree("HoeffdingTreeClassifier"),
        cost=13,
    ),
    LearnerChoice(
        "vfdt-nba",
        "VFDT (NBA)",
        "Hoeffding tree, adaptive Naive Bayes in the leaves (River)",
        lambda *_: _tree("HoeffdingTreeClassifier", leaf_prediction="nba"),
        cost=30,
    ),
    LearnerChoice(
        "ht-ada",
        "HT-Ada",
        "Hoeffding adaptive tree, no bootstrap in the leaves (River)",
        lambda _, seed: _tree(
            "HoeffdingAdaptiveTreeClassifier", bootstrap_sampling=False, seed=seed
        ),
        cost=50,
    ),
    LearnerChoice(
        "efdt",
        "EFDT",
        "extremely fast decision tree, splits looked at anew every 1,000 rows (River)",
        lambda *_: _tree("ExtremelyFastDecisionTreeClassifier", min_samples_reevaluate=1000),
        cost=45,
    ),
    LearnerChoice(
        "arf3",
        "Forest Ens.",
        "adaptive random forest of 3 Hoeffding trees (River)",
        lambda _, seed: _adaptive_forest(seed),
        cost=90,
        is_ensemble=True,
    ),
    LearnerChoice(
        "levbag3",
        "Bagging Ens.",
        "leveraging bagging of 3 Hoeffding trees (River)",
        lambda _, seed: _leveraging_bagging(seed),
        cost=190,
        is_ensemble=True,
    ),
    LearnerChoice(
        "logistic",
        "one linear model",
        "the paper's simple model alone: a Dynamic Model Tree that may not split",
        lambda categorical, seed: DynamicModelTreeClassifier.paper(
            categorical=categorical, max_nodes=1, seed=seed
        ),
        is_ours=True,
    ),
    LearnerChoice(
        "majority",
        "majority",
        "the most frequent label so far (River)",
        lambda *_: _dummy("PriorClassifier"),
    ),
    LearnerChoice(
        "no-change",
        "no change",
        "the last label seen (River)",
        lambda *_: _dummy("NoChangeClassifier"),
    ),
)
LEARNERS = {choice.name: choice for choice in _CHOICES}


def make_learner(name: str, *, categorical: Categorical = (), seed: int = 1) -> Any:
    """Return a new learner.

    Parameters
    ----------
    name : str
        One of `LEARNERS`.
    categorical : sequence of names or positions, default=()
        Features whose values are categories although they are numbers. The Hoeffding trees take
        every number as a number, as they did in the paper.
    seed : int, default=1
        For those learners that draw.

    Examples
    --------
    >>> make_learner("dmt-paper")
    DynamicModelTreeClassifier(epsilon=1e-07, setting='paper')
    >>> make_learner("hoeffding")
    Traceback (most recent call last):
    ...
    ValueError: there is no learner 'hoeffding': choose from dmt, dmt-paper, fimtdd, ...
    """
    choice = LEARNERS[check_name(name, LEARNERS, "learner")]
    return choice.make(tuple(categorical) or None, seed)  # type: ignore[arg-type]
