"""How the benchmark's results are printed and written."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from speed_learners import BASE, MODES, NUMBER_BASE, ROWS
from speed_results import Ratio, Reached, Result, base_of, group_results
from speed_streams import SEED

import driftree
from driftree.learn import _kernels

CAPTION = f"""\
·: it knows single rows only; what stands under dict is its speed in every mode
-: it has no such mode, or no leaves
accuracy, leaves: in the last mode; slow learners get a block's first rows only (see the JSON)
where numbers are predicted, x is times {NUMBER_BASE}, and accuracy is R²"""
PACKAGES = ("river", "scikit-learn", "capymoa", "numpy", "pandas")


# ---------------------------------------------------------------------- tables
def print_table(table: Table) -> None:
    """Print a table as wide as it is: rather wrapped lines than cut figures."""
    width = Console(width=1000).measure(table).maximum
    Console(width=max(Console().width, width)).print(table)


def tabulate(results: Sequence[Result]) -> Table:
    """Lay out the results, a line per stream and learner; modes are columns."""
    raced = {result.mode for result in results}
    modes = [mode for mode in MODES if mode in raced or mode == "dict"]  # rows stand there too
    ends = list(dict.fromkeys((modes[0], modes[-1])))
    table = start_table(
        f"Rows per CPU-second, predict + learn; x: times {BASE}, median over blocks (range)",
        ["stream", "learner"],
        [f"rows/s\n{mode}" for mode in ends],
        [f"x\n{mode}" for mode in modes],
        ["accuracy", "leaves"],
    )
    table.caption = CAPTION
    for group in group_results(results):
        base = base_of(group)
        notes = iter(describe(base))
        for learner in dict.fromkeys(name for name, _ in group):
            found = {mode: result for (name, mode), result in group.items() if name == learner}
            last = next(reversed(found.values()))
            table.add_row(
                next(notes, ""),
                learner,
                *(show_mode(found, mode, show_speed) for mode in ends),
                *(show_mode(found, mode, partial(show_against, base)) for mode in modes),
                f"{last.accuracy:.3f}",
                "-" if last.n_leaves is None else f"{last.n_leaves:,}",
                style="bold" if learner.startswith("driftree") else "",
            )
        table.add_section()
    return table


def start_table(title: str, names: Sequence[str], *figures: Sequence[str]) -> Table:
    """Return an empty table with headings, of words and of figures."""
    table = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    table.padding = (0, 1, 0, 0)
    for heading in names:
        table.add_column(heading, no_wrap=True)
    for heading in chain(*figures):
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def describe(base: Result) -> list[str]:
    """Say of a stream what stands beside its first learners."""
    return [
        base.stream,
        f"{base.n_features} features",
        f"{base.n_classes} classes" if base.n_classes else "numbers",
        f"{len(base.seconds)} blocks",
        f"of {base.block_rows:,} rows",
    ]


def show_mode(found: dict[str, Result], mode: str, show: Callable[[Result], str]) -> str:
    """Write a figure of a learner in a mode, or why there is none."""
    if mode in found:
        return show(found[mode])
    if ROWS in found:
        return show(found[ROWS]) if mode == "dict" else "·"
    return "-"


def show_speed(result: Result) -> str:
    """Write the rows per second."""
    return show_count(result.rows_per_second())


def show_against(base: Result, result: Result) -> str:
    """Write the ratio to the base."""
    return "1" if result is base else show_ratio(result.against(base))


def show_count(value: float) -> str:
    """Write a large number with three digits, such as 41.2k."""
    for size, sign in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            value /= size
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}{sign}"
    return f"{value:.0f}"


def show_ratio(ratio: Ratio) -> str:
    """Say median and range, with two digits."""
    low, middle, high = (
        f"{value:.{2 if value < 0.995 else 1 if value < 9.95 else 0}f}".removeprefix("0")
        for value in ratio
    )
    return f"{middle} ({low}-{high})"


def tabulate_targets(targets: Sequence[Reached]) -> Table:
    """Lay out what was meant to be reached and what was."""
    table = start_table(
        "Targets: times the rival's rows per second, median over blocks (range)",
        ["learner", "mode", "stream", "rival"],
        ["reached", "floor", "aim"],
    )
    table.add_column("the median reaches")
    colours = {"aim": "green", "floor": "yellow", "below": "red"}
    for target in targets:
        verdict = target.verdict()
        table.add_row(
            target.learner,
            target.mode,
            target.stream,
            target.rival,
            show_ratio(target.ratio),
            f"{target.floor:g}",
            "-" if target.aim is None else f"{target.aim:g}",
            f"[{colours[verdict]}]{verdict}[/]",
        )
    return table


# ---------------------------------------------------------------------- JSON
def write_json(
    file: Path, sizes: dict[str, Any], results: Sequence[Result], targets: Sequence[Reached]
) -> None:
    """Write all figures, the seconds of each block included; a result is a line."""
    records = []
    for group in group_results(results):
        for result in group.values():
            figures = {
                "rows_per_second": result.rows_per_second(),
                "ratio": result.against(base_of(group))._asdict(),
            }
            records.append(result._asdict() | figures)
    head = {
        "versions": find_versions(),
        "instruction_set": _kernels.instruction_set(),
        "machine": platform.machine(),
        "seed": SEED,
        "base": BASE,
        **sizes,
    }
    reached = [target._asdict() | {"ratio": target.ratio._asdict()} for target in targets]
    lists = [
        f'"{name}": [\n  {join(records)}\n ]'
        for name, records in (("targets", reached), ("results", records))
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(head, indent=1)[:-2] + ",\n " + ",\n ".join(lists) + "\n}\n")


def join(records: Sequence[dict[str, Any]]) -> str:
    """Write one record per line."""
    return ",\n  ".join(json.dumps(record) for record in records)


def find_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are installed."""
    versions = {"python": platform.python_version(), "driftree": driftree.__version__}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # CapyMOA need not be here
            continue
    return versions
