"""Export: the tree for programs (nested data for JSON) and for Graphviz.

The data have the schema of version 1; versions change when a key goes or gets another meaning:

- ``format``: "driftree.tree"; ``version``: 1
- ``rows``, ``steps``: learnt so far; ``setting``: "measured" or "paper"
- ``labels``, ``features``: lists. Labels and levels that JSON has no type for are text.
- ``tree``: the root. Every node has ``node`` (its id), ``rows`` (learnt by it), ``share`` (of the
  stream's rows; null while unknown) and ``probabilities`` (share of each label among the rows that
  reached it, in the order of ``labels``).
- An inner node also has ``condition`` and the nodes ``left`` (where it holds) and ``right``. A
  condition has ``text``, ``feature``, ``operator`` ("<=", "==" or "is missing"), ``value`` and
  ``missing_passes`` (null if nothing was ever missing).
- A leaf also has ``since_step`` and ``since_row`` (null where no history is kept), ``floor`` (the
  noise floor of two labels) and ``models``, one per label that has one, each with ``label``,
  ``intercept`` and ``inputs``: a list, the strongest first, of ``name``, ``weight`` and ``effect``.
  `LeafModel` says what these numbers mean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from driftree.explain.describe import class_shares, inside, leaf_model, row_shares
from driftree.explain.rules import most_probable, rules
from driftree.explain.text import check_limits, one_line, percent, say_noise, say_share

if TYPE_CHECKING:
    from driftree.explain.describe import LeafModel
    from driftree.explain.readable import Readable
    from driftree.explain.rules import Rule
    from driftree.learn.events import Condition

VERSION = 1  # of the schema of `to_dict`
MAX_LABELS = 3  # in a node of the picture


def to_dict(model: Readable) -> dict[str, Any]:
    """Return the tree as nested data: see `Readable.to_dict`."""
    tree, encoder = inside(model)
    engine = tree.engine
    shares = row_shares(tree)
    own_rules = {rule.leaf: rule for rule in rules(model, max_weights=0)}
    nodes: dict[int, dict[str, Any]] = {}
    for node in reversed(list(tree.walk())):  # children first, so that none has to wait
        share = shares[node]
        nodes[node] = {
            "node": node,
            "rows": float(engine.rows[node]),
            "share": None if math.isnan(share) else share,
            "probabilities": list(class_shares(tree, encoder, node).values()),
        }
        if engine.left[node] < 0:
            nodes[node] |= _leaf_data(leaf_model(tree, encoder, node, share), own_rules[node])
        else:
            left = int(engine.left[node])
            nodes[node] |= {
                "condition": _condition_data(tree.path(left)[-1]),
                "left": nodes.pop(left),
                "right": nodes.pop(int(engine.right[node])),
            }
    return {
        "format": "driftree.tree",
        "version": VERSION,
        "rows": int(engine.n_rows),
        "steps": int(engine.n_steps),
        "setting": tree.parameters.setting,
        "labels": [_to_json(label) for label in encoder.labels],
        "features": list(encoder.display_names),
        "tree": nodes[0],
    }


def to_dot(model: Readable, *, max_weights: int = 3) -> str:
    """Return the tree in the language of Graphviz: see `Readable.to_dot`."""
    check_limits(max_weights)
    tree, _ = inside(model)
    engine = tree.engine
    shares = row_shares(tree)
    own_rules = {rule.leaf: rule for rule in rules(model, max_weights=max_weights)}
    lines = [
        "digraph driftree {",
        "    graph [ordering=out];",
        '    node [shape=box, style=rounded, fontname="sans-serif"];',
        '    edge [fontname="sans-serif"];',
    ]
    for node in tree.walk():
        if engine.left[node] < 0:
            label = _left_aligned(_rule_lines(own_rules[node]))
            lines.append(f'    n{node} [label="{label}"];')
            continue
        left, right = int(engine.left[node]), int(engine.right[node])
        words = [one_line(str(tree.path(left)[-1]), 60), say_share(shares[node])]
        label = "\\n".join(map(_escape, words))
        lines += [
            f'    n{node} [label="{label}", style=solid];',
            f'    n{node} -> n{left} [label=" yes"];',
            f'    n{node} -> n{right} [label=" no"];',
        ]
    return "\n".join([*lines, "}"])


# ---------------------------------------------------------------------- JSON
def _leaf_data(leaf: LeafModel, rule: Rule) -> dict[str, Any]:
    return {
        "since_step": rule.since_step,
        "since_row": rule.since_row,
        "floor": list(leaf.floor),
        "models": [
            {
                "label": _to_json(label),
                "intercept": leaf.intercept[label],
                "inputs": [
                    {"name": name, "weight": weight, "effect": leaf.effects[label][name]}
                    for name, weight in weights.items()
                ],
            }
            for label, weights in leaf.weights.items()
        ],
    }


def _condition_data(condition: Condition) -> dict[str, Any]:
    return {
        "text": str(condition),
        "feature": condition.feature,
        "operator": condition.operator,
        "value": _to_json(condition.value),
        "missing_passes": condition.missing_passes,
    }


def _to_json(value: object) -> Any:
    """Return a label or level as JSON has it: what JSON has no type for becomes text."""
    is_plain = value is None or type(value) in (bool, int, str)
    return value if is_plain or (type(value) is float and math.isfinite(value)) else str(value)


# ---------------------------------------------------------------------- DOT
def _rule_lines(rule: Rule) -> list[str]:
    shown = most_probable(rule.probabilities, MAX_LABELS)
    odds = ", ".join(f"{one_line(str(own))} {percent(rule.probabilities[own])}" for own in shown)
    hidden = len(rule.probabilities) - len(shown)
    lines = [say_share(rule.share), f"{odds}, ..." if hidden else odds]
    if any(rule.floor):
        lines.append(say_noise(rule.floor))
    for label in most_probable(rule.probabilities, 1, among=rule.weights):
        what = "log-odds" if len(rule.weights) == 1 else "logit"
        if rule.weights[label]:
            lines += ["", f"{what} of {one_line(str(label))}:"]
            lines += [f"{own.weight:+.3g} {one_line(own.name)}" for own in rule.weights[label]]
    return lines


def _left_aligned(lines: list[str]) -> str:
    return "".join(f"{_escape(line)}\\l" for line in lines)


def _escape(text: str) -> str:
    """Escape what means something in a quoted string of DOT: it knows HTML's entities, too."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
