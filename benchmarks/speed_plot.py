"""The benchmark's picture: rows per second against the number of features."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from speed_learners import ROWS
from speed_results import Result

from driftree.show.scores import write_rows
from driftree.show.style import FAINT, FONT_SIZE, INK, add_heading, page

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Two classes, no deep trees: what differs is the number of features.
STREAMS_IN_PLOT = ("sea", "hyperplane10", "hyperplane50", "hyperplane200")
PANELS = {
    "dict": ("Row by row", "SEA (3 features) and Hyperplane"),
    "batch1000": (
        "Batches of 1000",
        "the same streams; River's and CapyMOA's trees take single rows",
    ),
}
WIDTH, HEIGHT = 9.6, 5.2  # inches
LABEL_GAP = 0.045  # of the panel's height, from one label to the next
SOLID, DASHED, DOTTED, BROKEN = "-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1.5, 1.5))


class Look(NamedTuple):
    """How a learner's line is drawn: a colour per family, a marker and dashes per learner."""

    colour: str
    marker: str
    line: Any = SOLID
    width: float = 1.1


RIVER, CAPYMOA, SKLEARN = "#5f9e8f", "#b98bb0", "#8c8c8c"  # muted, beside driftree's blue
LOOKS = {
    "driftree default": Look("#0072B2", "o", SOLID, 2.4),
    "driftree paper": Look("#0072B2", "s", DASHED, 2.0),
    "driftree forest(5)": Look("#0072B2", "p", DOTTED, 1.6),
    "driftree forest(10)": Look("#0072B2", "H", BROKEN, 1.6),
    "River HT nba": Look(RIVER, "D"),
    "River HT mc": Look(RIVER, "v", DASHED),
    "River HAT": Look(RIVER, "P", DOTTED),
    "River EFDT": Look(RIVER, "X", BROKEN),
    "River ARF(10)": Look(RIVER, "*"),
    "River logistic": Look(RIVER, "<", DOTTED),
    "sklearn SGD": Look(SKLEARN, "h"),
    "CapyMOA HT": Look(CAPYMOA, "^"),
    "CapyMOA EFDT": Look(CAPYMOA, "d", DASHED),
}


def draw_plot(file: Path, results: Sequence[Result]) -> None:
    """Draw a panel per mode, all learners in each, and write it."""
    figure, [panels] = page(1, 2, height=HEIGHT, width=WIDTH)
    modes = (*PANELS, ROWS)
    shown = [r for r in results if r.stream in STREAMS_IN_PLOT and r.mode in modes]
    speeds = [result.rows_per_second() for result in shown]
    for panel, mode in zip(panels, PANELS, strict=True):
        panel.set(xscale="log", yscale="log", ylim=(min(speeds) / 1.4, max(speeds) * 1.4))
        draw_panel(panel, mode, [result for result in shown if result.mode in (mode, ROWS)])
    panels[0].set_ylabel("rows per CPU-second, predict + learn", fontsize=FONT_SIZE)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=160)


def draw_panel(panel: Axes, mode: str, results: Sequence[Result]) -> None:
    """Draw each learner's line and its name at the line's end."""
    features = sorted({result.n_features for result in results})
    add_heading(panel, *PANELS[mode], width=WIDTH / 2)
    panel.set_xlabel("features", fontsize=FONT_SIZE)
    panel.set_xticks(features, [str(n) for n in features])
    panel.minorticks_off()
    panel.yaxis.set_major_formatter(write_rows)
    panel.grid(axis="y", color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)
    ends: dict[str, float] = {}
    for name in dict.fromkeys(result.learner for result in results):
        own = sorted((r.n_features, r.rows_per_second()) for r in results if r.learner == name)
        look = LOOKS[name]
        panel.plot(
            *zip(*own, strict=True),
            color=look.colour,
            marker=look.marker,
            markersize=4.5,
            markeredgewidth=0,
            linestyle=look.line,
            linewidth=look.width,
            zorder=3 if name.startswith("driftree") else 2,
        )
        ends[name] = own[-1][1]
    if ends:
        write_labels(panel, features[-1], ends)


def write_labels(panel: Axes, last: int, ends: dict[str, float]) -> None:
    """Write names beside the ends of their lines, apart where the lines meet."""
    to_panel = panel.transScale + panel.transLimits  # data to parts of the panel's size
    names = sorted(ends, key=lambda name: ends[name])
    heights = [to_panel.transform((last, ends[name]))[1] for name in names]
    right = to_panel.transform((last, 1.0))[0]
    for name, height, place in zip(names, heights, spread(heights, LABEL_GAP), strict=True):
        is_own = name.startswith("driftree")
        panel.annotate(
            name,
            (right + 0.012, height),
            (right + 0.07, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            annotation_clip=False,
            va="center",
            fontsize=FONT_SIZE,
            weight="bold" if is_own else "normal",
            color=LOOKS[name].colour if is_own else INK,
            arrowprops={
                "arrowstyle": "-",
                "color": LOOKS[name].colour,
                "linewidth": 0.6,
                "relpos": (0.0, 0.5),
                "shrinkA": 1,
                "shrinkB": 0,
            },
        )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move places, in order, just as far apart as a gap; those that meet stay around their mean."""
    groups: list[list[float]] = []
    for place in places:
        groups.append([place])
        while len(groups) > 1 and middle(groups[-1]) - middle(groups[-2]) < gap / 2 * (
            len(groups[-1]) + len(groups[-2])
        ):
            last = groups.pop()
            groups[-1] += last
    return [
        middle(group) + gap * (i - (len(group) - 1) / 2)
        for group in groups
        for i in range(len(group))
    ]


def middle(group: Sequence[float]) -> float:
    """Return the mean."""
    return sum(group) / len(group)
