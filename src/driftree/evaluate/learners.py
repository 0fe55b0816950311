"""Learners by name; of labels, the paper's, each with the paper's settings.

The Hoeffding trees and the ensembles are River's. The authors used scikit-multiflow 0.5.3, from
which River's descend; docs/paper.md says where the two differ in their results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftree.baselines.fimtdd import FIMTDDClassifier
from driftree.estimators import DynamicModelTreeClassifier
from driftree.evaluate.choices import LearnerChoice
from driftree.evaluate.regressors import REGRESSORS
from driftree.forests import DynamicModelForestClassifier
from driftree.streams.catalogue import check_name
from driftree.streams.stream import check_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driftree.evaluate.choices import Categorical
    from driftree.streams.stream import Task

# scikit-multiflow's and the paper's: only binary splits, majority votes in the leaves.
HOEFFDING: dict[str, Any] = {"delta": 0.01, "binary_split": True, "leaf_prediction": "mc"}


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
        takes_text=True,
        is_told_of_text_only=True,
    ),
    LearnerChoice(
        "forest",
        "DMT forest (driftree)",
        "five Dynamic Model Trees together, driftree's own setting",
        lambda categorical, seed: DynamicModelForestClassifier(categorical=categorical, seed=seed),
        cost=15,
        is_ensemble=True,
        is_ours=True,
        takes_text=True,
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
        takes_text=True,
    ),
    LearnerChoice(
        "vfdt-nba",
        "VFDT (NBA)",
        "Hoeffding tree, adaptive Naive Bayes in the leaves (River)",
        lambda *_: _tree("HoeffdingTreeClassifier", leaf_prediction="nba"),
        cost=30,
        takes_text=True,
    ),
    LearnerChoice(
        "ht-ada",
        "HT-Ada",
        "Hoeffding adaptive tree, no bootstrap in the leaves (River)",
        lambda _, seed: _tree(
            "HoeffdingAdaptiveTreeClassifier", bootstrap_sampling=False, seed=seed
        ),
        cost=50,
        takes_text=True,
    ),
    LearnerChoice(
        "efdt",
        "EFDT",
        "extremely fast decision tree, splits re-evaluated every 1,000 rows (River)",
        lambda *_: _tree("ExtremelyFastDecisionTreeClassifier", min_samples_reevaluate=1000),
        cost=45,
        takes_text=True,
    ),
    LearnerChoice(
        "arf3",
        "Forest Ens.",
        "adaptive random forest of 3 Hoeffding trees (River)",
        lambda _, seed: _adaptive_forest(seed),
        cost=90,
        is_ensemble=True,
        takes_text=True,
    ),
    LearnerChoice(
        "levbag3",
        "Bagging Ens.",
        "leveraging bagging of 3 Hoeffding trees (River)",
        lambda _, seed: _leveraging_bagging(seed),
        cost=190,
        is_ensemble=True,
        takes_text=True,
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
        takes_text=True,
    ),
    LearnerChoice(
        "no-change",
        "no change",
        "the last label seen (River)",
        lambda *_: _dummy("NoChangeClassifier"),
        takes_text=True,
    ),
)
LEARNERS = {choice.name: choice for choice in _CHOICES}


def learners_for(task: Task) -> dict[str, LearnerChoice]:
    """Return the learners of a task by name.

    Examples
    --------
    >>> "htr" in learners_for("regression"), "htr" in learners_for("classification")
    (True, False)
    """
    return LEARNERS if check_task(task) == "classification" else REGRESSORS


def make_learner(
    name: str,
    *,
    categorical: Categorical = (),
    seed: int = 1,
    of_text: bool = False,
    task: Task = "classification",
    parameters: Mapping[str, Any] | None = None,
) -> Any:
    """Return a new learner.

    Parameters
    ----------
    name : str
        One of `LEARNERS`, or of the learners of another task.
    categorical : sequence of names or positions, default=()
        Features whose values are categories although they are numbers. The Hoeffding trees take
        every number as a number, as they did in the paper; River's regressors need names.
    seed : int, default=1
        Of the learners that use random numbers.
    of_text : bool, default=False
        Whether rows hold words. To driftree's tree, a word that a row lacks is 0; to River's trees
        it is not known.
    task : {"classification", "regression"}, default="classification"
        Whether it predicts labels or numbers.
    parameters : mapping, optional
        Parameters of one of driftree's own learners that are not the default.

    Examples
    --------
    >>> make_learner("dmt", parameters={"max_nodes": 31})
    DynamicModelTreeClassifier(max_nodes=31)
    >>> make_learner("dmt-paper")
    DynamicModelTreeClassifier(setting='paper')
    >>> make_learner("dmt", task="regression")
    DynamicModelTreeRegressor()
    >>> make_learner("hoeffding")
    Traceback (most recent call last):
    ...
    ValueError: there is no learner 'hoeffding': choose from dmt, forest, dmt-paper, fimtdd, ...
    """
    known = learners_for(task)
    choice = known[check_name(name, known, "learner")]
    if of_text:
        check_takes_text(name, task)
    learner = choice.make(tuple(categorical) or None, seed)  # type: ignore[arg-type]
    if of_text and choice.is_ours:
        learner.set_params(absent="zero")
    if parameters:
        _set_parameters(name, learner, parameters, is_ours=choice.is_ours)
    return learner


def _set_parameters(
    name: str, learner: Any, parameters: Mapping[str, Any], *, is_ours: bool
) -> None:
    """Set parameters; raise before anything is learnt if they are wrong."""
    if not is_ours:
        raise ValueError(f"{name} has the paper's parameters: only driftree's own take others")
    for parameter in parameters:
        check_name(parameter, sorted(learner.get_params()), f"parameter of {name}")
    learner.set_params(**parameters)
    learner._read_parameters()


def check_takes_text(name: str, task: Task = "classification") -> None:
    """Raise if a learner cannot learn from words.

    Examples
    --------
    >>> check_takes_text("dmt-paper")
    Traceback (most recent call last):
    ...
    ValueError: dmt-paper takes no text, whose words are too many features for it: choose from dmt,
    forest, vfdt-mc, vfdt-nba, ht-ada, efdt, arf3, levbag3, majority, no-change
    """
    known = learners_for(task)
    if not known[name].takes_text:
        able = ", ".join(choice.name for choice in known.values() if choice.takes_text)
        raise ValueError(
            f"{name} takes no text, whose words are too many features for it: choose from {able}"
        )
