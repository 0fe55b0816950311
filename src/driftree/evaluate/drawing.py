"""Drawing: the parts that pictures are made of. Panels, looks of learners, curves, marks of drift.

Each learner has a colour that colour-blind readers can tell from the others (Okabe and Ito), and
besides a line style and a marker of its own, so that the pictures can be read in grey print.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.evaluate.learners import LEARNERS
from driftree.evaluate.records import slide

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

Drifts = Sequence[float | Sequence[float]]

MISSING = "pictures need matplotlib: pip install 'driftree[plot]'"
ENDLESS = 2**62  # rows of a stream that no drift lies beyond
FONT_SIZE = 8  # points at the printed size
PAGE_WIDTH = 7.16  # inches, the two columns of an IEEE page
MAX_POINTS = 250  # of a curve; more cannot be told apart in print, and swell vector files
N_MARKERS = 6  # of a curve
BELOW_ZERO = -0.15  # where axes of counts begin, so that none can be seen
ABRUPT: dict[str, Any] = {"color": "0.35", "linestyle": (0, (2, 2)), "linewidth": 0.8, "zorder": 0}
INCREMENTAL: dict[str, Any] = {"facecolor": "0.94", "edgecolor": "none", "zorder": 0}


@dataclass(frozen=True)
class Style:
    """How a learner is drawn; `dashes` are lengths on and off, in line widths."""

    colour: str
    marker: str
    dashes: tuple[float, ...] = ()
    width: float = 1.2


STYLES = {
    "dmt": Style("#000000", "o", width=1.7),
    "dmt-paper": Style("#0072B2", "s", (5, 1.5)),
    "fimtdd": Style("#D55E00", "^", (7, 1.5, 1.5, 1.5)),
    "vfdt-mc": Style("#56B4E9", "v"),
    "vfdt-nba": Style("#009E73", "D", (3, 1)),
    "ht-ada": Style("#CC79A7", "P", (1.2, 1.2), 1.5),
    "efdt": Style("#E69F00", "X", (6, 1, 1, 1, 1, 1)),
    "arf3": Style("#666666", "*"),
    "levbag3": Style("#666666", "h", (4, 2)),
    "logistic": Style("#999999", "<", (2, 1)),
    "majority": Style("#999999", ">", (1, 1)),
    "no-change": Style("#999999", "d", (1, 3)),
}


def page(
    n_rows: int, n_columns: int, *, height: float, width: float = PAGE_WIDTH
) -> tuple[Figure, NDArray[np.object_]]:
    """Return an empty figure of some inches and its panels."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(MISSING) from error
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, squeeze=False)
    for panel in panels.flat:
        panel.tick_params(labelsize=FONT_SIZE)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels


def choose_styles(learners: Iterable[str]) -> dict[str, Style]:
    """Give each learner its style, and one that others do not have to those without a name."""
    names = list(learners)
    free = cycle([style for name, style in STYLES.items() if name not in names] or STYLES.values())
    return {name: STYLES[name] if name in STYLES else next(free) for name in names}


def drift_spans(drifts: Drifts, n_rows: int) -> list[tuple[int, int]]:
    """Return known drifts as spans of rows; those that begin beyond the stream are left out.

    Parameters
    ----------
    drifts : sequence of int or (int, int)
        Rows at which a stream changes, or the first and last rows between which it does; whole
        numbers of any type, pairs as tuples, lists or arrays.
    n_rows : int
        Rows of the stream, at which spans end that go on beyond.

    Returns
    -------
    list of (int, int)
        First and last row of each, the same where the change is abrupt.

    Examples
    --------
    >>> drift_spans([300, [400, 600], 5000], n_rows=500)
    [(300, 300), (400, 500)]
    """
    if not hasattr(drifts, "__iter__"):
        raise TypeError(
            f"drifts must be a sequence of rows or (first, last) pairs of rows, got {drifts!r}: "
            f"write [{drifts!r}]"
        )
    spans = []
    for drift in drifts:
        rows = np.asarray(drift)
        is_number = rows.dtype.kind in "iuf" and rows.shape in ((), (2,))
        if not is_number or not np.all(np.isfinite(rows)) or np.any(rows != np.round(rows)):
            raise ValueError(
                f"a drift must be a row, or a pair of its first and last row, got {drift!r}"
            )
        first, last = int(rows.min()), int(rows.max())
        if first < n_rows:
            spans.append((first, min(last, n_rows)))
    return spans


def mark_drifts(panels: Iterable[Axes], drifts: Drifts) -> None:
    """Mark where the stream is known to change: a line where abruptly, a shade where slowly."""
    for panel in panels:
        for place in drifts:
            start, stop = drift_spans([place], ENDLESS)[0]
            if start == stop:
                panel.axvline(start, **ABRUPT)
            else:
                panel.axvspan(start, stop, **INCREMENTAL)


def draw_curve(
    panel: Axes,
    rows: NDArray[np.float64],
    values: NDArray[np.float64],
    style: Style,
    *,
    window: int,
    number: int,
) -> None:
    """Draw the sliding mean, and a shade of one standard deviation to either side."""
    mean, std = slide(values, window)
    keep = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MAX_POINTS)).astype(int))
    rows, mean, std = rows[keep], mean[keep], std[keep]
    spacing = max(1, len(rows) // N_MARKERS)
    panel.fill_between(
        rows, np.maximum(mean - std, 0), mean + std, color=style.colour, alpha=0.13, linewidth=0
    )
    panel.plot(
        rows,
        mean,
        # curves that lie on each other show their markers side by side
        markevery=(spacing * (2 * number + 1) // 14 % spacing, spacing),
        **line_settings(style),
    )


def line_settings(style: Style) -> dict[str, Any]:
    """Return how matplotlib draws a style."""
    return {
        "color": style.colour,
        "linestyle": (0, style.dashes) if style.dashes else "-",
        "linewidth": style.width,
        "marker": style.marker,
        "markersize": 3.5,
        "markeredgewidth": 0,
    }


def set_tradeoff_axes(panel: Axes) -> None:
    """Make the axes F1 against the number of splits."""
    panel.set_xscale("symlog", linthresh=1)  # a tree may have none
    panel.set_xlim(left=BELOW_ZERO)
    panel.xaxis.set_major_formatter(write_count)
    panel.set_xlabel("number of splits (log scale)", fontsize=FONT_SIZE)
    panel.set_ylabel("F1", fontsize=FONT_SIZE)


def learner_handles(styles: Mapping[str, Style], *, has_lines: bool = True) -> list[Artist]:
    """Return what a legend shows of each learner."""
    from matplotlib.lines import Line2D

    handles: list[Artist] = []
    for name, style in styles.items():
        settings = line_settings(style) | ({} if has_lines else {"linestyle": "", "markersize": 6})
        title = LEARNERS[name].title if name in LEARNERS else name
        handles.append(Line2D([], [], label=title, **settings))
    return handles


def drift_handles(drifts: Iterable[float | Sequence[float]]) -> list[Artist]:
    """Return what a legend shows of the kinds of drift there are."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    kinds = {is_abrupt(place) for place in drifts}
    handles: list[Artist] = []
    if True in kinds:
        handles.append(Line2D([], [], label="abrupt drift", **ABRUPT))
    if False in kinds:
        handles.append(Patch(label="incremental drift", **INCREMENTAL))
    return handles


def is_abrupt(place: float | Sequence[float]) -> bool:
    """Return whether a known drift is a single row rather than a span."""
    [(first, last)] = drift_spans([place], ENDLESS)
    return first == last


def write_rows(value: float, _: float) -> str:
    """Write 200000 as 200k."""
    for size, sign in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def write_count(value: float, _: float) -> str:
    """Write 2000 as 2,000, and nothing below zero."""
    return f"{value:,.0f}" if value >= 0 else ""
