"""The learners' parameters as validated, immutable records."""

from __future__ import annotations

import math
import numbers
from dataclasses import MISSING, Field, dataclass
from functools import cache
from typing import Any, ClassVar, Self

import joblib  # type: ignore[import-untyped]
import numpy as np

from driftree.learn.constants import (
    FOREST,
    FOREST_NUMBERS,
    GROWING,
    ForestConstants,
    PairConstants,
)
from driftree.learn.imbalance import check_class_weight, check_threshold
from driftree.learn.losses import Loss, check_name


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a number; `text` describes it in errors."""

    low: float
    high: float
    text: str
    whole: bool = False
    open_low: bool = False

    def check(self, name: str, value: object) -> None:
        """Raise if the value is of the wrong type or out of range."""
        kind = numbers.Integral if self.whole else numbers.Real
        is_plain = type(value) is int or (type(value) is float and not self.whole)
        if not is_plain and (isinstance(value, bool) or not isinstance(value, kind)):
            what = "a whole number" if self.whole else "a number"
            raise TypeError(f"{name} must be {what} {self.text}, got {value!r}")
        inside = self.low <= value <= self.high  # type: ignore[operator]  # False for NaN
        if not inside or (self.open_low and value == self.low):
            raise ValueError(f"{name} must be {self.text}, got {value!r}")


RANGES = {
    "epsilon": Range(0, 1, "above 0 and at most 1", open_low=True),
    "evidence_window": Range(1, math.inf, "at least 1"),
    "model_window": Range(1, math.inf, "at least 1"),
    "bins": Range(2, 1024, "from 2 to 1024", whole=True),
    "trials": Range(1, 64, "from 1 to 64", whole=True),
    "max_bends": Range(0, 1024, "from 0 to 1024", whole=True),
    "max_features": Range(1, 2**31 - 1, "from 1 to 2**31 - 1", whole=True),
    "n_trees": Range(1, 50, "from 1 to 50", whole=True),
    "max_nodes": Range(1, 65535, "from 1 to 65535", whole=True),
    "max_depth": Range(0, 1000, "from 0 to 1000", whole=True),
    "learning_rate": Range(0, 1e6, "above 0 and at most 1e6", open_low=True),
    "gain_step": Range(0, 1e6, "above 0 and at most 1e6", open_low=True),
    "candidates": Range(1, 1024, "from 1 to 1024", whole=True),
    "replacement_rate": Range(0, 1, "from 0 to 1"),
    "delta": Range(0, 1, "above 0 and at most 1", open_low=True),
    "tie_threshold": Range(0, 1, "from 0 to 1"),
    "grace_period": Range(1, 1e9, "from 1 to 1e9", whole=True),
    "drift_tolerance": Range(0, 1, "from 0 to 1"),
    "drift_threshold": Range(0, math.inf, "above 0", open_low=True),
    "seed": Range(0, 2**64 - 1, "from 0 to 2**64 - 1", whole=True),
}


class CheckedParameters:
    """Base of the records: every field with a range is checked when the record is created."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]  # by their names

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if name in RANGES:
                RANGES[name].check(name, getattr(self, name))

    @classmethod
    def of(cls, source: object) -> Self:
        """Read the parameters from an object with attributes of these names."""
        return cls(**{name: getattr(source, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeParameters(CheckedParameters):
    """Parameters of both settings; `DynamicModelTreeClassifier` explains each."""

    setting: str
    epsilon: float
    max_nodes: int
    max_depth: int
    seed: int
    keep_history: bool

    def __post_init__(self) -> None:
        if not isinstance(self.keep_history, (bool, np.bool_)):
            raise TypeError(f"keep_history must be True or False, got {self.keep_history!r}")
        CheckedParameters.__post_init__(self)  # `super()` does not know a class with slots


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredParameters(TreeParameters):
    """Checked parameters of a tree in our setting, with its defaults."""

    epsilon: float = 1e-8  # without bends `read_parameters` takes STRAIGHT_EPSILON
    evidence_window: float = 20000
    model_window: float = 1000
    bins: int = 64
    trials: int = 3
    max_bends: int = 128
    absent: str = "missing"
    max_features: int = 2**18

    def __post_init__(self) -> None:
        if self.absent not in ("missing", "zero"):
            raise ValueError(f"absent must be 'missing', 'zero' or None, got {self.absent!r}")
        TreeParameters.__post_init__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperParameters(TreeParameters):
    """Checked parameters of a tree in the paper's setting, with its defaults."""

    epsilon: float = 1e-7
    learning_rate: float = 0.05
    gain_step: float = 0.05  # `read_parameters` takes the learning rate, whatever that is
    candidates: int = 3
    replacement_rate: float = 0.5


class OfLabels:
    """What the parameters of classifiers have besides; docs/imbalance.md explains both."""

    __slots__ = ()
    class_weight: str | dict[Any, float] | None
    threshold: dict[str, Any] | None

    def check_labels(self) -> None:
        """Keep copies, checked."""
        object.__setattr__(self, "class_weight", check_class_weight(self.class_weight))
        object.__setattr__(self, "threshold", check_threshold(self.threshold))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLabelParameters(OfLabels, MeasuredParameters):
    """The same for classifiers."""

    class_weight: str | dict[Any, float] | None = None
    threshold: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.check_labels()
        MeasuredParameters.__post_init__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperLabelParameters(OfLabels, PaperParameters):
    """The same for classifiers."""

    class_weight: str | dict[Any, float] | None = None
    threshold: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.check_labels()
        PaperParameters.__post_init__(self)


QUANTILES = (0.1, 0.5, 0.9)
MOST_QUANTILES = 100
PAPER_LOSSES = ("gaussian", "student")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNumberParameters(MeasuredParameters):
    """The same for regressors; a custom loss by its name."""

    loss: str = "gaussian"
    quantiles: tuple[float, ...] = QUANTILES
    follow_target: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.loss, Loss):
            object.__setattr__(self, "loss", self.loss.name)
        check_name(self.loss)
        object.__setattr__(self, "quantiles", check_quantiles(self.quantiles))
        if self.loss != "quantile" and self.quantiles != QUANTILES:
            raise ValueError(
                f"quantiles={self.quantiles!r} belongs to loss='quantile', but the loss is "
                f"{self.loss!r}: leave it None, or change the loss"
            )
        if not isinstance(self.follow_target, (bool, np.bool_)):
            raise TypeError(
                f"follow_target must be True, False or None, got {self.follow_target!r}"
            )
        MeasuredParameters.__post_init__(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperNumberParameters(PaperParameters):
    """The same for a target that is a number."""

    loss: str = "gaussian"

    def __post_init__(self) -> None:
        if self.loss not in PAPER_LOSSES:
            raise ValueError(
                "loss must be one of 'gaussian', 'student' in the paper's setting, got "
                f"{self.loss!r}"
            )
        PaperParameters.__post_init__(self)


def check_quantiles(quantiles: Any) -> tuple[float, ...]:
    """Return sorted quantiles; raise if they are invalid.

    Examples
    --------
    >>> check_quantiles([0.9, 0.5])
    (0.5, 0.9)
    >>> check_quantiles([0.5, 1.5])
    Traceback (most recent call last):
    ValueError: quantiles must be different numbers between 0 and 1, got [0.5, 1.5]
    """
    try:
        found = tuple(sorted(map(float, quantiles)))
    except (TypeError, ValueError):
        raise TypeError(f"quantiles must be a sequence of numbers, got {quantiles!r}") from None
    if not found or len(set(found)) < len(found) or not 0 < found[0] <= found[-1] < 1:
        raise ValueError(f"quantiles must be different numbers between 0 and 1, got {quantiles!r}")
    if len(found) > MOST_QUANTILES:
        raise ValueError(f"{len(found)} quantiles were given, at most {MOST_QUANTILES} may be")
    return found


def count_threads(n_jobs: object) -> int:
    """Return the number of threads for `n_jobs`, as in scikit-learn.

    Examples
    --------
    >>> count_threads(None), count_threads(4), count_threads(-1) == n_cores()
    (1, 4, True)
    >>> count_threads(0)
    Traceback (most recent call last):
    ValueError: n_jobs must be a whole number of threads up to 1024, -1 for one per core (-2 for
    one less, and so on) or None for one, got 0
    """
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, numbers.Integral):
        raise TypeError(f"n_jobs must be {N_JOBS}, got {n_jobs!r}")
    n = int(n_jobs)
    if n == 0 or n > MOST_THREADS:
        raise ValueError(f"n_jobs must be {N_JOBS}, got {n}")
    return n if n > 0 else max(1, n_cores() + 1 + n)


MOST_THREADS = 1024
N_JOBS = (
    f"a whole number of threads up to {MOST_THREADS}, -1 for one per core (-2 for one less, and so "
    "on) or None for one"
)


@cache
def n_cores() -> int:
    """Return the cores that this process may use: by its affinity, and by a container's quota."""
    return int(joblib.cpu_count())


STRAIGHT_EPSILON = 1e-14  # without a price, only this keeps trees small

Parameters = MeasuredParameters | PaperParameters
Settings = dict[object, type[Parameters]]
SETTINGS: Settings = {"measured": MeasuredLabelParameters, "paper": PaperLabelParameters}
NUMBER_SETTINGS: Settings = {"measured": MeasuredNumberParameters, "paper": PaperNumberParameters}


def read_parameters(source: Any, settings: Settings = SETTINGS) -> Parameters:
    """Read the parameters of a tree from an object; None is the default of its setting.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> read_parameters(DynamicModelTreeClassifier(trials=2)).epsilon
    1e-08
    >>> read_parameters(DynamicModelTreeClassifier(setting="paper", trials=2))
    Traceback (most recent call last):
    ValueError: trials=2 belongs to setting='measured', but the setting is 'paper': leave it None,
    or change the setting
    """
    setting = source.setting
    if not isinstance(setting, str) or setting not in settings:
        raise ValueError(f"setting must be 'measured' or 'paper', got {setting!r}")
    own = settings[setting]
    given: dict[str, Any] = {}
    for name, field in own.__dataclass_fields__.items():
        value = getattr(source, name)
        if value is not None or field.default is MISSING:
            given[name] = value
    for other, kind in settings.items():
        for name in kind.__dataclass_fields__ if kind is not own else ():
            value = getattr(source, name)
            if value is not None and name not in given:
                raise ValueError(
                    f"{name}={value!r} belongs to setting={other!r}, but the setting is "
                    f"{setting!r}: leave it None, or change the setting"
                )
    if setting == "measured" and given.get("max_bends") == 0:
        given.setdefault("epsilon", STRAIGHT_EPSILON)
    if setting == "paper" and "learning_rate" in given:
        given.setdefault("gain_step", given["learning_rate"])
    return own(**given)


class OfForest:
    """Parameters of forests besides those of their trees."""

    __slots__ = ()
    seed: int
    _tree: ClassVar[type[MeasuredParameters]]
    _of_all: ClassVar[tuple[str, ...]] = ()  # parameters of the forest as a whole
    constants: ClassVar[ForestConstants] = FOREST

    def of_member(self, number: int) -> MeasuredParameters:
        """Return the parameters of a tree, the plain one first; new trees have further numbers."""
        turns = self.constants.turns
        kind = turns[(number - 1) % len(turns)] if number > 0 else None
        return self._of_kind(kind, (int(self.seed) + number) % 2**64)

    def may_have(self, place: int, own: MeasuredParameters) -> bool:
        """Return whether a tree with these parameters can be at an index; in old files all grow."""
        kinds = (*self.constants.turns, GROWING) if place > 0 else (None,)
        return any(own == self._of_kind(kind, own.seed) for kind in kinds)

    def _of_kind(self, kind: PairConstants | None, seed: int) -> MeasuredParameters:
        own = {name: getattr(self, name) for name in self._tree.__dataclass_fields__}
        own |= dict.fromkeys(self._of_all) | {"seed": seed}
        if kind is not None and own["absent"] != "zero":
            light = self.constants
            own["max_depth"] = min(own["max_depth"], kind.max_depth)
            own["max_bends"] = min(own["max_bends"], kind.max_bends)
            own["trials"] = min(own["trials"], light.trials)
            own["bins"] = min(own["bins"], light.bins)
            own["model_window"] = max(1, kind.memory * own["model_window"])
        return self._tree(**own)

    @property
    def of_all(self) -> dict[str, Any]:
        """The parameters of the forest as a whole."""
        return {name: getattr(self, name) for name in self._of_all}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestParameters(OfForest, MeasuredLabelParameters):
    """Checked parameters of a forest; `DynamicModelForestClassifier` explains each of them."""

    _tree = MeasuredLabelParameters
    _of_all = ("class_weight", "threshold")
    n_trees: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestNumberParameters(OfForest, MeasuredNumberParameters):
    """The same for a target that is a number."""

    _tree = MeasuredNumberParameters
    constants = FOREST_NUMBERS
    n_trees: int = 5


FOREST_SETTINGS: Settings = {"measured": ForestParameters}
FOREST_NUMBER_SETTINGS: Settings = {"measured": ForestNumberParameters}


@dataclass(frozen=True, slots=True)
class FIMTDDParameters(CheckedParameters):
    """Checked parameters of a FIMT-DD tree; `FIMTDDClassifier` explains each of them."""

    learning_rate: float
    delta: float
    tie_threshold: float
    grace_period: int
    drift_tolerance: float
    drift_threshold: float
    max_nodes: int
    max_depth: int
