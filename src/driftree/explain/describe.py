"""Describe: the tree as plain data, and as text.

`leaf_models` is the data that everything else is made of: per leaf its conditions, its rows and its
linear model in the user's names and units. `export_text` writes it down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from driftree.learn._kernels import MAX_LEVELS

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from driftree.explain.readable import Readable
    from driftree.learn.encoding import Encoder
    from driftree.learn.events import Condition
    from driftree.learn.tree import Tree

INDENT = "|   "
BRANCH = "|--- "


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafModel:
    """A leaf and its linear model, in the user's names and units.

    The log-odds of a label (two labels: of the second; more: one logit per label) are the intercept
    plus the sum of weight times input. Inputs are the numeric features, and 0/1 inputs such as
    ``car == 'van'`` or ``age is missing``. This holds for rows whose numbers lie within three
    standard deviations of their mean: what lies further out counts as if it lay there. A missing
    number counts as its mean, or as 0 if it was only 0 and 1 so far. (The paper's setting clips
    nothing, and a missing number counts as the low end of the range seen, which starts as 0 to 1.)

    Exactly one of a category's inputs is 1 in every row, so only differences between its weights
    mean something: they are given as differences to their mean, and the intercept contains that
    mean. A level that was never learnt has no input; its row keeps the intercept without the mean.

    Attributes
    ----------
    leaf : int
        Id of the leaf, as `apply` gives it.
    path : tuple of Condition
        The conditions from the root to the leaf.
    rows : float
        Rows that the leaf has learnt.
    share : float
        Share of the stream's rows that reach the leaf, each condition counted since it was made;
        NaN while a condition on the path has seen no rows.
    intercept : dict
        Intercept of each label.
    weights : dict of dict
        Per label the weight of each input, the strongest first: those that move the log-odds most
        when a number grows by two standard deviations (in the paper's setting: from its least to
        its largest value), or a 0/1 input from 0 to 1.
    floor : tuple of float
        Noise floor: the share of each of two labels that is given at random. A label's probability
        is its floor plus what remains times the logistic function of the log-odds.
    """

    leaf: int
    path: tuple[Condition, ...]
    rows: float
    share: float
    intercept: dict[Hashable, float]
    weights: dict[Hashable, dict[str, float]]
    floor: tuple[float, float] = (0.0, 0.0)


def leaf_models(model: Readable) -> list[LeafModel]:
    """Return the leaves from left to right, each with its linear model in the user's units.

    Parameters
    ----------
    model : DynamicModelTreeClassifier
        A model that has learnt something.

    Returns
    -------
    list of LeafModel

    Examples
    --------
    Whether it is cold depends on the temperature, whatever its unit:

    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier
    >>> rng = np.random.default_rng(1)
    >>> model = DynamicModelTreeClassifier()
    >>> for celsius in rng.uniform(-10, 30, size=1000).tolist():
    ...     model.learn_one({"celsius": celsius}, "warm" if celsius > 10 else "cold")
    >>> [leaf] = leaf_models(model)
    >>> label = model.classes_[1]
    >>> boundary = -leaf.intercept[label] / leaf.weights[label]["celsius"]
    >>> print(label, round(boundary))
    cold 10
    """
    tree, encoder = inside(model)
    shares = _shares(tree)
    return [_leaf_model(tree, encoder, leaf, shares[leaf]) for leaf in tree.leaves()]


def export_text(model: Readable, *, max_weights: int = 3, digits: int = 3, width: int = 100) -> str:
    """Return the tree as text: its conditions, and the strongest weights of each leaf's model.

    Parameters
    ----------
    model : DynamicModelTreeClassifier
        A model that has learnt something.
    max_weights : int, default=3
        Weights to show per leaf (with more than two labels: per leaf and label), strongest first.
    digits : int, default=3
        Significant digits of the weights.
    width : int, default=100
        Characters after which a formula is continued on the next line.

    Returns
    -------
    str
        Lines without a final line break.

    See Also
    --------
    leaf_models : The same as data, with all weights.

    Examples
    --------
    >>> import numpy as np
    >>> from driftree import DynamicModelTreeClassifier, export_text
    >>> rng = np.random.default_rng(1)
    >>> model = DynamicModelTreeClassifier()
    >>> for age, income in rng.uniform([20, 0], [80, 90], size=(2000, 2)).tolist():
    ...     granted = income > 30 if age < 50 else income < 60
    ...     model.learn_one({"age": age, "income": income}, "granted" if granted else "refused")
    >>> print(export_text(model, digits=2))
    |--- age <= 49.8
    |   |--- leaf 1: 50% of rows
    |        log-odds of granted = -4 + 0.15 * income - 0.015 * age
    |--- age > 49.8
    |   |--- leaf 2: 50% of rows
    |        log-odds of granted = 7.4 - 0.14 * income + 0.016 * age
    """
    for name, value, least in (("max_weights", max_weights, 0), ("digits", digits, 1)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value!r}")
    tree, encoder = inside(model)
    engine = tree.engine
    shares = _shares(tree)
    lines = []
    for node in tree.walk():
        depth = int(engine.depth[node])
        if depth:
            lines.append(f"{INDENT * (depth - 1)}{BRANCH}{tree.path(node)[-1]}")
        if engine.left[node] < 0:
            leaf = _leaf_model(tree, encoder, node, shares[node])
            lines.append(f"{INDENT * depth}{BRANCH}{_describe_leaf(leaf)}")
            margin = INDENT * depth + " " * len(BRANCH)
            for label in leaf.weights:
                terms = _formula(leaf, label, max_weights, digits)
                lines += [margin + line for line in _wrap(terms, width - len(margin))]
    return "\n".join(lines)


# ---------------------------------------------------------------------- data
def inside(model: Readable) -> tuple[Tree, Encoder]:
    """Return the tree and the encoder of a model: the only door to what is not public."""
    check_is_fitted(model)
    tree, encoder = model._tree, model._encoder
    assert tree is not None
    assert encoder is not None
    return tree, encoder


def _shares(tree: Tree) -> dict[int, float]:
    """Return each node's share of the stream's rows: the product of the shares along its path.

    Two children are born together and count their rows since, so age does not bias their shares.
    """
    engine = tree.engine
    shares = {0: 1.0}
    for node in tree.walk():
        if engine.left[node] < 0:
            continue
        children = int(engine.left[node]), int(engine.right[node])
        both = sum(float(engine.rows[child]) for child in children)
        for child in children:
            own = float(engine.rows[child]) / both if both > 0 else math.nan
            shares[child] = shares[node] * own
    return shares


def _leaf_model(tree: Tree, encoder: Encoder, leaf: int, share: float) -> LeafModel:
    engine = tree.engine
    labels = list(encoder.labels)
    outputs = labels if engine.n_outputs > 1 else labels[1:2]  # with one label there is no odds
    shift, factor = _column_scales(tree)
    groups = level_groups(tree)
    names = encoder.column_names()
    intercept: dict[Hashable, float] = {}
    weights: dict[Hashable, dict[str, float]] = {}
    for label, scaled in zip(outputs, engine.weights(leaf), strict=False):
        for group in groups:
            mean = scaled[group].mean()
            scaled[group] -= mean
            scaled[0] += mean
        own = scaled * factor
        intercept[label] = float(scaled[0] - own @ shift)
        strongest = sorted(range(1, len(names)), key=lambda c: (-abs(scaled[c]), c))
        weights[label] = {names[c]: float(own[c]) for c in strongest}
    return LeafModel(
        leaf=leaf,
        path=tree.path(leaf),
        rows=float(engine.rows[leaf]),
        share=share,
        intercept=intercept,
        weights=weights,
        floor=engine.floor(int(engine.model[leaf])),
    )


def _column_scales(tree: Tree) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return shift and factor of the simple models' inputs: input = (value - shift) * factor."""
    engine = tree.engine
    shift, factor = np.zeros(engine.n_columns), np.ones(engine.n_columns)
    numeric = engine.value_column >= 0
    columns = engine.value_column[numeric]
    shift[columns] = engine.scale_shift[numeric]
    factor[columns] = engine.scale_factor[numeric]
    return shift, factor


def level_groups(tree: Tree) -> list[NDArray[np.int32]]:
    """Return the inputs of each category: one per level, and the one for missing values."""
    engine = tree.engine
    levels = engine.level_column.reshape(-1, MAX_LEVELS + 1)
    columns = np.column_stack([levels, engine.missing_column])
    return [
        own[own >= 0]
        for own, has_value in zip(columns, engine.value_column >= 0, strict=True)
        if not has_value
    ]


def column_features(tree: Tree) -> NDArray[np.intp]:
    """Return the feature that each input of the simple models belongs to; the intercept's is -1."""
    engine = tree.engine
    owners = np.full(engine.n_columns, -1)
    levels = engine.level_column.reshape(-1, MAX_LEVELS + 1)
    for columns in (engine.value_column, engine.missing_column, *levels.T):
        features = np.flatnonzero(columns >= 0)
        owners[columns[features]] = features
    return owners


# ---------------------------------------------------------------------- words
def _describe_leaf(leaf: LeafModel) -> str:
    share = "no rows yet" if math.isnan(leaf.share) else f"{leaf.share:.0%} of rows"
    noise = f", {sum(leaf.floor):.0%} of labels look random" if any(leaf.floor) else ""
    return f"leaf {leaf.leaf}: {share}{noise}"


def _formula(leaf: LeafModel, label: Hashable, max_weights: int, digits: int) -> list[str]:
    """Return the left side of a label's linear model with the intercept, then one term each."""
    weights = [(name, weight) for name, weight in leaf.weights[label].items() if weight != 0.0]
    left_side = "log-odds" if len(leaf.weights) == 1 else "logit"
    terms = [f"{left_side} of {label} = {leaf.intercept[label]:.{digits}g}"]
    for name, weight in weights[:max_weights]:
        factor = f"({name})" if " " in name else name
        terms.append(f"{'-' if weight < 0 else '+'} {abs(weight):.{digits}g} * {factor}")
    if len(weights) > max_weights:
        terms.append(f"+ {len(weights) - max_weights} weaker")
    return terms


def _wrap(terms: list[str], width: int) -> list[str]:
    """Join terms to lines, broken between terms only."""
    lines = terms[:1]
    for term in terms[1:]:
        if len(lines[-1]) + 1 + len(term) <= width:
            lines[-1] += f" {term}"
        else:
            lines.append(f"    {term}")
    return lines
