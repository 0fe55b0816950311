"""Forests: explanations of a forest's predictions.

The log-odds of a forest are a weighted sum of its trees', and these are sums over features and over
the pairs of features that a tree sees. So the contribution of each feature and each pair to the
forest's log-odds is a sum again. A tree's noise floor and the limit on its certainty shrink its
log-odds, and all of its contributions by the same factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from driftree.explain import changes
from driftree.explain.contributions import (
    Importance,
    explain_batch,
    importance_of,
    other_levels,
    read_one,
    sort_importance,
    with_parts,
)
from driftree.explain.counterfactual.forest import forest_counterfactual
from driftree.explain.explanation import say_part, say_sum, told_threshold, write_value
from driftree.explain.sparse import unknown_names
from driftree.explain.text import (
    label_texts,
    one_line,
    percent,
    say_threshold,
    say_unknown,
    write_number,
)
from driftree.learn.columns import Batch, News
from driftree.learn.events import join_path
from driftree.learn.state import undisturbed

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from driftree.explain.counterfactual import Counterfactual
    from driftree.explain.explanation import Explanations
    from driftree.learn.drifts import Drift
    from driftree.learn.events import Condition
    from driftree.learn.forest import Forest
    from driftree.learn.imbalance import Cut
    from driftree.learn.members import Member
    from driftree.learn.units import Unit

    Doubles = NDArray[np.float64]

SHOWN = 8  # contributions in words


class TreePart(NamedTuple):
    """The contribution of one tree to a prediction.

    Attributes
    ----------
    weight : float
        Weight of its log-odds, or of its number.
    said : float, or dict of label to float
        Its log-odds (two labels: of the second; more: one logit per label), or its number.
    leaf : int
        The leaf that the row reaches.
    path : tuple of Condition
        The rule of this leaf.
    """

    weight: float
    said: float | dict[Hashable, float]
    leaf: int
    path: tuple[Condition, ...]


class BestTree(NamedTuple):
    """One tree instead of a forest.

    Attributes
    ----------
    tree : DynamicModelTreeClassifier or DynamicModelTreeRegressor
        A copy, which learns independently.
    loss, loss_of_all : float
        Mean loss of this tree, and of the forest, over the last rows (about 2,000), each predicted
        before it was learnt: nats per row, for numbers the absolute error.
    agreement : float
        Share of these rows in which the tree predicted the same as the forest; for numbers, within
        a typical error.
    """

    tree: Any
    loss: float
    loss_of_all: float
    agreement: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestExplanation:
    """The explanation of a forest's prediction; `str` shows it as text.

    Attributes
    ----------
    prediction : hashable
        The label, the most probable one unless there is a threshold; the predicted number.
    probabilities : dict
        Probability of each label; empty for regressors.
    label : hashable
        Two labels: the one whose log-odds are explained, `classes_[1]`.
    intercept : float, or dict of label to float
        Log-odds, or number, of an average row.
    contributions : dict of name to float, or dict of label to such dicts
        Contributions of features and of pairs ("age & income"), the strongest first. Their sum plus
        the intercept is `decision_function`, or the prediction of a regressor (with
        `loss="poisson"` its logarithm).
    trees : tuple of TreePart
        The output of each tree, with its rule. The sum of `weight * said` is the same.
    row : dict
        Value of each feature that the model knows; None is missing.
    unknown : tuple
        Names in the row that the model does not know.
    threshold : tuple of label and float, or None
        The positive label and its decision threshold.
    unit : Unit or None
        For regressors: the unit of the numbers, and whether they are logarithms.
    spreads : dict of name to float
        Standard deviation of each number over the stream, which tells how many digits it needs.
    """

    prediction: Any
    probabilities: dict[Hashable, float]
    label: Hashable
    intercept: float | dict[Hashable, float]
    contributions: dict[Any, Any]
    trees: tuple[TreePart, ...]
    row: dict[str, Any]
    unknown: tuple[Hashable, ...] = ()
    threshold: tuple[Hashable, float] | None = None
    unit: Unit | None = None
    spreads: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        write, write_sum = "{:+8.2f}".format, "{:+.2f}".format
        if self.unit is not None:
            write, write_sum = partial(say_part, unit=self.unit), partial(say_sum, unit=self.unit)
            head = f"Prediction: {write_number(self.prediction, self.unit)}"
            what = f"What makes {'the logarithm of ' if self.unit.has_log_link else ''}the number"
            intercept, parts = self.intercept, self.contributions
        else:
            names = label_texts(self.probabilities)
            odds = percent(self.probabilities[self.prediction]) + say_threshold(self.threshold)
            head = f"Prediction: {names[self.prediction]}, {odds}"
            what = f"Log-odds of {names.get(self.label)}"
            intercept, parts = self.intercept, self.contributions
            if self.label is None and isinstance(self.intercept, dict):
                what = f"Logit of {names[self.prediction]}"
                intercept, parts = self.intercept[self.prediction], parts[self.prediction]
        lines = [head, f"{what}, compared with an average row:"]
        for name, part in list(parts.items())[:SHOWN]:
            value = ""
            if name in self.row:
                value = f" = {_show(self.row[name], self.spreads.get(name))}"
            lines.append(f"    {write(part)}  {name}{value}")
        rest = list(parts.values())[SHOWN:]
        if rest:
            lines.append(f"    {write(sum(rest))}  {len(rest)} more")
        total = intercept + sum(parts.values())
        lines.append(f"    An average row has {write_sum(intercept)}, this one {write_sum(total)}.")
        lines.append("Trees:")
        for i, tree in enumerate(self.trees):
            said = tree.said[self.prediction] if isinstance(tree.said, dict) else tree.said
            rule = join_path(tree.path) or "all rows"
            where = f"(leaf {tree.leaf}: {rule})"
            lines.append(f"    {i}: {tree.weight:.2f} times {write_sum(said)} {where}")
        if self.unknown:
            absent = [name for name, value in self.row.items() if value is None]
            lines.append(say_unknown(self.unknown, absent))
        return "\n".join(lines)


def _show(value: Any, spread: float | None) -> str:
    if value is None:
        return "missing"
    return write_value(value, spread) if isinstance(value, float) else one_line(str(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestExplanations:
    """The explanations of a forest's predictions for several rows.

    Attributes
    ----------
    values : ndarray of shape (n_rows, n_names) or (n_rows, n_names, n_labels)
        Contributions of features and pairs to the log-odds or the number; more than two labels: to
        each logit.
    base_values : ndarray of shape (n_rows,) or (n_rows, n_labels)
        Log-odds, or number, of an average row.
    feature_names : list of str
        Names of features, then of pairs such as "age & income".
    probabilities : ndarray of shape (n_rows, n_labels)
        Empty for regressors.
    predictions : ndarray
        Labels or numbers.
    labels : list
        Labels, in the order of `classes_`.
    trees : list of Explanations
        Those of each tree.
    said : ndarray of shape (n_trees, n_rows) or (n_trees, n_rows, n_labels)
        Log-odds or number of each tree.
    weights : ndarray of shape (n_trees,)
        Weights of the trees.
    cut : Cut or None
        The threshold, if there is one.
    """

    values: Doubles
    base_values: Doubles
    feature_names: list[str]
    probabilities: Doubles
    predictions: NDArray[Any]
    labels: list[Any]
    trees: list[Explanations]
    said: Doubles
    weights: Doubles
    cut: Cut | None = None

    def __repr__(self) -> str:
        return f"<ForestExplanations: {len(self)} rows, {len(self.feature_names)} names>"

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[ForestExplanation]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> ForestExplanation:
        if not -len(self) <= i < len(self):
            raise IndexError(f"there are {len(self)} rows, counted from 0, got {i}")
        i %= len(self)
        several = self.values.ndim == 3
        parts = []
        for weight, said, why in zip(self.weights, self.said, self.trees, strict=True):
            own = said[i]
            told = self._by_label(own) if several else float(own)
            leaf = int(why.leaves[i])
            parts.append(TreePart(float(weight), told, leaf, why.facts[leaf].path))
        values = self.values[i]
        row, _ = self.trees[0]._row(i)
        return ForestExplanation(
            prediction=plain_value(self.predictions[i]),
            probabilities=self._by_label(self.probabilities[i]) if self.labels else {},
            label=self.labels[1] if len(self.labels) == 2 else None,
            intercept=self._by_label(self.base_values[i])
            if several
            else float(self.base_values[i]),
            contributions=(
                {k: self._sorted(own) for k, own in zip(self.labels, values.T, strict=True)}
                if several
                else self._sorted(values)
            ),
            trees=tuple(parts),
            row=row,
            threshold=told_threshold(self.cut, self.labels),
            unit=self.trees[0].unit,
            spreads=self.trees[0].spreads,
        )

    def _by_label(self, numbers: Doubles) -> dict[Hashable, float]:
        return dict(zip(self.labels, numbers.tolist(), strict=True))

    def _sorted(self, values: Doubles) -> dict[str, float]:
        order = np.argsort(-np.abs(values), kind="stable").tolist()
        return {self.feature_names[j]: float(values[j]) for j in order if values[j] != 0}


def plain_value(value: Any) -> Any:
    """Return a label or a number as a Python object."""
    return value.item() if isinstance(value, np.generic) else value


# ---------------------------------------------------------------------- sums
def explain_forest(forest: Forest, batch: Batch) -> ForestExplanations:
    """Explain the predictions of a batch."""
    core = forest.core
    has_labels = core.leader.engine.has_labels
    weights = core.stack.weights if has_labels else core.stack.shares
    names: dict[str, int] = {}
    trees, said, sums = [], [], []
    for member in core.members:
        rows = Batch(*_batch_of(core.rows_of(member, *batch.rows)))
        why = explain_batch(member.tree, member.tree.encoder, rows)
        own = _said(forest, member, rows)
        held = why.feature_names[len(member.tree.encoder.display_names) :]
        told = [*told_names(forest, member), *held]
        places = [names.setdefault(name, len(names)) for name in told]
        base, values = _fitted_to(own, why)
        trees.append(why)
        said.append(own)
        sums.append((places, base, values))
    shape = (len(batch.matrix), len(names), *sums[0][2].shape[2:])
    total, bases = np.zeros(shape), np.zeros(np.shape(sums[0][1]))
    for weight, (places, base, values) in zip(weights, sums, strict=True):
        bases += weight * base
        for at, place in enumerate(places):  # hinges of the same pair share theirs
            total[:, place] += weight * values[:, at]
    found = core.probabilities(*batch.rows) if has_labels else np.empty((len(batch.matrix), 0))
    return ForestExplanations(
        values=total,
        base_values=bases,
        feature_names=list(names),
        probabilities=found,
        predictions=forest.target.predict(*batch.rows),
        labels=list(forest.target.label_list),
        trees=trees,
        said=np.array(said),
        weights=weights,
        cut=forest.target.cut,
    )


def _batch_of(rows: Any) -> tuple[Any, News, Any]:
    matrix, sparse = rows
    return matrix, News(), sparse


def told_names(forest: Forest, member: Member) -> list[str]:
    """Return the names of a tree's features: the forest's, or both of a pair."""
    own, pairs = member.tree.encoder.display_names, member.pairs
    is_plain = member is forest.core.leader or forest.encoder.sparse is not None
    if is_plain or not len(pairs.sources):
        return own
    shown = forest.encoder.display_names
    told = []
    for source in pairs.sources.tolist():
        ends = sorted(pairs.ends[-1 - source].tolist()) if source < 0 else [source]
        told.append(" & ".join(shown[j] for j in ends))
    return told


def _said(forest: Forest, member: Member, rows: Batch) -> Doubles:
    """Return the output of a member: log-odds of the second of two labels, logits, or a number."""
    engine = member.engine
    if not engine.has_labels:
        numbers = engine.numbers(*rows.rows)
        told = numbers[:, numbers.shape[1] // 2]
        return np.log(np.maximum(told, 1e-300)) if engine.has_log_link else told
    links = forest.core.stack.links(engine.probabilities(*rows.rows))
    if links.shape[1] > 2:
        return links
    return links[:, 1] - links[:, 0] if links.shape[1] == 2 else np.zeros(len(links))


def _fitted_to(said: Doubles, why: Explanations) -> tuple[Doubles, Doubles]:
    """Return base values and contributions of a tree that sum to its output.

    All are shrunk by one factor per row, as the floor and the limit on certainty shrink their sum.
    """
    base, values = why.base_values.copy(), why.values.copy()
    if values.ndim == 3:  # logits are centred over the labels
        base -= base.mean(axis=1, keepdims=True)
        values -= values.mean(axis=2, keepdims=True)
    total = base + values.sum(axis=1)
    axes = tuple(range(1, total.ndim))
    square, product = (total * total).sum(axis=axes), (total * said).sum(axis=axes)
    factor = np.where(square > 1e-18, product / np.maximum(square, 1e-300), 1.0)
    by_row = factor.reshape(-1, *[1] * (total.ndim - 1))
    values *= factor.reshape(-1, *[1] * (values.ndim - 1))
    base = by_row * base
    return base + (said - by_row * total), values


# ---------------------------------------------------------------------- the methods
class ReadableForest:
    """The methods by which a forest explains itself; a mixin of the estimators."""

    _tree: Forest | None

    if TYPE_CHECKING:  # the estimator's own, further on in its bases

        @property
        def _fitted(self) -> Forest: ...
        def _encoded(self, X: Any) -> Batch: ...

    @undisturbed
    def explain_one(self, x: Mapping[Hashable, Any]) -> ForestExplanation:
        """Explain the prediction of one row by contributions of features and pairs.

        Parameters
        ----------
        x : dict
            Feature names to values; absent keys, None and NaN are missing.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelForestClassifier
        >>> rng = np.random.default_rng(1)
        >>> model = DynamicModelForestClassifier(n_trees=3)
        >>> X = rng.uniform(-1, 1, size=(3000, 2))
        >>> _ = model.partial_fit(X, X[:, 0] * X[:, 1] > 0.1)
        >>> why = model.explain_one({"x0": 0.8, "x1": 0.7})
        >>> why.prediction, [name for name in why.contributions if "&" in name]
        (True, ['x0 & x1'])
        """
        forest = self._fitted
        x = with_parts(forest.encoder, x)
        batch = read_one(forest.encoder, x)
        why = explain_forest(forest, batch)[0]
        why.row.update(other_levels(forest.encoder, x, batch))
        return replace(why, unknown=tuple(unknown_names(forest.encoder, dict(x))))

    @undisturbed
    def explain(self, X: Any) -> ForestExplanations:
        """Explain the predictions of rows, in any form that `predict` takes.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelForestClassifier
        >>> rng = np.random.default_rng(1)
        >>> X = rng.uniform(-1, 1, size=(2000, 2))
        >>> model = DynamicModelForestClassifier().partial_fit(X, X[:, 0] * X[:, 1] > 0.1)
        >>> why = model.explain(X)
        >>> log_odds = why.base_values + why.values.sum(axis=1)
        >>> bool(np.allclose(log_odds, model.decision_function(X)))
        True
        """
        return explain_forest(self._fitted, self._encoded(X))

    @undisturbed
    def drifts(self, *, since: int = 0) -> list[Drift]:
        """Return when the rule behind the rows changed, as detected by the first, plain tree.

        See `DynamicModelTreeClassifier.drifts`; branches are those of that tree.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelForestClassifier
        >>> rng = np.random.default_rng(1)
        >>> X = rng.uniform(-1, 1, size=(34_000, 2))
        >>> y = X.sum(axis=1) + rng.normal(scale=0.3, size=34_000) > 0
        >>> y[30_000:] = X[30_000:, 0] - X[30_000:, 1] > 0
        >>> model = DynamicModelForestClassifier(n_trees=2)
        >>> [drift.n_rows for drift in model.partial_fit(X, y).drifts()]
        [31200]
        """
        leader = self._fitted.core.leader.tree
        return [drift for drift in changes.history_of(leader).drifts if drift.n_rows > since]

    @undisturbed
    def feature_importance(self) -> dict[str, Importance]:
        """Return the importance of each feature and each pair, strongest first.

        Both figures are those of the trees, times their weights; see `Importance`.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelForestClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 3))
        >>> model = DynamicModelForestClassifier().partial_fit(X, X[:, 0] * X[:, 1] > 0.1)
        >>> found = model.feature_importance()
        >>> max(found, key=lambda name: found[name].weight)
        'x0 & x1'
        """
        forest = self._fitted
        core = forest.core
        weights = core.stack.weights if core.leader.engine.has_labels else core.stack.shares
        total: dict[str, Importance] = {}
        for weight, member in zip(np.abs(weights).tolist(), core.members, strict=True):
            own = importance_of(member.tree, member.tree.encoder)
            names = told_names(forest, member)
            told = dict(zip(member.tree.encoder.display_names, names, strict=True))
            for name, (earned, strength) in own.items():
                name = told.get(name, name)  # noqa: PLW2901
                before = total.get(name, Importance(0.0, 0.0))
                total[name] = Importance(
                    before.earned + weight * earned, before.weight + weight * strength
                )
        return sort_importance(total)

    @undisturbed
    def history(self, *, library: str | None = None) -> Any:
        """Return the changes of all trees as one data frame, oldest first.

        Parameters
        ----------
        library : {"pandas", "polars", "pyarrow"}, optional
            Library of the data frame; by default the first of these that is installed.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or pyarrow.Table
            As for a single tree, with the number of the tree as ``member``. Trees that were
            replaced are in `events_`.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas
        >>> from driftree import DynamicModelForestClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
        >>> y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
        >>> log = DynamicModelForestClassifier(n_trees=3).partial_fit(X, y).history()
        >>> sorted(set(log["member"]))  # 1 is a single model, which never changes
        [0, 2]
        """
        members = self._fitted.core.members
        events = [
            (i, member.since, event)
            for i, member in enumerate(members)
            for event in changes.history_of(member.tree).events
        ]
        events.sort(key=lambda one: one[1] + one[2].n_rows)
        return changes.to_frame(
            [event for *_, event in events],
            library,
            member=[i for i, *_ in events],
            n_rows=[since + event.n_rows for _, since, event in events],
        )

    @undisturbed
    def counterfactual(
        self,
        x: Mapping[Hashable, Any],
        *,
        target: Hashable = None,
        fixed: Iterable[Hashable] = (),
        ranges: Mapping[Hashable, Any] | None = None,
        below: float | None = None,
        above: float | None = None,
        between: tuple[float, float] | None = None,
    ) -> Counterfactual:
        """Return a near row with the wanted prediction: what would change it.

        As for a single tree, but there may be a nearer one: `exact` is False. The forest's
        prediction of the row was checked.

        Parameters
        ----------
        x : dict
            Feature names to values; absent keys, None and NaN are missing.
        target : hashable, optional
            Classifiers: the wanted label; by default any except the one predicted for `x`.
        fixed : iterable of names
            Features that must not change.
        ranges : dict, optional
            Limits by name: ``(low, high)`` of a number, None where open; a list of the levels of a
            category.
        below, above, between : float, float, (float, float), optional
            Regressors: the wanted range, by one of the three.

        Examples
        --------
        >>> import numpy as np
        >>> from driftree import DynamicModelForestClassifier
        >>> X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
        >>> model = DynamicModelForestClassifier().partial_fit(X, X[:, 0] * X[:, 1] > 0.1)
        >>> near = model.counterfactual({"x0": 0.5, "x1": -0.1}, fixed=["x0"])
        >>> near.x["x0"], bool(model.predict_one(near.x))
        (0.5, True)
        """
        numbers = {"below": below, "above": above, "between": between}
        return forest_counterfactual(
            self._fitted, x, target=target, fixed=fixed, ranges=ranges, **numbers
        )
