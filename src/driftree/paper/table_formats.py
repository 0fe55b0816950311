"""A table of figures and published ones: as data, and as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from driftree.evaluate.records import Figure

Value = Figure | int | str | None
Better = Literal["higher", "lower"]

NOTHING = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of ours and the paper's; None if there is none.

    Attributes
    ----------
    ours, paper : Figure, int, str or None
        Our result, and the published one.
    note : str
        Why ours is missing, or how it differs from the paper's.
    mark : str
        A mark that the table's notes explain.
    """

    ours: Value = None
    paper: Value = None
    note: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """A row or column: its name in data, its title in print, and its group, if it has one."""

    name: str
    title: str
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the paper, as data.

    Attributes
    ----------
    number, name, caption : str
        The paper's number, such as ``"II"``; a word for file names; what it shows.
    row_kind, column_kind : str
        The kind of the heads: learner, data_set, ...
    rows, columns : tuple of Head
        In the order of the paper. Where the group changes, a rule is drawn in print.
    cells : mapping of (row name, column name) to Cell
        All cells.
    notes : tuple of str
        Notes for readers, line by line, including everything that is missing.
    better : "higher", "lower" or None
        Which figures are good.
    decimals : int or None
        Of our figures; None for two significant digits.
    paper_decimals : int
        Of the paper's.
    """

    number: str
    name: str
    caption: str
    row_kind: str
    column_kind: str
    rows: tuple[Head, ...]
    columns: tuple[Head, ...]
    cells: Mapping[tuple[str, str], Cell]
    notes: tuple[str, ...]
    better: Better | None = None
    decimals: int | None = 0
    paper_decimals: int = 0

    @property
    def has_figures(self) -> bool:
        """Whether cells are means and standard deviations, each of which takes a line in print."""
        return self.column_kind == "data_set"


# ---------------------------------------------------------------------- texts
@dataclass(frozen=True)
class _Markup:
    """The syntax of plain, bold and italic text."""

    escape: Callable[[str], str]
    bold: str
    italic: str


def _show(value: Value, decimals: int | None) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, Figure):
        if decimals is None:  # two significant digits
            size = math.floor(math.log10(value.mean)) if value.mean > 0 else 0
            decimals = max(0, 1 - size)
        return f"{value.mean:,.{decimals}f} ± {value.std:,.{decimals}f}"
    return value if isinstance(value, str) else f"{value:,}"


def _show_ours(cell: Cell, decimals: int | None) -> str:
    if cell.ours is None and cell.note and not cell.note.startswith("not available"):
        return cell.note
    return f"{_show(cell.ours, decimals)} {cell.mark}".rstrip()


def _best(table: Table) -> set[tuple[str, str]]:
    """Return the best cells of each column and group, which are bold in the paper.

    Marked cells, computed over fewer data sets than the rest, are not considered.
    """
    best = set()
    groups = {row.group for row in table.rows} & {"trees", "ensembles"} if table.better else set()
    for column in table.columns:
        for group in groups:
            means = {
                row.name: float(_show(cell.ours, table.decimals).split()[0].replace(",", ""))
                for row in table.rows
                if row.group == group
                and isinstance((cell := table.cells[row.name, column.name]).ours, Figure)
                and not cell.mark
            }
            if len(means) > 1:
                goal = max(means.values()) if table.better == "higher" else min(means.values())
                best |= {(name, column.name) for name, mean in means.items() if mean == goal}
    return best


def _lines(table: Table, columns: tuple[Head, ...], markup: _Markup) -> Iterator[list[list[str]]]:
    """Yield the lines of each row: ours and the published one below each other, or side by side."""
    best = _best(table)
    for row in table.rows:
        cells = {column.name: table.cells[row.name, column.name] for column in columns}
        ours = {
            name: markup.escape(_show_ours(cell, table.decimals)) for name, cell in cells.items()
        }
        paper = {
            name: markup.escape(_show(cell.paper, table.paper_decimals))
            for name, cell in cells.items()
        }
        title = markup.escape(row.title)
        if not table.has_figures:
            yield [[title, *(f"{ours[name]} ({paper[name]})" for name in cells)]]
            continue
        bold = [
            markup.bold.format(text) if (row.name, name) in best else text
            for name, text in ours.items()
        ]
        lines = [[title, *bold]]
        if any(cell.paper is not None for cell in cells.values()):
            slanted = [
                markup.italic.format(paper[name]) if cell.paper is not None else ""
                for name, cell in cells.items()
            ]
            lines.append([markup.italic.format("paper"), *slanted])
        yield lines


# ---------------------------------------------------------------------- Markdown
def to_markdown(table: Table) -> str:
    r"""Write a table as Markdown; missing data sets are only in the notes.

    Examples
    --------
    >>> from driftree.paper.experiments import PaperResults
    >>> from driftree.paper.six_tables import table_data_sets
    >>> table = table_data_sets(PaperResults(counts={"electricity": (45312, 8, 2, 26075)}))
    >>> print(*to_markdown(table).splitlines()[:5], sep="\n")
    **Table I.** Data sets, as found and, in parentheses, as published.
    <BLANKLINE>
    | Data set | Rows | Features | Classes | Rows of the majority |
    |:---|---:|---:|---:|---:|
    | Electricity | 45,312 (45,312) | 8 (8) | 2 (2) | 26,075 (26,075) |
    """
    columns = tuple(
        column
        for column in table.columns
        if any(table.cells[row.name, column.name].ours is not None for row in table.rows)
    )
    if not (table.has_figures and columns):
        columns = table.columns
    markup = _Markup(lambda text: text.replace("|", "\\|"), "**{}**", "*{}*")
    heads = [_row_title(table), *(column.title for column in columns)]
    rows = [line for lines in _lines(table, columns, markup) for line in lines]
    ruler = ":---" + "|---:" * len(columns)
    return "\n".join(
        [
            f"**Table {table.number}.** {table.caption}.",
            "",
            f"| {' | '.join(heads)} |",
            f"|{ruler}|",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
            *(f"- {note}" for note in table.notes),
            "",
        ]
    )


def _row_title(table: Table) -> str:
    return table.row_kind.replace("_", " ").capitalize()


# ---------------------------------------------------------------------- LaTeX
_LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    NOTHING: "--",
    "ü": r"\"u",
}


def escape_latex(text: str) -> str:
    r"""Return a text as LaTeX; +, ++, - and -- on their own as mathematics.

    Examples
    --------
    >>> print(escape_latex("0.5 ± 0.1 of 100 % of bank_marketing"))
    0.5 $\pm$ 0.1 of 100 \% of bank\_marketing
    """
    if text in ("+", "++", "-", "--"):
        return f"${text}$"
    parts = ("".join(_LATEX.get(sign, sign) for sign in part) for part in text.split("--"))
    return "-{}-".join(parts)


def to_latex(table: Table) -> str:
    r"""Write a table as LaTeX that needs the packages booktabs and adjustbox.

    Examples
    --------
    >>> from driftree.paper.experiments import PaperResults
    >>> from driftree.paper.six_tables import table_summary
    >>> lines = to_latex(table_summary(PaperResults())).splitlines()
    >>> print(next(line.strip() for line in lines if "EFDT" in line))
    EFDT & not run ($-$) & not run ($+$) & not run ($+$) & not run ($--$) \\
    """
    markup = _Markup(escape_latex, r"\textbf{{{}}}", r"\textit{{{}}}")
    heads = [_row_title(table), *(escape_latex(column.title) for column in table.columns)]
    body = []
    for row, previous, lines in zip(
        table.rows, (None, *table.rows), _lines(table, table.columns, markup), strict=False
    ):
        if previous and previous.group != row.group:
            body.append(r"\midrule")
        body += [f"{' & '.join(line)} \\\\" for line in lines]
    notes = "\n  \\par ".join(escape_latex(note) for note in table.notes)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs, adjustbox}",
            r"\begin{table}",
            rf"  \caption{{{escape_latex(table.caption)}.}}",
            rf"  \label{{tab:{table.name.replace('_', '-')}}}",
            r"  \centering",
            r"  \begin{adjustbox}{max width=\textwidth}",
            rf"  \begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"    \toprule",
            f"    {' & '.join(heads)} \\\\",
            f"    {_latex_rules(table)}",
            *(f"    {line}" for line in body),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"  \end{adjustbox}",
            r"  \par\smallskip",
            r"  \begin{minipage}{\textwidth}\footnotesize",
            f"  {notes}",
            r"  \end{minipage}",
            r"\end{table}",
            "",
        ]
    )


def _latex_rules(table: Table) -> str:
    """Draw a rule below each group of heads."""
    starts = [
        i
        for i, column in enumerate(table.columns)
        if i == 0 or column.group != table.columns[i - 1].group
    ]
    stops = [*starts[1:], len(table.columns)]
    spans = [(1, 1), *((start + 2, stop + 1) for start, stop in zip(starts, stops, strict=True))]
    return " ".join(rf"\cmidrule(lr){{{start}-{stop}}}" for start, stop in spans)


# ---------------------------------------------------------------------- CSV
def to_csv(table: Table) -> str:
    r"""Write a table as CSV, one line per cell, all of them.

    Examples
    --------
    >>> from driftree.paper.experiments import PaperResults
    >>> from driftree.paper.six_tables import table_f1
    >>> print(*to_csv(table_f1(PaperResults())).splitlines()[:2], sep="\n")
    table,learner,data_set,mean,std,paper_mean,paper_std,note
    f1,dmt,electricity,,,0.76,0.2,not run
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    values = ["mean", "std", "paper_mean", "paper_std"] if table.has_figures else ["ours", "paper"]
    writer.writerow(["table", table.row_kind, table.column_kind, *values, "note"])
    for row in table.rows:
        for column in table.columns:
            cell = table.cells[row.name, column.name]
            figures = [*_plain(cell.ours, table), *_plain(cell.paper, table)]
            writer.writerow([table.name, row.name, column.name, *figures, cell.note])
    return file.getvalue()


def _plain(value: Value, table: Table) -> list[object]:
    """Return a value as the columns of a CSV file."""
    if table.has_figures:
        return list(value) if isinstance(value, Figure) else ["", ""]
    return ["" if value is None else value]


WRITERS: Mapping[str, Callable[[Table], str]] = {
    ".md": to_markdown,
    ".tex": to_latex,
    ".csv": to_csv,
}
