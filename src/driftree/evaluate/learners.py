"""The paper's learners by name, each with the paper's settings.

The Hoeffding trees and the ensembles are River's. The authors used scikit-multiflow 0.5.3, from
which River's descend; docs/paper.md says where the two differ in their results.

How large a learner is is counted as the paper counts, by walking the real tree. Each inner node is
one split and one parameter. A leaf that predicts the majority is no split and one parameter. A leaf
with a model of its own splits its rows once more: one split for two classes, c for c classes; its
parameters are m (two classes) or m (c - 1), m the number of features.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from driftree.baselines.fimtdd import FIMTDDClassifier
from driftree.estimators import DynamicModelTreeClassifier
from driftree.streams.catalogue import check_name

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def make_learner(
    name: str, *, categorical: Categorical = (), seed: int = 1, of_text: bool = False
) -> Any:
    """Return a new learner.

    Parameters
    ----------
    name : str
        One of `LEARNERS`.
    categorical : sequence of names or positions, default=()
        Features whose values are categories although they are numbers. The Hoeffding trees take
        every number as a number, as they did in the paper.
    seed : int, default=1
        Of the learners that use random numbers.
    of_text : bool, default=False
        Whether rows hold words. To driftree's tree, a word that a row lacks is 0; to River's trees
        it is not known.

    Examples
    --------
    >>> make_learner("dmt-paper")
    DynamicModelTreeClassifier(setting='paper')
    >>> make_learner("hoeffding")
    Traceback (most recent call last):
    ...
    ValueError: there is no learner 'hoeffding': choose from dmt, dmt-paper, fimtdd, ...
    """
    choice = LEARNERS[check_name(name, LEARNERS, "learner")]
    if of_text:
        check_takes_text(name)
    learner = choice.make(tuple(categorical) or None, seed)  # type: ignore[arg-type]
    if of_text and choice.is_ours:
        learner.set_params(absent="zero")
    return learner


def check_takes_text(name: str) -> None:
    """Raise if a learner cannot learn from words.

    Examples
    --------
    >>> check_takes_text("dmt-paper")
    Traceback (most recent call last):
    ...
    ValueError: dmt-paper takes no text, whose words are too many features for it: choose from dmt,
    vfdt-mc, vfdt-nba, ht-ada, efdt, arf3, levbag3, majority, no-change
    """
    if not LEARNERS[name].takes_text:
        able = ", ".join(choice.name for choice in LEARNERS.values() if choice.takes_text)
        raise ValueError(
            f"{name} takes no text, whose words are too many features for it: choose from {able}"
        )


# ---------------------------------------------------------------------- size
class Size(NamedTuple):
    """Splits and parameters as the paper counts them, nodes, and conditions on the longest path."""

    n_splits: int
    n_parameters: int
    n_nodes: int
    depth: int


def measure_size(  # noqa: PLR0911 (a return for each kind of learner)
    model: Any, n_features: int, n_classes: int
) -> Size | None:
    """Return the size of a learner; of an ensemble the sum over its trees, and the largest depth.

    Parameters
    ----------
    model : object
        A learner of driftree, a Hoeffding tree or an ensemble of them or a dummy of River's, or a
        linear model of scikit-learn's.
    n_features, n_classes : int
        What it learns from; the driftree learners know that themselves.

    Returns
    -------
    Size or None
        None where it is not defined how to count such a learner.

    Examples
    --------
    >>> from river.tree import HoeffdingTreeClassifier
    >>> model = HoeffdingTreeClassifier(leaf_prediction="nba", grace_period=50)
    >>> for i in range(200):
    ...     model.learn_one({"age": 40 * (i % 2), "height": 1}, i % 2)
    >>> measure_size(model, n_features=2, n_classes=2)
    Size(n_splits=3, n_parameters=5, n_nodes=3, depth=1)
    """
    if hasattr(type(model), "n_splits_"):
        if not hasattr(model, "n_splits_"):  # it has learnt nothing yet
            return Size(n_splits=1, n_parameters=0, n_nodes=1, depth=0)
        return Size(model.n_splits_, model.n_parameters_, model.n_nodes_, model.depth_)
    if hasattr(model, "_root"):
        return _measure_tree(model, n_features, n_classes)
    if hasattr(model, "models") and not isinstance(model, dict):
        return _sum(measure_size(part, n_features, n_classes) for part in model.models)
    if type(model).__module__.startswith("river.dummy"):
        return Size(n_splits=0, n_parameters=1, n_nodes=1, depth=0)
    if hasattr(model, "coef_"):
        return _measure_leaves(1, n_features, n_classes, has_models=True)
    return None


def _measure_tree(model: Any, n_features: int, n_classes: int) -> Size:
    """Walk a River tree: a node with children is an inner node, whatever its class."""
    n_inner = n_leaves = depth = 0
    waiting = [(model._root, 0)]
    while waiting:
        node, level = waiting.pop()
        depth = max(depth, level)
        children = getattr(node, "children", None)
        if children:
            n_inner += 1
            waiting.extend((child, level + 1) for child in children)
        else:
            n_leaves += 1
    has_models = getattr(model, "leaf_prediction", "mc") != "mc"
    leaves = _measure_leaves(n_leaves, n_features, n_classes, has_models=has_models)
    return Size(
        n_splits=n_inner + leaves.n_splits,
        n_parameters=n_inner + leaves.n_parameters,
        n_nodes=n_inner + n_leaves,
        depth=depth,
    )


def _measure_leaves(n_leaves: int, n_features: int, n_classes: int, *, has_models: bool) -> Size:
    if not has_models:
        return Size(n_splits=0, n_parameters=n_leaves, n_nodes=n_leaves, depth=0)
    n_splits = n_classes if n_classes > 2 else 1
    n_parameters = n_features * max(1, n_classes - 1)
    return Size(n_leaves * n_splits, n_leaves * n_parameters, n_leaves, depth=0)


def _sum(sizes: Iterable[Size | None]) -> Size | None:
    known = list(sizes)
    if None in known:
        return None
    parts = [size for size in known if size is not None]
    return Size(
        n_splits=sum(size.n_splits for size in parts),
        n_parameters=sum(size.n_parameters for size in parts),
        n_nodes=sum(size.n_nodes for size in parts),
        depth=max((size.depth for size in parts), default=0),
    )


def measure_memory(model: Any) -> int | None:
    """Return the bytes that a learner holds; None if it cannot be told.

    River's learners are measured by walking all their objects, which is slow.

    Examples
    --------
    >>> measure_memory(make_learner("majority")) > 0
    True
    """
    if hasattr(model, "memory_usage"):
        return int(model.memory_usage())
    if hasattr(type(model), "_raw_memory_usage"):  # a property: hasattr would compute it
        return int(model._raw_memory_usage)
    return None
