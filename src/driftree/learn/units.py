"""Units: from what the simple models predict to what the user reads, and back.

Simple models predict log-odds, or a number t: the target without its unit. What they add up can be
read as `shift + factor * t`: log-odds, the target itself, or, with a log link, its logarithm.
Whatever is said of models goes through here, and nothing else knows how the target is scaled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from driftree.learn._kernels import _ModelTreeEngine


class Unit(NamedTuple):
    """The unit in which sums of a model are read.

    Attributes
    ----------
    shift, factor : float
        A model's sum t is read as `shift + factor * t`; a weight or an effect w as `factor * w`.
    has_log_link : bool
        Whether what is read is the logarithm of the prediction.

    Examples
    --------
    >>> celsius = Unit(shift=20.0, factor=5.0)
    >>> celsius.read(1.5), celsius.model_sum(27.5)
    (27.5, 1.5)
    >>> count = Unit(math.log(20.0), 1.0, has_log_link=True)
    >>> print(f"{count.number(count.read(0.0)):.1f}")
    20.0
    """

    shift: float = 0.0
    factor: float = 1.0
    has_log_link: bool = False

    def read(self, model_sum: float) -> float:
        """Return what a model's sum is read as."""
        return self.shift + self.factor * model_sum

    def number(self, read: float) -> float:
        """Return the prediction for what was read."""
        if not self.has_log_link:
            return read
        return math.exp(min(read, 700.0))

    def model_sum(self, number: float) -> float:
        """Return the sum of a model that predicts a number; minus infinity if none does."""
        if not self.has_log_link:
            return (number - self.shift) / self.factor
        return (math.log(number) - self.shift) / self.factor if number > 0 else -math.inf


LOG_ODDS = Unit()


def unit_of(engine: _ModelTreeEngine) -> Unit:
    """Return the unit of an engine's models."""
    if engine.has_labels:
        return LOG_ODDS
    if engine.has_log_link:
        return Unit(math.log(engine.target_scale), 1.0, has_log_link=True)
    return Unit(engine.target_shift, engine.target_scale)
