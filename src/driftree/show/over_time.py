"""Plots over time: the race of a node's candidates, and a leaf's effects."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.explain.describe import inside
from driftree.explain.over_time import gain_race, unit_of_effects, weights_over_time
from driftree.explain.text import label_texts
from driftree.show.scores import write_rows
from driftree.show.style import (
    FONT_SIZE,
    INK,
    MUTED,
    OTHERS,
    PAGE_WIDTH,
    PLAIN,
    SIGNS,
    SMALL,
    UNKNOWN,
    add_heading,
    add_scale,
    axes_or_new,
    check_samples,
    colour_limit,
    cut_conditions,
    cut_together,
    legend_above,
    measure,
    say_path,
    say_rows,
    text_on,
)
from driftree.show.timeline import KINDS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import QuadMesh
    from numpy.typing import NDArray

    from driftree.explain.over_time import GainRace, WeightsOverTime
    from driftree.learn.events import Event
    from driftree.show.style import AnyTree

HEADING = 5.6  # inches for text above the axes
LEGEND = 1.7  # inches for a candidate's text
NAMES = 1.9  # inches for an input's name
LANE = 0.21  # inches from one input to the next
MINUS = "\N{MINUS SIGN}"  # as wide as a plus
NARROW = 0.025  # of the width, needed for a sign
MAX_RUNNERS = 6
RUNNERS = (  # colour, dashes, marker: of the candidates with the largest gains
    ("#0072B2", "-", "o"),
    ("#D55E00", (0, (5, 1.5)), "s"),
    ("#009E73", (0, (3, 1)), "^"),
    ("#CC79A7", (0, (7, 1.5, 1.5, 1.5)), "D"),
    ("#E69F00", (0, (1.5, 1)), "v"),
    ("#56B4E9", (0, (6, 1, 1, 1, 1, 1)), "P"),
)


def plot_gain_race(model: AnyTree, *, node: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw the gains of a node's candidates over time, and the gain required for a split.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that keeps its history.
    node : int, optional
        A node of the present tree, by default the one that changed last.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    See Also
    --------
    gain_race : What is drawn, as data.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
    >>> model = DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    >>> ax = plot_gain_race(model, node=0)
    >>> ax.get_legend().get_texts()[1].get_text()
    'x1 <= -0.01286'
    """
    race = gain_race(model, node)
    check_samples(model, len(race.n_rows), f"node {race.node}")
    ax = axes_or_new(ax, width=PAGE_WIDTH, height=3.6)
    needed: dict[str, Any] = {"color": INK, "linewidth": 1.8, "linestyle": (0, (1, 1))}
    handles = ax.plot(race.n_rows, race.threshold, label="needed", **needed)
    names = cut_conditions(race.gains, LEGEND, FONT_SIZE)
    decided = np.isin(race.n_rows, [event.n_rows for event in race.events])
    for place, (condition, gains) in enumerate(race.gains.items()):
        known = ~np.isnan(gains) | ~decided  # a gap where it was not a candidate
        if place < MAX_RUNNERS:
            colour, dashes, marker = RUNNERS[place]
            [line] = ax.plot(
                race.n_rows[known],
                gains[known],
                label=names[str(condition)],
                color=colour,
                linestyle=dashes,
                linewidth=1.3,
                marker=marker,
                markersize=3,
            )
            handles.append(line)
        else:
            ax.plot(
                race.n_rows[known],
                gains[known],
                color=OTHERS,
                linewidth=0.8,
                marker=".",
                markersize=2,
                zorder=1,
            )
    _mark_changes(ax, race.events)
    _set_gain_axes(ax, race)
    ax.set_xlabel(say_rows(model, int(race.n_rows[-1])), fontsize=FONT_SIZE)
    lowest = ax.get_ylim()[0]
    is_seen = [bool(np.nanmax(gains) >= lowest) for gains in race.gains.values()]
    runners = [handle for handle, seen in zip(handles[1:], is_seen, strict=False) if seen]
    n_lines = legend_above(ax, [handles[0], *runners], width=HEADING, columns=3)
    rest, too_low = sum(is_seen[MAX_RUNNERS:]), is_seen.count(False)
    more = f"; {rest} more candidate{'s'[: rest > 1]} in grey" if rest else ""
    more += f"; {too_low} too low to be seen" if too_low else ""
    words = say_path(race.path, HEADING - measure(more, FONT_SIZE), FONT_SIZE) + more
    add_heading(ax, f"The race at node {race.node}", words, width=HEADING, lines=1 + n_lines)
    return ax


def _mark_changes(ax: Axes, events: list[Event]) -> None:
    """Mark the changes of the node, and label them at the top."""
    last = -math.inf
    low, high = ax.get_xlim()
    for event in events:
        name, _, colour = KINDS[event.kind]
        ax.axvline(event.n_rows, color=colour, linewidth=1.0, zorder=0)
        if event.n_rows - last > 0.09 * (high - low):  # or labels would overlap
            ax.annotate(
                name,
                (event.n_rows, 1.0),
                (2, -2),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                fontsize=SMALL,
                color=INK,
                va="top",
            )
            last = event.n_rows


def _set_gain_axes(ax: Axes, race: GainRace) -> None:
    """Show what is near the threshold, not hopeless candidates far below it."""
    levels = race.threshold[~np.isnan(race.threshold)]
    height = max(float(np.abs(levels).max()), 1.0) if len(levels) else 1.0
    best = [float(np.nanmax(gains)) for gains in race.gains.values()]
    lowest = [float(np.nanmin(gains)) for gains in race.gains.values()]
    bottom = max(min([0.0, *lowest, *levels]), -height)
    ax.set_ylim(bottom - 0.05 * height, 1.12 * max([height, *best]))
    ax.axhline(0.0, color=MUTED, linewidth=0.6, zorder=0)
    ax.set_ylabel("gain (nats)", fontsize=FONT_SIZE)
    ax.xaxis.set_major_formatter(write_rows)


def plot_weights_over_time(
    model: AnyTree,
    *,
    leaf: int | None = None,
    label: Hashable = None,
    max_features: int = 15,
    ax: Axes | None = None,
) -> Axes:
    """Draw the effects of a leaf's inputs over time, and mark where one has changed its sign.

    Blue and + make the label more likely, or the number larger, red and - less. The colour scale
    ends at the size that one effect in a hundred exceeds. Before the leaf existed, it is the leaf
    that held its rows.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that keeps its history.
    leaf : int, optional
        A leaf of the present tree; by default the one that most rows reach.
    label : hashable, optional
        With more than two labels, the one whose effects to draw; by default the most frequent one
        of the leaf.
    max_features : int, default=15
        Number of inputs to draw: those that were strongest at any time.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    See Also
    --------
    weights_over_time : What is drawn, as data.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> X = np.random.default_rng(1).uniform(-1, 1, size=(8000, 2))
    >>> y = (X[:, 0] > 0) ^ (np.arange(8000) > 4000)
    >>> ax = plot_weights_over_time(DynamicModelTreeClassifier().partial_fit(X, y))
    >>> [text.get_text() for text in ax.get_yticklabels()]
    ['x0', 'x1']
    """
    if max_features < 1:
        raise ValueError(f"max_features must be at least 1, got {max_features!r}")
    course = weights_over_time(model, leaf, label=label)
    names = list(course.effects)[:max_features]
    check_samples(model, len(course.n_rows) * len(names), f"leaf {course.leaf}")
    ax = axes_or_new(ax, width=PAGE_WIDTH, height=1.9 + LANE * len(names))
    effects = np.array([course.effects[name] for name in names])
    has_labels = inside(model)[0].engine.has_labels
    what, gains = ("log-odds", "the log-odds gain")
    if not has_labels:
        what, gains = str(course.label), f"{course.label} gains"
    picture = _draw_heat(ax, course.n_rows, effects, what)
    _write_signs(ax, course, names, picture)
    n_lines = _mark_flips(ax, course, names)
    ax.set_yticks(range(len(names)))
    ax.set_yticklabels(cut_together(names, NAMES, FONT_SIZE), **PLAIN)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(
        f"{say_rows(model, int(course.n_rows[-1]))}; effect: what {gains} when\n"
        f"{unit_of_effects(model)}",
        fontsize=FONT_SIZE,
    )
    ax.xaxis.set_major_formatter(write_rows)
    which = (
        ""
        if len(names) == len(course.effects)
        else f"; the strongest {len(names)} of {len(course.effects)} inputs"
    )
    words = say_path(course.path, 4.4 - measure(which, FONT_SIZE), FONT_SIZE) + which
    label_text = label_texts(inside(model)[0].target.labels)[course.label] if has_labels else what
    title = f"Leaf {course.leaf}: effects on {label_text}"
    add_heading(ax, title, words, width=4.4, lines=1 + n_lines)
    return ax


def _draw_heat(
    ax: Axes, n_rows: NDArray[np.int64], effects: NDArray[np.float64], what: str
) -> QuadMesh:
    largest = colour_limit(effects)
    edges = np.concatenate(([0], n_rows)).astype(float)
    ax.patch.set(**UNKNOWN)
    picture = ax.pcolormesh(
        edges,
        np.arange(len(effects) + 1) - 0.5,
        effects,
        cmap=SIGNS,
        vmin=-largest,
        vmax=largest,
        rasterized=True,
    )
    ax.set_ylim(len(effects) - 0.5, -0.5)
    add_scale(ax, picture, f"effect ({what})", extend="both")
    return picture


def _write_signs(
    ax: Axes, course: WeightsOverTime, names: list[str], picture: ScalarMappable
) -> None:
    """Write the sign of each run of effects with the same sign, if there is room."""
    from matplotlib.colors import to_hex

    edges = np.concatenate(([0], course.n_rows))
    least = NARROW * float(edges[-1])
    for lane, name in enumerate(names):
        signs = course.signs[name]
        ends = [0, *(np.flatnonzero(np.diff(signs)) + 1).tolist(), len(signs)]
        for start, stop in pairwise(ends):
            if signs[start] and edges[stop] - edges[start] > least:
                x = (edges[start] + edges[stop]) / 2
                place = int(np.searchsorted(edges, x)) - 1
                red, green, blue, _ = picture.to_rgba(course.effects[name][place])
                ax.text(
                    x,
                    lane,
                    "+" if signs[start] > 0 else MINUS,
                    ha="center",
                    va="center",
                    fontsize=FONT_SIZE,
                    weight="bold",
                    color=text_on(to_hex((red, green, blue))),
                )


def _mark_flips(ax: Axes, course: WeightsOverTime, names: list[str]) -> int:
    """Mark changes of sign and of the node; return the entries of the legend."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    edges = np.concatenate(([0], course.n_rows))
    flips = [
        (edges[place], lane) for lane, name in enumerate(names) for place in course.flips[name]
    ]
    mark: dict[str, Any] = {
        "marker": "X",
        "color": "white",
        "markeredgecolor": INK,
        "linestyle": "",
    }
    dash: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (2, 2))}
    for x, y in flips:
        ax.plot(x, y, markersize=6, markeredgewidth=0.8, clip_on=False, **mark)
    turns = np.flatnonzero(np.diff(course.nodes)) + 1
    for place in turns:
        ax.axvline(edges[place], **dash)
    handles: list[Any] = (
        [Line2D([], [], label="changed its sign", markersize=6, **mark)] if flips else []
    )
    if len(turns):
        handles.append(Line2D([], [], label="another node from here", **dash))
    if np.any(course.nodes < 0):
        handles.append(Patch(label="no single leaf held these rows", **UNKNOWN))
    return legend_above(ax, handles, width=HEADING) if handles else 0
