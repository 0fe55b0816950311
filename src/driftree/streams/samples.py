"""Small tables to try things on, as CSV: loans, rents, messages. None of them is real."""

from __future__ import annotations

import csv
import datetime as dt
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Row = tuple[Any, ...]
TOWNS = {"Ulm": 100, "Bonn": 160, "Jena": 40}
SPAM = ("win", "prize", "claim", "urgent", "free", "cash", "offer", "reply", "now", "call")
HAM = ("lunch", "home", "meeting", "later", "thanks", "train", "dinner", "sorry", "see", "call")
BOTH = ("the", "a", "you", "to", "and", "is", "in", "it", "for", "we")


def _loans(n_rows: int, rng: np.random.Generator) -> Iterator[Row]:
    """Loan applications; from the middle on, owners are judged the other way round."""
    yield "id", "applied", "age", "income", "owner", "purpose", "granted"
    start = dt.datetime(2024, 1, 1, 8)
    for i in range(n_rows):
        age, income = int(rng.integers(20, 80)), round(float(rng.uniform(0, 90)), 2)
        is_owner, purpose = bool(rng.random() < 0.5), str(rng.choice(["car", "house", "travel"]))
        is_other_way = is_owner and i >= n_rows // 2
        is_granted = bool(rng.normal(income, 6) > 45) != is_other_way
        when = (start + dt.timedelta(minutes=37 * i)).isoformat(sep=" ", timespec="minutes")
        shown_age = "" if rng.random() < 0.03 else age
        owner, granted = ("yes" if one else "no" for one in (is_owner, is_granted))
        yield f"A{10_000 + i}", when, shown_age, f"{1000 * income:,.0f}", owner, purpose, granted


def _rents(n_rows: int, rng: np.random.Generator) -> Iterator[Row]:
    """Rents of flats, a number."""
    yield "area", "floor", "town", "rent"
    for _ in range(n_rows):
        area, floor = round(float(rng.uniform(20, 120)), 1), int(rng.integers(0, 6))
        town = str(rng.choice(list(TOWNS)))
        yield area, floor, town, round(300 + 8 * area + TOWNS[town] + float(rng.normal(0, 30)))


def _messages(n_rows: int, rng: np.random.Generator) -> Iterator[Row]:
    """Text messages, some of them spam."""
    yield "message", "length", "spam"
    for _ in range(n_rows):
        is_spam = bool(rng.random() < 0.3)
        words = rng.choice(SPAM if is_spam else HAM, 3).tolist() + rng.choice(BOTH, 4).tolist()
        text = " ".join(rng.permutation(words).tolist())
        yield text, len(text), "yes" if is_spam else "no"


SAMPLES: dict[str, Callable[[int, np.random.Generator], Iterator[Row]]] = {
    "loans": _loans,
    "rents": _rents,
    "messages": _messages,
}


def sample_lines(name: str, n_rows: int, seed: int = 1) -> Iterator[str]:
    """Yield the lines of a sample as CSV, the header first.

    Examples
    --------
    >>> print(*sample_lines("loans", 2), sep="")
    id,applied,age,income,owner,purpose,granted
    A10000,2024-01-01 08:00,48,"85,540",yes,house,yes
    A10001,2024-01-01 08:37,...
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in SAMPLES[name](n_rows, np.random.default_rng(seed)):
        writer.writerow(row)
        yield text.getvalue()
        text.seek(0)
        text.truncate()
