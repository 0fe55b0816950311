"""Malformed rows of files: where they are, what is wrong with them, how many were skipped."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

N_KEPT, N_SHOWN = 10, 3  # malformed rows that are kept, and those that the warning shows


class BadRow(NamedTuple):
    """Where a malformed row is, and what is wrong with it.

    Examples
    --------
    >>> print(BadRow("flights.csv", 17, "delay", "expected a number, got 'late'"))
    flights.csv, line 17, column 'delay': expected a number, got 'late'
    >>> print(BadRow("flights.csv", 17, None, "a quote was opened", last_line=3016))
    flights.csv, lines 17 to 3,016: a quote was opened
    """

    file: str
    line: int  # the first one, from 1, if cells have line breaks in them
    column: str | int | None  # by number, from 1, if it has no name; None: the row cannot be cut
    reason: str
    last_line: int | None = None  # if it is not the first one

    def __str__(self) -> str:
        column = "" if self.column is None else f", column {self.column!r}"
        line = f"line {self.line}"
        if self.last_line not in (None, self.line):
            line = f"lines {self.line:,} to {self.last_line:,}"
        return f"{self.file}, {line}{column}: {self.reason}"


@dataclass(slots=True)
class BadRows:
    """How many malformed rows were skipped, and the first ten of them.

    Examples
    --------
    >>> BadRows()
    BadRows(count=0, first=[])
    """

    count: int = 0
    first: list[BadRow] = field(default_factory=list)

    def add(self, rows: Collection[BadRow]) -> None:
        """Count rows."""
        self.count += len(rows)
        self.first += list(rows)[: N_KEPT - len(self.first)]

    def warn(self, stacklevel: int) -> None:
        """Report what was skipped, if anything was."""
        if self.count:
            shown = "".join(f"\n  {row}" for row in self.first[:N_SHOWN])
            rest = f"\n  and {self.count - N_SHOWN:,} more" if self.count > N_SHOWN else ""
            noun = "row was" if self.count == 1 else "rows were"
            words = f"{self.count:,} malformed {noun} skipped:{shown}{rest}"
            warnings.warn(words, BadRowsWarning, stacklevel=stacklevel + 1)


class BadRowError(ValueError):
    r"""A malformed row was met.

    Attributes
    ----------
    file, line, column, reason, last_line
        As in `BadRow`.

    Examples
    --------
    >>> import io
    >>> from driftree.streams import open_stream
    >>> list(open_stream(io.StringIO("delay,late\n9,no\n75,yes\nmuch,yes\n")))
    Traceback (most recent call last):
    driftree.streams.bad_rows.BadRowError: file object, line 4, column 'delay': expected a number,
    got 'much' (fix the row, name the column in categorical if it holds text, or read with
    on_bad_row="skip")
    """

    def __init__(self, row: BadRow) -> None:
        self.file, self.line, self.column, self.reason, self.last_line = row
        text = "name the column in categorical if it holds text, "
        hint = text if row.reason.startswith("expected a") else ""
        super().__init__(f'{row} (fix the row, {hint}or read with on_bad_row="skip")')
        self._row = row

    def __reduce__(self) -> tuple[type[BadRowError], tuple[BadRow]]:
        return type(self), (self._row,)


class BadRowsWarning(UserWarning):
    r"""Malformed rows were skipped: how many, and the first three.

    Examples
    --------
    >>> import io, warnings
    >>> from driftree.streams import open_stream
    >>> file = io.StringIO("delay,late\n9,no\nmuch,yes\n75,yes\n")
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     print([y.tolist() for _, y in open_stream(file, on_bad_row="skip")])
    [['no', 'yes']]
    >>> print(caught[0].message)
    1 malformed row was skipped:
      file object, line 3, column 'delay': expected a number, got 'much'
    """
