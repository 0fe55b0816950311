"""Where the parts of a tree's picture go. Inches, from the top left; no drawing yet.

The root is on the left, the leaves stand in one column on the right, one below the other, and a
node is half-way between its children. So no two boxes meet, and no line meets a box.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftree.explain.text import say_share
from driftree.show.style import FONT_SIZE, SMALL, cut_conditions, cut_together, measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from driftree.explain.outline import OutlineNode

MAX_LEAVES = 40
MARGIN = 0.12
BAR = 0.15  # from one bar to the next
HEADER = 0.2  # a card's first line
SPACE = 0.17  # between cards
COLUMN_GAP = 0.62  # between columns, for the lines
CONDITION = 1.75  # at most, for the words in a box
PADDING = 0.07  # in a box
FACTS = 1.75  # width of the left side of a card
NAMES = 1.6  # width of the inputs' names
GAP = 0.12  # before them
HALF_BARS = 0.8  # longest bar
NUMBERS = 0.42  # beyond it
BARS = 2 * (HALF_BARS + NUMBERS) + 0.1


@dataclass(slots=True)
class Box:
    """Room for a node: its left side, its middle and its size; `words` of an inner node."""

    node: OutlineNode
    x: float
    y: float
    width: float
    height: float
    words: tuple[str, ...] = ()
    n_hidden: int = 0  # leaves below that are not shown

    @property
    def is_card(self) -> bool:
        """Whether it stands on the right, with nothing below it that is shown."""
        return not self.words


@dataclass(slots=True)
class Layout:
    """All boxes by node, the size of the whole, and the inputs' names in the room they have."""

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
    """Place the nodes of an outline; `bars` has those that get a card, with their bars."""
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
    """Choose what not to show of a large tree: the branches that the fewest rows reach.

    Returns
    -------
    dict of int to int
        The nodes that are shown as one, and how many leaves each stands for.
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
    """Return what is shown, from the root down, left before right."""
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
