"""What was found in running the paper's experiments: all that its tables are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from driftree.evaluate.published import TITLES
from driftree.evaluate.records import Figure, Record, summarise

Results = Mapping[tuple[str, str], Sequence[Record]]

NOT_RUN = "not run"
# Where a data set of the paper could be had only in part, this part fills its place.
STAND_INS = {"airlines": ("airlines_5of7_features", "5 of 7 features, without the two airports")}


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What was found here, and what could not be had: all that the tables are made of.

    Attributes
    ----------
    summaries : mapping of (data set, learner) to mapping of str to Figure
        Mean and standard deviation of every figure of a run, see `summarise`.
    counts : mapping of data set to (rows, features, classes, rows of the majority)
        Of the data sets that could be had.
    missing : mapping of data set to str
        Why a data set could not be had.

    Examples
    --------
    >>> from driftree.evaluate import prequential
    >>> from driftree.evaluate.paper_tables import table_f1
    >>> from driftree.streams import sea
    >>> results = {("sea", "vfdt-mc"): list(prequential("vfdt-mc", sea(5000)))}
    >>> findings = Findings.from_records(results, missing={"gas": "no network"})
    >>> cell = table_f1(findings).cells["vfdt-mc", "sea"]
    >>> print(cell.ours, "here,", cell.paper, "in the paper")
    0.743 ± 0.114 here, 0.860 ± 0.030 in the paper
    """

    summaries: Mapping[tuple[str, str], Mapping[str, Figure]] = field(default_factory=dict)
    counts: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_records(
        cls,
        results: Results,
        *,
        counts: Mapping[str, Sequence[int | None]] | None = None,
        missing: Mapping[str, str] | None = None,
    ) -> Self:
        """Sum up the records of each data set and learner."""
        summaries = {
            (data_set, learner): summarise(records)[learner]
            for (data_set, learner), records in results.items()
            if records
        }
        return cls(summaries=summaries, counts=counts or {}, missing=missing or {})

    @cached_property
    def had(self) -> dict[str, str]:
        """The paper's data sets that could be had, each with the name of what fills its place."""
        names = {*self.counts, *(data_set for data_set, _ in self.summaries)}
        places = {name: STAND_INS.get(name, (name, ""))[0] for name in TITLES}
        return {
            name: name if name in names else place
            for name, place in places.items()
            if name in names or place in names
        }

    @cached_property
    def run(self) -> list[str]:
        """The paper's data sets that something was run on."""
        names = {data_set for data_set, _ in self.summaries}
        return [name for name, place in self.had.items() if place in names]

    def is_stand_in(self, data_set: str) -> bool:
        """Whether something else fills the place of a data set."""
        return self.had.get(data_set, data_set) != data_set

    def figure(self, data_set: str, learner: str, name: str) -> Figure | None:
        """Return what a learner achieved on one of the paper's data sets."""
        summary = self.summaries.get((self.had.get(data_set, ""), learner))
        return None if summary is None else summary[name]

    def data_set_note(self, data_set: str) -> str:
        """Say why a data set is missing, or what of it is."""
        if self.is_stand_in(data_set):
            return STAND_INS[data_set][1]
        if data_set in self.had:
            return ""
        return f"not had: {self.missing[data_set]}" if data_set in self.missing else ""

    def notes(self) -> list[str]:
        """Name what is missing, and why."""
        partial = [
            f"† {TITLES[name]}: {STAND_INS[name][1]} ({place}); it counts in the means"
            for name, place in self.had.items()
            if place != name
        ]
        lost = [name for name in TITLES if name in self.missing and name not in self.had]
        idle = [name for name in TITLES if name not in (*lost, *self.run)]
        return [
            *partial,
            *(f"not had: {name} ({self.missing[name]})" for name in lost),
            *([f"{NOT_RUN}: {', '.join(idle)}"] if idle else []),
        ]
