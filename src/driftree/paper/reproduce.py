"""From names of data sets and learners to the files of the paper's tables and figures.

`driftree paper` is made of these parts, and shows how far they have come.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from driftree.evaluate.learners import LEARNERS
from driftree.learn.storage.atomic import replace_text
from driftree.paper.experiments import STAND_INS, Experiment, Findings, Results
from driftree.paper.figures import TREES, figure_drift, figure_tradeoff
from driftree.paper.six_tables import make_tables
from driftree.paper.table_formats import WRITERS
from driftree.show.provenance import versions
from driftree.show.style import save_figure
from driftree.streams.catalogue import DATA_SETS
from driftree.streams.datasets import list_data_sets, load_data_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from driftree.paper.table_formats import Table


def find_data_sets(
    names: Iterable[str], download: Callable[[str], bool] | None
) -> tuple[list[str], dict[str, str]]:
    """Return the data sets that can be had, some in part, and why others cannot.

    Parameters
    ----------
    names : iterable of str
        Those of the paper that are wanted.
    download : callable or None
        Downloads one by its name, and returns whether it came.
    """
    status = {found.name: found for found in list_data_sets(DATA_SETS.values())}
    here, missing = [], {}
    for name in names:
        stand_in = STAND_INS.get(name, (name,))[0]
        if not status[name].found.startswith("not here"):
            here.append(name)
        elif not status[stand_in].found.startswith("not here"):
            here.append(stand_in)
        elif status[name].found == "not here: download" and download is not None:
            if download(name):
                here.append(name)
            else:
                missing[name] = "could not be downloaded"
        else:
            by_hand = status[name].found == "not here: by hand"
            missing[name] = "to be fetched by hand" if by_hand else "not here"
    return here, missing


def estimate_cost(experiment: Experiment) -> float:
    """Return about how long an experiment takes beside others, if nothing is remembered."""
    counts = DATA_SETS[experiment.data_set].counts
    n_rows = min(counts.n_rows, experiment.max_rows or counts.n_rows)
    return LEARNERS[experiment.learner].cost * n_rows * counts.n_features


def count_data_set(name: str) -> tuple[int, int, int, int | None]:
    """Return rows, features, classes and the rows of the most frequent class."""
    loaded = load_data_set(name)
    counts = np.unique(loaded.y, return_counts=True)[1]
    is_counted = DATA_SETS[name].counts.n_majority is not None
    majority = int(counts.max()) if is_counted else None
    return loaded.n_rows, len(loaded.feature_names), len(counts), majority


def write_tables(
    folder: Path, findings: Findings, *, note: str = ""
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


def sum_up(findings: Findings, results: Results) -> dict[str, Any]:
    """Return the means and deviations of all experiments, with versions, as data for JSON."""
    return {
        "versions": versions(),
        "missing": dict(findings.missing),
        "results": [
            {
                "data_set": data_set,
                "learner": learner,
                "rows": records[-1].n_rows,
                "batches": len(records),
                **{
                    name: [round(figure.mean, 6), round(figure.std, 6)]
                    for name, figure in findings.summaries[data_set, learner].items()
                    if name not in ("memory", "n_rows") and not math.isnan(figure.mean)
                },
            }
            for (data_set, learner), records in results.items()
        ],
    }


def draw_figures(folder: Path, results: Results) -> list[str]:
    """Draw figures 3 and 4, which show the stand-alone trees, for the screen and for print."""
    drifts = {name: list(record.drifts) for name, record in DATA_SETS.items() if record.drifts}
    data_sets = {data_set for data_set, learner in results if learner in TREES}
    figures = {}
    if data_sets & drifts.keys():
        figures["figure3"] = figure_drift(results, drifts)
    if data_sets:
        figures["figure4"] = figure_tradeoff(results)
    for name, figure in figures.items():
        for suffix in ("png", "pdf"):
            save_figure(figure, folder / f"{name}.{suffix}")
    return [f"{name}.{suffix}" for name in figures for suffix in ("png", "pdf")]
