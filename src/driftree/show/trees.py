"""The plot of a tree: its conditions, the share of rows on each side, and its leaves' models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftree.explain.describe import inside, number_unit, outputs
from driftree.explain.over_time import outline, unit_of_effects
from driftree.explain.text import check_limits, label_texts, write_number
from driftree.show.style import (
    FAINT,
    FONT_SIZE,
    MUTED,
    OTHERS,
    SMALL,
    axes_or_new,
    cut_together,
    measure,
)
from driftree.show.tree_parts import (
    COLUMN_GAP,
    MARGIN,
    Box,
    Gauge,
    Layout,
    Pen,
    bars_of,
    colour_labels,
    draw_bars,
    draw_card,
    hide_small,
    lay_out,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from matplotlib.axes import Axes

    from driftree.explain.over_time import OutlineNode
    from driftree.show.style import AnyTree

LINE = 0.17  # of the heading
LEAST_WIDTH = 7.0
THICKEST = 11.0  # points, the line of all rows


def plot_tree(
    model: AnyTree,
    *,
    step: int | None = None,
    max_weights: int = 5,
    ax: Axes | None = None,
) -> Axes:
    """Draw the tree: conditions, shares of rows, and the labels and model of each leaf.

    Rows that pass a condition take the upper line; the thicker a line, the more rows. A leaf shows
    its label shares, and the inputs with the largest effects on its log-odds, to the right those
    that make the label more likely; with more than two labels, those of its most frequent label, or
    of the one with the strongest effect if it has no rows yet. A leaf of a regressor shows its mean
    prediction, also as its colour, its error, and the inputs with the largest effects, in the
    target's unit. The bars of all leaves have the same scale. In a tree with more than 40 leaves,
    the branches with the fewest rows are shown as one card each, with the model of their top node.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that has learnt something.
    step : int, optional
        Draw the tree as it was after this step; label shares or means are not known then.
    max_weights : int, default=5
        Effects to show per leaf, strongest first.
    ax : matplotlib Axes, optional
        Where to draw. The plot is scaled down if they are too small. By default a new figure that
        is large enough.

    Returns
    -------
    matplotlib Axes

    See Also
    --------
    outline : What is drawn, as data.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(2000, 2))
    >>> model = DynamicModelTreeClassifier().partial_fit(X, (X[:, 0] > 0) ^ (X[:, 1] > 0))
    >>> ax = plot_tree(model)
    >>> "x1 <= -0.01286" in [text.get_text() for text in ax.texts]
    True
    """
    check_limits(max_weights)
    nodes = outline(model, step=step)
    tree, _ = inside(model)
    labels, names = colour_labels(nodes), label_texts(tree.target.labels, most=None)
    unit = number_unit(tree)
    gauge = Gauge.over(nodes, unit)
    hidden = hide_small(nodes)
    bars = {
        node.node: bars_of(node, max_weights)
        for node in shown(nodes, hidden)
        if node.left < 0 or node.node in hidden
    }
    layout = lay_out(nodes, hidden, bars)
    width = max(layout.width, LEAST_WIDTH)
    when = f"after step {step:,}" if step is not None else f"after {model.n_rows_seen_:,} rows"
    heading = _Heading(
        f"The tree {when}: {_count_leaves(nodes)}",
        _flow(_explain(model, nodes, layout, max_weights), width - 2 * MARGIN),
        _place_legend(_name_labels(labels, names) if gauge is None else _name_means(gauge), width),
    )
    layout.move_down(heading.height)
    pen = _make_pen(ax, width, layout.height)
    _draw_heading(pen, heading)
    for box in layout.boxes.values():
        if not box.is_card:
            for child, word in ((box.node.left, "yes"), (box.node.right, "no")):
                _draw_line(pen, box, layout.boxes[child], word)
    told = label_texts(outputs(tree, tree.engine.n_outputs), most=None) if unit else names
    whose = [f"for {name}" for name in told.values()]
    headings = dict(zip(told, cut_together(whose, layout.room - 0.1, SMALL), strict=True))
    longest = max((abs(value) for own in bars.values() for _, value in own), default=0.0) or 1.0
    for box in layout.boxes.values():
        if box.is_card:
            draw_card(pen, box, labels, names, gauge)
            own = bars[box.node.node]
            draw_bars(pen, box, own, layout, headings, longest=longest, unit=unit)
        else:
            _draw_inner(pen, box)
    return pen.ax


# ---------------------------------------------------------------------- pen
def _make_pen(ax: Axes | None, width: float, height: float) -> Pen:
    is_new = ax is None
    ax = axes_or_new(ax, width=width, height=height)
    figure = ax.get_figure(root=True)
    assert figure is not None
    if is_new:
        figure.set_layout_engine("none")
        ax.set_position((0.0, 0.0, 1.0, 1.0))
    room = ax.get_position()
    inches = room.width * figure.get_figwidth(), room.height * figure.get_figheight()
    scale = min(1.0, inches[0] / width, inches[1] / height)
    ax.set_axis_off()
    ax.set_xlim(0.0, inches[0] / scale)
    ax.set_ylim(inches[1] / scale, 0.0)
    ax.set_aspect("equal", anchor="NW")
    return Pen(ax, scale, inches[0] / scale)


# ---------------------------------------------------------------------- words and colours
def _count_leaves(nodes: Mapping[int, OutlineNode]) -> str:
    count = sum(node.left < 0 for node in nodes.values())
    return "1 leaf" if count == 1 else f"{count} leaves"


def _explain(
    model: AnyTree,
    nodes: Mapping[int, OutlineNode],
    layout: Layout,
    max_weights: int,
) -> list[str]:
    """Return the notes below the title: what bars and lines mean, and what is left out."""
    leaves = [node for node in nodes.values() if node.left < 0]
    hidden = [box.n_hidden for box in layout.boxes.values() if box.n_hidden]
    lines = ["Lines: the thicker, the more rows."] if len(leaves) > 1 else []
    if any(math.isnan(node.share) for node in nodes.values()):
        lines.append("Dashed: not known yet.")
    effects = next((leaf.effects for leaf in leaves if leaf.effects), None)
    has_labels = inside(model)[0].engine.has_labels
    if any(leaf.mean is not None for leaf in leaves):
        lines.append("Leaves: the tick is the mean prediction, the band the error around it.")
    if effects:
        several = len(effects) > 1
        has_seen = {bool(leaf.probabilities) for leaf in leaves}
        words = {
            True: "the leaf's most frequent label",
            False: "the label with the strongest effect",
        }
        one = " (without rows: ".join(words[each] for each in sorted(has_seen, reverse=True))
        one += ")" if len(has_seen) > 1 else ""
        names = label_texts(inside(model)[0].target.labels)
        first = next(iter(effects)) if not several else "the quantile"
        gains = f"{first} gains"
        if has_labels:
            whose = one if several else f"label {names[first]}"
            gains = f"the log-odds of {whose} gain"
        inputs = len(next(iter(effects.values())))
        which = f"the strongest {max_weights} of {inputs}" if inputs > max_weights else "all"
        lines += [
            f"Bars: what {gains} when {unit_of_effects(model)};",
            f"{which}, the same scale in all leaves.",
        ]
        if any(own for leaf in leaves for own in (leaf.curves or {}).values()):
            most = "they gain or lose" if has_labels else f"{first} gains or loses"
            lines.append(f"Black: the curve of a number; its bar is the most {most} by up to that.")
    if hidden:
        lines.append(
            f"{sum(hidden)} of the leaves, those with the fewest rows, are shown as {len(hidden)} "
            "cards with the model of the node above them."
        )
    return lines


# ---------------------------------------------------------------------- parts
@dataclass(slots=True)
class _Heading:
    """The heading above the tree; entries of the legend are (x, line, name, colour)."""

    title: str
    lines: list[str]
    legend: list[tuple[float, int, str, str]]

    @property
    def height(self) -> float:
        n_lines = 1 + len(self.lines) + (1 + self.legend[-1][1] if self.legend else 0)
        return LINE * (n_lines + 0.7) + MARGIN


def _name_means(gauge: Gauge) -> list[tuple[str, str]]:
    """Return the colours of the lowest and the highest mean; none for a single leaf."""
    low, high = gauge.means
    ends = (("lowest", low), ("highest", high)) if low < high else ()
    return [
        (f"{word} mean {write_number(mean, gauge.unit)}", gauge.colour(mean)) for word, mean in ends
    ]


def _name_labels(
    labels: Mapping[Hashable, str], names: Mapping[Hashable, str]
) -> list[tuple[str, str]]:
    """Return the names of the labels with a colour of their own, and how many have none."""
    own = [label for label, colour in labels.items() if colour != OTHERS]
    short = cut_together([names[label] for label in own], 1.2, SMALL)
    entries = [(name, labels[label]) for name, label in zip(short, own, strict=True)]
    if len(own) < len(labels):
        entries.append((f"{len(labels) - len(own)} other labels", OTHERS))
    return entries


def _place_legend(
    entries: list[tuple[str, str]], width: float
) -> list[tuple[float, int, str, str]]:
    """Arrange names with their colours in lines."""
    legend = []
    x, line = MARGIN, 0
    for name, colour in entries:
        room = measure(name, SMALL) + 0.4
        if x + room > width - MARGIN:
            x, line = MARGIN, line + 1
        legend.append((x, line, name, colour))
        x += room
    return legend


def _draw_heading(pen: Pen, heading: _Heading) -> None:
    y = MARGIN + LINE / 2
    pen.write(MARGIN, y, heading.title, FONT_SIZE + 1, weight="bold")
    for line in heading.lines:
        y += LINE
        pen.write(MARGIN, y, line, color=MUTED)
    for x, place, name, colour in heading.legend:
        middle = y + LINE * (1.1 + place)
        pen.fill(x, middle - 0.05, 0.12, 0.1, facecolor=colour)
        pen.write(x + 0.17, middle, name)


def _flow(sentences: list[str], width: float) -> list[str]:
    """Arrange sentences in lines."""
    lines = [""] if sentences else []
    for word in " ".join(sentences).split():
        longer = f"{lines[-1]} {word}".strip()
        if measure(longer, SMALL) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _draw_line(pen: Pen, above: Box, below: Box, word: str) -> None:
    """Draw the line from a node to a child: a curve to the next column, then straight.

    It is dashed if its share of rows is not known.
    """
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    start, bend, end = above.x + above.width, above.x + above.width + COLUMN_GAP, below.x
    middle = (start + bend) / 2
    places = [
        (start, above.y),
        (middle, above.y),
        (middle, below.y),
        (bend, below.y),
        (end, below.y),
    ]
    codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4, Path.LINETO]
    share = below.node.share
    width = 0.8 + (THICKEST - 0.8) * share if share > 0 else 0.8  # NaN: none
    pen.ax.add_patch(
        PathPatch(
            Path(places, codes),
            facecolor="none",
            edgecolor=OTHERS if math.isnan(share) else FAINT,
            linewidth=width * pen.scale,
            linestyle=(0, (3, 3)) if math.isnan(share) else "-",
            capstyle="butt",
            zorder=0.5,
        )
    )
    away = width / 144 + 0.02  # on the side that the line does not come from
    side, y = ("bottom", below.y - away) if below.y < above.y else ("top", below.y + away)
    pen.write(bend - 0.05, y, word, ha="right", va=side, color=MUTED)


def _draw_inner(pen: Pen, box: Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    pen.ax.add_patch(
        FancyBboxPatch(
            (box.x, box.y - box.height / 2),
            box.width,
            box.height,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor="white",
            edgecolor=MUTED,
            linewidth=0.8 * pen.scale,
        )
    )
    middle = box.x + box.width / 2
    pen.write(middle, box.y - 0.085, box.words[0], FONT_SIZE, ha="center")
    pen.write(middle, box.y + 0.09, box.words[1], ha="center", color=MUTED)
