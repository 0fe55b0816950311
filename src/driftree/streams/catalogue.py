"""The paper's thirteen data sets: what they are, where they come from, their expected size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from driftree.learn.validation import nearest_name
from driftree.streams.concepts import AGRAWAL_FEATURES, Features, Labels
from driftree.streams.synthetic import paper_agrawal, paper_hyperplane, paper_sea

if TYPE_CHECKING:
    from collections.abc import Iterable


class Counts(NamedTuple):
    """Size of a data set; `n_majority` is the number of rows of the most frequent class."""

    n_rows: int
    n_features: int
    n_classes: int
    n_majority: int | None


@dataclass(frozen=True)
class OpenMLFile:
    """A file at OpenML: its description names the URL, the MD5 checksum and the target."""

    description_url: str


@dataclass(frozen=True)
class CSVFile:
    """A CSV file without a header, the label last; `checksum` is ``"sha256:<hex>"`` if known."""

    url: str
    feature_names: tuple[str, ...]
    checksum: str | None = None


@dataclass(frozen=True)
class Generated:
    """A synthetic stream: generated once, then cached."""

    draw: Callable[[], tuple[Features, Labels]]
    feature_names: tuple[str, ...]


@dataclass(frozen=True)
class ByHand:
    """A file that cannot be downloaded automatically; `steps` says how to create it."""

    steps: str


@dataclass(frozen=True)
class DataSet:
    """One data set of the paper.

    Attributes
    ----------
    name : str
        Name in driftree; the file is called ``<name>.csv.gz``.
    title : str
        Name in the paper's tables.
    counts : Counts
        As in Table I of the paper; `n_majority` is None for synthetic streams.
    source : str
        The source of the data, with a link.
    origin : OpenMLFile, CSVFile, Generated or ByHand
        Where driftree gets them from.
    categorical : tuple of int
        Positions of the features that the authors treat as categorical.
    drifts : tuple of (int, int)
        First and last row of each known drift; both are the same for an abrupt one.
    shuffle_seed : int or None
        Seed of the order of the rows, if the authors shuffled them.
    shared_levels : tuple of tuple of int
        Positions of text features that share one list of levels, hence one scale.
    other_counts : tuple of Counts
        Sizes of other versions that are accepted as well.
    note : str
        Remarks for readers of results.

    Examples
    --------
    >>> DATA_SETS["sea"].counts.n_rows
    1000000
    >>> [first for first, last in DATA_SETS["insects_abrupt"].drifts]
    [83859, 128651, 182320, 242883, 268380]
    """

    name: str
    title: str
    counts: Counts
    source: str
    origin: OpenMLFile | CSVFile | Generated | ByHand
    categorical: tuple[int, ...] = ()
    drifts: tuple[tuple[int, int], ...] = ()
    shuffle_seed: int | None = None
    shared_levels: tuple[tuple[int, ...], ...] = ()
    other_counts: tuple[Counts, ...] = ()
    note: str = ""

    @property
    def file_name(self) -> str:
        """Name of the file, as looked for in ``DRIFTREE_DATA`` and in the cache."""
        return f"{self.name}.csv.gz"

    def check_counts(self, found: Counts, where: str) -> None:
        """Raise ValueError unless a file has the size that Table I of the paper gives.

        Parameters
        ----------
        found : Counts
            Size of the file.
        where : str
            The file, for the message.
        """
        if found in (self.counts, *self.other_counts):
            return
        words = ("rows", "features", "classes", "rows of the most frequent class")
        wrong = [
            f"{have:,} {word} instead of {want:,}"
            for have, want, word in zip(found, self.counts, words, strict=True)
            if have is not None and want is not None and have != want
        ]
        raise ValueError(
            f"{where} is not the data set {self.name} of the paper: it has {', '.join(wrong)}; "
            f"get the file from its source: {self.source}"
        )


def find_data_set(name: str) -> DataSet:
    """Return the record of a data set.

    Parameters
    ----------
    name : str
        One of the keys of `DATA_SETS`.

    Examples
    --------
    >>> find_data_set("covertype").counts
    Counts(n_rows=581012, n_features=54, n_classes=7, n_majority=283301)
    >>> find_data_set("cover")
    Traceback (most recent call last):
    ValueError: there is no data set 'cover' (did you mean covertype?): choose from ...
    """
    return DATA_SETS[check_name(name, DATA_SETS, "data set")]


def _openml(number: int) -> OpenMLFile:
    return OpenMLFile(f"https://www.openml.org/api/v1/json/data/{number}")


def _insects(drive_id: str) -> CSVFile:
    return CSVFile(
        f"https://drive.google.com/uc?export=download&id={drive_id}&confirm=t",
        tuple(f"Att{i}" for i in range(1, 34)),
    )


USP = "USP DS Repository, https://sites.google.com/view/uspdsrepository"
INSECTS_NOTE = (
    "The imbalanced variant. The authors left its features unscaled; driftree scales them, as the "
    "paper says of all data sets."
)

_AIRLINES = DataSet(
    name="airlines",
    title="Airlines",
    counts=Counts(539_383, 7, 2, 299_119),
    source="OpenML, data set 1169, https://www.openml.org/d/1169",
    origin=_openml(1169),
    categorical=(0, 4),
    shared_levels=((2, 3),),
    note="The two airports share one list of levels, as in the authors' preprocessing.",
)

_RECORDS = (
    DataSet(
        name="electricity",
        title="Electricity",
        counts=Counts(45_312, 8, 2, 26_075),
        source="OpenML, data set 151, https://www.openml.org/d/151",
        origin=_openml(151),
        categorical=(1, 2),
    ),
    _AIRLINES,
    DataSet(
        name="bank_marketing",
        title="Bank",
        counts=Counts(45_211, 16, 2, 39_922),
        source="OpenML, data set 1461, https://www.openml.org/d/1461",
        origin=_openml(1461),
        categorical=(1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 14, 15),
    ),
    DataSet(
        name="tueyeq",
        title="TüEyeQ",
        counts=Counts(15_762, 76, 2, 12_975),
        source="Kasneci et al. 2021, https://doi.org/10.1038/s41597-021-00938-3",
        origin=ByHand(
            "download the data that the article's section Data Records names, keep the "
            "socio-demographic columns (76 features with task_id), sort the rows by task_id, and "
            "put cft_task (0 or 1) last under the name target"
        ),
        note="Four blocks of tasks, harder within each block; where a block begins shows in "
        "task_id.",
    ),
    DataSet(
        name="poker",
        title="Poker",
        counts=Counts(1_025_000, 10, 9, 513_701),
        source="OpenML, data set 1569, https://www.openml.org/d/1569",
        origin=_openml(1569),
        categorical=tuple(range(10)),
        other_counts=(Counts(1_025_009, 10, 10, 513_701), Counts(1_025_010, 10, 10, 513_702)),
        note="The paper's copy lacks the rarest class; OpenML's data set 1567 (1,025,009 rows) and "
        "UCI's original (1,025,010 rows) have it and are accepted.",
    ),
    DataSet(
        name="kddcup99_10pct",
        title="KDD",
        counts=Counts(494_020, 41, 23, 280_790),
        source="OpenML, data set 1113, https://www.openml.org/d/1113",
        origin=_openml(1113),
        categorical=(1, 3, *range(6, 22)),
        shuffle_seed=112,
        other_counts=(Counts(494_021, 41, 23, 280_790),),
        note="Ordered by kind of attack, hence shuffled; the authors' own order is not known. "
        "UCI's 10 % file has one row more and is accepted.",
    ),
    DataSet(
        name="covertype",
        title="Covertype",
        counts=Counts(581_012, 54, 7, 283_301),
        source="OpenML, data set 1596, https://www.openml.org/d/1596",
        origin=_openml(1596),
        categorical=tuple(range(10, 54)),
    ),
    DataSet(
        name="gas",
        title="Gas",
        counts=Counts(13_910, 128, 6, 3_009),
        source="OpenML, data set 1476, https://www.openml.org/d/1476",
        origin=_openml(1476),
    ),
    DataSet(
        name="insects_abrupt",
        title="Insects-Abr.",
        counts=Counts(355_275, 33, 6, 101_256),
        source=USP,
        origin=_insects("1Z9W2_mwawobXeTihZDTDnFOCtfdgmgDa"),
        drifts=tuple((row, row) for row in (83_859, 128_651, 182_320, 242_883, 268_380)),
        note=INSECTS_NOTE,
    ),
    DataSet(
        name="insects_incremental",
        title="Insects-Inc.",
        counts=Counts(452_044, 33, 6, 134_717),
        source=USP,
        origin=_insects("1K3vp0EjA4FPDeSgffiBe4CMosbB4CKbL"),
        drifts=((0, 452_043),),
        note=INSECTS_NOTE,
    ),
    DataSet(
        name="sea",
        title="SEA",
        counts=Counts(1_000_000, 3, 2, None),
        source="drawn as with scikit-multiflow 0.5.3",
        origin=Generated(paper_sea, ("x1", "x2", "x3")),
        drifts=tuple((row, row) for row in (200_000, 400_000, 600_000, 800_000)),
    ),
    DataSet(
        name="agrawal",
        title="Agrawal",
        counts=Counts(1_000_000, 9, 2, None),
        source="drawn as with scikit-multiflow 0.5.3",
        origin=Generated(paper_agrawal, AGRAWAL_FEATURES),
        categorical=(3, 4, 5, 6, 7),
        drifts=((100_000, 200_000), (300_000, 500_000), (800_000, 900_000)),
        note="The drifts are as the paper states them.",
    ),
    DataSet(
        name="hyperplane",
        title="Hyperplane",
        counts=Counts(500_000, 50, 2, None),
        source="drawn as with scikit-multiflow 0.5.3",
        origin=Generated(paper_hyperplane, tuple(f"x{i}" for i in range(1, 51))),
        drifts=((0, 499_999),),
    ),
    replace(
        _AIRLINES,
        name="airlines_5of7_features",
        title="Airlines (5 of 7 features)",
        counts=Counts(539_383, 5, 2, 299_119),
        origin=ByHand("remove the columns AirportFrom and AirportTo from airlines"),
        categorical=(0, 2),
        shared_levels=(),
        note="A substitute for airlines without the two airports: not one of the thirteen.",
    ),
)

DATA_SETS: Mapping[str, DataSet] = MappingProxyType({record.name: record for record in _RECORDS})
"""The thirteen data sets in the order of the paper's columns, then the substitute for Airlines."""


# ---------------------------------------------------------------------- names that users type
def check_name(name: str, known: Iterable[str], what: str) -> str:
    """Return a name if it is known; raise otherwise.

    Examples
    --------
    >>> check_name("dmt", ["dmt", "efdt"], "learner")
    'dmt'
    >>> check_name("edft", ["dmt", "efdt"], "learner")
    Traceback (most recent call last):
    ...
    ValueError: there is no learner 'edft' (did you mean efdt?): choose from dmt, efdt
    """
    names = list(known)
    if name in names:
        return name
    raise ValueError(
        f"there is no {what} {name!r}{hint(name, names)}: choose from {', '.join(names)}"
    )


def hint(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest name; empty if none is near.

    Examples
    --------
    >>> hint("electricty", ["electricity", "sea"])
    ' (did you mean electricity?)'
    """
    near = nearest_name(name, known)
    return "" if near is None else f" (did you mean {near}?)"
