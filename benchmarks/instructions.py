"""How many instructions does a row cost, kernel by kernel? Counts repeat where times do not.

The program benchmarks/kernels/instructions.cpp runs the engine on fixed rows under callgrind, which
knows AVX2 but not AVX-512: so the AVX2 kernels are counted. Counts depend on the compiler and on
the C library, which are kept with them.

    python benchmarks/instructions.py           count, write the figures and the table in the docs
    python benchmarks/instructions.py --check   compare with them; exits with 1: grown, 3: unknown
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import callgrind
import harness
import page

FIGURES = harness.ROOT / "benchmarks" / "results" / "instructions.json"
MOST_GROWTH = 0.10
LEAST_SHARE = 0.02  # of a workload: what is less is guarded by the total alone
REGENERATE = "if that is meant, run 'make instructions' and commit what it writes"

# What the workloads begin with, and their heading in docs/speed.md
SETTINGS = {
    "default": "### Instructions, default setting",
    "paper": "### Instructions, paper setting",
    "numbers": "### Instructions, a regressor",
}
Figures = dict[str, dict[str, float]]  # workload: kernel: instructions per row


class Workload(NamedTuple):
    """Rows to count, learnt in steps of the given size; few, since each is the same work."""

    setting: str
    features: int
    classes: int
    step_rows: int
    rows: int

    @property
    def name(self) -> str:
        """Return the name that the program gives it."""
        return "-".join(map(str, self[:4]))


WORKLOADS = [
    Workload(setting, *sizes)
    for setting in ("default", "paper")
    for sizes in (
        (3, 2, 1, 100),
        (3, 2, 200, 600),
        (10, 2, 200, 400),
        (50, 2, 200, 200),
        (200, 2, 50, 50),
        (54, 7, 100, 100),
    )
] + [
    Workload("numbers", *sizes)  # a regressor's, which has no classes
    for sizes in ((10, 0, 1, 100), (10, 0, 200, 400), (50, 0, 200, 200))
]


def count() -> Figures:
    """Count the instructions per row of every workload."""
    if shutil.which("valgrind") is None:
        raise harness.UnavailableError(
            "no valgrind: install it (Debian/Ubuntu: apt install valgrind)"
        )
    callgrind.check_names()
    program = harness.build("instructions", "avx2")
    with tempfile.TemporaryDirectory() as folder:
        words = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--dump-instr=yes"]
        words += [f"--callgrind-out-file={folder}/counted", str(program)]
        words += [str(word) for workload in WORKLOADS for word in workload]
        environment = os.environ | callgrind.ENVIRONMENT
        done = subprocess.run(words, check=False, capture_output=True, text=True, env=environment)
        if "SIGILL" in done.stderr:
            raise harness.UnavailableError(
                "valgrind cannot run AVX2 here: use a machine that has it"
            )
        if done.returncode:
            raise SystemExit(f"the harness failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
        parts = [callgrind.read_part(file) for file in Path(folder).glob("counted.*")]
    rows = {workload.name: workload.rows for workload in WORKLOADS}
    found = {part.name: part for part in parts}
    return {
        name: {"total": found[name].total / n}
        | {k: c / n for k, c in callgrind.count_by_kernel(found[name], program).items()}
        for name, n in rows.items()
    }


def compare(now: Figures, then: Figures) -> list[str]:
    """Say which kernels of which workloads cost more than they may."""
    grown = []
    for workload, kernels in now.items():
        for kernel, figure in kernels.items():
            if kernel == callgrind.OUTSIDE or figure < LEAST_SHARE * kernels["total"]:
                continue
            before = then.get(workload, {}).get(kernel, 0.0)
            if figure > (1 + MOST_GROWTH) * before:
                growth = f"{figure / before - 1:+.0%}" if before else "new"
                grown.append(f"{workload}: {kernel} {before:,.0f} -> {figure:,.0f} ({growth})")
    return grown


def read_figures() -> Figures:
    """Return the committed figures, if what made them is what is here."""
    kept = json.loads(FIGURES.read_text(encoding="utf-8"))
    here = harness.made_by()
    if kept["made_by"] != here:
        raise harness.UnavailableError(
            f"the figures were made by {', '.join(kept['made_by'].values())}, and here is "
            f"{', '.join(here.values())}: to compare, run 'make instructions' before the change, "
            "and 'python benchmarks/instructions.py --check' after it"
        )
    return kept["per_row"]


def check() -> None:
    """Exit with 1 if a kernel has grown, with 3 if that cannot be said here."""
    try:
        grown = compare(count(), read_figures())
    except harness.UnavailableError as reason:
        print(reason)
        sys.exit(3)
    if grown:
        print(f"instructions per row grew by more than {MOST_GROWTH:.0%}; {REGENERATE}:")
        print("\n".join(grown))
        sys.exit(1)


def tabulate(figures: Figures, setting: str) -> str:
    """Lay out the figures of a setting: a line per kernel, a column per workload."""
    columns = {
        workload.removeprefix(f"{setting}-"): kernels
        for workload, kernels in figures.items()
        if workload.startswith(setting)
    }
    shares = {
        kernel: max(column.get(kernel, 0) / column["total"] for column in columns.values())
        for kernel in dict.fromkeys(kernel for column in columns.values() for kernel in column)
    }
    body = [
        [kernel, *(f"{column.get(kernel, 0):,.0f}" for column in columns.values())]
        for kernel, share in sorted(shares.items(), key=lambda item: -item[1])
        if share >= 0.005
    ]
    return page.markdown(["kernel", *columns], body)


def main(arguments: Sequence[str] | None = None) -> None:
    """Count, and compare or write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    if parser.parse_args(arguments).check:
        check()
        return
    figures = {
        workload: {kernel: round(figure, 1) for kernel, figure in column.items()}
        for workload, column in count().items()
    }
    kept: dict[str, Any] = {"made_by": harness.made_by(), "per_row": figures}
    FIGURES.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    for setting, heading in SETTINGS.items():
        table = tabulate(figures, setting)
        print(f"{setting}: instructions per row (features-classes-rows of a step)\n{table}")
        page.write_table(f"instructions_{setting}", heading, table)


if __name__ == "__main__":
    main()
