"""What does each deviation bring? Every one is undone by an edit of the source, built and scored.

Each row of the table is this repository with one edit (below, in ABLATIONS), installed into a folder
of its own and scored by quality.py: F1 and splits (as the paper counts them), and the difference to the unchanged source. An
edit that no longer fits stops with an error, so that the table cannot silently measure nothing.

    DRIFTREE_DATA=folder python benchmarks/ablations.py --jobs 2
    DRIFTREE_DATA=folder python benchmarks/ablations.py --only arrival-order --rows 100000
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from options import names
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
STREAMS = ("electricity", "bank", "covertype", "sea", "agrawal", "hyperplane")


class Edit(NamedTuple):
    """Text in a file of src, and what takes its place."""

    file: str
    old: str
    new: str


class Ablation(NamedTuple):
    """A deviation, undone."""

    name: str
    setting: str
    edits: tuple[Edit, ...]


# fmt: off
# ruff: noqa: E501
ABLATIONS = (
    Ablation("none", "default", ()),
    Ablation("no-bends", "default", (
        Edit("driftree/learn/model_trials.py", "if self.max_bends == 0 or", "if self.max_bends >= 0 or"),)),
    Ablation("two-pieces", "default", (
        Edit("driftree/learn/constants.py", "curve_pieces: int = 4", "curve_pieces: int = 2"),)),
    Ablation("four-pieces", "default", (
        Edit("driftree/learn/constants.py", "most_levels: int = 16", "most_levels: int = 0"),)),
    Ablation("no-finer-curves", "default", (
        Edit("driftree/learn/constants.py", "most_codes: int = 64", "most_codes: int = 0"),)),
    Ablation("no-renewed", "default", (
        Edit("driftree/learn/constants.py", "renew_rows: float = 200", "renew_rows: float = math.inf"),)),
    Ablation("fixed-thresholds", "default", (
        Edit("driftree/learn/constants.py", "border_deviations: float = 0.5", "border_deviations: float = 0"),)),
    Ablation("no-sureness", "default", (
        Edit("driftree/learn/constants.py", "sureness_window: float = 500", "sureness_window: float = 0"),)),
    Ablation("half-curvature", "default", (
        Edit("driftree/learn/constants.py", "mean_curvature: bool = True", "mean_curvature: bool = False"),)),
    Ablation("variance-10", "default", (
        Edit("driftree/learn/constants.py", "variance: float = 1\n", "variance: float = 10\n"),)),
    Ablation("no-price", "default", (
        Edit("driftree/learn/constants.py", "split_price: float = 0.001", "split_price: float = 0"),)),
    Ablation("close-thresholds", "default", (
        Edit("driftree/learn/constants.py", "least_distance: float = 0.03", "least_distance: float = 0"),)),
    Ablation("one-memory", "default", (
        Edit("driftree/learn/constants.py", "short_memory: float = 1 / 3", "short_memory: float = 1"),)),
    Ablation("epsilon-14", "default", (
        Edit("driftree/learn/parameters.py", "epsilon: float = 1e-8", "epsilon: float = 1e-14"),)),
    Ablation("none", "straight", ()),
    Ablation("arrival-order", "straight", (
        Edit("kernels/chunk.hpp", "if (n == 1) return;", "for (int i = 0; i < n; i++) order_[i] = {0, i};\n        if (n > 0) return;"),)),
    Ablation("trace-cap", "straight", (
        Edit("kernels/blend.hpp", "is_large = state.trace > kMostTrace * variance * s.columns;",
             "is_large = state.trace > 1000.0 * s.columns;"),
        Edit("kernels/blend.hpp", "if (is_large) limit_diagonal(s, matrix, state, variance);",
             "if (is_large) {\n"
             "        state.scale *= 1000.0 * s.columns / state.trace;\n"
             "        state.trace = 1000.0 * s.columns;\n    }"),
        Edit("kernels/blend.hpp", "void limit_diagonal(", "[[maybe_unused]] void limit_diagonal("),)),
    Ablation("slow-floor", "straight", (
        Edit("driftree/learn/constants.py", "floor_first: float = 0.1", "floor_first: float = 0.01"),
        Edit("driftree/learn/constants.py", "floor_first_rows: float = 1000", "floor_first_rows: float = 10_000"),)),
    Ablation("no-floor", "straight", (
        Edit("driftree/learn/constants.py", "link_factor: float = 4", "link_factor: float = 1e300"),)),
    Ablation("sure-for-ever", "straight", (
        Edit("driftree/learn/constants.py", "most_sure: float = 20", "most_sure: float = 1e300"),
        Edit("kernels/trials.hpp", "most_floored_(-std::log(tree.models.rates.loss.floor.least))", "most_floored_(1e300)"),
        Edit("kernels/trials.hpp", "has_floor ? Model() : tree_.models[challenger.model]", "tree_.models[challenger.model]"),
        Edit("kernels/trials.hpp", "int take_exchange(int plain,", "int take_exchange(int,"),
        Edit("kernels/trials.hpp", "challenger.model = plain;",
             "made.twin.loss.has_floor = 0.0;\n"
             "            challenger.model = tree_.models.place(std::move(made.twin));"),
        Edit("kernels/model_tree.hpp", "made.has_floor ? std::exchange(nodes[0].model, -1) : -1", "-1"),)),
    Ablation("prune-first", "straight", (
        Edit("driftree/learn/tree.py", "if prune_excess >= replace_excess:", "if prune_excess >= 0:"),)),
    Ablation("present-split-on-trial", "straight", (
        Edit("driftree/learn/evidence.py", "and (p[1], p[2]) != present", ""),)),
    Ablation("one-trial", "straight", (
        Edit("driftree/learn/parameters.py", "trials: int = 3", "trials: int = 1"),)),
    Ablation("ten-bins", "straight", (
        Edit("driftree/learn/parameters.py", "bins: int = 64", "bins: int = 10"),)),
    Ablation("newton-alone", "straight", (
        Edit("kernels/blend.hpp", "state.preference = d > 8.0 ? 8.0 : (d < -8.0 ? -8.0 : d);",
             "state.preference = d > 8.0 ? 8.0 : 8.0;"),)),
    Ablation("adagrad-alone", "straight", (
        Edit("kernels/blend.hpp", "state.preference = d > 8.0 ? 8.0 : (d < -8.0 ? -8.0 : d);",
             "state.preference = d > 8.0 ? -8.0 : -8.0;"),)),
    Ablation("one-adagrad-pass", "straight", (
        Edit("driftree/learn/constants.py", "passes: int = 3", "passes: int = 1"),)),
    Ablation("trials-awake", "default", (
        Edit("driftree/learn/constants.py", "trial_rest_rows: float = 200", "trial_rest_rows: float = 1e300"),
        Edit("driftree/learn/constants.py", "model_rest_rows: float = 200", "model_rest_rows: float = 1e300"),
        Edit("driftree/learn/constants.py", "grid_rest_rows: float = 2000", "grid_rest_rows: float = 1e300"),)),
    Ablation("nothing-spared", "straight", (
        Edit("driftree/learn/constants.py", "restless_share: float = 0.5", "restless_share: float = 1e300"),)),
    Ablation("tau-16", "straight", (
        Edit("driftree/learn/parameters.py", "STRAIGHT_EPSILON = 1e-14", "STRAIGHT_EPSILON = 1e-7"),)),
    Ablation("no-fading", "straight", (
        Edit("driftree/learn/parameters.py", "evidence_window: float = 20000", "evidence_window: float = 1e12"),)),
    Ablation("none", "paper", ()),
    Ablation("arrival-order", "paper", (
        Edit("kernels/chunk.hpp", "if (n == 1) return;", "for (int i = 0; i < n; i++) order_[i] = {0, i};\n        if (n > 0) return;"),)),
    Ablation("gain-step-0.5", "paper", (
        Edit("driftree/learn/evidence.py", "gain_step=p.gain_step", "gain_step=0.5"),)),
)
# fmt: on

# An editable install redirects `import driftree` to itself, whatever PYTHONPATH says.
NO_REDIRECTION = """\
import sys

sys.meta_path[:] = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
"""


def change(folder: Path, edits: tuple[Edit, ...]) -> None:
    """Edit a copy of the source."""
    for edit in edits:
        path = folder / edit.file
        text = path.read_text()
        if text.count(edit.old) != 1:
            sys.exit(f"{edit.file} does not hold this text exactly once: {edit.old!r}")
        path.write_text(text.replace(edit.old, edit.new))


def install(edits: tuple[Edit, ...], folder: Path) -> Path:
    """Build an edited copy of the source; return the folder to import it from."""
    source = folder / "source"
    for name in ("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE"):
        source.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "LICENSES", source / "LICENSES")
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    change(source / "src", edits)
    site = folder / "site"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True)
    (site / "sitecustomize.py").write_text(NO_REDIRECTION)
    return site


def score(
    ablation: Ablation, options: argparse.Namespace, plain: Path
) -> dict[str, tuple[float, float]]:
    """Build and score one ablation; return F1 and splits per stream."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if any(edit.file.startswith("kernels/") for edit in ablation.edits):
            site = install(ablation.edits, folder)
        else:  # the kernels need not be built again
            site = Path(shutil.copytree(plain, folder / "site"))
            change(site, ablation.edits)
        command = [sys.executable, str(ROOT / "benchmarks" / "quality.py")]
        is_straight = ablation.setting == "straight"  # the default setting without bends
        command += ["--settings", "default" if is_straight else ablation.setting]
        command += ["--set", "max_bends=0"] if is_straight else []
        command += ["--streams", ",".join(options.streams)]
        command += ["--jobs", str(options.jobs), "--json", str(folder / "result.json")]
        command += ["--rows", str(options.rows)] if options.rows else []
        environment = {**os.environ, "PYTHONPATH": str(site)}
        where = [sys.executable, "-c", "import driftree.learn._kernels as k; print(k.__file__)"]
        kernels = subprocess.run(where, check=True, env=environment, stdout=subprocess.PIPE)
        if not kernels.stdout.decode().startswith(str(site)):
            sys.exit(f"measured would be {kernels.stdout.decode().strip()}, not what was built")
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        results = json.loads((folder / "result.json").read_text())["results"]
    return {result["stream"]: (result["f1"], result["n_paper_splits"]) for result in results}


def tabulate(scores: dict[tuple[str, str], dict[str, tuple[float, float]]]) -> Table:
    """Lay out F1 / splits, and the mean with its difference to the unchanged source."""
    streams = list(next(iter(scores.values())))
    table = Table(title="F1 / paper's splits when a deviation is undone", title_justify="left")
    table.add_column("setting")
    table.add_column("undone")
    for stream in (*streams, "mean F1", "difference"):
        table.add_column(stream, justify="right", no_wrap=True)
    for (setting, name), figures in scores.items():
        mean = sum(f1 for f1, _ in figures.values()) / len(figures)
        whole = scores.get((setting, "none"), figures)
        difference = mean - sum(f1 for f1, _ in whole.values()) / len(whole)
        cells = [f"{f1:.3f} / {splits:.1f}" for f1, splits in figures.values()]
        table.add_row(setting, name, *cells, f"{mean:.4f}", f"{difference:+.4f}")
    return table


def main() -> None:
    """Run the ablations."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=names(STREAMS), default=list(STREAMS))
    known = sorted({ablation.name for ablation in ABLATIONS})
    settings = sorted({ablation.setting for ablation in ABLATIONS})
    parser.add_argument("--settings", type=names(settings), default=settings)
    parser.add_argument("--only", type=names(known), help="some of: " + ", ".join(known))
    parser.add_argument("--rows", type=int, help="only the first rows of each stream")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    scores = {}
    with tempfile.TemporaryDirectory() as name:
        plain = install((), Path(name))
        for ablation in ABLATIONS:
            is_wanted = not options.only or ablation.name in ("none", *options.only)
            if is_wanted and ablation.setting in options.settings:
                Console(stderr=True).print(f"{ablation.setting}: {ablation.name}")
                scores[ablation.setting, ablation.name] = score(ablation, options, plain)
    Console(width=150).print(tabulate(scores))


if __name__ == "__main__":
    main()
