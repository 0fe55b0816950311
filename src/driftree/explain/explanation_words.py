"""The text of an explanation: prediction, rule, contributions for and against it, certainty."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from driftree.explain.text import (
    label_texts,
    one_line,
    percent,
    say_noise,
    say_unknown,
    write_number,
)
from driftree.learn.events import format_number, join_path

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from driftree.explain.explanation import Explanation
    from driftree.learn.units import Unit

MOST_SHOWN = 6  # features
SIDES = ("for     ", "against ", "weaker  ")
NOT_KNOWN = "Certainty: not available in the paper's setting and with sparse features."


class FeatureLine(NamedTuple):
    """The contribution of a feature."""

    side: str
    """For the prediction or against it; empty for regressors."""
    number: str
    words: str
    value: float


class ExplanationLines(NamedTuple):
    """An explanation: lines, contributions, more lines."""

    head: list[str]
    entries: list[FeatureLine]
    tail: list[str]


def in_words(why: Explanation) -> str:
    """Return the lines: prediction, rule, contributions for and against it, certainty."""
    head, entries, tail = tell(why)
    width = max((len(entry.number) for entry in entries), default=0)
    ledger = [f"    {own.side}{own.number:>{width}}  {own.words}" for own in entries]
    return "\n".join([*head, *ledger, *tail])


def tell(why: Explanation) -> ExplanationLines:
    """Return the text, in parts."""
    told = _about_labels(why) if why.unit is None else _about_number(why, why.unit)
    if why.unknown:
        absent = [name for name, value in why.row.items() if value is None]
        told.tail.append(say_unknown(why.unknown, absent))
    return told


def _about_labels(why: Explanation) -> ExplanationLines:
    ranked = sorted(why.probabilities, key=lambda label: -why.probabilities[label])
    ranked.remove(why.prediction)
    names = label_texts(why.probabilities)
    head = [_headline(why, ranked, names), _rule(why)]
    if not ranked:
        return ExplanationLines(head, [], ["No other label was seen so far."])
    title, entries, tail = _for_and_against(why, ranked[0], names)
    return ExplanationLines(
        [*head, title], entries, [*tail, *_certainty(why, names[why.prediction])]
    )


def _about_number(why: Explanation, unit: Unit) -> ExplanationLines:
    """Return the text for a regressor, all numbers with the same decimals."""
    assert isinstance(why.prediction, float)
    assert isinstance(why.intercept, float)
    error = "" if why.error is None else f", with an error of about {write_number(why.error, unit)}"
    what = "the logarithm of the number" if unit.has_log_link else "the number"
    total = why.intercept + sum(why.contributions.values())
    head = [
        f"Prediction: {write_number(why.prediction, unit)}{error}",
        _rule(why),
        f"What makes {what}, compared with an average row:",
    ]
    tail = [
        f"    An average row has {_read(why.intercept, unit)}, this one {_read(total, unit)}.",
        *_certainty_of_number(why, unit),
    ]
    return ExplanationLines(
        head, _ledger(why.contributions, why.row, lambda value: _signed(value, unit)), tail
    )


def _read(value: float, unit: Unit) -> str:
    return f"{value:.3f}" if unit.has_log_link else write_number(value, unit)


def _signed(value: float, unit: Unit) -> str:
    """Return a contribution as text; with a log link, as a factor."""
    return f"{value:+.3f}" if unit.has_log_link else write_number(value, unit, signed=True)


def _certainty_of_number(why: Explanation, unit: Unit) -> list[str]:
    if why.intervals is None:
        return [NOT_KNOWN]
    low, high = (write_number(end, unit) for end in why.intervals["y"])
    where = low if low == high else f"between {low} and {high}"
    return [f"Certainty: if this rule holds, the mean of such rows is {where} (95% interval)."]


def _headline(why: Explanation, others: list[Hashable], names: dict[Hashable, str]) -> str:
    shown = [f"{names[label]} {percent(why.probabilities[label])}" for label in others[:3]]
    if len(others) > 3:
        shown.append(f"{len(others) - 3} more")
    rest = f" ({', '.join(shown)})" if shown else ""
    likely = percent(why.probabilities[why.prediction])
    return f"Prediction: {names[why.prediction]}, {likely}{rest}{say_threshold(why.threshold)}"


def say_threshold(threshold: tuple[Hashable, float] | None) -> str:
    """Describe the decision threshold, after a prediction.

    Examples
    --------
    >>> say_threshold(("fraud", 0.08))
    "; 'fraud' is predicted from 8% on"
    """
    if threshold is None:
        return ""
    label, probability = threshold
    return f"; {one_line(repr(label))} is predicted from {percent(probability)} on"


def _rule(why: Explanation) -> str:
    facts = [f"leaf {why.leaf}", f"{why.rows:,.0f} rows learnt"]
    if why.since_row is not None:
        facts.append(f"in place since row {why.since_row:,}")
    return f"Rule: {join_path(why.path) or 'all rows'} ({', '.join(facts)})"


def _for_and_against(
    why: Explanation, second: Hashable, names: dict[Hashable, str]
) -> tuple[str, list[FeatureLine], list[str]]:
    """Return the contributions to the log-odds of the prediction over the runner-up."""
    intercept, contributions = _over(why, second)
    noise = " without noise" if any(why.floor) else ""
    of = f"Log-odds{noise} of {names[why.prediction]} over {names[second]}"
    entries = _ledger(contributions, why.row, lambda value: f"{value:+8.2f}", sides=SIDES)
    total = intercept + sum(contributions.values())
    tail = [f"    An average row has {intercept:+.2f}, this one {total:+.2f}."]
    if why.label == second:
        tail.append(f"    (`.contributions` are about {names[second]}: their signs are opposite.)")
    if noise:
        without = percent(why.probabilities_without_floor[why.prediction])
        tail.append(
            f"Noise: {say_noise(why.floor)}. Log-odds of {total:+.2f} are {without} without noise, "
            f"{percent(why.probabilities[why.prediction])} with it."
        )
    return f"{of}, compared with an average row:", entries, tail


def _ledger(
    contributions: dict[str, float],
    row: dict[str, object],
    write: Callable[[float], str],
    sides: tuple[str, str, str] = ("", "", ""),
) -> list[FeatureLine]:
    """Return an entry per contributing feature, the strongest first, and the rest in one.

    `sides` are the words before positive, negative and weaker contributions.
    """
    strongest = sorted(
        ((name, value) for name, value in contributions.items() if value != 0.0),
        key=lambda item: -abs(item[1]),
    )
    shown, rest = strongest[:MOST_SHOWN], strongest[MOST_SHOWN:]
    entries = [
        FeatureLine(sides[value < 0], write(value), f"{one_line(name)} {_value(row[name])}", value)
        for name, value in shown
    ]
    if rest:
        total = sum(value for _, value in rest)
        entries.append(FeatureLine(sides[2], write(total), f"{len(rest)} more, together", total))
    return entries


def _over(why: Explanation, second: Hashable) -> tuple[float, dict[str, float]]:
    """Return intercept and contributions to the log-odds of the prediction over another label.

    They are without noise: the floor only shifts their zero.
    """
    intercept, mine = why.sums_of(why.prediction)
    if len(why.probabilities) == 2:
        return intercept + why.zero_of(why.prediction), mine
    second_intercept, other = why.sums_of(second)
    return intercept - second_intercept, {name: mine[name] - other[name] for name in why.row}


def _certainty(why: Explanation, name: str) -> list[str]:
    if why.intervals is not None:
        low, high = map(percent, why.intervals[why.prediction])
        where = low if low == high else f"between {low} and {high}"
        return [
            f"Certainty: if this rule holds, the probability of {name} is {where} (95% interval)."
        ]
    if why.deviation is not None:
        return [
            f"Certainty: the log-odds have a standard deviation of {why.deviation:.2f} per label."
        ]
    return [NOT_KNOWN]


def _value(value: object) -> str:
    if value is None:
        return "is missing"
    return f"= {format_number(value) if isinstance(value, float) else one_line(repr(value))}"
