"""Texts as words: how often each occurs, as River's `BagOfWords` counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from driftree.learn.words import list_names, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence


def check_text(text: Collection[Hashable], names: Sequence[Hashable], source: str) -> None:
    """Raise if a column that is to be read as text is not there.

    Examples
    --------
    >>> check_text(["body"], ["message", "sender"], "mail.csv")
    Traceback (most recent call last):
    ...
    ValueError: text names 'body', but the features of mail.csv are 'message', 'sender', without the
    target: name those that hold text
    """
    for name in text:
        if name not in names:
            raise ValueError(
                f"text names {name!r}, but the features of {source} are {list_names(names)}, "
                "without the target: name those that hold text"
            )


def count_words(
    rows: list[dict[Hashable, Any]], text: Collection[Hashable], names: Collection[Hashable]
) -> list[dict[Hashable, Any]]:
    """Return rows whose texts are replaced by how often they hold each word.

    Words are in lower case and without accents. Those of two characters and more count.

    Parameters
    ----------
    rows : list of dict
        The rows; what is missing is absent.
    text : collection of names
        Columns that hold text.
    names : collection of names
        All columns. A word that is called like one of them, and every word where several columns
        hold text, has the name of its own column before it.

    Examples
    --------
    >>> rows = [{"message": "Win a prize, WIN now", "length": 20.0}, {"length": 0.0}]
    >>> count_words(rows, ["message"], ["message", "length"])
    [{'length': 20.0, 'win': 2, 'prize': 1, 'now': 1}, {'length': 0.0}]
    >>> count_words([{"message": "what length"}], ["message"], ["message", "length"])
    [{'what': 1, 'message: length': 1}]
    """
    from river.feature_extraction import BagOfWords

    count: Any = BagOfWords(lowercase=True).transform_one
    found = []
    for row in rows:
        held = {name: value for name, value in row.items() if name not in text}
        for column in text:
            for word, times in count(_check_cell(column, row.get(column, ""))).items():
                is_plain = len(text) == 1 and word not in names
                held[word if is_plain else f"{column}: {word}"] = times
        found.append(held)
    return found


def _check_cell(column: Hashable, cell: Any) -> str:
    if not isinstance(cell, str):
        raise ValueError(
            f"column {column!r} is to be read as text, but holds {shown(cell)}: name columns of "
            "text only; a number is a feature as it is"
        )
    return cell
