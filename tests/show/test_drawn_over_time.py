"""Pictures over time and of learners: what is drawn against the data, from lines to colours."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D

from driftree import DynamicModelTreeClassifier
from driftree.evaluate import summarise
from driftree.evaluate.records import by_learner, columns, slide
from driftree.explain.loss_over_time import loss_by_node, loss_course
from driftree.explain.over_time import gain_race, weights_over_time
from driftree.show.over_time import MINUS, plot_gain_race, plot_weights_over_time
from driftree.show.scores import MAX_POINTS, STYLES, plot_tradeoff
from driftree.show.style import text_on
from driftree.show.timeline import KINDS, RARE, plot_drift_by_level, plot_timeline
from picture_models import changing, records, texts_of, turning
from readable_models import many
from shifts import learn_deep, shift_and_back


def test_timeline_has_a_mark_for_every_change_in_its_lane():
    model = many()
    _, below = plot_timeline(model, drifts=[900])
    sizes = {}
    lanes = {kind: own for kind, own in KINDS.items() if kind not in RARE}
    for lane, (kind, (name, _, colour)) in enumerate(lanes.items()):
        own = [event for event in model.events_ if event.kind == kind]
        marks = below.collections[lane]
        places = [(event.n_rows, lane) for event in own]
        assert marks.get_offsets().tolist() == [list(place) for place in places]
        assert not own or to_hex(marks.get_facecolor()[0]).upper() == colour
        for event, size in zip(own, marks.get_sizes() if own else (), strict=True):
            sizes.setdefault(len(event.path), set()).add(float(size))
        assert below.get_yticklabels()[lane].get_text() == f"{name} ({len(own)})"
    assert all(len(own) == 1 for own in sizes.values())
    by_depth = [own.pop() for _, own in sorted(sizes.items())]
    assert by_depth == sorted(by_depth, reverse=True)
    assert by_depth[0] > 2 * by_depth[-1]
    assert len({marker for _, marker, _ in KINDS.values()}) == len(KINDS)
    assert all(marker in Line2D.filled_markers for _, marker, _ in KINDS.values())  # or it warns
    assert [name for name, _, _ in lanes.values()] == ["split", "replace", "prune", "restart"]


def test_bends_have_lanes_where_there_are_any():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(2000, 2))
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, abs(X[:, 0]) > 0.5)
    bends = [event.n_rows for event in model.events_ if event.kind == "bend"]
    assert bends
    _, below = plot_timeline(model)
    labels = [label.get_text() for label in below.get_yticklabels()]
    assert labels == [
        "split (0)",
        "replace (0)",
        "prune (0)",
        f"bend ({len(bends)})",
        "restart (0)",
    ]
    assert below.collections[3].get_offsets()[:, 0].tolist() == bends


def test_moved_thresholds_have_a_lane_where_there_are_any():
    model = learn_deep()
    there, back = shift_and_back(model)
    events = [event for event in model.events_ if event.kind == "shift"]
    _, below = plot_timeline(model)
    labels = [label.get_text() for label in below.get_yticklabels()]
    assert labels[2] == f"shift ({len(events)})"
    marks = below.collections[2].get_offsets().tolist()
    assert marks == [[event.n_rows, 2] for event in events]
    lines = plot_gain_race(model, node=0).lines
    places = [line.get_xdata()[0] for line in lines if line.get_color() == KINDS["shift"][2]]
    assert places[-2:] == [there.n_rows, back.n_rows]


def test_timeline_draws_the_losses_of_the_tree_and_of_its_root():
    model = changing()
    above, _ = plot_timeline(model, drifts=[9000])
    assert above.lines[0].get_xdata()[0] == 9000
    lines = {line.get_label(): line for line in above.lines}
    course = loss_course(model)
    samples = model._tree.history.samples
    tree, root = lines["the tree"], lines["one model (the root's)"]
    for line, losses in ((tree, course.tree), (root, [s.nodes[0].loss for s in samples])):
        np.testing.assert_array_equal(line.get_xdata(), [sample.n_rows for sample in samples])
        np.testing.assert_array_equal(line.get_ydata(), losses)
    assert np.nanmean(tree.get_ydata()) < np.nanmean(root.get_ydata())


def test_timeline_draws_the_learners_of_records():
    above, _ = plot_timeline(changing(), records(), window=5)
    assert above.get_ylabel() == "F1"
    words = [text.get_text() for text in above.get_legend().get_texts()]
    assert words == ["DMT (driftree)", "VFDT (MC)", "majority", "spread over batches"]
    courses = by_learner(records())
    for (name, own), line, shade in zip(
        courses.items(), above.lines, above.collections, strict=True
    ):
        assert line.get_color() == STYLES[name].colour
        values = columns(own)
        assert len(own) <= MAX_POINTS
        mean, std = slide(values["f1"], 5)
        np.testing.assert_array_equal(line.get_xdata(), values["n_rows"])
        np.testing.assert_array_equal(line.get_ydata(), mean)
        edges = shade.get_paths()[0].vertices
        assert edges[:, 1].max() == pytest.approx((mean + std).max())
        assert edges[:, 1].min() == pytest.approx(max((mean - std).min(), 0))


def test_race_draws_gains_what_they_need_and_the_change():
    model = changing()
    race = gain_race(model, 0)
    ax = plot_gain_race(model, node=0)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), race.n_rows)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), race.threshold)
    for line, gains in zip(ax.lines[1:], race.gains.values(), strict=False):
        drawn, known = line.get_ydata(), ~np.isnan(gains)
        np.testing.assert_array_equal(drawn[~np.isnan(drawn)], gains[known])
        np.testing.assert_array_equal(line.get_xdata()[~np.isnan(drawn)], race.n_rows[known])
    upright = {line.get_xdata()[0] for line in ax.lines if len(set(line.get_xdata())) == 1}
    assert {event.n_rows for event in race.events} <= upright
    assert ax.get_title(loc="left") == "The race at node 0"


def mesh_of(ax):
    [mesh] = [drawn for drawn in ax.collections if isinstance(drawn, QuadMesh)]
    low, high = mesh.get_clim()
    assert low == -high  # the middle is none
    return mesh


def tints(mesh, values):
    """Return the red, green and blue of values, as they are drawn."""
    return np.atleast_2d(mesh.cmap(mesh.norm(values)))[:, :3].T


def test_weights_are_a_mesh_with_flips_and_signs_marked():
    model = turning()
    course = weights_over_time(model)
    ax = plot_weights_over_time(model, max_features=2)
    mesh = mesh_of(ax)
    names = list(course.effects)[:2]
    effects = np.array([course.effects[name] for name in names])
    np.testing.assert_allclose(mesh.get_array().filled(np.nan), effects)
    assert mesh.get_clim()[1] == pytest.approx(np.nanquantile(np.abs(effects), 0.99))
    strong = effects[np.abs(effects) > 0.3 * mesh.get_clim()[1]]
    red, _, blue = tints(mesh, strong)
    assert np.array_equal(blue > red, strong > 0)  # blue: more likely
    assert np.ptp(np.sign(strong)) == 2
    marks = [line for line in ax.lines if line.get_marker() == "X"]
    edges = [0, *course.n_rows.tolist()]
    flips = [(edges[place], i) for i, name in enumerate(names) for place in course.flips[name]]
    assert flips
    assert [(mark.get_xdata()[0], mark.get_ydata()[0]) for mark in marks] == flips
    assert "the strongest 2 of 3 inputs" in " ".join(texts_of(ax))
    signs = [text for text in ax.texts if text.get_text() in ("+", MINUS)]
    for text in signs:
        x, lane = text.get_position()
        value = effects[lane, np.searchsorted(edges, x) - 1]
        assert (text.get_text() == "+") == (value > 0)
        assert text.get_color() == text_on(to_hex(mesh.to_rgba(value)))
    assert {text.get_text() for text in signs if text.get_position()[1] == 0} == {"+", MINUS}


def test_an_outlier_does_not_make_all_else_pale():
    model = turning()
    effects = np.concatenate(list(weights_over_time(model).effects.values()))
    ax = plot_weights_over_time(model)
    assert mesh_of(ax).get_clim()[1] < np.nanmax(np.abs(effects))
    assert mesh_of(ax).colorbar.extend == "both"  # and says so


def test_a_local_drift_is_a_part_of_a_column():
    model = changing()
    ax = plot_drift_by_level(model, drifts=[9000])
    mesh = mesh_of(ax)
    image = mesh.get_array().filled(np.nan)
    losses = loss_by_node(model)
    rows = sorted({seen.n_rows for seen in losses})
    roots = [seen.change for seen in losses if seen.node == 0]
    np.testing.assert_array_equal(image[:60], np.tile(roots, (60, 1)))
    place = next(i for i, row in enumerate(rows) if row > 9000)
    column = image[132:192, place]  # the third band: level 2
    assert 0.3 < np.mean(column > 0.1) < 0.7
    strong = image[np.abs(image) > 0.3 * mesh.get_clim()[1]]
    red, _, blue = tints(mesh, strong)
    assert np.array_equal(red > blue, strong > 0)  # orange: more loss
    assert np.ptp(np.sign(strong)) == 2
    assert "local" in ax.get_xlabel()
    assert 9000 in [line.get_xdata()[0] for line in ax.lines]


def test_what_is_not_known_has_lines_rather_than_a_colour():
    """The middle of the scale is almost white, and colours beside it almost grey."""
    ax = plot_drift_by_level(changing())
    assert np.isnan(mesh_of(ax).get_array().filled(np.nan)[:60, :3]).all()
    assert ax.patch.get_hatch()
    assert mesh_of(ax).cmap.get_bad()[3] == 0.0  # lets it through
    assert "hatched: too new to compare" in " ".join(texts_of(ax))
    assert plot_weights_over_time(changing()).patch.get_hatch()


def test_tradeoff_has_a_mark_for_every_learner():
    ax = plot_tradeoff(records())
    summary = summarise(records())
    for (name, own), drawn in zip(summary.items(), ax.containers, strict=True):
        mark, _, crosses = drawn.lines
        splits, f1 = own["n_splits"], own["f1"]
        assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (splits.mean, f1.mean)
        assert mark.get_marker() == STYLES[name].marker
        across, upright = (cross.get_segments()[0] for cross in crosses)
        left = splits.mean - min(splits.std, splits.mean)
        np.testing.assert_allclose(across[:, 0], [left, splits.mean + splits.std])
        np.testing.assert_allclose(upright[:, 1], [f1.mean - f1.std, f1.mean + f1.std])
        low, high = ax.get_xlim()
        assert low <= splits.mean <= high
    assert max(own["n_splits"].std for own in summary.values()) > 0
