"""The paper's tables I to VI: our results compared with the published ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from driftree.evaluate.learners import LEARNERS
from driftree.evaluate.records import Figure
from driftree.learn.storage.atomic import replace_text
from driftree.paper import published
from driftree.paper.experiments import NOT_RUN, PaperResults
from driftree.paper.published import KNOWN_DRIFT, MEAN, TITLES, published_name
from driftree.paper.table_formats import WRITERS, Better, Cell, Head, Table, Value

if TYPE_CHECKING:
    from pathlib import Path

TREES = tuple(dict.fromkeys(learner for _, learner in published.SPLITS))
PAPER_DECIMALS = {"f1": 2, "n_paper_splits": 1, "seconds": 2}  # of the other tables: none
COUNTS = {
    "n_rows": "Rows",
    "n_features": "Features",
    "n_classes": "Classes",
    "n_majority": "Rows of the majority",
}
CATEGORIES: dict[str, tuple[str, Better]] = {
    "f1": ("F1, overall", "higher"),
    "f1_drift": ("F1, known drift", "higher"),
    "n_paper_splits": ("Complexity (splits)", "lower"),
    "seconds": ("Efficiency (seconds)", "lower"),
}


def write_tables(
    folder: Path, findings: PaperResults, *, note: str = ""
) -> tuple[list[Table], list[str]]:
    """Write tables I to VI in every format; return them, and the names of the files."""
    tables = make_tables(findings)
    if note:
        tables = [replace(table, notes=(note, *table.notes)) for table in tables]
    written = []
    for suffix, write in WRITERS.items():
        for table in tables:
            name = f"table{table.number}_{table.name}{suffix}"
            replace_text(folder / name, write(table))
            written.append(name)
    return tables, written


def make_tables(findings: PaperResults) -> list[Table]:
    """Return tables I to VI.

    Examples
    --------
    >>> tables = make_tables(PaperResults(missing={"tueyeq": "made by hand"}))
    >>> [table.name for table in tables]
    ['data_sets', 'f1', 'n_paper_splits', 'n_parameters', 'seconds', 'summary']
    >>> tables[1].cells["efdt", "tueyeq"]
    Cell(ours=None, paper=Figure(mean=0.77, std=0.23), note='not available: made by hand', mark='')
    """
    makers = (
        table_data_sets,
        table_f1,
        table_splits,
        table_parameters,
        table_seconds,
        table_summary,
    )
    return [make(findings) for make in makers]


# ---------------------------------------------------------------------- I: data sets
def table_data_sets(findings: PaperResults) -> Table:
    """Return table I: rows, features, classes and rows of the majority.

    Examples
    --------
    >>> table = table_data_sets(PaperResults(counts={"electricity": (45312, 8, 2, 26075)}))
    >>> table.cells["electricity", "n_rows"]
    Cell(ours=45312, paper=45312, note='', mark='')
    """
    cells = {}
    for data_set in TITLES:
        found = findings.counts.get(findings.had.get(data_set, ""), (None,) * len(COUNTS))
        for name, count in zip(COUNTS, found, strict=True):
            theirs = published.COUNTS[data_set, name]
            cells[data_set, name] = Cell(count, theirs, findings.data_set_note(data_set))
    return Table(
        number="I",
        name="data_sets",
        caption="Data sets, as found and, in parentheses, as published",
        row_kind="data_set",
        column_kind="count",
        rows=_data_set_heads(findings),
        columns=tuple(Head(name, title) for name, title in COUNTS.items()),
        cells=cells,
        notes=tuple(findings.notes()),
    )


# ---------------------------------------------------------------------- II to V: figures
def table_f1(findings: PaperResults) -> Table:
    """Return table II: the F1 measure.

    Examples
    --------
    >>> table_f1(PaperResults()).cells["efdt", "sea"].paper
    Figure(mean=0.87, std=0.04)
    """
    caption = "F1 measure (higher is better), mean ± standard deviation over the batches"
    return _figures("II", "f1", caption, findings, published.F1, better="higher", decimals=3)


def table_splits(findings: PaperResults) -> Table:
    """Return table III: the number of splits, as the paper counts them.

    Examples
    --------
    >>> table_splits(PaperResults()).cells["efdt", "sea"].paper
    Figure(mean=109.9, std=70.3)
    """
    caption = (
        "Number of splits as the paper counts them (lower is better), mean ± standard deviation "
        "over the batches"
    )
    return _figures("III", "n_paper_splits", caption, findings, published.SPLITS, decimals=1)


def table_parameters(findings: PaperResults) -> Table:
    """Return table IV: the number of parameters, counted as in the paper.

    Examples
    --------
    >>> table_parameters(PaperResults()).cells["efdt", "sea"].paper
    Figure(mean=221.0, std=141.0)
    """
    caption = "Number of parameters (lower is better), mean ± standard deviation over the batches"
    return _figures("IV", "n_parameters", caption, findings, published.PARAMETERS)


def table_seconds(findings: PaperResults) -> Table:
    """Return table V: CPU time of one test-then-train iteration.

    Examples
    --------
    >>> table_seconds(PaperResults()).cells["efdt", "mean"].paper
    Figure(mean=17.23, std=6.33)
    """
    caption = (
        "Seconds of one test-then-train iteration (lower is better), mean ± standard deviation"
    )
    return _figures("V", "seconds", caption, findings, published.SECONDS, decimals=None)


def _figures(
    number: str,
    name: str,
    caption: str,
    findings: PaperResults,
    paper: Mapping[tuple[str, str], Figure],
    *,
    better: Better = "lower",
    decimals: int | None = 0,
) -> Table:
    """Return a table of learners and data sets, with the means over the data sets."""
    rows = _learner_heads(findings)
    cells = {}
    for row in rows:
        theirs = {column: paper.get((column, published_name(row.name))) for column in TITLES}
        line = {
            column: _cell(findings, column, row.name, name, theirs[column]) for column in TITLES
        }
        line[MEAN] = _mean_cell(line, findings.run)
        if line[MEAN].paper is None:  # the paper's table V has only means
            whole = paper.get((MEAN, published_name(row.name)))
            line[MEAN] = replace(line[MEAN], paper=whole)
        cells.update({(row.name, column): cell for column, cell in line.items()})
    return Table(
        number=number,
        name=name,
        caption=caption,
        row_kind="learner",
        column_kind="data_set",
        rows=rows,
        columns=(*_data_set_heads(findings), Head(MEAN, "Mean", "mean")),
        cells=cells,
        notes=(*_figure_notes(name, rows, cells), *findings.notes()),
        better=better,
        decimals=decimals,
        paper_decimals=PAPER_DECIMALS.get(name, 0),
    )


def _cell(
    findings: PaperResults, data_set: str, learner: str, name: str, theirs: Figure | None
) -> Cell:
    ours = findings.figure(data_set, learner, name)
    if ours is None:
        lost = "" if data_set in findings.had else findings.data_set_note(data_set)
        return Cell(None, theirs, lost or NOT_RUN)
    if math.isnan(ours.mean):
        return Cell(None, theirs, "not measured")
    return Cell(ours, theirs, findings.data_set_note(data_set))


def _mean_cell(line: Mapping[str, Cell], data_sets: Sequence[str]) -> Cell:
    """Return the mean over the data sets that were run, and the paper's over the same ones."""
    run = [data_set for data_set, cell in line.items() if cell.ours is not None]
    ours = _mean(line[data_set].ours for data_set in run)
    theirs = _mean(line[data_set].paper for data_set in run or data_sets or line)
    if ours is None:
        return Cell(None, theirs, NOT_RUN)
    lacking = [data_set for data_set in data_sets if data_set not in run]
    if lacking:
        return Cell(ours, theirs, f"without {', '.join(lacking)}", "‡")
    return Cell(ours, theirs)


def _mean(values: Iterable[Value]) -> Figure | None:
    """Average means and standard deviations, as the paper does; None if one is not known."""
    figures = list(values)
    known = [figure for figure in figures if isinstance(figure, Figure)]
    if not known or len(known) < len(figures):
        return None
    return Figure(fmean(figure.mean for figure in known), fmean(figure.std for figure in known))


def _data_set_heads(findings: PaperResults) -> tuple[Head, ...]:
    """Return all thirteen; those that are only partly available are marked."""
    return tuple(
        Head(name, f"{title} †" if findings.is_stand_in(name) else title)
        for name, title in TITLES.items()
    )


def _learner_heads(findings: PaperResults) -> tuple[Head, ...]:
    """Return the paper's learners, run or not, and the others that were run."""
    run = {learner for _, learner in findings.summaries}
    paper = {learner for _, learner in published.F1}
    groups = {True: "ensembles", False: "others"}
    return tuple(
        Head(
            name,
            choice.title,
            "trees" if published_name(name) in TREES else groups[choice.is_ensemble],
        )
        for name, choice in LEARNERS.items()
        if name in run or published_name(name) in paper
    )


def _figure_notes(
    name: str, rows: Iterable[Head], cells: Mapping[tuple[str, str], Cell]
) -> list[str]:
    notes = [
        "Upper line: found here. Lower line, in italics: published. Bold: best of the stand-alone "
        "trees, and of the ensembles, found here.",
        "Both settings of the DMT stand beside the one that was published.",
        "Mean: over the data sets that were run.",
    ]
    if name == "seconds":
        notes[2] += " The paper gives no other figure than the mean over all thirteen."
    else:
        notes[2] += " The paper's is over the same data sets, computed from its rounded figures."
    partial = [f"{row.title} {cell.note}" for row in rows if (cell := cells[row.name, MEAN]).mark]
    return [*notes, *([f"‡ Fewer data sets: {'; '.join(partial)}"] if partial else [])]


# ---------------------------------------------------------------------- VI: summary
def rank(values: Mapping[str, float], *, better: Better) -> dict[str, str]:
    """Score learners by the rule of the paper's table VI.

    The best gets ++, the worst --, the others + or - if they are above or below the median. The
    paper does not define the rank of the median itself (with an odd number of learners): here it
    counts as above. Ties get the same.

    Parameters
    ----------
    values : mapping of learner to float
        Their results.
    better : "higher" or "lower"
        Which values are good.

    Examples
    --------
    >>> rank({"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.1}, better="higher")
    {'a': '++', 'b': '+', 'c': '-', 'd': '--'}
    """
    goods = {name: value if better == "higher" else -value for name, value in values.items()}
    levels = sorted(goods.values())

    def score(good: float) -> str:
        if good == levels[-1]:
            return "++"
        if good == levels[0]:
            return "--"
        return "+" if good >= median(levels) else "-"

    return {name: score(good) for name, good in goods.items()}


def table_summary(findings: PaperResults) -> Table:
    """Return table VI: the single trees, scored in four categories by `rank`.

    Examples
    --------
    >>> table_summary(PaperResults()).cells["vfdt-mc", "seconds"]
    Cell(ours=None, paper='++', note='not run', mark='')
    """
    trees = ("dmt", *TREES)
    run = [tree for tree in trees if any(learner == tree for _, learner in findings.summaries)]
    shared = [
        data_set
        for data_set in findings.run
        if all(findings.figure(data_set, tree, "f1") for tree in run)
    ]
    cells = {}
    for category, (_, better) in CATEGORIES.items():
        values = _averages(findings, category, run, shared)
        for tree in trees:
            other = "dmt-paper" if tree == "dmt" else "dmt"
            line_up = {name: value for name, value in values.items() if name != other}
            ours = rank(line_up, better=better).get(tree)
            theirs = published.SUMMARY[category, published_name(tree)]
            cells[tree, category] = Cell(ours, theirs, "" if ours else NOT_RUN)
    notes = [
        "DMT (driftree) is ranked in the place of DMT (paper's setting), so that each is one of "
        "the paper's six trees; the others are ranked beside the latter.",
        f"Ranked by the means over the data sets that all these trees ran on: "
        f"{', '.join(shared) or 'none'}; of these with known drift: "
        f"{', '.join(name for name in shared if name in KNOWN_DRIFT) or 'none'}.",
    ]
    return Table(
        number="VI",
        name="summary",
        caption="Summary (and the paper's): best ++, worst --, others + or - by the median",
        row_kind="learner",
        column_kind="category",
        rows=tuple(Head(tree, LEARNERS[tree].title) for tree in trees),
        columns=tuple(Head(name, title) for name, (title, _) in CATEGORIES.items()),
        cells=cells,
        notes=(*notes, *findings.notes()),
    )


def _averages(
    findings: PaperResults, category: str, trees: Iterable[str], data_sets: Iterable[str]
) -> dict[str, float]:
    """Return the result of each tree in a category; empty if no data set belongs to it."""
    name, used = category, list(data_sets)
    if category == "f1_drift":
        name, used = "f1", [data_set for data_set in used if data_set in KNOWN_DRIFT]
    figures = {tree: [findings.figure(data_set, tree, name) for data_set in used] for tree in trees}
    return {
        tree: average.mean
        for tree, parts in figures.items()
        if (average := _mean(parts)) and not math.isnan(average.mean)
    }
