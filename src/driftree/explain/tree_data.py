"""Tree data: the tree for programs (nested data for JSON) and for Graphviz.

The data have the schema of version 2; versions change when a key is removed or changes its meaning:

- ``format``: "driftree.tree"; ``version``: 2 (1 had no curves)
- ``rows``, ``steps``: learnt so far; ``setting``: "measured" or "paper"
- ``labels``, ``features``: lists. Labels and levels that JSON has no type for are text. Of a
  regressor there are no labels.
- ``link``: "logistic", or of a regressor "identity" or "log". ``limits``: of "log", the least and
  the largest logarithm that is predicted, beyond which the model's sum counts as that; else null.
- ``inputs``: what the models weigh, a list of ``name``, ``feature`` and ``kind``. The
  input is, by its kind,
  - "number": the feature's value, or ``low`` or ``high`` where it lies beyond (null: no limit). A
    missing value counts as ``if_missing`` (of "last y" and the like: what the target was last,
    unless predictions leave it out), which may lie beyond, too. ``levels`` is null, or a list (in
    the paper's setting) of which the place of the value, from 0, is the number; that of other
    values is 32.
  - "level": 1 if the value is ``level``, else 0; "other level" (of features with more than 32
    levels): 1 if the value is none of the others.
  - "missing": 1 if the value is missing, else 0.
- ``sparse``: null, or the features that most rows do not hold: lists of their ``names``, of
  ``low`` and ``high``, beyond which a value counts as that, and ``if_absent``: its value in rows
  that do not hold it. ``forgotten`` is the number of evicted names.
- ``tree``: the root. Every node has ``node`` (its id), ``rows`` (learnt by it), ``share`` (of the
  stream's rows, where a threshold has moved of those since; null while unknown) and
  ``probabilities`` (share of each label among the rows that reached it, in the order of
  ``labels``), or, of a regressor, ``mean`` (mean prediction) and ``error`` (by which rows lie
  around theirs); what does not apply is empty or null.
- An inner node also has ``condition`` and the nodes ``left`` (where it holds) and ``right``. A
  condition has ``text``, ``feature``, ``operator`` ("<=", "==" or "is missing"), ``value`` and
  ``missing_passes``: whether rows with a missing value go left. A feature with levels may be
  compared with "any other level", which is one without an input of its own.
- A leaf also has ``since_step`` and ``since_row`` (null where no history is kept), ``floor`` (the
  noise floor of two labels) and ``models``, one per label that has one, each with ``label``,
  ``intercept``, ``inputs``: a list, the strongest first, of ``name``, ``weight`` and ``effect``,
  and ``curves``: such a list of ``name``, ``feature``, ``knots``, ``values`` and
  ``effect``, for the numbers whose line is bent. A curve adds to the logit its value at a knot;
  between two knots what lies on the straight line between their values, beyond the first and the
  last what they have; if the feature is missing, what it adds at ``if_missing``, which is nothing
  except of "last y" and the like. The logit is the intercept plus the sum of weight times input,
  plus what the curves add, plus the sum of weight times value over ``sparse``, a dict of names to
  weights; where none of a category's inputs is 1, plus the number under its name in ``unknown``, a
  dict. Of two labels it is the log-odds of
  the second; of more, the probabilities are the softmax. Of a regressor it is the prediction, or
  its logarithm, and ``label`` is "y". Of several quantiles, each is a model, and the predictions
  are these sums in ascending order. `LeafModel` says what the numbers mean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.explain.describe import (
    centred_weights,
    class_shares,
    column_features,
    inside,
    leaf_model,
    leaves_since,
    level_groups,
    mean_prediction,
    possible_inputs,
    read_weights,
    row_shares,
    typical_error,
)
from driftree.explain.rules import labels_seen, rules
from driftree.explain.sparse import n_forgotten, sparse_engine, sparse_scales, sparse_texts
from driftree.explain.text import (
    check_limits,
    label_texts,
    one_line,
    percent,
    say_noise,
    say_output,
    say_share,
    write_number,
)
from driftree.learn._kernels import MAX_LEVELS
from driftree.learn.events import MemberEvent, MemberReplaced
from driftree.learn.units import LIMIT, unit_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from driftree.explain.readable import Readable
    from driftree.explain.rules import Rule
    from driftree.learn.encoding import Encoder
    from driftree.learn.events import Event
    from driftree.learn.tree import Tree

VERSION = 2  # of the schema of `to_dict`
MAX_LABELS = 3  # in a node of the picture


def to_dict(model: Readable) -> dict[str, Any]:
    """Return the tree as nested data: see `Readable.to_dict`."""
    tree, encoder = inside(model)
    engine = tree.engine
    shares, since = row_shares(tree), leaves_since(tree)
    texts = _sparse_texts(encoder)
    nodes: dict[int, dict[str, Any]] = {}
    for node in reversed(list(tree.walk())):  # children first
        share = shares[node]
        nodes[node] = {
            "node": node,
            "rows": float(engine.rows[node]),
            "share": None if math.isnan(share) else share,
            "probabilities": list(class_shares(tree, node).values()),
            "mean": mean_prediction(tree, encoder, node),
            "error": typical_error(tree, node),
        }
        if engine.left[node] < 0:
            nodes[node] |= dict(zip(("since_step", "since_row"), since[node], strict=True))
            nodes[node] |= _leaf_data(tree, encoder, node, share, texts)
        else:
            nodes[node] |= {
                "condition": _condition_data(tree, node),
                "left": nodes.pop(int(engine.left[node])),
                "right": nodes.pop(int(engine.right[node])),
            }
    return {
        "format": "driftree.tree",
        "version": VERSION,
        "rows": int(engine.n_rows),
        "steps": int(engine.n_steps),
        "setting": tree.parameters.setting,
        "link": _link(tree),
        "limits": _limits(tree),
        "labels": [_to_json(label) for label in tree.target.labels],
        "features": list(encoder.display_names),
        "inputs": _inputs_data(tree, encoder),
        "sparse": _sparse_data(encoder, texts),
        "tree": nodes[0],
    }


def to_dot(model: Readable, *, max_weights: int = 3) -> str:
    """Return the tree in the language of Graphviz: see `Readable.to_dot`."""
    check_limits(max_weights)
    tree, _ = inside(model)
    engine = tree.engine
    shares, names = row_shares(tree), label_texts(tree.target.labels)
    own_rules = {rule.leaf: rule for rule in rules(model, max_weights=max_weights)}
    lines = [
        "digraph driftree {",
        "    graph [ordering=out];",
        '    node [shape=box, style=rounded, fontname="sans-serif"];',
        '    edge [fontname="sans-serif"];',
    ]
    for node in tree.walk():
        if engine.left[node] < 0:
            label = _left_aligned(_rule_lines(own_rules[node], names))
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
def _link(tree: Tree) -> str:
    if tree.engine.has_labels:
        return "logistic"
    return "log" if tree.target.unit.has_log_link else "identity"


def _limits(tree: Tree) -> list[float] | None:
    """Return the least and the largest logarithm that is predicted."""
    unit = tree.target.unit
    return unit.limited(np.array([-np.inf, np.inf])).tolist() if unit.has_log_link else None


def _inputs_data(tree: Tree, encoder: Encoder) -> list[dict[str, Any]]:
    engine, names = tree.engine, encoder.column_names()
    levels = engine.level_column.reshape(-1, MAX_LEVELS + 1)
    inputs = []
    for column, j in enumerate(column_features(tree).tolist()):
        if j < 0:  # the intercept
            continue
        own: dict[str, Any] = {"name": names[column], "feature": encoder.display_names[j]}
        if column == engine.value_column[j]:
            own |= {"kind": "number"} | _scale_data(tree, encoder, j)
        elif column == engine.missing_column[j]:
            own["kind"] = "missing"
        else:
            [code] = np.flatnonzero(levels[j] == column).tolist()
            own |= (
                {"kind": "other level"}
                if code == MAX_LEVELS
                else {"kind": "level", "level": _to_json(encoder.level(j, code))}
            )
        inputs.append(own)
    return inputs


def _scale_data(tree: Tree, encoder: Encoder, j: int) -> dict[str, Any]:
    """Return how a number is scaled and clipped: see `LeafModel`."""
    engine, levels = tree.engine, encoder.levels[j]
    shift, factor = float(engine.scale_shift[j]), float(engine.scale_factor[j])
    reach = float(engine.scale_limit[j]) / factor if factor > 0 else math.inf
    return {
        "if_missing": shift if math.isnan(engine.absent[j]) else float(engine.absent[j]),
        "low": finite(shift - reach),
        "high": finite(shift + reach),
        "levels": None if levels is None else [_to_json(level) for level in levels],
    }


def _sparse_texts(encoder: Encoder) -> dict[int, str]:
    """Return the names of the features that have no column, by id."""
    if encoder.sparse is None:
        return {}
    engine = sparse_engine(encoder)
    features = engine.sparse_feature
    has_column = (features >= 0) & (np.append(engine.value_column, -1)[features] >= 0)
    has_name = np.array([name is not None for name in encoder.row_face.sparse_names()], bool)
    ids = np.flatnonzero(has_name & ~has_column[: len(has_name)]).astype(np.int32)
    return dict(zip(ids.tolist(), sparse_texts(encoder, ids), strict=True))


def _sparse_data(encoder: Encoder, texts: dict[int, str]) -> dict[str, Any] | None:
    if encoder.sparse is None:
        return None
    shift, factor = sparse_scales(sparse_engine(encoder), np.array(list(texts), dtype=np.int32))
    reach = LIMIT / np.where(factor > 0, factor, 1.0)
    return {
        "names": list(texts.values()),
        "low": (shift - reach).tolist(),
        "high": (shift + reach).tolist(),
        "if_absent": shift.tolist(),
        "forgotten": n_forgotten(encoder),
    }


def _sparse_weights(encoder: Encoder, node: int, texts: dict[int, str]) -> list[dict[str, float]]:
    """Return the weights of sparse features per output, in their units."""
    engine = sparse_engine(encoder)
    if encoder.sparse is None:
        return [{} for _ in range(engine.n_outputs)]
    ids, weights = engine.sparse_weights(node)
    _, factor = sparse_scales(engine, ids)
    names = [texts[i] for i in ids.tolist()]
    own = (weights * (unit_of(engine).factor * factor)[:, None]).T.tolist()
    return [dict(zip(names, numbers, strict=True)) for numbers in own]


def _leaf_data(
    tree: Tree, encoder: Encoder, node: int, share: float, texts: dict[int, str]
) -> dict[str, Any]:
    leaf = leaf_model(tree, encoder, node, share, 0)
    unknown = _unknown_levels(tree, encoder, node)
    sparse = _sparse_weights(encoder, node, texts)
    names, owners = encoder.column_names(), column_features(tree).tolist()
    features = {
        name: encoder.display_names[j] for name, j in zip(names, owners, strict=True) if j >= 0
    }
    return {
        "floor": list(leaf.floor),
        "models": [
            {
                "label": _to_json(label),
                "intercept": leaf.intercept[label],
                "inputs": [
                    {"name": name, "weight": weight, "effect": leaf.effects[label][name]}
                    for name, weight in weights.items()
                ],
                "curves": [
                    {
                        "name": name,
                        "feature": features[name],
                        "knots": list(curve.knots),
                        "values": list(curve.values),
                        "effect": leaf.effects[label][name],
                    }
                    for name, curve in leaf.curves[label].items()
                ],
                "unknown": own_unknown,
                "sparse": own_sparse,
            }
            for (label, weights), own_unknown, own_sparse in zip(
                leaf.weights.items(), unknown, sparse, strict=False
            )
        ],
    }


def _unknown_levels(tree: Tree, encoder: Encoder, node: int) -> list[dict[str, float]]:
    """Return per label and category the mean weight, which rows of unknown levels lack."""
    centred = centred_weights(tree, encoder, node)
    means = read_weights(tree, node)[: len(centred), : centred.shape[1]] - centred
    possible, owners = possible_inputs(tree, encoder, tree.path(node)), column_features(tree)
    groups = [group[possible[group]] for group in level_groups(tree)]
    return [
        {
            encoder.display_names[owners[group[0]]]: -float(mean[group[0]])
            for group in groups
            if len(group)
        }
        for mean in means
    ]


def _condition_data(tree: Tree, node: int) -> dict[str, Any]:
    condition = tree.path(int(tree.engine.left[node]))[-1]
    passes = bool(tree.engine.missing_left[node])
    absent = tree.engine.absent[tree.engine.feature[node]]
    if not math.isnan(absent):
        passes = bool(absent <= tree.engine.threshold[node])
    return {
        "text": str(condition),
        "feature": condition.feature,
        "operator": condition.operator,
        "value": _to_json(condition.value),
        "missing_passes": condition.operator == "is missing" or passes,
    }


def _to_json(value: object) -> Any:
    """Return a label or level for JSON: types that JSON lacks become text."""
    is_plain = value is None or type(value) in (bool, int, str)
    return value if is_plain or (type(value) is float and math.isfinite(value)) else str(value)


def tell_event(event: Event | MemberEvent | MemberReplaced) -> dict[str, Any]:
    """Return a change of a tree, or of a tree in a forest, and its reason, for JSON."""
    if isinstance(event, MemberReplaced):
        return {
            "kind": event.kind,
            "step": event.n_rows,
            "n_rows": event.n_rows,
            "node": 0,
            "path": [],
            "condition": None,
            "old_condition": None,
            "gain": None,
            "threshold": None,
            "loss_before": None,
            "loss_after": None,
            "rows": None,
            "n_removed": 0,
            "curves": [],
            "why": str(event),
            "member": event.member,
        }
    if isinstance(event, MemberEvent):
        own = {"n_rows": event.n_rows, "member": event.member, "why": str(event)}
        return tell_event(event.event) | own
    condition, old = getattr(event, "condition", None), getattr(event, "old_condition", None)
    return {
        "kind": event.kind,
        "step": int(event.step),
        "n_rows": int(event.n_rows),
        "node": int(event.node),
        "path": [str(one) for one in event.path],
        "condition": None if condition is None else str(condition),
        "old_condition": None if old is None else str(old),
        "gain": finite(event.gain),
        "threshold": finite(event.threshold),
        "loss_before": finite(event.loss_before),
        "loss_after": finite(event.loss_after),
        "rows": finite(event.rows),
        "n_removed": event.n_removed,
        "curves": [str(curve) for curve in getattr(event, "curves", ())],
        "why": str(event),
    }


def finite(number: float) -> float | None:
    """Return a number, None for NaN and infinity, which JSON lacks."""
    return float(number) if math.isfinite(number) else None


# ---------------------------------------------------------------------- DOT
def _rule_lines(rule: Rule, names: dict[Hashable, str]) -> list[str]:
    seen = labels_seen(rule.probabilities)
    odds = [f"{names[label]} {percent(share)}" for label, share in seen.items()][:MAX_LABELS]
    if rule.unit is not None and rule.mean is not None:
        odds = [f"mean {write_number(rule.mean, rule.unit)}"]
    lines = [say_share(rule.share), ", ".join([*odds, "..."] if len(seen) > MAX_LABELS else odds)]
    if any(rule.floor):
        lines.append(say_noise(rule.floor))
    for label in rule.told(1):
        if rule.weights[label]:
            lines += ["", f"{say_output(label, names, n_outputs=len(rule.weights))}:"]
            lines += [
                f"{own.weight:+.3g} {one_line(own.name)}"
                if own.curve is None
                else f"{one_line(own.name)}: {own.curve}"
                for own in rule.weights[label]
            ]
    return lines


def _left_aligned(lines: list[str]) -> str:
    return "".join(f"{_escape(line)}\\l" for line in lines)


def _escape(text: str) -> str:
    """Escape special characters in a quoted DOT string, including HTML entities."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
