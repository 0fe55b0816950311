"""Learners by name: the paper's classifiers, with the paper's settings, and regressors.

The Hoeffding trees and the ensembles are River's. The authors used scikit-multiflow 0.5.3, from
which River's descend; docs/paper.md says where the two differ in their results.

River's regressors get numbers standardised online and clipped at 6 standard deviations, and one-hot
categories. Without that, most of them diverge on streams with rare extreme values.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from river import base, preprocessing, stats

from driftree.baselines import FIMTDDClassifier, FIMTDDRegressor
from driftree.estimators import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.forests import DynamicModelForestClassifier, DynamicModelForestRegressor
from driftree.streams.catalogue import check_name
from driftree.streams.stream import check_task

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from driftree.streams.stream import Task

Categorical = Sequence[Hashable]

MOST_DEVIATIONS = 6.0  # at which standardised numbers are clipped

# scikit-multiflow's and the paper's: only binary splits, majority votes in the leaves.
HOEFFDING: dict[str, Any] = {"delta": 0.01, "binary_split": True, "leaf_prediction": "mc"}


@dataclass(frozen=True)
class LearnerChoice:
    """A learner that has a name.

    Attributes
    ----------
    name, title : str
        Its name in options, and on the screen, see `title_of`.
    words : str
        What it is.
    make : callable
        Takes the categorical features and a seed, returns a new learner.
    cost : float
        Its time for a row, roughly, as a multiple of a linear model's (Table V of docs/paper.md).
    is_ensemble : bool
        Whether the paper lists it as an ensemble, apart from single trees.
    is_ours : bool
        Whether its results change with the code of driftree, not with River's.
    takes_text : bool
        Whether it can learn from text: few words per row, and new words all the time.
    """

    name: str
    title: str
    words: str
    make: Callable[[Categorical, int], Any]
    cost: float = 1.0
    is_ensemble: bool = False
    is_ours: bool = False
    takes_text: bool = False


# ---------------------------------------------------------------------- driftree's own
def _ours(tree: Any, forest: Any, fimtdd: Any) -> tuple[LearnerChoice, ...]:
    """Return driftree's own learners, which have the same names for both tasks."""
    return (
        LearnerChoice(
            "dmt",
            "DMT (driftree)",
            "Dynamic Model Tree, driftree's own setting",
            lambda categorical, seed: tree(categorical=categorical, seed=seed),
            cost=3,
            is_ours=True,
            takes_text=True,
        ),
        LearnerChoice(
            "forest",
            "DMT forest (driftree)",
            "ensemble of five Dynamic Model Trees, driftree's own setting",
            lambda categorical, seed: forest(categorical=categorical, seed=seed),
            cost=15,
            is_ensemble=True,
            is_ours=True,
            takes_text=True,
        ),
        LearnerChoice(
            "dmt-paper",
            "DMT (paper's setting)",
            "Dynamic Model Tree as published",
            lambda categorical, seed: tree.paper(categorical=categorical, seed=seed),
            is_ours=True,
        ),
        LearnerChoice(
            "fimtdd",
            "FIMT-DD",
            "fast incremental model tree with drift detection",
            lambda categorical, _: fimtdd(categorical=categorical),
            cost=2,
            is_ours=True,
        ),
    )


# ---------------------------------------------------------------------- of numbers
class PreparedRows(base.Transformer):
    """Standardises and clips numbers online, and encodes categories as 0 or 1.

    A missing number becomes its mean.

    Parameters
    ----------
    categorical : collection of names, default=()
        Features whose numbers are categories; text and booleans always are.

    Examples
    --------
    >>> rows = PreparedRows()
    >>> for x in ({"age": 20, "car": "van"}, {"age": 40, "car": "bus"}):
    ...     rows.learn_one(x)
    >>> rows.transform_one({"age": 900, "car": "bus"})
    {'age': 6.0, 'car=van': 0.0, 'car=bus': 1.0}
    """

    def __init__(self, categorical: Collection[Hashable] = ()) -> None:
        self.categorical = categorical
        self._scaler: Any = preprocessing.StandardScaler()
        self._levels: dict[tuple[Hashable, Any], str] = {}

    def _is_number(self, name: Hashable, value: Any) -> bool:
        is_category = isinstance(value, (str, bool)) or name in self.categorical
        return not is_category

    def _numbers_in(self, x: dict[Hashable, Any]) -> dict[Hashable, Any]:
        return {name: value for name, value in x.items() if self._is_number(name, value)}

    def learn_one(self, x: dict[Hashable, Any]) -> None:
        """Learn scales and levels."""
        self._scaler.learn_one(self._numbers_in(x))
        for name, value in x.items():
            if not self._is_number(name, value):
                self._levels.setdefault((name, value), f"{name}={value}")

    def transform_one(self, x: dict[Hashable, Any]) -> dict[Hashable, float]:
        """Return a row as numbers around 0."""
        scaled = dict.fromkeys(self._scaler.means, 0.0)
        for name, value in self._scaler.transform_one(self._numbers_in(x)).items():
            scaled[name] = min(max(value, -MOST_DEVIATIONS), MOST_DEVIATIONS)
        for (name, value), column in self._levels.items():
            scaled[column] = float(x.get(name) == value)
        return scaled


class RunningMean(base.Regressor):
    """Predicts the mean of the targets so far.

    Examples
    --------
    >>> model = RunningMean()
    >>> for y in (2, 4):
    ...     model.learn_one({}, y)
    >>> model.predict_one({})
    3.0
    """

    def __init__(self) -> None:
        self._mean = stats.Mean()

    def learn_one(self, x: Any, y: float) -> None:
        """Learn a target."""
        self._mean.update(y)

    def predict_one(self, x: Any) -> float:
        """Return the mean; 0 before anything is learnt."""
        return float(self._mean.get())


class NoChange(base.Regressor):
    """Predicts the last target.

    Examples
    --------
    >>> model = NoChange()
    >>> for y in (2, 4):
    ...     model.learn_one({}, y)
    >>> model.predict_one({})
    4.0
    """

    def __init__(self) -> None:
        self._last = 0.0

    def learn_one(self, x: Any, y: float) -> None:
        """Learn a target."""
        self._last = float(y)

    def predict_one(self, x: Any) -> float:
        """Return the last target; 0 before anything is learnt."""
        return self._last


# ---------------------------------------------------------------------- of numbers, River's
def _prepared(make: Callable[[int], Any]) -> Callable[[Categorical, int], Any]:
    return lambda categorical, seed: PreparedRows(tuple(categorical or ())) | make(seed)


def _in_deviations(regressor: Any) -> Any:
    """Let a learner with a fixed step size learn standardised targets."""
    return preprocessing.TargetStandardScaler(regressor=regressor)


def _linear(_: int) -> Any:
    from river import linear_model

    return linear_model.LinearRegression()


def _passive_aggressive(_: int) -> Any:
    from river import linear_model

    return _in_deviations(linear_model.PARegressor(C=0.01))  # type: ignore[no-untyped-call]


def _weighted_average(_: int) -> Any:
    """Use the three optimisers, and the learning rates, of River's own example."""
    from river import ensemble, linear_model, optim

    optimizers = (optim.SGD(0.01), optim.RMSProp(), optim.AdaGrad())
    lines: list[Any] = [
        linear_model.LinearRegression(optimizer=one, intercept_lr=0.1) for one in optimizers
    ]
    return _in_deviations(ensemble.EWARegressor(lines, learning_rate=0.005))


def _river_tree(name: str, **parameters: Any) -> Any:
    from river import tree

    return getattr(tree, name)(**parameters)


def _gradient_tree(_: int) -> Any:
    """Use a quantizer that, unlike the default, supports features that are constant at first."""
    from river.tree.splitter import DynamicQuantizer

    return _in_deviations(_river_tree("SGTRegressor", feature_quantizer=DynamicQuantizer()))


def _rules(_: int) -> Any:
    from river import rules

    return rules.AMRules()


_OF_NUMBERS = (
    *_ours(DynamicModelTreeRegressor, DynamicModelForestRegressor, FIMTDDRegressor),
    LearnerChoice(
        "linear",
        "linear regression",
        "linear regression by stochastic gradient descent (River)",
        _prepared(_linear),
        cost=5,
    ),
    LearnerChoice(
        "pa",
        "PA",
        "passive-aggressive regression (River)",
        _prepared(_passive_aggressive),
        cost=8,
    ),
    LearnerChoice(
        "ewa",
        "EWA",
        "exponentially weighted average of three linear regressions (River)",
        _prepared(_weighted_average),
        cost=20,
    ),
    LearnerChoice(
        "htr",
        "HTR",
        "Hoeffding tree, the better of mean and linear model in the leaves (River)",
        _prepared(lambda _: _river_tree("HoeffdingTreeRegressor", leaf_prediction="adaptive")),
        cost=40,
    ),
    LearnerChoice(
        "hatr",
        "HATR",
        "Hoeffding adaptive tree, the better of mean and linear model in the leaves (River)",
        _prepared(lambda seed: _river_tree("HoeffdingAdaptiveTreeRegressor", seed=seed)),
        cost=60,
    ),
    LearnerChoice(
        "sgt", "SGT", "stochastic gradient tree (River)", _prepared(_gradient_tree), cost=40
    ),
    LearnerChoice("amrules", "AMRules", "adaptive model rules (River)", _prepared(_rules), cost=50),
    LearnerChoice(
        "mean", "running mean", "the mean so far", lambda *_: RunningMean(), takes_text=True
    ),
    LearnerChoice(
        "no-change", "no change", "the last target seen", lambda *_: NoChange(), takes_text=True
    ),
)
REGRESSORS = {choice.name: choice for choice in _OF_NUMBERS}


# ---------------------------------------------------------------------- of labels
class StableText(str):
    """Text whose hash does not depend on PYTHONHASHSEED."""

    __slots__ = ()

    def __hash__(self) -> int:
        return zlib.crc32(self.encode(errors="surrogatepass"))


class StableLevels(base.Transformer):
    """Makes trees of River give the same results in every process.

    They keep the levels of a category in a set, and of two that are equally good to split on they
    take the first: for text, the order in a set depends on PYTHONHASHSEED.

    Examples
    --------
    >>> x = StableLevels().transform_one({"car": "van", "age": 20})
    >>> x, hash(x["car"])
    ({'car': 'van', 'age': 20}, 2043796297)
    """

    def transform_one(self, x: dict[Hashable, Any]) -> dict[Hashable, Any]:
        """Return a row with stable levels; text as such is equal to them."""
        if str not in map(type, x.values()):
            return x
        return {name: StableText(cell) if type(cell) is str else cell for name, cell in x.items()}


class SortedLabels(set[Any]):
    """Labels in their order, instead of one that depends on PYTHONHASHSEED."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=lambda label: (type(label).__name__, label)))


def _stable(model: Any) -> Any:
    return StableLevels() | model


def _tree(name: str, **parameters: Any) -> Any:
    return _stable(_river_tree(name, **{**HOEFFDING, **parameters}))


def _adaptive_tree(seed: int) -> Any:
    tree = _river_tree(
        "HoeffdingAdaptiveTreeClassifier", bootstrap_sampling=False, seed=seed, **HOEFFDING
    )
    tree.classes = SortedLabels()  # River's other trees sort them by themselves
    return _stable(tree)


def _adaptive_forest(seed: int) -> Any:
    from river import forest

    return _stable(forest.ARFClassifier(n_models=3, seed=seed, **HOEFFDING))


def _leveraging_bagging(seed: int) -> Any:
    from river import ensemble

    tree = _river_tree("HoeffdingTreeClassifier", **HOEFFDING)
    return _stable(ensemble.LeveragingBaggingClassifier(tree, n_models=3, seed=seed))


def _dummy(name: str) -> Any:
    from river import dummy

    return getattr(dummy, name)()


_CHOICES = (
    *_ours(DynamicModelTreeClassifier, DynamicModelForestClassifier, FIMTDDClassifier),
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
        lambda _, seed: _adaptive_tree(seed),
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
        "ARF(3)",
        "adaptive random forest of 3 Hoeffding trees (River)",
        lambda _, seed: _adaptive_forest(seed),
        cost=90,
        is_ensemble=True,
        takes_text=True,
    ),
    LearnerChoice(
        "levbag3",
        "LevBag(3)",
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


def title_of(learner: str) -> str:
    """Return the title of a learner on the screen, in plots, reports and tables.

    Files and options use the name instead.

    Examples
    --------
    >>> title_of("dmt"), title_of("htr"), title_of("one of my own")
    ('DMT (driftree)', 'HTR', 'one of my own')
    """
    choice = LEARNERS.get(learner) or REGRESSORS.get(learner)
    return learner if choice is None else choice.title


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
        Features whose values are categories although they are numbers. The Hoeffding trees treat
        every number as a number, as in the paper; River's regressors need names.
    seed : int, default=1
        Of the learners that use random numbers.
    of_text : bool, default=False
        Whether rows hold words. For driftree's trees, an absent word is 0; for River's trees it is
        missing.
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
        raise ValueError(
            f"{name} has the paper's parameters: only driftree's own learners accept others"
        )
    for parameter in parameters:
        check_name(parameter, sorted(learner.get_params()), f"parameter of {name}")
    learner.set_params(**parameters)
    learner._read_parameters()


def check_takes_text(name: str, task: Task = "classification") -> None:
    """Raise if a learner cannot learn from text.

    Examples
    --------
    >>> check_takes_text("dmt-paper")
    Traceback (most recent call last):
    ...
    ValueError: dmt-paper does not support text, whose words are too many features: choose from dmt,
    forest, vfdt-mc, vfdt-nba, ht-ada, efdt, arf3, levbag3, majority, no-change
    """
    known = learners_for(task)
    if not known[name].takes_text:
        able = ", ".join(choice.name for choice in known.values() if choice.takes_text)
        raise ValueError(
            f"{name} does not support text, whose words are too many features: choose from {able}"
        )
