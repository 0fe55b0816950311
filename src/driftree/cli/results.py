"""Results of `driftree run` and `compare`: the table on the screen, summary, plot and report."""

from __future__ import annotations

import math
from dataclasses import asdict
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import driftree
from driftree.cli.screen import write_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console
    from rich.table import Table

    from driftree.evaluate.quality import Paired, Quality
    from driftree.evaluate.records import Figure, Record
    from driftree.evaluate.runs import RunResult, RunSettings
    from driftree.explain import Drift


MODEL = "model.dmt"
LABELS = "labels.csv"
MOST_LABELS = 8  # that are listed
MOST_PARTS = 5  # parts of the stream, for label shares over time
SAID = {
    "classification": "F1: harmonic mean of weighted precision and recall. Macro F1, AUC, ECE: "
    "of all rows.",
    "regression": "R2: 0 is as good as the mean of the target so far, 1 is perfect.",
}


def conclude(
    console: Console,
    settings: RunSettings,
    folder: Path,
    records: list[Record],
    results: list[RunResult],
    measured: list[Record] | None = None,
) -> None:
    """Write summary and plot, and print the table.

    `measured` are the records with their costs, if those in the files are to be without.
    """
    from driftree.evaluate.quality import write_labels
    from driftree.evaluate.records import by_learner

    first = results[0]
    memory = {name: n_bytes for result in results for name, n_bytes in result.memory.items()}
    kept = memory if measured is None else {}
    _write_summary(folder / "summary.json", settings, records, results, kept)
    has_plot = _plot(folder / "plot.png", records, settings.source)
    console.print(_tabulate(measured or records, first.batch_rows, memory, console.width))
    n_batches = len({record.step for record in records})
    console.print(
        f"\nMeans over {n_batches:,} batch{'es' if n_batches > 1 else ''} of up to "
        f"{first.batch_rows:,} rows, ± the standard deviation over batches, predicted before "
        "learnt; "
        f"{SAID[settings.task]} Splits (inner "
        "nodes) and parameters: after each batch. Rows/s: CPU time, one thread. MB: at the end.",
        style="dim",
    )
    tell_quality(console, results, records)
    for pair in pair_learners(records):
        console.print(f"- {pair}", highlight=False, soft_wrap=True)
    if first.n_bad_rows:
        console.print(f"\n{first.n_bad_rows:,} malformed rows were skipped, the first:")
        for row in first.bad_rows[:3]:
            console.print(f"  {row}", soft_wrap=True)
    learners = {name: model for result in results for name, model in result.learners.items()}
    if len(learners) == 1:
        _tell_tree(console, *learners.values())
    has_model = (folder / MODEL).exists()
    files = ["records.csv", "summary.json"]
    if settings.task == "classification":
        write_labels(folder / LABELS, by_learner(records))
        files.append(LABELS)
    files += [MODEL] * has_model + ["plot.png"] * has_plot
    if _report(folder / "report.html", settings, records, first, learners):
        files.append("report.html")
    console.print(f"\n{folder}: {', '.join(files)}", soft_wrap=True)
    if not has_plot:
        console.print("No plot without matplotlib: pip install matplotlib", style="dim")


def save_model(folder: Path, settings: RunSettings, results: Iterable[RunResult]) -> None:
    """Save the model of a run of one of driftree's own learners; others have no file."""
    from driftree.evaluate import learners_for

    if len(settings.learners) == 1 and learners_for(settings.task)[settings.learners[0]].is_ours:
        for result in results:
            [model] = result.learners.values()
            model.save(folder / MODEL)


def _report(
    path: Path,
    settings: RunSettings,
    records: list[Record],
    result: RunResult,
    learners: dict[str, Any],
) -> bool:
    """Write the report of the first Dynamic Model Tree among the learners; False if none is."""
    from driftree.show.provenance import tell_run

    trees = [name for name in settings.learners if has_report(learners[name])]
    if not trees:
        return False
    driftree.report(
        learners[trees[0]],
        sorted(records, key=lambda record: record.learner != trees[0]),
        path,
        title=stem_of(settings.source),
        drifts=known_drifts(settings.source, result.n_rows),
        settings=tell_run(settings, result),
    )
    return True


def _tell_tree(console: Console, model: Any) -> None:
    """Print the final Dynamic Model Tree, its last changes and drifts."""
    if not has_report(model):
        return
    tree = model.best_tree().tree if hasattr(model, "best_tree") else model
    console.print(
        "\nThe tree at the end:\n" if tree is model else "\nThe best of its trees at the end:\n",
        style="bold",
    )
    text = driftree.export_text(tree, max_weights=4, width=console.width)
    console.print(text, soft_wrap=True)
    if model.events_:
        console.print("\nIts last changes:", style="bold")
        for event in model.events_[-3:]:
            console.print(f"- {event}")
    found = _drifts_of(model)
    if found:
        console.print("\nDetected drifts:", style="bold")
        for drift in found[-3:]:
            console.print(f"- {drift}")


def _drifts_of(model: Any) -> list[Drift]:
    """Return the drifts that a model has detected; none without a history."""
    from driftree.explain.changes import can_tell

    return list(model.drifts()) if can_tell(model) else []


def _write_summary(
    path: Path,
    settings: RunSettings,
    records: list[Record],
    results: list[RunResult],
    memory: dict[str, int | None],
) -> None:
    from driftree.evaluate.records import summarise
    from driftree.show.provenance import versions

    learners: dict[str, dict[str, Any]] = {}
    for learner, figures in summarise(records).items():
        learners[learner] = {
            name: {"mean": mean, "std": std} if math.isfinite(mean) else None
            for name, (mean, std) in figures.items()
            if name not in ("memory", "n_rows")
        }
        learners[learner]["memory_at_end"] = memory.get(learner)
    result = results[0]
    quality = {
        name: own.to_dict(one.labels) for one in results for name, own in one.quality.items()
    }
    what = {
        "settings": asdict(settings),
        "versions": versions(),
        "rows": result.n_rows,
        "batch_rows": result.batch_rows,
        "malformed_rows": result.n_bad_rows,
        "input": None if result.findings is None else result.findings.to_dict(),
        "learners": learners,
        "quality": quality,
        "drifts": {
            name: [drift.to_dict() for drift in found]
            for one in results
            for name, model in one.learners.items()
            if (found := _drifts_of(model))
        },
        "paired": [pair._asdict() for pair in pair_learners(records)],
    }
    write_json(path, what)


def _plot(path: Path, records: list[Record], source: str) -> bool:
    """Draw F1 and splits over time, and known drifts; False without matplotlib."""
    if find_spec("matplotlib") is None:
        return False
    from driftree.show.scores import plot_records
    from driftree.show.style import save_figure

    drifts = known_drifts(source, records[-1].n_rows)
    save_figure(plot_records(records, drifts=drifts, title=stem_of(source)), path)
    return True


def known_drifts(source: str, n_rows: int) -> list[tuple[int, int]]:
    """Return the known drifts of a data set within so many rows; files have none."""
    from driftree.streams import DATA_SETS

    if source not in DATA_SETS or Path(source).is_file():
        return []
    drifts = DATA_SETS[source].drifts
    return [(first, min(last, n_rows)) for first, last in drifts if first < n_rows]


def stem_of(source: str) -> str:
    """Return a short name of a source."""
    return "stdin" if source == "-" else Path(source).name.split(".")[0]


def _tabulate(
    records: Iterable[Record], batch_rows: int, memory: Mapping[str, int | None], width: int
) -> Table:
    """Lay out scores, size and speed of each learner; fewer columns on a narrow screen."""
    from rich import box
    from rich.table import Table

    from driftree.evaluate.learners import title_of
    from driftree.evaluate.records import by_learner, summarise

    rows = []
    for learner, group in by_learner(records).items():
        figures = summarise(group)[learner]
        steps = [start for start, _ in pairwise([0, *(record.n_rows for record in group)])]
        n_tested = sum(
            min(batch_rows, record.n_rows - start)
            for record, start in zip(group, steps, strict=True)
        )
        seconds = sum(record.seconds for record in group)
        n_bytes = memory.get(learner)
        rows.append(
            {"learner": title_of(learner)}
            | _first_scores(figures)
            | {
                "splits": _show(figures["n_splits"].mean, 1),
                "rows/s": _show(n_tested / max(seconds, 1e-9), 0),
            }
            | _more_scores(figures, _show(figures["n_parameters"].mean, 0))
            | {"MB": _show(float("nan") if n_bytes is None else n_bytes / 1e6, 1)}
        )
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    used = 0
    for name in rows[0]:  # the most important ones first
        used += 3 + max(len(name), *(len(row[name]) for row in rows))
        if used - 3 > width:
            break
        table.add_column(name, justify="left" if name == "learner" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*list(row.values())[: len(table.columns)])
    return table


def _first_scores(figures: Mapping[str, Figure]) -> dict[str, str]:
    """Return the scores that even a narrow screen shows."""
    if "f1" in figures:
        return {"F1": str(figures["f1"])}
    return {"MAE": figures["mae"].to_text(), "R2": _show(figures["r2"].mean, 2)}


def _more_scores(figures: Mapping[str, Figure], n_parameters: str) -> dict[str, str]:
    """Return the other scores, and parameters."""
    if "f1" not in figures:
        return {"RMSE": figures["rmse"].to_text(), "parameters": n_parameters}
    return {
        "accuracy": _show(figures["accuracy"].mean, 3),
        "macro F1": _show(figures["macro_f1"].mean, 3),
        "AUC": _show(figures["auc"].mean, 3),
        "parameters": n_parameters,
        "kappa": _show(figures["kappa"].mean, 3),
        "log loss": _show(figures["log_loss"].mean, 3),
        "ECE": _show(figures["ece"].mean, 3),
    }


def _show(figure: float, digits: int) -> str:
    return "-" if figure != figure else f"{figure:,.{digits}f}"  # noqa: PLR0124 (not a number)


def has_report(model: Any) -> bool:
    """Return whether a learner is a tree or a forest, which have reports."""
    from driftree.estimators import DynamicModelTree
    from driftree.forests import DynamicModelForest

    return isinstance(model, (DynamicModelTree, DynamicModelForest))


# ---------------------------------------------------------------------- labels, baseline, chance
def tell_quality(console: Console, results: list[RunResult], records: list[Record]) -> None:
    """Print the label shares, the accuracy of the majority, and recall and precision by label."""
    from driftree.evaluate.learners import title_of
    from driftree.evaluate.records import by_learner

    quality = {name: own for result in results for name, own in result.quality.items()}
    if not quality or not next(iter(quality.values())).n_rows:
        return
    first, names = next(iter(quality.values())), results[0].labels
    labels = sorted(first.labels(names), key=lambda one: -one.share)
    shares = ", ".join(f"{one.label!r} {one.share:.1%}" for one in labels[:MOST_LABELS])
    rest = f" and {len(labels) - MOST_LABELS} more" if len(labels) > MOST_LABELS else ""
    console.print(
        f"\nLabels: {shares}{rest}. Always predicting {labels[0].label!r} would have an accuracy "
        f"of {first.majority:.3f}.",
        highlight=False,
    )
    groups = by_learner(records)
    if over_time := _say_mix(groups[next(iter(quality))]):
        console.print(over_time, highlight=False)
    for name, own in quality.items():
        ece = groups[name][-1].ece
        words = f"- {title_of(name)}: {say_quality(own, names)}; calibration error {_show(ece, 3)}"
        console.print(words, highlight=False, soft_wrap=True)


def _say_mix(records: list[Record]) -> str:
    """Print the label shares over the stream; nothing if there are too few batches."""
    from driftree.evaluate.quality import label_blocks, names_in

    blocks = label_blocks(records, MOST_PARTS)
    if len(blocks) < MOST_PARTS:
        return ""
    shares = [{one.label: one.share for one in block.labels()} for block in blocks]
    each = ", ".join(
        f"{name} {' '.join(f'{100 * part.get(name, 0.0):.0f}' for part in shares)}"
        for name in names_in(blocks)[:MOST_LABELS]
    )
    return f"Over time, in % of each fifth of the stream: {each}."


def say_quality(quality: Quality, names: list[object]) -> str:
    """Return the figures of one learner over all rows, the rarest labels first."""
    labels = sorted(quality.labels(names), key=lambda one: one.share)
    each = "; ".join(
        f"{one.label!r} recall {_show(one.recall, 3)}, precision {_show(one.precision, 3)}"
        for one in labels[:MOST_LABELS]
        if one.share
    )
    auc = "" if quality.auc != quality.auc else f", AUC {quality.auc:.3f}"
    return f"macro F1 {quality.macro_f1:.3f}{auc}; {each}"


def pair_learners(records: list[Record]) -> list[Paired]:
    """Compare the best learner with each of the others, batch by batch."""
    from driftree.evaluate.quality import compare_paired
    from driftree.evaluate.records import by_learner

    groups = by_learner(records)
    is_label = records[0].task == "classification"
    scores = {
        name: [record.accuracy if is_label else record.mae for record in group]
        for name, group in groups.items()
    }
    sign = 1 if is_label else -1
    best = max(scores, key=lambda name: sign * sum(scores[name]) / len(scores[name]))
    return [
        compare_paired((best, scores[best]), (name, own), higher_is_better=is_label)
        for name, own in scores.items()
        if name != best and len(own) == len(scores[best])
    ]
