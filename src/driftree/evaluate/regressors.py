"""Learners of numbers by name: driftree's, River's with prepared input, and two that do not learn.

River's learners get numbers scaled online and within 6 deviations, and categories as 0 or 1.
Without that, most of them diverge on a stream where a rare feature is far from its mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from river import base, preprocessing, stats

from driftree.baselines.fimtdd import FIMTDDRegressor
from driftree.estimators import DynamicModelTreeRegressor
from driftree.evaluate.choices import LearnerChoice
from driftree.forests import DynamicModelForestRegressor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from driftree.evaluate.choices import Categorical

MOST_DEVIATIONS = 6.0  # of a number from its mean


class PreparedRows(base.Transformer):
    """Scales numbers online, keeps them within some deviations, and makes categories 0 or 1.

    A number that a row lacks is its mean.

    Parameters
    ----------
    categorical : collection of names, default=()
        Features whose numbers are categories; text and booleans are without being named.

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
        """Return the mean; 0 before anything was learnt."""
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
        """Return the last target; 0 before anything was learnt."""
        return self._last


# ---------------------------------------------------------------------- River's
def _prepared(make: Callable[[int], Any]) -> Callable[[Categorical, int], Any]:
    return lambda categorical, seed: PreparedRows(tuple(categorical or ())) | make(seed)


def _in_deviations(regressor: Any) -> Any:
    """Let a learner with steps of a fixed size learn targets in their standard deviation."""
    return preprocessing.TargetStandardScaler(regressor=regressor)


def _linear(_: int) -> Any:
    from river import linear_model

    return linear_model.LinearRegression()


def _passive_aggressive(_: int) -> Any:
    from river import linear_model

    return _in_deviations(linear_model.PARegressor(C=0.01))  # type: ignore[no-untyped-call]


def _weighted_average(_: int) -> Any:
    """Take the three optimisers, and the rates, of River's own example."""
    from river import ensemble, linear_model, optim

    optimizers = (optim.SGD(0.01), optim.RMSProp(), optim.AdaGrad())
    lines: list[Any] = [
        linear_model.LinearRegression(optimizer=one, intercept_lr=0.1) for one in optimizers
    ]
    return _in_deviations(ensemble.EWARegressor(lines, learning_rate=0.005))


def _tree(name: str, **parameters: Any) -> Any:
    from river import tree

    return getattr(tree, name)(**parameters)


def _gradient_tree(_: int) -> Any:
    """Take a quantizer that, unlike the default, can begin with a constant feature."""
    from river.tree.splitter import DynamicQuantizer

    return _in_deviations(_tree("SGTRegressor", feature_quantizer=DynamicQuantizer()))


def _rules(_: int) -> Any:
    from river import rules

    return rules.AMRules()


_CHOICES = (
    LearnerChoice(
        "dmt",
        "DMT (driftree)",
        "Dynamic Model Tree, driftree's own setting",
        lambda categorical, seed: DynamicModelTreeRegressor(categorical=categorical, seed=seed),
        cost=3,
        is_ours=True,
        takes_text=True,
    ),
    LearnerChoice(
        "forest",
        "DMT forest (driftree)",
        "five Dynamic Model Trees together, driftree's own setting",
        lambda categorical, seed: DynamicModelForestRegressor(categorical=categorical, seed=seed),
        cost=15,
        is_ensemble=True,
        is_ours=True,
        takes_text=True,
    ),
    LearnerChoice(
        "dmt-paper",
        "DMT (paper's setting)",
        "Dynamic Model Tree as published, for numbers",
        lambda categorical, seed: DynamicModelTreeRegressor.paper(
            categorical=categorical, seed=seed
        ),
        is_ours=True,
    ),
    LearnerChoice(
        "fimtdd",
        "FIMT-DD",
        "fast incremental model tree with drift detection",
        lambda categorical, _: FIMTDDRegressor(categorical=categorical),
        cost=2,
        is_ours=True,
    ),
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
        "HTR (adaptive)",
        "Hoeffding tree, the better of mean and linear model in the leaves (River)",
        _prepared(lambda _: _tree("HoeffdingTreeRegressor", leaf_prediction="adaptive")),
        cost=40,
    ),
    LearnerChoice(
        "hatr",
        "HATR",
        "Hoeffding adaptive tree, the better of mean and linear model in the leaves (River)",
        _prepared(lambda seed: _tree("HoeffdingAdaptiveTreeRegressor", seed=seed)),
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
REGRESSORS = {choice.name: choice for choice in _CHOICES}
