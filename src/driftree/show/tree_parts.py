"""The parts of a tree's plot: their layout, in inches from the top left, and the leaves' cards.

The root is on the left, the leaves are in one column on the right, and a node is half-way between
its children. So no two boxes overlap, and no line crosses a box.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.explain.text import one_line, say_share, write_number
from driftree.show.style import (
    DOWN,
    FAINT,
    FONT_SIZE,
    INK,
    MEANS,
    MUTED,
    OTHERS,
    PALETTE,
    PLAIN,
    SMALL,
    UP,
    cut,
    cut_conditions,
    cut_together,
    measure,
    text_on,
    write_signed,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from matplotlib.axes import Axes

    from driftree.explain.describe import LeafCurve
    from driftree.explain.over_time import OutlineNode
    from driftree.learn.units import Unit

MAX_LEAVES = 40
MARGIN = 0.12
BAR = 0.15  # from one bar to the next
HEADER = 0.2  # a card's first line
SPACE = 0.17  # between cards
COLUMN_GAP = 0.62  # between columns, for the lines
CONDITION = 1.75  # at most, for the text in a box
PADDING = 0.07  # in a box
FACTS = 1.75  # width of the left side of a card
NAMES = 1.6  # width of the inputs' names
GAP = 0.12  # before them
HALF_BARS = 0.8  # longest bar
NUMBERS = 0.42  # beyond it
BARS = 2 * (HALF_BARS + NUMBERS) + 0.1


@dataclass(slots=True)
class Box:
    """The box of a node: left side, vertical middle and size; `words` for an inner node."""

    node: OutlineNode
    x: float
    y: float
    width: float
    height: float
    words: tuple[str, ...] = ()
    n_hidden: int = 0  # leaves below that are not shown

    @property
    def is_card(self) -> bool:
        """Whether it is in the right column, with no children shown."""
        return not self.words


@dataclass(slots=True)
class Layout:
    """All boxes by node, the total size, and the inputs' names, shortened to fit."""

    boxes: dict[int, Box]
    width: float
    height: float
    room: float
    names: dict[str, str]

    def move_down(self, height: float) -> None:
        """Make room at the top."""
        self.height += height
        for box in self.boxes.values():
            box.y += height


def lay_out(
    nodes: Mapping[int, OutlineNode],
    hidden: Mapping[int, int],
    bars: Mapping[int, list[tuple[str, float]]],
) -> Layout:
    """Place the nodes of an outline; `bars` holds those with a card, and their bars."""
    boxes: dict[int, Box] = {}
    names = list(dict.fromkeys(name for own in bars.values() for name, _ in own))
    room = min(NAMES, max((measure(name, SMALL) for name in names), default=0.0)) + 0.3
    top = 0.0
    present = shown(nodes, hidden)
    inner = [node.condition for node in present if node.condition and node.node not in bars]
    conditions = cut_conditions(inner, CONDITION, FONT_SIZE)
    for node in present:
        if node.node in bars:
            n_hidden = hidden.get(node.node, 0)
            n_lines = len(bars[node.node]) + (len(node.effects or ()) > 1)  # which label
            height = max(n_lines * BAR, 3 * HEADER)
            width = FACTS + room + BARS
            boxes[node.node] = Box(node, 0.0, top + height / 2, width, height, n_hidden=n_hidden)
            top += height + SPACE
        else:
            words = conditions[str(node.condition)], say_share(node.share)
            width = max(measure(line, FONT_SIZE) for line in words) + 2 * PADDING
            boxes[node.node] = Box(node, 0.0, 0.0, width, 0.38, words)
    _place_columns(boxes)
    for box in reversed(boxes.values()):
        if not box.is_card:
            box.y = (boxes[box.node.left].y + boxes[box.node.right].y) / 2
    right = max(box.x + box.width for box in boxes.values())
    short = dict(zip(names, cut_together(names, room - GAP, SMALL), strict=True))
    return Layout(boxes, right + MARGIN, top - SPACE + MARGIN, room, short)


def hide_small(nodes: Mapping[int, OutlineNode], max_leaves: int = MAX_LEAVES) -> dict[int, int]:
    """Choose which branches of a large tree not to show: those with the fewest rows.

    Returns
    -------
    dict of int to int
        The nodes that represent hidden branches, and how many leaves each.
    """
    n_leaves = {node.node: 1 for node in nodes.values() if node.left < 0}
    hidden: dict[int, int] = {}
    while len(n_leaves) > max_leaves:
        lowest = [
            node
            for node in nodes.values()
            if node.left in n_leaves and node.right in n_leaves and node.node not in n_leaves
        ]
        least = min(lowest, key=_rank)
        count = n_leaves.pop(least.left) + n_leaves.pop(least.right)
        for child in (least.left, least.right):
            hidden.pop(child, None)
        n_leaves[least.node] = hidden[least.node] = count
    return hidden


def _rank(node: OutlineNode) -> tuple[float, int]:
    return (0.0 if math.isnan(node.share) else node.share, node.node)


def shown(nodes: Mapping[int, OutlineNode], hidden: Mapping[int, int]) -> list[OutlineNode]:
    """Return the nodes that are shown, from the root down, left before right."""
    found, rest = [], [0]
    while rest:
        node = nodes[rest.pop()]
        found.append(node)
        if node.left >= 0 and node.node not in hidden:
            rest += [node.right, node.left]
    return found


def _place_columns(boxes: Mapping[int, Box]) -> None:
    """Give each level of inner nodes a column as wide as its widest box; then come the cards."""
    x = MARGIN
    inner = [box for box in boxes.values() if not box.is_card]
    for depth in range(1 + max((box.node.depth for box in inner), default=-1)):
        column = [box for box in inner if box.node.depth == depth]
        for box in column:
            box.x = x
        x += max(box.width for box in column) + COLUMN_GAP
    for box in boxes.values():
        if box.is_card:
            box.x = x


# ---------------------------------------------------------------------- cards
# A leaf's rows, their labels, and its linear model.
CARD = "#f5f5f5"


@dataclass(slots=True)
class Pen:
    """Draws in inches from the top left, scaled by `scale` if the axes are too small."""

    ax: Axes
    scale: float
    width: float

    def write(self, x: float, y: float, text: str, size: float = SMALL, **settings: Any) -> None:
        """Write a text, by default to the right of a position."""
        looks = {"color": INK, "va": "center", "ha": "left"} | PLAIN | settings
        self.ax.text(x, y, text, fontsize=size * self.scale, **looks)

    def fill(self, x: float, y: float, width: float, height: float, **settings: Any) -> None:
        """Fill a rectangle."""
        from matplotlib.patches import Rectangle

        looks = {"linewidth": 0.0} | settings
        self.ax.add_patch(Rectangle((x, y), width, height, **looks))


# ---------------------------------------------------------------------- what a card shows
def colour_labels(nodes: Mapping[int, OutlineNode]) -> dict[Hashable, str]:
    """Give each label a colour; if there are many, only the most frequent have their own.

    Colours follow the order of the model's labels, so that they are the same in the next plot. Of
    two, the second has the colour of effects that make it more likely.
    """
    total: dict[Hashable, float] = {}
    for node in nodes.values():
        if node.left >= 0:
            continue
        for label, probability in (node.probabilities or {}).items():
            weight = node.share if node.share > 0 else 0.0  # not NaN
            total[label] = total.get(label, 0.0) + weight * probability
    if len(total) <= 2:
        return dict(zip(total, (DOWN, UP), strict=False))
    own = set(sorted(total, key=lambda label: -total[label])[: len(PALETTE)])
    colours = iter(PALETTE)
    return {label: next(colours) if label in own else OTHERS for label in total}


@dataclass(frozen=True, slots=True)
class Gauge:
    """The scale on which all leaves of a regressor show their means, and errors around them."""

    unit: Unit
    low: float
    high: float
    means: tuple[float, float]

    @classmethod
    def over(cls, nodes: Mapping[int, OutlineNode], unit: Unit | None) -> Gauge | None:
        """Return the scale of all leaves; None for labels, or if no mean is known."""
        leaves = [node for node in nodes.values() if node.left < 0]
        found = [(node.mean, node.error or 0.0) for node in leaves if node.mean is not None]
        if unit is None or not found:
            return None
        means = [mean for mean, _ in found]
        low = min(mean - error for mean, error in found)
        high = max(mean + error for mean, error in found)
        return cls(unit, low, high, (min(means), max(means)))

    def place(self, number: float) -> float:
        """Return where a number lies, from 0 to 1."""
        wide = self.high - self.low
        return min(max((number - self.low) / wide, 0.0), 1.0) if wide > 0 else 0.5

    def colour(self, mean: float) -> str:
        """Return the colour of a mean, dark if it is low."""
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        low, high = self.means
        part = (mean - low) / (high - low) if high > low else 0.5
        return to_hex(colormaps[MEANS](0.1 + 0.8 * min(max(part, 0.0), 1.0)))


def label_of(node: OutlineNode) -> Hashable:
    """Return the label whose effects a leaf shows."""
    assert node.effects
    if node.mean is not None:  # of quantiles, the middle one
        return list(node.effects)[len(node.effects) // 2]
    if node.probabilities:
        seen = node.probabilities
        return max(node.effects, key=lambda label: seen.get(label, 0.0))
    effects = node.effects
    return max(effects, key=lambda label: max(map(abs, effects[label].values()), default=0.0))


def bars_of(node: OutlineNode, max_weights: int) -> list[tuple[str, float]]:
    """Return the inputs with the strongest effects."""
    if not node.effects:
        return []
    return list(node.effects[label_of(node)].items())[:max_weights]


# ---------------------------------------------------------------------- drawing
def draw_card(
    pen: Pen,
    box: Box,
    labels: Mapping[Hashable, str],
    names: Mapping[Hashable, str],
    gauge: Gauge | None = None,
) -> None:
    """Draw the left side of a leaf's card: its rows and their labels, or their mean."""
    node, top = box.node, box.y - box.height / 2
    pen.fill(box.x, top - 0.06, box.width, box.height + 0.12, facecolor=CARD, zorder=0.6)
    pen.fill(box.x, top - 0.06, 0.03, box.height + 0.12, facecolor=MUTED)
    x, right = box.x + 0.1, box.x + FACTS
    title = f"{box.n_hidden} leaves" if box.n_hidden else f"leaf {node.node}"
    pen.write(x, top + HEADER / 2, title, FONT_SIZE, weight="bold")
    pen.write(right, top + HEADER / 2, say_share(node.share), color=MUTED, ha="right")
    if node.probabilities:
        _draw_bar(pen, (x, top + HEADER), node.probabilities, labels, names, width=right - x)
        words = _most_frequent(node.probabilities, names, right - x)
        pen.write(x, top + 2.5 * HEADER - 0.02, words)
    if gauge is not None and node.mean is not None:
        pen.fill(box.x, top - 0.06, 0.06, box.height + 0.12, facecolor=gauge.colour(node.mean))
        _draw_gauge(pen, (x, top + HEADER), node.mean, node.error or 0.0, gauge, width=right - x)
        mean, error = (write_number(own, gauge.unit) for own in (node.mean, node.error or 0.0))
        words = cut(f"mean {mean}, error {error}", right - x, SMALL)
        pen.write(x, top + 2.5 * HEADER - 0.02, words)


def _draw_gauge(
    pen: Pen,
    place: tuple[float, float],
    mean: float,
    error: float,
    gauge: Gauge,
    *,
    width: float,
) -> None:
    """Draw a leaf's mean on the scale of all leaves, and its error."""
    start, y = place
    left, middle, right = (
        start + width * gauge.place(end) for end in (mean - error, mean, mean + error)
    )
    pen.fill(start, y + 0.06, width, 0.06, facecolor=FAINT)
    pen.fill(left, y + 0.03, max(right - left, 0.02), 0.12, facecolor=gauge.colour(mean))
    pen.fill(middle - 0.012, y + 0.01, 0.024, 0.16, facecolor=INK)


def draw_bars(
    pen: Pen,
    box: Box,
    bars: list[tuple[str, float]],
    layout: Layout,
    headings: Mapping[Hashable, str],
    *,
    longest: float,
    unit: Unit | None = None,
) -> None:
    """Draw the right side of a leaf's card: the strongest effects, and their label.

    On the other side of the middle line, opposite the bar, is the curve of a feature whose line is
    bent.
    """
    if not bars:
        return
    has_several = len(box.node.effects or ()) > 1
    y = box.y - BAR * (len(bars) + has_several) / 2
    left = box.x + FACTS + layout.room
    zero = left + 0.05 + NUMBERS + HALF_BARS
    if has_several:
        words = headings[label_of(box.node)]
        pen.write(left, y + BAR / 2, words, ha="right", color=MUTED, style="italic")
        y += BAR
    pen.ax.plot([zero, zero], [y, y + BAR * len(bars)], color=MUTED, linewidth=0.6 * pen.scale)
    curves = (box.node.curves or {}).get(label_of(box.node), {})
    for name, value in bars:
        length = HALF_BARS * value / longest
        pen.fill(zero, y + 0.03, length, BAR - 0.05, facecolor=UP if value > 0 else DOWN)
        pen.write(left, y + BAR / 2, layout.names[name], ha="right")
        gap, side = (0.03, "left") if value > 0 else (-0.03, "right")
        pen.write(zero + length + gap, y + BAR / 2, write_signed(value, unit), ha=side)
        if name in curves:
            start = zero - HALF_BARS if value > 0 else zero + 0.06
            _draw_curve(pen, curves[name], (start, y + 0.04), (HALF_BARS - 0.06, BAR - 0.08))
        y += BAR


def _draw_curve(
    pen: Pen, curve: LeafCurve, place: tuple[float, float], size: tuple[float, float]
) -> None:
    """Draw a curve where it is bent and the leaf has rows, scaled to the space."""
    between = [knot for knot in curve.knots if curve.first < knot < curve.last]
    knots = np.array([curve.first, *between, curve.last])
    values = np.array([curve(knot) for knot in knots])
    x = place[0] + size[0] * (knots - knots[0]) / (knots[-1] - knots[0])
    y = place[1] + size[1] * (values.max() - values) / (np.ptp(values) or 1.0)
    pen.ax.plot(x, y, color=INK, linewidth=0.9 * pen.scale, gid="curve")


def _draw_bar(
    pen: Pen,
    place: tuple[float, float],
    probabilities: Mapping[Hashable, float],
    labels: Mapping[Hashable, str],
    names: Mapping[Hashable, str],
    *,
    width: float,
) -> None:
    """Draw the label shares of a leaf as a stacked bar."""
    rest = 0.0
    start, y = place
    for label, colour in labels.items():
        part = probabilities.get(label, 0.0) * width
        if colour == OTHERS:
            rest += part
            continue
        pen.fill(start, y + 0.01, part, 0.16, facecolor=colour, edgecolor="white", linewidth=0.4)
        if measure(names[label], SMALL) <= part - 0.06:  # otherwise the legend has it
            middle, name = start + part / 2, one_line(names[label])
            pen.write(middle, y + 0.085, name, ha="center", color=text_on(colour))
        start += part
    pen.fill(start, y + 0.01, rest, 0.16, facecolor=OTHERS, edgecolor="white", linewidth=0.4)


def _most_frequent(
    probabilities: Mapping[Hashable, float], names: Mapping[Hashable, str], width: float
) -> str:
    ranked = sorted(probabilities, key=lambda label: -probabilities[label])[:2]
    room = width / len(ranked) - 0.4
    short = cut_together([names[label] for label in ranked], room, SMALL)
    return ", ".join(
        f"{name} {probabilities[label]:.0%}" for name, label in zip(short, ranked, strict=True)
    )
