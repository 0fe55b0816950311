"""Rules: each leaf as a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from driftree.explain.describe import (
    class_shares,
    inside,
    leaf_model,
    leaves_since,
    row_shares,
    say_runs,
)
from driftree.explain.text import (
    check_limits,
    join_words,
    label_texts,
    one_line,
    percent,
    say_noise,
    say_output,
    say_share,
    write_number,
)
from driftree.learn.events import join_path

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from driftree.explain.describe import LeafCurve, LeafModel
    from driftree.explain.readable import Readable
    from driftree.learn.events import Condition
    from driftree.learn.units import Unit

MAX_LABELS = 3  # in a sentence


class Weight(NamedTuple):
    """An input of a leaf's model, and its effect on the log-odds, or on the number.

    Attributes
    ----------
    name : str
        The input: a feature, or a 0/1 input such as ``car == 'van'`` or ``age is missing``.
    weight : float
        Change of the log-odds per unit of the feature, or from 0 to 1; of a curve the mean from its
        `first` value to its `last`.
    effect : float
        Change of the log-odds when a number grows by two standard deviations (in the paper's
        setting: from its least to its largest value), a sparse one from 0 to its usual size, or
        a 0/1 input from 0 to 1; of a curve the
        most that they rise or fall, as in `LeafModel`.
    is_number : bool
        Whether the input is a number with a unit; otherwise it is 0 or 1.
    curve : LeafCurve or None
        Of a number whose line is bent: what it adds to the log-odds.
    """

    name: str
    weight: float
    effect: float
    is_number: bool
    curve: LeafCurve | None = None

    def __str__(self) -> str:
        if self.curve is not None:
            return f"{one_line(self.name)} ({self.curve})"
        unit = " per unit" if self.is_number else ""
        return f"{one_line(self.name)} ({self.weight:+.3g}{unit})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A leaf as a rule: which rows it applies to, their label shares, and what moves the odds.

    For a regressor: what moves the number, in its own unit.

    Attributes
    ----------
    leaf : int
        Id of the leaf, as `apply` gives it.
    path : tuple of Condition
        The conditions from the root to the leaf.
    text : str
        The conditions joined, without those that a later one implies; "always" if there are none.
    rows : float
        Rows that the leaf has learnt.
    share : float
        Share of the stream's rows that reach the leaf, each condition counted since it was created,
        or since its threshold moved (with a history); NaN while one on the path has seen no rows.
    probabilities : dict of float
        Share of each label among the rows of the leaf, discounted like the losses that the tree
        compares. For a new leaf without rows: that of the nearest node above with rows; if there is
        none (the tree has just restarted): equal shares. Predictions for rows differ from these
        means by the weights. Empty for regressors.
    weights : dict of tuple of Weight
        Per label the strongest weights and curves that are not zero, the strongest first. Two
        labels: of the second; one label: none. For a regressor under "y".
    floor : tuple of float
        Noise floor: the share of each of two labels that is random.
    since_step, since_row : int or None
        Step and row since which the leaf exists with this path; None without a history.
    mean, error : float or None
        Regressors: the mean prediction, and the typical error, as in `LeafModel`.
    unit : Unit or None
        Regressors: how the target is scaled in the models.
    """

    leaf: int
    path: tuple[Condition, ...]
    text: str
    rows: float
    share: float
    probabilities: dict[Hashable, float]
    weights: dict[Hashable, tuple[Weight, ...]]
    floor: tuple[float, float] = (0.0, 0.0)
    since_step: int | None = None
    since_row: int | None = None
    mean: float | None = None
    error: float | None = None
    unit: Unit | None = None

    def __str__(self) -> str:
        start = f"If {self.text}" if self.path else "Always"
        parts = [f"{start} ({say_share(self.share)}): {self._outcomes()}."]
        parts += [sentence for label in self.told(MAX_LABELS) if (sentence := self._moves(label))]
        if any(self.floor):
            parts.append(f"{say_noise(self.floor)}.")
        if self.since_row:
            parts.append(f"In place since row {self.since_row:,}.")
        return " ".join(parts)

    def told(self, most: int) -> list[Hashable]:
        """Return whose weights are described: the most probable labels that have any, or "y"."""
        if self.unit is not None:
            return list(self.weights)[:most]
        return most_probable(self.probabilities, most, among=self.weights)

    def _outcomes(self) -> str:
        if self.unit is not None and self.mean is not None and self.error is not None:
            mean, error = write_number(self.mean, self.unit), write_number(self.error, self.unit)
            return f"{mean} on average, predicted with an error of about {error}"
        names, seen = label_texts(self.probabilities), labels_seen(self.probabilities)
        words = [f"{names[label]} {percent(seen[label])}" for label in list(seen)[:MAX_LABELS]]
        if rest := list(seen.values())[MAX_LABELS:]:
            words.append(
                f"{len(rest)} other label{'s' if len(rest) > 1 else ''} {percent(sum(rest))}"
            )
        return ", ".join(words)

    def _moves(self, label: Hashable) -> str:
        """Return sentences on what makes a label more probable, or a number larger; "" if none."""
        is_pair = len(self.weights) == 1 and self.unit is None
        subject = say_output(label, label_texts(self.probabilities), n_outputs=len(self.weights))
        if not is_pair and self.unit is None:
            subject = f"the {subject}"
        verbs = ("rise", "fall") if is_pair else ("rises", "falls")
        lines = [weight for weight in self.weights[label] if weight.curve is None]
        ways = [[line for line in lines if (line.weight < 0) == falls] for falls in (False, True)]
        words = [
            f"{verb} with {join_words([str(weight) for weight in way])}"
            for verb, way in zip(verbs, ways, strict=True)
            if way
        ]
        sentences = []
        if words:
            start = subject if self.unit is not None else f"{subject[0].upper()}{subject[1:]}"
            sentences.append(f"{start} {', and '.join(words)}.")
        for weight in self.weights[label]:
            if weight.curve is not None:
                who = ("they" if is_pair else "it") if sentences else subject
                moves = say_runs(weight.curve, *verbs)
                sentences.append(f"With {one_line(weight.name)}, {who} {moves}.")
        return " ".join(sentences)


def rules(model: Readable, *, max_weights: int = 3) -> list[Rule]:
    """Return the leaves from left to right as rules: see `Readable.rules`."""
    check_limits(max_weights)
    tree, encoder = inside(model)
    shares = row_shares(tree)
    since = leaves_since(tree)
    return [
        make_rule(
            leaf_model(tree, encoder, leaf, shares[leaf], max_weights),
            class_shares(tree, leaf),
            since[leaf],
            max_weights,
        )
        for leaf in tree.leaves()
    ]


def make_rule(
    leaf: LeafModel,
    probabilities: dict[Hashable, float],
    since: tuple[int | None, int | None],
    max_weights: int,
) -> Rule:
    """Return a leaf as a rule."""
    weights = {}
    for label, own in leaf.weights.items():
        curves = leaf.curves[label]
        inputs = [
            Weight(name, curves[name].mean_slope, effect, is_number=True, curve=curves[name])
            if name in curves
            else Weight(name, own[name], effect, name in leaf.numbers)
            for name, effect in leaf.effects[label].items()
        ]
        weights[label] = tuple(
            one for one in inputs[:max_weights] if one.weight != 0.0 or one.curve is not None
        )
    return Rule(
        leaf=leaf.leaf,
        path=leaf.path,
        text=join_path(leaf.path) if leaf.path else "always",
        rows=leaf.rows,
        share=leaf.share,
        probabilities=probabilities,
        weights=weights,
        floor=leaf.floor,
        since_step=since[0],
        since_row=since[1],
        mean=leaf.mean,
        error=leaf.error,
        unit=leaf.unit,
    )


def most_probable(
    probabilities: dict[Hashable, float], most: int, *, among: Collection[Hashable] | None = None
) -> list[Hashable]:
    """Return the most probable labels, at most so many; ties in the order of the labels."""
    labels = [label for label in probabilities if among is None or label in among]
    return sorted(labels, key=lambda label: -probabilities[label])[:most]


def labels_seen(probabilities: dict[Hashable, float]) -> dict[Hashable, float]:
    """Return the labels that occurred, the most frequent first."""
    ranked = most_probable(probabilities, len(probabilities))
    return {label: probabilities[label] for label in ranked if probabilities[label] > 0}
