"""Markup: the present tree as a fragment of HTML, for notebooks."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from driftree.explain.describe import class_shares, inside, row_shares
from driftree.explain.explanation import tell
from driftree.explain.rules import most_probable, rules
from driftree.explain.sparse import say_forgotten
from driftree.explain.text import (
    MAX_NAME,
    label_texts,
    one_line,
    percent,
    say_noise,
    say_output,
    say_share,
    write_change,
    write_number,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from driftree.explain.counterfactual import Counterfactual
    from driftree.explain.explanation import Explanation
    from driftree.explain.readable import Readable
    from driftree.explain.rules import Rule
    from driftree.learn.tree import Tree

MAX_LEAVES = 40
MAX_WEIGHTS = 3
# Okabe and Ito's colours, which colour-blind people can tell apart; they are visible on white and
# on black. The last is for all labels without a colour of their own.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
OTHER_COLOUR = "#8c8c8c"
# Only the bars have colours of their own, so the fragment suits light and dark pages.
STYLE = """
.driftree-tree { font: 13px/1.5 system-ui, sans-serif; color: inherit; overflow-wrap: anywhere; }
.driftree-tree ul { list-style: none; margin: 0; padding: 0 0 0 1.1em; border-left: 1px solid;
  border-color: color-mix(in srgb, currentColor 25%, transparent); }
.driftree-tree > ul { padding-left: 0; border: 0; }
.driftree-tree li { margin: 2px 0; }
.driftree-tree summary { cursor: pointer; }
.driftree-tree small { font-size: 12px; opacity: 0.8; }
.driftree-tree code { font-size: 12px; background: none; color: inherit; padding: 0; }
.driftree-tree .leaf { padding-left: 1.2em; }
.driftree-tree .leaf > div { padding-left: 1.2em; }
.driftree-tree .bar { display: inline-flex; width: 110px; height: 0.75em; margin-right: 0.5em;
  border-radius: 2px; overflow: hidden; vertical-align: -1px; }
.driftree-tree .rest { flex: 1; background: color-mix(in srgb, currentColor 12%, transparent); }
.driftree-tree .key { display: inline-block; margin-right: 0.9em; }
.driftree-tree table { font: inherit; color: inherit; margin: 2px 0; }
.driftree-tree td { padding: 0 0.8em 0 0; text-align: left; background: none; border: 0; }
.driftree-tree .number { text-align: right; font-variant-numeric: tabular-nums; }
.driftree-tree .sides { display: flex; width: 160px; height: 0.75em; }
.driftree-tree .sides span { flex: 1; display: flex; }
.driftree-tree .sides .below { justify-content: flex-end;
  border-right: 1px solid color-mix(in srgb, currentColor 40%, transparent); }
.driftree-tree .key i { display: inline-block; width: 0.75em; height: 0.75em; margin-right: 0.3em;
  border-radius: 2px; vertical-align: -1px; }
"""


def tree_html(model: Readable) -> str:
    """Return the present tree as a fragment of HTML: no script, nothing from the network.

    It is a collapsible list: conditions, shares of rows, a bar of label frequencies per leaf, and
    its strongest weights (with more than two labels: those of the most frequent one). For a
    regressor, the bar shows a leaf's mean on the scale of all leaves. Of more than 40 leaves it
    shows those with the most rows, and says how many there are. Text from data is escaped; long
    names are shortened in the middle.

    Parameters
    ----------
    model : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A model that has learnt something.

    Returns
    -------
    str
        What a notebook shows for a fitted model, above scikit-learn's view of the parameters.

    Examples
    --------
    >>> from driftree import DynamicModelTreeClassifier
    >>> model = DynamicModelTreeClassifier()
    >>> for age in range(20, 60):
    ...     model.learn_one({"<age>": age}, "old" if age > 40 else "young")
    >>> "&lt;age&gt;" in tree_html(model)
    True
    """
    tree, encoder = inside(model)
    engine = tree.engine
    colours = _label_colours(class_shares(tree, 0))
    own_rules = {rule.leaf: rule for rule in rules(model, max_weights=MAX_WEIGHTS)}
    names = label_texts(tree.target.labels)
    sketch = _Sketch(tree, own_rules, colours, names, row_shares(tree), _leaves_shown(own_rules))
    n_leaves, n_rows = len(own_rules), int(engine.n_rows)
    head = f"<b>{_text(type(model).__name__)}</b>: {_count(n_leaves, 'leaf', 'leaves')}"
    head += f", {_count(n_rows, 'row', 'rows')} learnt"
    if n_leaves > MAX_LEAVES:
        head += f"; the {MAX_LEAVES} leaves with the most rows are shown"
    if forgotten := say_forgotten(encoder):
        head += f"; {forgotten}"
    return (
        f'<div class="driftree-tree"><style>{STYLE}</style>'
        f"<div>{head}</div><div>{_legend(colours, names)}</div>"
        f"<ul>{sketch.items()}</ul></div>"
    )


def notebook_html(model: Readable, parameters: str) -> str:
    """Return the tree above scikit-learn's view of the parameters; only that before learning."""
    return parameters if model._tree is None else f"{tree_html(model)}\n{parameters}"


def explanation_html(why: Explanation) -> str:
    """Return an explanation as a fragment of HTML: its words, with a bar for each contribution.

    Parameters
    ----------
    why : Explanation
        What `explain_one` returns.

    Returns
    -------
    str
        What a notebook shows for it.
    """
    head, entries, tail = tell(why)
    most = max((abs(entry.value) for entry in entries), default=1.0)
    rows = "".join(
        f'<tr><td>{_text(entry.words, 60)}</td><td class="number">{entry.number.strip()}</td>'
        f"<td>{_sides(entry.value / most)}</td></tr>"
        for entry in entries
    )
    first, *others = (html.escape(line.strip()) for line in head)
    lines = "".join(f"<div>{line}</div>" for line in others)
    rest = "".join(f"<div><small>{html.escape(line.strip())}</small></div>" for line in tail)
    return (
        f'<div class="driftree-tree"><style>{STYLE}</style>'
        f"<div><b>{first}</b></div>{lines}<table>{rows}</table>{rest}</div>"
    )


def counterfactuals_html(ways: Sequence[Counterfactual]) -> str:
    """Return counterfactuals as a fragment of HTML: predictions and tables of changes.

    Parameters
    ----------
    ways : sequence of Counterfactual
        What `counterfactual` returns, or `counterfactuals`.

    Returns
    -------
    str
        What a notebook shows for them.
    """
    parts = "".join(map(_way, ways))
    return f'<div class="driftree-tree"><style>{STYLE}</style>{parts}</div>'


def _way(way: Counterfactual) -> str:
    if not way.changes:
        return f"<div>{html.escape(str(way))}</div>"
    said = way.said or f"{one_line(repr(way.target))} ({percent(way.probability)})"
    head = "<tr><td></td><td><small>now</small></td><td><small>then</small></td></tr>"
    rows = "".join(
        f"<tr><td>{_text(name, 60)}</td><td>{html.escape(before)}</td>"
        f"<td><b>{html.escape(after)}</b></td></tr>"
        for name, (old, new) in way.changes.items()
        for before, after in [write_change(old, new)]
    )
    note = f"<div><small>{html.escape(way.note)}</small></div>" if way.note else ""
    return f"<div>It would be <b>{html.escape(said)}</b> if</div><table>{head}{rows}</table>{note}"


def _sides(part: float) -> str:
    """Return a bar to the left or right of the middle."""
    bars = ["", ""]
    bars[part > 0] = (
        f'<i style="width:{abs(part):.1%};background:{COLOURS[0 if part > 0 else 5]}"></i>'
    )
    return f'<div class="sides"><span class="below">{bars[0]}</span><span>{bars[1]}</span></div>'


@dataclass
class _Sketch:
    """The nodes of a tree as items of nested lists."""

    tree: Tree
    rules: dict[int, Rule]
    colours: dict[Hashable, str]
    names: dict[Hashable, str]  # of the labels
    shares: dict[int, float]
    shown: set[int]

    def items(self) -> str:
        """Return the root's item, and all below it in place."""
        engine = self.tree.engine
        hidden = self._hidden_below()
        parts: list[str] = []
        rest: list[int | str] = [0]
        while rest:
            node = rest.pop()
            if isinstance(node, str):
                parts.append(node)
            elif node in hidden:
                parts.append(self._folded(node, hidden[node]))
            elif engine.left[node] < 0:
                parts.append(self._leaf(self.rules[node]))
            else:
                title = self._branch(node) or "All rows"
                summary = f"{title} <small>{say_share(self.shares[node])}</small>"
                parts.append(f"<li><details open><summary>{summary}</summary><ul>")
                rest += ["</ul></details></li>", int(engine.right[node]), int(engine.left[node])]
        return "".join(parts)

    def _hidden_below(self) -> dict[int, int]:
        """Return the number of leaves below each node without leaves to show."""
        engine = self.tree.engine
        n_shown: dict[int, int] = {}
        for node in reversed(list(self.tree.walk())):
            left, right = int(engine.left[node]), int(engine.right[node])
            n_shown[node] = n_shown[left] + n_shown[right] if left >= 0 else node in self.shown
        below = self.tree.leaves_below()
        return {node: below[node] for node, count in n_shown.items() if count == 0}

    def _branch(self, node: int) -> str:
        path = self.tree.path(node)
        if not path:
            return ""
        whole = str(path[-1])
        return f'<code title="{html.escape(whole)}">{_text(whole, 60)}</code>'

    def _folded(self, node: int, n_leaves: int) -> str:
        rest = f"{_count(n_leaves, 'leaf', 'leaves')} not shown"
        words = f"<small>{say_share(self.shares[node])}, {rest}</small>"
        return f'<li class="leaf">{self._branch(node)} {words}</li>'

    def _leaf(self, rule: Rule) -> str:
        bar, words = self._outcome(rule)
        notes = [say_share(rule.share)]
        if any(rule.floor):
            notes.append(say_noise(rule.floor))
        if rule.since_row:
            notes.append(f"since row {rule.since_row:,}")
        return (
            f'<li class="leaf">{self._branch(rule.leaf)}'
            f'<div><span class="bar" role="img" aria-label="{words}">{bar}</span>'
            f"{words} <small>{', '.join(notes)}{self._weights(rule)}</small></div></li>"
        )

    def _outcome(self, rule: Rule) -> tuple[str, str]:
        """Return the segments of a leaf's bar, and what it says in words."""
        if rule.unit is not None and rule.mean is not None:
            return self._place(rule.mean), f"mean {write_number(rule.mean, rule.unit)}"
        shown = [label for label in self.colours if label in rule.probabilities]
        segments = [(self.colours[label], rule.probabilities[label]) for label in shown]
        segments.append((OTHER_COLOUR, max(0.0, 1 - sum(share for _, share in segments))))
        bar = "".join(
            f'<span style="width:{share:.1%};background:{colour}"></span>'
            for colour, share in segments
            if share > 0
        )
        [likely] = most_probable(rule.probabilities, 1)
        return bar, f"{html.escape(self.names[likely])} {percent(rule.probabilities[likely])}"

    def _place(self, mean: float) -> str:
        """Return a bar for a mean on the scale of all leaves."""
        means = [rule.mean for rule in self.rules.values() if rule.mean is not None]
        low, high = min(means), max(means)
        part = (mean - low) / (high - low) if high > low else 0.5
        return (
            f'<span style="width:{0.04 + 0.96 * part:.1%};background:{COLOURS[0]}"></span>'
            '<span class="rest"></span>'
        )

    def _weights(self, rule: Rule) -> str:
        """Return the strongest weights of the most frequent label that has any."""
        for label in rule.told(1):
            if rule.weights[label]:
                terms = [
                    f"{own.weight:+.3g}&nbsp;{_text(own.name)}"
                    for own in rule.weights[label]
                    if own.curve is None
                ]
                terms += [
                    f"{_text(own.name)}&nbsp;({own.curve})"
                    for own in rule.weights[label]
                    if own.curve is not None
                ]
                what = html.escape(say_output(label, self.names, n_outputs=len(rule.weights)))
                return f"<br>{what}: <code>{', '.join(terms)}</code>"
        return ""


def _label_colours(shares: dict[Hashable, float]) -> dict[Hashable, str]:
    """Give the most frequent labels colours, in the order of the labels."""
    frequent = most_probable(shares, len(COLOURS))
    coloured = [label for label in shares if label in frequent]
    # Two labels as in the plots: blue is the second, whose log-odds are shown.
    colours = COLOURS[1::-1] if len(shares) == 2 else COLOURS
    return dict(zip(coloured, colours, strict=False))


def _leaves_shown(own_rules: dict[int, Rule]) -> set[int]:
    def rank(rule: Rule) -> float:
        return 0.0 if math.isnan(rule.share) else -rule.share

    return {rule.leaf for rule in sorted(own_rules.values(), key=rank)[:MAX_LEAVES]}


def _legend(colours: dict[Hashable, str], names: dict[Hashable, str]) -> str:
    keys = [(colour, html.escape(names[label])) for label, colour in colours.items()]
    if rest := len(names) - len(colours):
        keys.append((OTHER_COLOUR, _count(rest, "other label", "other labels")))
    return "".join(
        f'<span class="key"><i style="background:{colour}"></i>{words}</span>'
        for colour, words in keys
    )


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def _text(text: str, most: int = MAX_NAME) -> str:
    """Return text from data, as one escaped line."""
    return html.escape(one_line(text, most))
