"""The paper's figures, as printed in its tables I to VI.

Haug, Broelemann, Kasneci: Dynamic Model Tree for Interpretable Data Stream Learning, ICDE 2022.
The learners carry the names of `LEARNERS`: `dmt-paper` is the paper's "DMT (ours)", `arf3` its
"Forest Ens." and `levbag3` its "Bagging Ens.". A test compares every cell with the paper's source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from driftree.evaluate.records import Figure

Value = TypeVar("Value")

MEAN = "mean"

# The data sets in the order of the paper's columns, with their heads.
TITLES = {
    "electricity": "Electricity",
    "airlines": "Airlines",
    "bank_marketing": "Bank",
    "tueyeq": "TüEyeQ",
    "poker": "Poker",
    "kddcup99_10pct": "KDD",
    "covertype": "Covertype",
    "gas": "Gas",
    "insects_abrupt": "Insects-Abr.",
    "insects_incremental": "Insects-Inc.",
    "sea": "SEA",
    "agrawal": "Agrawal",
    "hyperplane": "Hyperplane",
}
KNOWN_DRIFT = ("tueyeq", "insects_abrupt", "insects_incremental", "sea", "agrawal", "hyperplane")


def published_name(learner: str) -> str:
    """Return the name of a learner in the paper's figures.

    Both settings of the Dynamic Model Tree are compared with the one that was published.

    Examples
    --------
    >>> published_name("dmt"), published_name("efdt")
    ('dmt-paper', 'efdt')
    """
    return "dmt-paper" if learner == "dmt" else learner


def _parse(text: str, convert: Callable[[str], Value]) -> dict[tuple[str, str], Value]:
    """Read a block: a line of column names, then lines of a row's name and its cells."""
    head, *lines = text.strip().splitlines()
    names = head.split()
    rows = [line.split() for line in lines]
    return {
        (row, name): convert(cell)
        for row, *cells in rows
        for name, cell in zip(names, cells, strict=True)
    }


def _figure(cell: str) -> Figure:
    mean, std = cell.replace(",", "").split("±")
    return Figure(float(mean), float(std))


def _count(cell: str) -> int | None:
    return None if cell == "-" else int(cell.replace(",", ""))


# Table I, by (data set, count); the paper does not give the majority of the synthetic streams.
COUNTS = _parse(
    """
                        n_rows  n_features  n_classes  n_majority
electricity             45,312           8          2      26,075
airlines               539,383           7          2     299,119
bank_marketing          45,211          16          2      39,922
tueyeq                  15,762          76          2      12,975
poker                1,025,000          10          9     513,701
kddcup99_10pct         494,020          41         23     280,790
covertype              581,012          54          7     283,301
gas                     13,910         128          6       3,009
insects_abrupt         355,275          33          6     101,256
insects_incremental    452,044          33          6     134,717
sea                  1,000,000           3          2           -
agrawal              1,000,000           9          2           -
hyperplane             500,000          50          2           -
    """,
    _count,
)

# Table II, by (data set, learner); so are III and IV.
F1 = _parse(
    """
                    dmt-paper    fimtdd   vfdt-mc  vfdt-nba    ht-ada      efdt      arf3   levbag3
electricity         0.76±0.20 0.78±0.20 0.76±0.20 0.80±0.15 0.77±0.21 0.77±0.20 0.81±0.14 0.81±0.17
airlines            0.63±0.05 0.55±0.12 0.64±0.06 0.65±0.05 0.62±0.07 0.60±0.09 0.64±0.05 0.65±0.05
bank_marketing      0.88±0.11 0.88±0.14 0.87±0.15 0.88±0.13 0.88±0.13 0.88±0.14 0.89±0.13 0.89±0.13
tueyeq              0.79±0.20 0.76±0.22 0.77±0.22 0.77±0.21 0.77±0.23 0.77±0.23 0.78±0.20 0.78±0.21
poker               0.44±0.05 0.41±0.08 0.47±0.05 0.50±0.03 0.47±0.05 0.47±0.05 0.50±0.02 0.53±0.03
kddcup99_10pct      0.99±0.01 0.99±0.01 0.96±0.10 0.99±0.01 0.96±0.10 0.99±0.01 0.99±0.01 0.99±0.04
covertype           0.80±0.09 0.81±0.10 0.72±0.13 0.85±0.09 0.67±0.19 0.74±0.14 0.74±0.19 0.72±0.23
gas                 0.82±0.27 0.79±0.28 0.29±0.37 0.77±0.27 0.22±0.35 0.55±0.39 0.80±0.33 0.67±0.40
insects_abrupt      0.73±0.10 0.73±0.08 0.64±0.14 0.71±0.10 0.59±0.15 0.68±0.11 0.72±0.09 0.74±0.10
insects_incremental 0.73±0.08 0.72±0.08 0.67±0.10 0.72±0.07 0.64±0.13 0.65±0.10 0.72±0.08 0.75±0.07
sea                 0.88±0.02 0.78±0.10 0.86±0.03 0.86±0.04 0.89±0.02 0.87±0.04 0.90±0.02 0.90±0.02
agrawal             0.82±0.08 0.64±0.13 0.77±0.11 0.79±0.10 0.84±0.08 0.82±0.09 0.80±0.08 0.84±0.08
hyperplane          0.84±0.04 0.76±0.05 0.65±0.03 0.73±0.02 0.66±0.03 0.69±0.03 0.64±0.03 0.72±0.04
mean                0.78±0.10 0.74±0.12 0.70±0.13 0.77±0.10 0.69±0.13 0.73±0.12 0.76±0.10 0.77±0.12
    """,
    _figure,
)

# Table III.
SPLITS = _parse(
    """
                     dmt-paper     fimtdd      vfdt-mc       vfdt-nba       ht-ada        efdt
electricity            6.5±3.1  52.0±30.1    37.8±22.3      76.7±44.6      3.4±2.1    10.9±4.5
airlines             35.7±16.7    4.9±3.9  323.3±182.4    647.6±364.7     12.7±6.8    15.2±7.5
bank_marketing         2.3±1.0  75.5±47.3    21.9±13.9      44.8±27.7      5.6±3.4     9.5±3.4
tueyeq                 1.4±0.8    1.0±0.0     10.6±6.8      22.3±13.7      2.3±1.6     2.8±1.4
poker                  9.0±0.0  17.7±10.2    84.7±50.6    856.3±506.0    58.0±28.1    10.0±6.6
kddcup99_10pct        24.8±6.3   24.8±6.4    25.6±13.0    637.3±310.8    25.4±12.8    24.7±9.2
covertype             10.7±4.0   13.7±8.2  356.8±201.7  2861.1±1613.4      3.1±2.9     9.4±4.3
gas                    9.3±3.5    6.0±0.0      0.7±0.7       11.1±5.1      0.2±0.4     4.7±2.7
insects_abrupt         9.1±3.5    7.4±3.1    41.3±23.7    295.2±165.7      8.0±5.0    17.3±7.8
insects_incremental    9.1±3.5   10.6±5.9    53.5±32.5    380.3±227.6    21.5±12.9   15.9±10.4
sea                  35.1±25.3    1.0±0.0  588.4±339.8   1177.8±679.7   131.4±69.8  109.9±70.3
agrawal              75.4±34.4  65.8±71.5  628.3±371.0   1257.6±742.1   158.2±79.2   89.7±66.2
hyperplane             2.2±1.3   8.0±10.3  277.9±162.4    556.8±324.9  188.7±101.4   31.0±17.4
mean                  17.7±8.0  22.2±15.1  188.5±109.3    678.8±386.6    47.6±25.1   27.0±16.3
    """,
    _figure,
)

# Table IV.
PARAMETERS = _parse(
    """
                     dmt-paper   fimtdd   vfdt-mc        vfdt-nba   ht-ada     efdt
electricity              33±14  238±136     77±45         349±201      8±4     23±9
airlines                146±67    22±15   648±365     2,594±1,459    27±14    31±15
bank_marketing            27±8  649±402     45±28         388±236     12±7     20±7
tueyeq                   92±31     76±0     22±14         896±526      6±3      7±3
poker                     80±0   150±83   170±101     6,943±4,099   144±78    21±13
kddcup99_10pct         970±238  971±239     52±26   24,016±11,695    52±26    50±18
covertype              474±162  597±332   715±403  116,270±65,543      7±6     20±9
gas                    939±320    640±0       2±1       1,105±470      1±1     10±5
insects_abrupt          237±82   198±74     84±47     7,023±3,930    17±10    36±16
insects_incremental     238±82  275±140    108±65     9,042±5,397    44±26    33±21
sea                      71±51      3±0  1178±680     2,357±1,359  264±140  221±141
agrawal                381±172  333±358  1258±742     6,292±3,710  377±193  180±132
hyperplane               80±33  229±262   557±325    14,224±8,285  378±203    63±35
mean                    290±97  337±157   378±219    14,731±8,224   103±55    55±33
    """,
    _figure,
)

# Table V: seconds of one test-then-train iteration, over all data sets.
SECONDS = _parse(
    """
      dmt-paper     fimtdd    vfdt-mc   vfdt-nba     ht-ada        efdt
mean  0.53±0.21  1.12±0.57  0.06±0.03  0.14±0.03  0.34±0.08  17.23±6.33
    """,
    _figure,
)

# Table VI, by (category, learner).
SUMMARY = _parse(
    """
          dmt-paper  fimtdd  vfdt-mc  vfdt-nba  ht-ada  efdt
f1               ++       +        -         +      --     -
f1_drift         ++       -       --         +       -     +
n_paper_splits   ++       +        -        --       -     +
seconds           -       -       ++         +       +    --
    """,
    str,
)
