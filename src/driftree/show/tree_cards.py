"""The cards of a tree's picture: a leaf's rows, their labels, and its linear model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driftree.explain.text import one_line, say_share
from driftree.show.style import (
    DOWN,
    FONT_SIZE,
    INK,
    MUTED,
    OTHERS,
    PALETTE,
    PLAIN,
    SMALL,
    UP,
    cut_together,
    measure,
    text_on,
    write_signed,
)
from driftree.show.tree_layout import BAR, FACTS, HALF_BARS, HEADER, NUMBERS, Box, Layout

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from matplotlib.axes import Axes

    from driftree.explain.outline import OutlineNode

CARD = "#f5f5f5"


@dataclass(slots=True)
class Pen:
    """Draws in inches from the top left, smaller by `scale` where the axes are too small."""

    ax: Axes
    scale: float
    width: float

    def write(self, x: float, y: float, text: str, size: float = SMALL, **settings: Any) -> None:
        """Write a text, by default to the right of a place."""
        looks = {"color": INK, "va": "center", "ha": "left"} | PLAIN | settings
        self.ax.text(x, y, text, fontsize=size * self.scale, **looks)

    def fill(self, x: float, y: float, width: float, height: float, **settings: Any) -> None:
        """Fill a rectangle."""
        from matplotlib.patches import Rectangle

        looks = {"linewidth": 0.0} | settings
        self.ax.add_patch(Rectangle((x, y), width, height, **looks))


# ---------------------------------------------------------------------- what a card shows
def colour_labels(nodes: Mapping[int, OutlineNode]) -> dict[Hashable, str]:
    """Give each label a colour; of many, the most frequent have their own.

    They come in the order of the model's labels, so that they are the same in the next picture. Of
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


def label_of(node: OutlineNode) -> Hashable:
    """Return the label whose effects a leaf shows."""
    assert node.effects
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
    pen: Pen, box: Box, labels: Mapping[Hashable, str], names: Mapping[Hashable, str]
) -> None:
    """Draw the left side of a leaf's card: its rows and their labels, with colours and names."""
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


def draw_bars(
    pen: Pen,
    box: Box,
    bars: list[tuple[str, float]],
    layout: Layout,
    headings: Mapping[Hashable, str],
    *,
    longest: float,
) -> None:
    """Draw the right side of a leaf's card: the strongest effects, and on which label."""
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
    for name, value in bars:
        length = HALF_BARS * value / longest
        pen.fill(zero, y + 0.03, length, BAR - 0.05, facecolor=UP if value > 0 else DOWN)
        pen.write(left, y + BAR / 2, layout.names[name], ha="right")
        gap, side = (0.03, "left") if value > 0 else (-0.03, "right")
        pen.write(zero + length + gap, y + BAR / 2, write_signed(value), ha=side)
        y += BAR


def _draw_bar(
    pen: Pen,
    place: tuple[float, float],
    probabilities: Mapping[Hashable, float],
    labels: Mapping[Hashable, str],
    names: Mapping[Hashable, str],
    *,
    width: float,
) -> None:
    """Draw how often a leaf saw each label: a divided bar."""
    rest = 0.0
    start, y = place
    for label, colour in labels.items():
        part = probabilities.get(label, 0.0) * width
        if colour == OTHERS:
            rest += part
            continue
        pen.fill(start, y + 0.01, part, 0.16, facecolor=colour, edgecolor="white", linewidth=0.4)
        if measure(names[label], SMALL) <= part - 0.06:  # else the legend has it
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
