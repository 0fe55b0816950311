"""What a race of learners says: seconds by block, speeds, and ratios of speeds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from speed_learners import BASE, NUMBER_BASE, ROWS


class Result(NamedTuple):
    """Seconds of processor time of one learner in one mode on one stream, block by block."""

    stream: str
    n_features: int
    n_classes: int
    learner: str
    mode: str
    block_rows: int  # that the learner was given of each block
    seconds: list[float]
    accuracy: float  # of numbers: R²
    n_leaves: int | None  # None: it is no tree

    def rows_per_second(self) -> float:
        """Return the speed over all blocks."""
        return self.block_rows * len(self.seconds) / sum(self.seconds)

    def against(self, rival: Result) -> Ratio:
        """Return how many times the rival's rows per second the learner has."""
        pairs = zip(self.seconds, rival.seconds, strict=True)
        share = self.block_rows / rival.block_rows
        ratios = [share * theirs / own for own, theirs in pairs]
        return Ratio(min(ratios), median(ratios), max(ratios))


class Ratio(NamedTuple):
    """A ratio of speeds over the blocks."""

    min: float
    median: float
    max: float


class Target(NamedTuple):
    """How many times faster than a rival a learner is meant to be: at least, and at best."""

    learner: str
    mode: str
    streams: tuple[str, ...]
    rival: str
    floor: float
    aim: float | None = None


class Reached(NamedTuple):
    """A target and what was reached of it on one stream."""

    learner: str
    mode: str
    stream: str
    rival: str
    floor: float
    aim: float | None
    ratio: Ratio

    def verdict(self) -> str:
        """Say which of both the median reaches."""
        if self.aim is not None and self.ratio.median >= self.aim:
            return "aim"
        return "floor" if self.ratio.median >= self.floor else "below"


FEW_FEATURES = ("sea", "hyperplane10", "hyperplane50")
OF_FORESTS = ("sea", "agrawal", "hyperplane10", "rbf", "like_covertype", "electricity")
TARGETS = (
    Target("driftree default", "dict", FEW_FEATURES, BASE, 15, 30),
    Target("driftree default", "batch1000", (*FEW_FEATURES, "like_covertype"), BASE, 25, 60),
    Target("driftree default", "dict", ("agrawal",), BASE, 12, 25),
    Target("driftree default", "batch1000", ("agrawal",), BASE, 12, 25),
    Target("driftree paper", "dict", FEW_FEATURES, BASE, 30),
    Target("driftree paper", "batch1000", FEW_FEATURES, BASE, 150),
    Target("driftree default", "batch1000", (*FEW_FEATURES, "agrawal"), "CapyMOA HT", 10),
    *(
        Target(f"driftree forest({n})", mode, OF_FORESTS, "River ARF(10)", floor)
        for n, floor in ((5, 40), (10, 20))
        for mode in ("dict", "batch1000")
    ),
    Target("driftree regressor", "dict", ("friedman",), NUMBER_BASE, 15),
    Target("driftree regressor", "batch1000", ("friedman",), NUMBER_BASE, 25),
)


def group_results(results: Sequence[Result]) -> list[dict[tuple[str, str], Result]]:
    """Put results of the same stream together, by learner and mode."""
    groups: dict[str, dict[tuple[str, str], Result]] = {}
    for result in results:
        groups.setdefault(result.stream, {})[result.learner, result.mode] = result
    return list(groups.values())


def base_of(group: dict[tuple[str, str], Result]) -> Result:
    """Return the result that the others of a stream are compared with."""
    return group.get((BASE, ROWS)) or group[NUMBER_BASE, ROWS]


def list_targets(results: Sequence[Result]) -> list[Reached]:
    """List those targets that were measured; rivals know single rows only."""
    found = {(result.stream, result.learner, result.mode): result for result in results}
    reached = []
    for target in TARGETS:
        for stream in target.streams:
            own = found.get((stream, target.learner, target.mode))
            rival = found.get((stream, target.rival, ROWS))
            if own and rival:
                fields = (target.learner, target.mode, stream, target.rival)
                reached.append(Reached(*fields, target.floor, target.aim, own.against(rival)))
    return reached
