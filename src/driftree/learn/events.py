"""Events: changes of the tree, with the figures that were compared.

Every record is written at the moment of the decision, from the numbers that were compared. Losses
and gains are in nats (natural-log likelihood) over the rows of the evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

DIGITS = 4  # digits of a number in text
ALL_DIGITS = 17  # that a number has


@dataclass(frozen=True, slots=True)
class Condition:
    """A test on one feature, in the user's names and units; rows that pass it go left.

    Examples
    --------
    >>> print(Condition("age", "<=", 40.0))
    age <= 40
    >>> print(Condition("age", "<=", 40.0).negated())
    age > 40
    >>> print(Condition("car", "==", "van"), "/", Condition("car", "is missing", None).negated())
    car == 'van' / car is present
    """

    feature: str
    operator: str
    value: object
    missing_passes: bool | None = None  # None: no value was ever missing
    digits: int = field(default=DIGITS, compare=False)  # that distinguish the feature's values

    def negated(self) -> Condition:
        """Return the test that the rows on the other side fulfil."""
        opposite = {
            "<=": ">",
            ">": "<=",
            "==": "!=",
            "!=": "==",
            "is missing": "is present",
            "is present": "is missing",
        }
        passes = None if self.missing_passes is None else not self.missing_passes
        return Condition(self.feature, opposite[self.operator], self.value, passes, self.digits)

    def say(self, digits: int = 0) -> str:
        """Return the test as text, with at least so many digits."""
        if self.operator in ("is missing", "is present"):
            return f"{self.feature} {self.operator}"
        value = (
            format_number(self.value, max(digits, self.digits))
            if isinstance(self.value, float)
            else repr(self.value)
        )
        suffix = " or missing" if self.missing_passes and self.operator in ("<=", ">") else ""
        return f"{self.feature} {self.operator} {value}{suffix}"

    def __str__(self) -> str:
        return self.say()


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The candidate that came second, with the gain it had."""

    condition: Condition
    gain: float


@dataclass(frozen=True, slots=True)
class Spot:
    """A node at some time: its position, its split, and since when.

    Attributes
    ----------
    node, parent, depth : int
        Id, id of the node above (-1 at the root), conditions above.
    condition : Condition or None
        Its split; None at a leaf. Rows that pass go left.
    left, right : int
        Ids of the nodes below; -1 at a leaf.
    since_step, since_row : int
        Time step and rows learnt when it became a leaf, or got its split, whose threshold may have
        moved since.
    """

    node: int
    parent: int = -1
    depth: int = 0
    condition: Condition | None = None
    left: int = -1
    right: int = -1
    since_step: int = 0
    since_row: int = 0

    @property
    def is_leaf(self) -> bool:
        """Whether there is nothing below."""
        return self.condition is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all changes of the tree.

    A loss is the negative log-likelihood, summed over rows: minus the logarithm of the probability
    that was predicted for the label before it was known, ln 2 = 0.69 per row for a coin flip, 0 for
    certainty. For a regressor it is minus the logarithm of the density, with the target's standard
    deviation as the unit: it may be below 0.

    Attributes
    ----------
    kind : str
        "split", "replace", "shift", "prune", "bend", "unbend", "memory" or "link".
    step : int
        Time step (number of steps learnt so far, including the present one).
    n_rows : int
        Rows learnt so far.
    node : int
        Id of the node that changed, as `apply` gives it.
    path : tuple of Condition
        The conditions from the root to that node.
    gain : float
        Loss that the change saves, in nats; NaN if a new label forced it.
    threshold : float
        The required gain; NaN if a new label forced the change.
    loss_before, loss_after : float
        The two losses whose difference is the gain.
    rows : float
        Rows of the evidence.
    runner_up : RunnerUp or None
        The next best candidate; None if no other was tried (by default an inner node tries only one
        split at a time).
    removed : tuple of Spot
        The nodes below that were removed, from the top down, each with its split.
    """

    kind: ClassVar[str]

    step: int
    n_rows: int
    node: int
    path: tuple[Condition, ...]
    gain: float
    threshold: float
    loss_before: float
    loss_after: float
    rows: float
    runner_up: RunnerUp | None = None
    removed: tuple[Spot, ...] = ()

    @property
    def n_removed(self) -> int:
        """Number of nodes that were removed."""
        return len(self.removed)

    def _tell(self, what: str, why: str) -> str:
        """Return the sentences: when, what, why, the runner-up, what was removed."""
        step = "" if self.step == self.n_rows else f", step {self.step:,}"
        text = f"Row {self.n_rows:,}{step}: {what}. {why}."
        if self.runner_up is not None:
            text += f" Next best was {self.runner_up.condition}, with {self.runner_up.gain:,.1f}."
        if self.removed:
            text += f" {self.n_removed} nodes were removed."
        return text

    def _compare(self, after: str, before: str) -> str:
        """Describe which of two has the lower loss or, for a smaller tree, hardly a higher one."""
        how = "less" if self.gain >= 0 else "hardly more"
        return (
            f"Over {self.rows:,.0f} rows {after} erred {how} than {before}, with a loss of "
            f"{self.loss_after:,.1f} instead of {self.loss_before:,.1f}. This gain of "
            f"{self.gain:,.1f} passed the {self.threshold:,.1f} required"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(Event):
    """A leaf became an inner node: gain (3). Its children are `left` and `right`."""

    kind = "split"

    condition: Condition
    left: int = -1
    right: int = -1

    def __str__(self) -> str:
        what = f"{say_rows(self.path)} are split by {self.condition}"
        return self._tell(what, self._compare("a model for each side", "one for both"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace(Event):
    """An inner node got another split, and its old branch was removed: gain (4)."""

    kind = "replace"

    condition: Condition
    old_condition: Condition
    left: int = -1
    right: int = -1

    def __str__(self) -> str:
        new, old = tell_apart(self.condition, self.old_condition)
        how = f"{new}, no longer by {old}"
        if new == old:  # in the paper's setting
            how = f"{self.condition} once more, and both sides start anew"
        what = f"{say_rows(self.path)} are split by {how}"
        return self._tell(what, self._compare("a model for each new side", "the old branch"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift(Event):
    """The threshold of an inner node's split moved; the nodes and their models stay.

    The rows of the evidence are those between the two thresholds. `loss_after` is what they would
    have cost on the other side, and `loss_before` that plus the gain: what they cost where they
    were, except that no row counts for more than four nats in the gain.

    Examples
    --------
    >>> print(
    ...     Shift(
    ...         step=2900,
    ...         n_rows=2900,
    ...         node=0,
    ...         path=(),
    ...         gain=21.9,
    ...         threshold=18.5,
    ...         loss_before=34.0,
    ...         loss_after=12.1,
    ...         rows=164.0,
    ...         condition=Condition("age", "<=", 40.0),
    ...         old_condition=Condition("age", "<=", 37.0),
    ...     )
    ... )
    Row 2,900: all rows are split by age <= 40, no longer by age <= 37; both sides keep their
    models. Over 164 rows between the two, the model of their new side erred less than that of their
    old one, with a loss of 12.1 instead of 34.0. This gain of 21.9 passed the 18.5 required.
    """

    kind = "shift"

    condition: Condition
    old_condition: Condition

    def __str__(self) -> str:
        new, old = tell_apart(self.condition, self.old_condition)
        split = f"{say_rows(self.path)} are split by {new}, no longer by {old}"
        after = "between the two, the model of their new side"
        why = self._compare(after, "that of their old one")
        return self._tell(f"{split}; both sides keep their models", why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune(Event):
    """An inner node became a leaf: gain (5)."""

    kind = "prune"

    old_condition: Condition

    def __str__(self) -> str:
        what = f"{say_rows(self.path)} are no longer split by {self.old_condition}"
        saved = self.loss_after - self.loss_before
        if self.threshold > 0:
            return self._tell(what, self._compare("one model", "the branch"))
        losses = f"a loss of {self.loss_before:,.1f} instead of {self.loss_after:,.1f}"
        decimals = 1 if -self.threshold - saved > 0.1 else 4
        why = f"Over {self.rows:,.0f} rows it " + (
            f"hardly helped: {losses} with one model saves {saved:,.{decimals}f}, where more than "
            f"{-self.threshold:,.{decimals}f} is required to stay"
            if saved >= 0
            else f"did harm: {losses} with one model"
        )
        return self._tell(what, why)


@dataclass(frozen=True, slots=True)
class Curve:
    """A feature's curve by its knots, in the user's name and units.

    Examples
    --------
    >>> print(Curve("income", (10.0, 44.9, 90.0)))
    income (10, 44.9, 90)
    """

    feature: str
    knots: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.feature} ({', '.join(say_knots(self.knots))})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChange(Event):
    """The model of a node was replaced by another one; the nodes stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bend(ModelChange):
    """In the model of a node, lines of some features became curves with knots."""

    kind = "bend"

    curves: tuple[Curve, ...]

    def __str__(self) -> str:
        what = f"for {say_rows(self.path)} {say_curves(self.curves, 'bends', 'bend')}"
        return self._tell(what, self._compare("a model with these bends", "the one without"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbend(ModelChange):
    """In the model of a node, curves of some features became lines again."""

    kind = "unbend"

    curves: tuple[Curve, ...]

    def __str__(self) -> str:
        is_one = len(self.curves) == 1
        lines = f"the line of {self.curves[0]} is" if is_one else say_curves(self.curves, "", "are")
        what = f"for {say_rows(self.path)} {lines} straight again"
        return self._tell(what, self._compare("a model without these bends", "the one with them"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChange(ModelChange):
    """The memory of a node's model changed."""

    kind = "memory"

    memory: float
    """Approximate number of rows that it remembers."""

    def __str__(self) -> str:
        what = f"for {say_rows(self.path)} the model remembers some {self.memory:,.0f} rows now"
        return self._tell(what, self._compare("a model with this memory", "the one before"))


KEEP_NODES = (ModelChange, Shift)  # changes that remove nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChange(Event):
    """The noise floor was added or dropped, and the tree restarted from one leaf."""

    kind = "link"

    floor: tuple[float, float]
    third_label: Hashable = None

    def __str__(self) -> str:
        share = sum(self.floor)
        again = "the tree starts again from one leaf"
        if self.third_label is not None:
            why = "Only with two labels can some of them be taken as random"
            what = f"a third label, {self.third_label!r}, has appeared, and {again}"
            return self._tell(what, why)
        words = f"{share:.0%} of labels look random" if share else "labels no longer look random"
        model = "one model that allows for it" if share else "one model"
        return self._tell(f"{words}, and {again}", self._compare(model, "the tree"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReplaced:
    """A useless tree of a forest was replaced by a new one.

    The weights of the trees minimise the loss. A tree whose weight is not above 0 does not improve
    the forest.

    Attributes
    ----------
    n_rows : int
        Rows learnt so far.
    member : int
        Which tree.
    weight : float
        Weight of its log-odds; for regressors, its share of the mean.
    loss, loss_of_all : float
        Its mean loss over the last rows (about 2,000), and that of the forest: nats per row, or the
        absolute error of regressors.
    """

    kind: ClassVar[str] = "member"

    n_rows: int
    member: int
    weight: float
    loss: float
    loss_of_all: float
    has_labels: bool = True

    def __str__(self) -> str:
        loss = "loss per row" if self.has_labels else "error"
        return (
            f"Row {self.n_rows:,}: tree {self.member} is replaced by a new one. Its weight had "
            f"fallen to {self.weight:.2f}: its mean {loss} was {self.loss:.4g}, that of "
            f"all trees together {self.loss_of_all:.4g}."
        )


@dataclass(frozen=True, slots=True)
class MemberEvent:
    """A change of one tree of a forest.

    Attributes
    ----------
    member : int
        Which tree; 0 is the plain one.
    event : Event
        What changed, and why; its rows are those of the tree.
    since : int
        Rows that the forest had learnt when the tree began.
    """

    member: int
    event: Event
    since: int = 0

    @property
    def n_rows(self) -> int:
        """Rows that the forest had learnt."""
        return self.since + self.event.n_rows

    @property
    def kind(self) -> str:
        """The kind of the event."""
        return self.event.kind

    def __str__(self) -> str:
        since = f" (since row {self.since:,})" if self.since else ""
        text = str(self.event)
        return f"Tree {self.member}{since}, {text[0].lower()}{text[1:]}"


def make_path(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return conditions, from the root down, as a path.

    A missing value that one of them rejects does not reach later ones on its feature.

    Examples
    --------
    >>> print(*make_path([Condition("age", "<=", 60.0, False), Condition("age", ">", 40.0, True)]))
    age <= 60 age > 40
    """
    turned_away = set()
    path = []
    for condition in conditions:
        is_reached = condition.feature not in turned_away
        path.append(condition if is_reached else replace(condition, missing_passes=False))
        if condition.missing_passes is False:
            turned_away.add(condition.feature)
    return tuple(path)


def say_rows(path: tuple[Condition, ...], digits: int = 0) -> str:
    """Describe the rows of a path.

    Examples
    --------
    >>> print(say_rows(()), "/", say_rows((Condition("age", "<=", 60.0),)))
    all rows / rows with age <= 60
    """
    return f"rows with {join_path(path, digits)}" if path else "all rows"


def say_knots(knots: tuple[float, ...], limit: int = 16) -> list[str]:
    """Return the knots of a curve as text; if there are many, their number and range.

    Examples
    --------
    >>> say_knots((20.0, 44.9))
    ['20', '44.9']
    >>> say_knots(tuple(range(1, 46)))
    ['45 values from 1 to 45']
    """
    if len(knots) <= limit:
        return format_numbers(knots)
    first, last = format_numbers((knots[0], knots[-1]))
    return [f"{len(knots)} values from {first} to {last}"]


def say_curves(curves: tuple[Curve, ...], one: str, many: str, limit: int = 4) -> str:
    """Describe curves with their knots; if there are many, the first few.

    Examples
    --------
    >>> print(say_curves((Curve("age", (20.0, 40.0, 60.0)),), "bends", "bend"))
    the line of age bends at 20, 40 and 60
    """
    if len(curves) == 1:
        *first, last = say_knots(curves[0].knots)
        knots = f"{', '.join(first)} and {last}" if first else last
        return f"the line of {curves[0].feature} {one} at {knots}"
    names = [str(curve) for curve in curves[:limit]]
    if len(curves) > limit:
        names[limit - 1 :] = [f"{len(curves) - limit + 1} more features"]
    return f"the lines of {', '.join(names[:-1])} and {names[-1]} {many}"


def join_path(path: tuple[Condition, ...], digits: int = 0) -> str:
    """Join conditions to one readable phrase, without those that a later one implies.

    Examples
    --------
    >>> age = Condition("age", "<=", 60.0)
    >>> print(join_path((age, Condition("car", "==", "van"), Condition("age", "<=", 40.0))))
    car == 'van' and age <= 40
    >>> print(join_path((age, Condition("age", ">", 40.0), Condition("size", "<=", 2.0, True))))
    40 < age <= 60 and (size <= 2 or missing)
    """
    latest: dict[tuple[object, ...], Condition] = {}
    for condition in path:
        is_level = condition.operator == "!="
        key = (condition.feature, condition.operator, condition.value if is_level else None)
        above = latest.pop(key, None)
        latest[key] = condition if above is None else _tighter(condition, above)
    words = {key: condition.say(digits) for key, condition in latest.items()}
    for feature in {condition.feature for condition in path}:
        ends = [(feature, ">", None), (feature, "<=", None)]
        if all(end in latest and not latest[end].missing_passes for end in ends):
            first, last = sorted(ends, key=list(words).index)
            del words[first]
            words[last] = _say_range(latest[ends[0]], latest[ends[1]], digits)
    if len(words) > 1:  # "and" binds more tightly than "or"
        words |= {key: f"({text})" for key, text in words.items() if text.endswith(" or missing")}
    return " and ".join(words.values())


def _tighter(below: Condition, above: Condition) -> Condition:
    """Return the lower of two bounds, or the upper one where its threshold has moved past that."""
    if not isinstance(below.value, float) or not isinstance(above.value, float):
        return below
    is_least = above.value < below.value if below.operator == "<=" else above.value > below.value
    return replace(above, missing_passes=below.missing_passes) if is_least else below


def _say_range(low: Condition, high: Condition, digits: int) -> str:
    """Return both bounds, with as many digits as distinguish them."""
    digits = max(digits, low.digits, high.digits)
    assert isinstance(low.value, float)
    assert isinstance(high.value, float)
    while (start := format_number(low.value, digits)) == format_number(high.value, digits):
        if digits >= ALL_DIGITS:
            break
        digits += 1
    return f"{start} < {high.say(digits)}"


def tell_apart(first: Condition, second: Condition) -> tuple[str, str]:
    """Return two conditions as text, with as many digits as distinguish them.

    Examples
    --------
    >>> tell_apart(Condition("age", "<=", 40.001), Condition("age", "<=", 40.002))
    ('age <= 40.001', 'age <= 40.002')
    """
    for digits in range(ALL_DIGITS):
        if first.say(digits) != second.say(digits):
            break
    return first.say(digits), second.say(digits)


def format_number(value: float, digits: int = DIGITS) -> str:
    """Format a number: whole numbers in full, others with some digits.

    Examples
    --------
    >>> [format_number(number) for number in (2007.0, 1013.25, 51234.5, 0.123456, 1e-7)]
    ['2007', '1013', '51,234', '0.1235', '1e-07']
    >>> format_number(1013.25, digits=6)
    '1013.25'
    """
    size = abs(value)
    if not 1e-4 <= size < 1e15 and value:
        return f"{value:.{digits}g}"
    n_whole = len(f"{size:.0f}") if size >= 1 else 0
    if value == round(value) or n_whole >= digits:
        text = f"{value:,.0f}"
    else:
        text = f"{value:,.{digits}g}" if size < 1 else f"{value:,.{digits - n_whole}f}"
        text = text.rstrip("0").rstrip(".")
    return text if size >= 10_000 else text.replace(",", "")


def format_numbers(values: Sequence[float]) -> list[str]:
    """Format numbers in order, with as many digits as distinguish neighbours.

    Examples
    --------
    >>> format_numbers((10.0, 44.9, 90.12)), format_numbers((-122.4351, -122.4049))
    (['10', '44.9', '90.12'], ['-122.44', '-122.4'])
    """
    n_different = sum(low != high for low, high in pairwise(values))
    for digits in range(DIGITS, ALL_DIGITS + 1):
        texts = [format_number(value, digits) for value in values]
        if sum(low != high for low, high in pairwise(texts)) == n_different:
            break
    return texts
