"""Explanation words: an explanation of one prediction in a few lines that need no mathematics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftree.explain.text import percent, say_noise
from driftree.learn.events import format_number, join_path

if TYPE_CHECKING:
    from collections.abc import Hashable

    from driftree.explain.explanation import Explanation

MOST_SHOWN = 6


def in_words(why: Explanation) -> str:
    """Return the lines: prediction, rule, what speaks for and against it, certainty, noise."""
    ranked = sorted(why.probabilities, key=lambda label: -why.probabilities[label])
    ranked.remove(why.prediction)
    lines = [_headline(why, ranked), _rule(why)]
    if not ranked:
        return "\n".join([*lines, "No other label was seen so far."])
    lines += _for_and_against(why, ranked[0])
    if why.intervals is not None:
        low, high = map(percent, why.intervals[why.prediction])
        where = low if low == high else f"between {low} and {high}"
        lines.append(
            f"Certainty: if this rule holds, the probability of {why.prediction} is {where} "
            "(95% interval)."
        )
    elif why.deviation is not None:
        lines.append(
            f"Certainty: the log-odds have a standard deviation of {why.deviation:.2f} per label."
        )
    if any(why.floor):
        without = percent(why.probabilities_without_floor[why.prediction])
        lines.append(
            f"Noise: {say_noise(why.floor)}; if none were, the probability of "
            f"{why.prediction} would be {without}."
        )
    return "\n".join(lines)


def _headline(why: Explanation, others: list[Hashable]) -> str:
    shown = [f"{label} {percent(why.probabilities[label])}" for label in others[:3]]
    if len(others) > 3:
        shown.append(f"{len(others) - 3} more")
    rest = f" ({', '.join(shown)})" if shown else ""
    return f"Prediction: {why.prediction}, {percent(why.probabilities[why.prediction])}{rest}"


def _rule(why: Explanation) -> str:
    facts = [f"leaf {why.leaf}", f"{why.rows:,.0f} rows learnt"]
    if why.since_row is not None:
        facts.append(f"stands since row {why.since_row:,}")
    return f"Rule: {join_path(why.path) or 'all rows'} ({', '.join(facts)})"


def _for_and_against(why: Explanation, second: Hashable) -> list[str]:
    """Return a ledger of the log-odds of the prediction over the next most probable label."""
    intercept, contributions = _over(why, second)
    strongest = sorted(
        ((name, value) for name, value in contributions.items() if value != 0.0),
        key=lambda item: -abs(item[1]),
    )
    shown, rest = strongest[:MOST_SHOWN], strongest[MOST_SHOWN:]
    lines = [f"Log-odds of {why.prediction} over {second}, compared with an average row:"]
    for name, value in shown:
        side = "for" if value > 0 else "against"
        lines.append(f"    {side:<7} {value:+8.2f}  {name} {_value(why.row[name])}")
    if rest:
        total = sum(value for _, value in rest)
        lines.append(f"    weaker  {total:+8.2f}  {len(rest)} more, together")
    total = intercept + sum(contributions.values())
    lines.append(f"    An average row has {intercept:+.2f}, this one {total:+.2f}.")
    return lines


def _over(why: Explanation, second: Hashable) -> tuple[float, dict[str, float]]:
    """Return intercept and contributions to the log-odds of the prediction over another label."""
    intercept, mine = why.sums_of(why.prediction)
    if len(why.probabilities) == 2:
        return intercept, mine
    second_intercept, other = why.sums_of(second)
    return intercept - second_intercept, {name: mine[name] - other[name] for name in why.row}


def _value(value: object) -> str:
    if value is None:
        return "is missing"
    return f"= {format_number(value) if isinstance(value, float) else repr(value)}"
