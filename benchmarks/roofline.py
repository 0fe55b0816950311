"""How close are the kernels to what this machine can do? A roofline, kernel by kernel.

benchmarks/kernels/roofline.cpp measures the machine (multiply and add, divide and square root, the
exponential, the link, bytes of each level of memory) and the kernels, called directly; both are
compiled for the widest instruction set that is here. Models of the default setting learn eight side
by side, as in a leaf with three trials; the paper's is alone, as in a leaf of its tree. What a
kernel must do at least for a row is in `WORK`; the longest of its times at the machine's peaks is
its bound, and the bound over the time measured is the fraction reached. Padding to whole vectors is
not work, so it shows as a loss.

    python benchmarks/roofline.py            print, and write the tables in docs/speed.md
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import harness
import page

from driftree.learn import _kernels

STEP_ROWS = 200
MODELS = 8  # of the default setting, side by side
BUCKETS = 32  # of a feature with so many rows in a step
SIZES = [(10, 2), (50, 2), (200, 2), (54, 7)]  # features, classes
RESULTS = harness.ROOT / "benchmarks" / "results" / "roofline.json"


class Work(NamedTuple):
    """What a row costs at least: of one model, or of one node. Bytes are (read, written)."""

    flops: float
    near: tuple[float, float]  # bytes of L1
    far: tuple[float, float] = (0.0, 0.0)  # bytes of what is held
    held: float = 0.0  # bytes that must stay close: says which level of memory `far` comes from
    divisions: float = 0.0  # each with a square root, in single precision
    exponentials: float = 0.0  # and logarithms
    links: float = 0.0  # of which each waits for the one before


# c: columns, k: outputs, m: features, b: bins. A float has 4 bytes, a double 8.
WORK: dict[str, Callable[[int, int, int, int], Work]] = {
    # Two dot products per output; three links (Adagrad, Newton, blend) and two logarithms.
    "model forward": lambda c, k, m, b: Work(
        4 * k * c + 3 * k, (8 * (2 * k + 1) * c, 0), exponentials=3 * k + 2
    ),
    # A dot product and a link; then, per weight, g = r z; s += g g; w -= g / (sqrt(s) + eps).
    "Adagrad pass": lambda c, k, m, b: Work(
        8 * k * c,
        (8 * (2 * k + 1) * c, 16 * k * c),
        divisions=k * c,
        exponentials=k,
        links=1 / MODELS,
    ),
    # A dot product and a link; u = A x; x'u and u'u; W -= r u'; A -= v v': A is read twice and
    # written once.
    "Newton row": lambda c, k, m, b: Work(
        4 * c * c + 4 * k * c + 5 * c,
        near=(8 * (2 * k + 3) * c, 8 * (k + 2) * c),
        far=(16 * c * c, 8 * c * c),
        held=8 * c * c,
        exponentials=k,
        links=1 / MODELS,
    ),
    # Every value against every edge of its feature.
    "slots": lambda c, k, m, b: Work(m * (b - 1), (8 * m * (b - 1), 0)),
    # The gradient once, then added to the total and to one slot of every feature.
    "grid sums": lambda c, k, m, b: Work(
        (m + 2) * k * c,
        near=(4 * (m + 3) * k * c + 8 * c, 12 * k * c),
        far=(4 * m * k * c, 4 * m * k * c),
        held=4 * m * (b + 1) * k * c,
    ),
    "SGD forward": lambda c, k, m, b: Work(2 * k * c, (8 * (k + 1) * c, 0), exponentials=k + 1),
    "SGD row": lambda c, k, m, b: Work(4 * k * c, (8 * (k + 1) * c, 8 * k * c), links=1),
    # Per feature: every row's gradient r z is added to its bucket; of every bucket, the sums before
    # it and the squares of what is left and right of it.
    "candidate sums": lambda c, k, m, b: Work(
        m * k * c * (2 + 7 * BUCKETS / STEP_ROWS),
        near=(m * k * c * 24 * BUCKETS / STEP_ROWS, m * k * c * 16 * BUCKETS / STEP_ROWS),
        far=(8 * m * k * c, 0),
        held=8 * STEP_ROWS * c,
    ),
    # Per feature, if all values were looked at: left += r z; right = all - left; both squared and
    # summed.
    "candidate scan": lambda c, k, m, b: Work(
        7 * m * k * c,
        near=(16 * m * k * c, 8 * m * k * c),
        far=(8 * m * k * c, 0),
        held=8 * STEP_ROWS * c,
    ),
    # Row by row, of 3 m candidates: on which side the row lies, and bounds of the gain.
    "candidate bounds": lambda c, k, m, b: Work(33 * 3 * m, (84 * 3 * m, 56 * 3 * m)),
}


def bound(work: Work, machine: dict[str, Any]) -> tuple[float, str]:
    """Return the least seconds that the work can take, and what sets them."""
    peak = machine["per_second"]
    level = next((level for level in ("L1", "L2", "L3") if work.held <= machine[level]), "memory")
    times = {
        "multiply, add": work.flops / peak["multiply_add"],
        "divide, root": work.divisions / peak["divide_root"],
        "exponential": work.exponentials / peak["exponential"],
        "chain of links": work.links / peak["links"],
    }
    for place, (read, written) in (("L1", work.near), (level, work.far)):
        rate = peak[f"{'update' if written else 'read'}_{place}"]
        name = f"bytes of {place}"
        times[name] = times.get(name, 0.0) + (read + written) / rate
    name = max(times, key=lambda name: times[name])
    return times[name], name


def tabulate(measured: dict[str, Any]) -> str:
    """Lay out work, time, and the fraction of the bound, of every kernel and size."""
    body = []
    for kernel, work_of in WORK.items():
        for record in measured["kernels"]:
            if record["kernel"] != kernel:
                continue
            c, k, m, b = (record[name] for name in ("columns", "outputs", "features", "bins"))
            work = work_of(c, k, m, b)
            least, name = bound(work, measured)
            seconds = record["seconds"]
            body.append(
                [
                    kernel,
                    f"{m} x {1 if k == 1 else k}",
                    f"{work.flops:,.0f}",
                    f"{sum(work.near) + sum(work.far):,.0f}",
                    f"{1e9 * seconds:,.0f}",
                    f"{1e-9 * work.flops / seconds:.1f}",
                    f"{least / seconds:.0%}",
                    name,
                ]
            )
    head = ["kernel", "m x outputs", "flops", "bytes", "ns", "Gflop/s", "of the bound", "bound by"]
    return page.markdown(head, body)


def tabulate_machine(peak: dict[str, float]) -> str:
    """Lay out the machine's peaks."""
    units = {
        "multiply_add": ("multiply and add, from registers, not fused", "Gflop/s"),
        "divide_root": ("square root and division, in single precision", "G/s"),
        "exponential": ("exponential", "G/s"),
        "links": ("link of a row that waits for the row before", "G/s"),
    }
    for level in ("L1", "L2", "L3", "memory"):
        units[f"read_{level}"] = (f"read from {level}", "GB/s")
        units[f"update_{level}"] = (f"read and write back, {level}", "GB/s")
    body = [[words, f"{1e-9 * peak[name]:.3g} {unit}"] for name, (words, unit) in units.items()]
    return page.markdown(["peak of one core", "measured"], body)


def main() -> None:
    """Measure, print, and write."""
    instruction_set = _kernels.instruction_set()
    program = harness.build("roofline", instruction_set)
    words = [str(number) for size in SIZES for number in size]
    measured = json.loads(harness.run([str(program), *words]))
    measured["kernels"] = [record for record in measured["kernels"] if record]
    measured["instruction_set"] = instruction_set
    measured["made_by"] = harness.made_by()
    RESULTS.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    machine, table = tabulate_machine(measured["per_second"]), tabulate(measured)
    print(f"instruction set: {instruction_set}\n\n{machine}\n{table}")
    page.write_table("roofline_machine", "### The machine", machine)
    page.write_table("roofline", "### The kernels", table)


if __name__ == "__main__":
    main()
