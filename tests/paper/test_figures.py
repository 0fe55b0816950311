"""The figures: what is drawn, not its pixels."""

import builtins
import math

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex

from driftree import evaluate, show
from driftree.evaluate.learners import LEARNERS
from driftree.evaluate.records import Record, slide
from driftree.paper.figures import TREES, figure_drift, figure_tradeoff
from driftree.show.scores import STYLES, plot_records
from driftree.show.style import save_figure


def make_records(learner, n_batches=60, level=0.8, n_splits=10):
    return [
        Record(
            learner=learner,
            step=step,
            n_rows=1000 * (step + 1),
            f1=level + 0.1 * math.sin(step),
            accuracy=level,
            kappa=0.0,
            log_loss=1.0,
            n_splits=None,
            n_paper_splits=n_splits,
            n_parameters=n_splits,
            n_nodes=n_splits,
            depth=1,
            predict_seconds=0.001,
            learn_seconds=0.001,
            memory=None,
        )
        for step in range(1, n_batches + 1)
    ]


def curves(panel):
    """Return the curves of learners; marks of drift have no markers."""
    return [line for line in panel.lines if line.get_marker() != "None"]


def shades(panel):
    return [shade for shade in panel.collections if isinstance(shade, PolyCollection)]


def legend_of(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.fixture
def results():
    return {
        (data_set, learner): make_records(learner, n_splits=n_splits)
        for data_set in ("electricity", "sea", "hyperplane")
        for learner, n_splits in (("dmt", 3), ("vfdt-mc", 300), ("arf3", 900))
    }


def test_drift_has_a_row_of_panels_for_each_data_set_that_drifts(results):
    drifts = {"sea": [20_000, (40_000, 40_000)], "hyperplane": [(0, 60_000)]}
    figure = figure_drift(results, drifts)
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert titles == ["Hyperplane (incremental drift)", "", "SEA (abrupt drift)", ""]
    for panel in figure.axes:
        assert len(curves(panel)) == len(shades(panel)) == 2  # not the ensemble
    hyperplane, _, sea, splits = figure.axes
    assert splits.get_yscale() == "symlog"
    for panel in (sea, splits):
        marks = [line.get_xdata()[0] for line in panel.lines if line not in curves(panel)]
        assert marks == [20_000, 40_000]
        assert not panel.patches
    [span] = hyperplane.patches
    assert (span.get_x(), span.get_width()) == (0, 60_000)
    assert legend_of(figure) == [
        "DMT (driftree)",
        "VFDT (MC)",
        "spread over batches",
        "abrupt drift",
        "incremental drift",
    ]


def test_curves_are_sliding_means_with_a_shade_of_one_deviation(results):
    records = results["sea", "dmt"]
    figure = figure_drift({("sea", "dmt"): records}, {}, window=5)
    [curve], [shade] = curves(figure.axes[0]), shades(figure.axes[0])
    mean, std = slide([record.f1 for record in records], 5)
    np.testing.assert_allclose(curve.get_xdata(), [record.n_rows for record in records])
    np.testing.assert_allclose(curve.get_ydata(), mean)
    corners = shade.get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx((mean + std).max())
    assert corners[:, 1].min() == pytest.approx((mean - std).min())


def test_long_courses_are_thinned_but_keep_their_ends():
    records = make_records("dmt", n_batches=1001)
    [curve] = curves(plot_records(records).axes[0])
    assert len(curve.get_xdata()) <= 250
    assert curve.get_xdata()[0] == records[0].n_rows
    assert curve.get_xdata()[-1] == records[-1].n_rows


def test_tradeoff_has_a_point_for_each_data_set_and_the_mean_of_shared_ones(results):
    results["gas", "dmt"] = make_records("dmt", n_splits=99)
    [panel] = figure_tradeoff(results).axes
    clouds = [cloud.get_offsets() for cloud in panel.collections]
    assert [len(cloud) for cloud in clouds] == [4, 1, 3, 1]
    assert clouds[1][0, 0] == 3  # gas, which the other did not run on, is left out
    assert clouds[3][0, 0] == 300
    assert panel.get_xscale() == "symlog"


def test_records_of_any_learners_can_be_drawn():
    records = [
        record
        for name in ("dmt", "mine", "yours")
        for record in make_records(name, n_splits=None if name == "mine" else 5)
    ]
    figure = plot_records(records, drifts=[10_000], title="My stream")
    assert legend_of(figure) == [
        "DMT (driftree)",
        "mine",
        "yours",
        "spread over batches",
        "abrupt drift",
    ]
    looks = {(line.get_color(), line.get_marker()) for line in curves(figure.axes[0])}
    assert len(looks) == 3
    assert figure.axes[0].get_title(loc="left") == "My stream"


def test_every_learner_has_a_look_of_its_own():
    assert set(STYLES) == set(LEARNERS)
    assert len({style.marker for style in STYLES.values()}) == len(STYLES)
    assert len({style.colour for style in STYLES.values() if style in map(STYLES.get, TREES)}) == 7
    assert all(to_hex(style.colour) == style.colour.lower() for style in STYLES.values())


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_figures_are_saved_by_suffix_and_the_same_each_time(results, suffix, tmp_path):
    for name in ("once", "again"):
        save_figure(figure_tradeoff(results), tmp_path / f"{name}{suffix}")
    once, again = (tmp_path / f"{name}{suffix}" for name in ("once", "again"))
    assert once.read_bytes() == again.read_bytes()


def test_texts_are_at_least_eight_points(results):
    figure = figure_drift(results, {"sea": [20_000]})
    figure.canvas.draw()
    texts = [*figure.legends[0].get_texts()]
    for panel in figure.axes:
        texts += [*panel.get_xticklabels(), *panel.get_yticklabels(), panel.xaxis.label]
    assert min(text.get_fontsize() for text in texts) >= 8


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_records([]), "no records"),
        (lambda: figure_drift({}, {}), "run one of hyperplane, sea"),
        (lambda: figure_tradeoff({}), "no results of any of dmt"),
        (lambda: save_figure(None, "figure.bmp"), "as .png, .svg or .pdf, got 'figure.bmp'"),
    ],
)
def test_errors_say_what_to_do(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_without_matplotlib_the_message_names_the_extra(monkeypatch):
    def fail(name, *arguments, **settings):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **settings)

    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", fail)
    with pytest.raises(ImportError, match=r"plots need matplotlib: pip install matplotlib"):
        plot_records(make_records("dmt"))


def test_evaluate_still_knows_its_pictures():
    assert evaluate.plot_records is show.plot_records
    assert evaluate.save_figure is show.save_figure
    with pytest.raises(AttributeError, match="no attribute 'plot_nothing'"):
        _ = evaluate.plot_nothing
