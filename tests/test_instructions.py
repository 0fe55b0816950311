"""No kernel costs more instructions than the committed figures say: counts repeat, times do not."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def instructions():
    if not BENCHMARKS.exists():
        pytest.skip("the benchmarks are not part of the source distribution")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        import instructions

        yield instructions


@pytest.fixture(scope="module")
def figures(instructions):
    """What is counted now, and what is committed; skips where these do not compare."""
    harness = sys.modules["harness"]
    try:
        then = instructions.read_figures()
        return instructions.count(), then
    except harness.UnavailableError as reason:
        pytest.skip(str(reason))


def test_no_kernel_costs_more_than_it_did(instructions, figures):
    now, then = figures
    grown = instructions.compare(now, then)
    assert not grown, "\n".join([instructions.REGENERATE, *grown])


@pytest.mark.parametrize("setting", ["default", "paper", "numbers"])
def test_the_page_has_the_committed_figures(instructions, setting):
    figures = json.loads(instructions.FIGURES.read_text())["per_row"]
    assert instructions.tabulate(figures, setting) in (ROOT / "docs" / "speed.md").read_text()


@pytest.mark.parametrize(
    ("growth", "said"), [(1.09, []), (1.11, ["w: scan 100 -> 111 (+11%)"]), (0.5, [])]
)
def test_growth_is_noticed(instructions, growth, said):
    then = {"w": {"total": 1000.0, "scan": 100.0, "tiny": 1.0}}
    now = {"w": {"total": 1000.0, "scan": 100.0 * growth, "tiny": 9.0}}
    assert instructions.compare(now, then) == said


def test_a_new_kernel_needs_a_figure(instructions):
    then = {"w": {"total": 1000.0}}
    assert instructions.compare({"w": {"total": 1000.0, "scan": 50.0}}, then)


@pytest.mark.parametrize(
    ("name", "simple"),
    [
        ("driftree::(anonymous namespace)::times(driftree::Shape const&, double)", "times"),
        ("driftree::Engine::route()::{lambda(int)#1}::operator()(int) const", "Engine::route"),
        ("void driftree::(anonymous namespace)::fill<float>(float*)", "fill<>"),
    ],
)
def test_names_of_compiled_functions(instructions, name, simple):
    assert sys.modules["callgrind"].simple_name(name) == simple
