"""The pictures: what is drawn, that it fits, and that another content is another picture."""

import builtins
import functools
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.text import Text

from driftree import DynamicModelTreeClassifier
from driftree.evaluate import prequential, summarise
from driftree.evaluate.drawing import STYLES
from driftree.explain.course import gain_race, weights_over_time
from driftree.explain.losses import loss_by_node, loss_course
from driftree.explain.outline import outline
from driftree.show.contributions import plot_contributions
from driftree.show.course import plot_gain_race, plot_weights_over_time
from driftree.show.drift import plot_drift_by_level
from driftree.show.style import DOWN, MUTED, OTHERS, PALETTE, UP, cut, measure, text_on
from driftree.show.timeline import KINDS, plot_timeline
from driftree.show.tradeoff import plot_tradeoff
from driftree.show.tree_layout import MAX_LEAVES, hide_small
from driftree.show.trees import plot_tree
from driftree.streams import sea
from readable_models import MODELS, just_split, learn, many, one_label


# ---------------------------------------------------------------------- models
@functools.cache
def changing(seed=1):
    """Another rule for x0 > 0 after 9,000 rows; the rest stays."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(14_000, 4))
    y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    turned = (X[:, 0] > 0) & (np.arange(len(X)) >= 9000)
    y = np.where(turned, X[:, 2] > 0.6, y) ^ (rng.random(len(X)) < 0.05)
    model = DynamicModelTreeClassifier()
    for start in range(0, len(X), 200):
        model.partial_fit(X[start : start + 200], y[start : start + 200])
    return model


@functools.cache
def large():
    """50 features with long names, 20 labels, 40 leaves."""
    rng = np.random.default_rng(2)
    X = rng.uniform(size=(3000, 50))
    cell = np.floor(X[:, 0] * 6) + 7 * np.floor(X[:, 1] * 4) + 3 * np.floor(X[:, 2] * 3)
    labels = np.array([f"a label with quite some words in it, number {k}" for k in range(20)])
    y = labels[cell.astype(int) % 20]
    names = [f"a feature of $price_and a rather \\long{{ name, number {j}" for j in range(50)]
    model = DynamicModelTreeClassifier.paper(epsilon=1.0, gain_step=60.0, max_nodes=79)
    for rows in np.split(np.arange(len(X)), 60):
        model.partial_fit(dict(zip(names, X[rows].T, strict=True)), y[rows])
    assert model.n_leaves_ == MAX_LEAVES
    return model


@functools.cache
def turning():
    """What x0 says turns round slowly."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(16_000, 3))
    y = np.linspace(2, -2, len(X)) * X[:, 0] + X[:, 1] > rng.normal(scale=0.3, size=len(X))
    model = DynamicModelTreeClassifier()
    for start in range(0, len(X), 200):
        model.partial_fit(X[start : start + 200], y[start : start + 200])
    return model


def explain_first(model):
    names = model._encoder.feature_names
    return model.explain_one(dict(zip(names, np.linspace(-0.9, 0.9, len(names)), strict=True)))


@functools.cache
def records(names=("dmt", "vfdt-mc", "majority")):
    return list(prequential({name: name for name in names}, sea(6000)))


@functools.cache
def many_records():
    return list(prequential({f"{'a long name ' * 4}{i}": "majority" for i in range(12)}, sea(4000)))


PICTURES = {
    "tree": plot_tree,
    "contributions": lambda model: plot_contributions(explain_first(model)),
    "timeline": lambda model: plot_timeline(model, drifts=[1000, (1500, 2000)])[0],
    "race": plot_gain_race,
    "weights": plot_weights_over_time,
    "drift": lambda model: plot_drift_by_level(model, drifts=[1000]),
}


# ---------------------------------------------------------------------- looking at a picture
def render(ax, dpi=100):
    figure = ax.get_figure(root=True)
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba()).copy()


def lay_out(ax):
    figure = ax.get_figure(root=True)
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    return figure


def texts_of(ax):
    return [text.get_text() for text in ax.texts]


def visible_texts(figure):
    """Return the texts of a drawn figure with their boxes in pixels."""
    renderer = figure.canvas.get_renderer()
    beyond = set()  # labels of ticks outside the limits are there but not drawn
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not (axes.axison and low <= tick.get_loc() <= high):
                    beyond |= {tick.label1, tick.label2}
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    return {t: t.get_window_extent(renderer) for t in texts if t not in beyond}


def assert_readable(ax):
    """All texts are inside the figure, of 7 points or more, and none lies on another."""
    figure = lay_out(ax)
    found = visible_texts(figure)
    assert found
    assert min(text.get_fontsize() for text in found) >= 7
    words = [text.get_text() for text in found]
    x0, y0, x1, y1 = np.array([box.extents for box in found.values()]).T
    outside = np.max([-x0, -y0, x1 - figure.bbox.x1, y1 - figure.bbox.y1], axis=0)
    assert outside.max() <= 1, f"{words[outside.argmax()]!r} leaves the page"
    for i in range(len(words)):
        wide = np.minimum(x1[i], x1) - np.maximum(x0[i], x0)
        high = np.minimum(y1[i], y1) - np.maximum(y0[i], y0)
        # boxes are somewhat higher than letters
        over = (wide > 1) & (high > 0.25 * np.minimum(y1[i] - y0[i], y1 - y0))
        over[i] = False
        assert not over.any(), f"{words[i]!r} lies on {words[over.argmax()]!r}"


# ---------------------------------------------------------------------- all pictures
@pytest.mark.parametrize("model", [learn, changing, large, many])
@pytest.mark.parametrize("name", PICTURES)
def test_texts_fit_and_do_not_lie_on_each_other(name, model):
    assert_readable(PICTURES[name](model()))


@pytest.mark.parametrize("names", ["few", "many"])
def test_texts_of_comparisons_fit(names):
    taken = records() if names == "few" else many_records()
    assert_readable(plot_tradeoff(taken))
    assert_readable(plot_timeline(changing(), taken, drifts=[3000])[0])


@pytest.mark.parametrize("name", PICTURES)
def test_another_content_is_another_picture(name):
    first, again, other = (
        render(PICTURES[name](model)) for model in (changing(), changing(), changing(seed=5))
    )
    assert len(np.unique(first.reshape(-1, 4), axis=0)) > 10  # not blank
    assert np.array_equal(first, again)
    assert first.shape != other.shape or np.mean(first != other) > 0.002


@pytest.mark.parametrize("name", [name for name in PICTURES if name != "timeline"])
def test_axes_that_are_given_are_drawn_into(name):
    figure = Figure(figsize=(8, 4))
    panels = figure.subplots(1, 2)
    draw = {
        "tree": plot_tree,
        "contributions": lambda model, ax: plot_contributions(explain_first(model), ax=ax),
        "race": plot_gain_race,
        "weights": plot_weights_over_time,
        "drift": plot_drift_by_level,
    }[name]
    assert draw(changing(), ax=panels[1]) is panels[1]
    assert panels[1].has_data() or panels[1].texts
    assert not panels[0].has_data()


def test_nothing_is_left_in_pyplot():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for draw in PICTURES.values():
        draw(changing())
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize("name", MODELS)
def test_trees_of_all_kinds_are_drawn(name):
    model = MODELS[name]()
    lay_out(plot_tree(model))
    lay_out(plot_timeline(model)[0])


def test_without_matplotlib_the_message_names_the_extra(monkeypatch):
    def fail(name, *arguments, **settings):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **settings)

    real = builtins.__import__
    explanation = explain_first(changing())
    monkeypatch.setattr(builtins, "__import__", fail)
    for draw in (
        lambda: plot_tradeoff(records()),
        lambda: plot_timeline(changing()),
        lambda: plot_contributions(explanation),
        lambda: plot_tree(changing()),
    ):
        with pytest.raises(ImportError, match=r"pip install 'driftree\[plot\]'"):
            draw()


# ---------------------------------------------------------------------- names
@functools.cache
def alike():
    """Names and labels that are long and differ in the middle only, and labels that look alike."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(6000, 5))
    names = [f"a very long name of feature {k} with many words in it" for k in "abcde"]
    labels = [1, "1", *(f"a label with some words {k} and others after it" for k in "abcd")]
    codes = 3 * ((X[:, 0] > 0) ^ (X[:, 1] > 0)) + np.digitize(X[:, 2] + X[:, 3], [-0.5, 0.5])
    y = np.array(labels, dtype=object)[codes]
    return DynamicModelTreeClassifier().partial_fit(dict(zip(names, X.T, strict=True)), y)


def test_long_names_stay_distinct():
    model = alike()
    names = model._encoder.feature_names
    contributions = plot_contributions(model.explain_one(dict.fromkeys(names, 0.5)))
    assert len({text.get_text() for text in contributions.get_yticklabels()}) == 2 + len(names)
    weights = plot_weights_over_time(model)
    assert len({text.get_text() for text in weights.get_yticklabels()}) == len(names)
    entries = [text.get_text() for text in plot_gain_race(model, node=0).get_legend().get_texts()]
    assert len(set(entries)) == len(entries)


def test_names_in_a_tree_stay_distinct():
    ax = plot_tree(alike())
    words = texts_of(ax)
    assert all(any(f"{k} with" in text for text in words) for k in "abcde")
    assert {"1", "'1'"} <= set(words)
    labels = {text for text in words if text.startswith("a l") and "%" not in text}
    assert len(labels) == 4
    conditions = {node.condition for node in outline(alike()).values() if node.condition}
    features = {condition.feature for condition in conditions}
    assert len({text.split(" <= ")[0] for text in words if " <= " in text}) == len(features) > 1
    assert_readable(ax)


# ---------------------------------------------------------------------- the tree
def bars(ax):
    """Return the signed lengths of the effects' bars."""
    colours = {UP: 1, DOWN: -1}
    found = []
    for patch in ax.patches:
        sign = colours.get(to_hex(patch.get_facecolor()).upper())
        if isinstance(patch, Rectangle) and sign:
            assert np.sign(patch.get_width()) == sign
            found.append(patch.get_width())
    return np.array(found)


def test_tree_has_conditions_shares_labels_and_effects():
    model = learn()
    ax, nodes = plot_tree(model, max_weights=3), outline(model)
    words = texts_of(ax)
    effects = []
    for node in nodes.values():
        if node.condition is not None:
            assert str(node.condition) in words
            continue
        assert f"leaf {node.node}" in words
        label = max(node.probabilities, key=node.probabilities.get)
        assert any(f"{label} {node.probabilities[label]:.0%}" in text for text in words)
        effects += list(next(iter(node.effects.values())).values())[:3]
    np.testing.assert_allclose(bars(ax), np.array(effects) * (0.8 / np.abs(effects).max()))
    assert any("strongest 3 of" in text for text in words)


def test_lines_are_as_thick_as_the_share_of_rows():
    model = changing()
    lines = [patch for patch in plot_tree(model).patches if isinstance(patch, PathPatch)]
    shares = [
        outline(model)[child].share
        for node in outline(model).values()
        if node.left >= 0
        for child in (node.left, node.right)
    ]
    assert len(lines) == len(shares)
    widths = np.array([line.get_linewidth() for line in lines])
    np.testing.assert_allclose(widths, 0.8 + 10.2 * np.array(shares))


def test_a_large_tree_is_shown_in_part_and_says_so():
    model = many()
    hidden = hide_small(outline(model))
    words = texts_of(plot_tree(model))
    assert model.n_leaves_ > MAX_LEAVES
    cards = [text for text in words[1:] if text.startswith("leaf ") or text.endswith(" leaves")]
    assert len(cards) == MAX_LEAVES
    n_hidden = sum(hidden.values())
    assert any(f"{n_hidden} of the leaves" in text for text in words)
    assert len([card for card in cards if card.startswith("leaf ")]) == model.n_leaves_ - n_hidden


def test_the_tree_of_a_step_is_drawn():
    model = changing()
    for event in model.events_[:3]:
        words = texts_of(plot_tree(model, step=event.step))
        spots = model.tree_at(event.step).nodes.values()
        assert sum(text in ("yes", "no") for text in words) == len(spots) - 1
        assert all(str(spot.condition) in words for spot in spots if not spot.is_leaf)
        assert f"The tree after step {event.step}: {sum(s.is_leaf for s in spots)} " in words[0]


def test_small_trees_are_drawn():
    assert "leaf 0" in texts_of(plot_tree(one_label()))
    assert "no rows yet" in texts_of(plot_tree(just_split()))


# ---------------------------------------------------------------------- contributions
@pytest.mark.parametrize("max_features", [1, 2, 10])
def test_contributions_lead_from_the_average_row_to_this_one(max_features):
    explanation = explain_first(changing())
    ax = plot_contributions(explanation, max_features=max_features)
    values = list(explanation.contributions.values())
    steps = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    widths = [step.get_width() for step in steps]
    shown = values if len(values) <= max_features + 1 else values[:max_features]
    np.testing.assert_allclose(widths[: len(shown)], shown)
    assert sum(widths) == pytest.approx(sum(values))
    assert steps[0].get_x() == pytest.approx(explanation.intercept)
    ends = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "D"]
    assert ends == pytest.approx([explanation.intercept, explanation.intercept + sum(values)])
    names = [text.get_text() for text in ax.get_yticklabels()]
    first = next(iter(explanation.contributions))
    assert names[1].startswith(f"{first} = ")
    if len(shown) < len(values):
        assert names[-2] == f"{len(values) - len(shown)} weaker features"


def test_a_probability_of_nearly_1_is_not_called_100_percent():
    explanation = explain_first(changing())
    probabilities = dict.fromkeys(explanation.probabilities, 0.0004)
    sure = replace(explanation, probabilities=probabilities | {explanation.prediction: 0.9996})
    assert "probability 99.9%" in plot_contributions(sure).get_title(loc="left")


def test_contributions_are_those_of_the_predicted_label_or_of_another():
    explanation = explain_first(large())
    other = next(label for label in explanation.intercept if label != explanation.prediction)
    for label in (None, other):
        chosen = explanation.prediction if label is None else label
        ax = plot_contributions(explanation, label=label)
        first = next(patch for patch in ax.patches if isinstance(patch, Rectangle))
        assert first.get_x() == pytest.approx(explanation.intercept[chosen])
    assert "40 weaker features" in [text.get_text() for text in ax.get_yticklabels()]


# ---------------------------------------------------------------------- over time
def test_timeline_has_a_mark_for_every_change_in_its_lane():
    model = changing()
    above, below = plot_timeline(model, drifts=[9000])
    for lane, (kind, (_, _, colour)) in enumerate(KINDS.items()):
        own = [event for event in model.events_ if event.kind == kind]
        marks = below.collections[lane]
        places = [(event.n_rows, lane) for event in own]
        assert marks.get_offsets().tolist() == [list(place) for place in places]
        assert not own or to_hex(marks.get_facecolor()[0]).upper() == colour
    assert model.events_
    course = loss_course(model)
    np.testing.assert_array_equal(above.lines[1].get_ydata(), course.tree)
    assert above.lines[0].get_xdata()[0] == 9000
    assert len({marker for _, marker, _ in KINDS.values()}) == len(KINDS)


def test_timeline_draws_the_learners_of_records():
    above, _ = plot_timeline(changing(), records())
    assert above.get_ylabel() == "F1"
    words = [text.get_text() for text in above.get_legend().get_texts()]
    assert words == ["DMT (driftree)", "VFDT (MC)", "majority"]
    assert above.lines[0].get_color() == STYLES["dmt"].colour


def test_race_draws_gains_what_they_need_and_the_change():
    model = changing()
    race = gain_race(model, 0)
    ax = plot_gain_race(model, node=0)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), race.threshold)
    best = next(iter(race.gains.values()))
    drawn = ax.lines[1].get_ydata()
    np.testing.assert_array_equal(drawn[~np.isnan(drawn)], best[~np.isnan(best)])
    upright = {line.get_xdata()[0] for line in ax.lines if len(set(line.get_xdata())) == 1}
    assert {event.n_rows for event in race.events} <= upright
    assert ax.get_title(loc="left") == "The race at node 0"


def test_weights_are_a_mesh_with_flips_marked():
    model = turning()
    course = weights_over_time(model)
    ax = plot_weights_over_time(model, max_features=2)
    [mesh] = [drawn for drawn in ax.collections if isinstance(drawn, QuadMesh)]
    names = list(course.effects)[:2]
    np.testing.assert_allclose(
        mesh.get_array().filled(np.nan), [course.effects[name] for name in names]
    )
    low, high = mesh.get_clim()
    assert low == -high  # white is no effect
    marks = [line for line in ax.lines if line.get_marker() == "X"]
    edges = [0, *course.n_rows.tolist()]
    flips = [(edges[place], i) for i, name in enumerate(names) for place in course.flips[name]]
    assert flips
    assert [(mark.get_xdata()[0], mark.get_ydata()[0]) for mark in marks] == flips
    assert "the strongest 2 of 3 inputs" in " ".join(texts_of(ax))


def test_a_local_drift_is_a_part_of_a_column():
    model = changing()
    ax = plot_drift_by_level(model, drifts=[9000])
    [mesh] = [drawn for drawn in ax.collections if isinstance(drawn, QuadMesh)]
    image = mesh.get_array().filled(np.nan)
    rows = sorted({seen.n_rows for seen in loss_by_node(model)})
    place = next(i for i, row in enumerate(rows) if row > 9000)
    root = next(s for s in loss_by_node(model) if s.node == 0 and s.n_rows == rows[place])
    np.testing.assert_allclose(image[:60, place], root.change)
    column = image[132:192, place]  # the third band: level 2
    risen = np.mean(column > 0.1)
    assert 0.3 < risen < 0.7
    assert "local" in ax.get_xlabel()
    assert 9000 in [line.get_xdata()[0] for line in ax.lines]


def test_tradeoff_has_a_mark_for_every_learner():
    ax = plot_tradeoff(records())
    summary = summarise(records())
    marks = [line for line in ax.lines if line.get_marker() not in ("None", "_", "|")]
    for (name, own), mark in zip(summary.items(), marks, strict=True):
        assert mark.get_xdata()[0] == own["n_splits"].mean
        assert mark.get_ydata()[0] == own["f1"].mean
        assert mark.get_marker() == STYLES[name].marker
        low, high = ax.get_xlim()
        assert low <= own["n_splits"].mean <= high


# ---------------------------------------------------------------------- style
def contrast(one, other):
    def luminance(colour):
        parts = [
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)
        ]
        return np.dot([0.2126, 0.7152, 0.0722], list(parts))

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_words_can_be_told_from_what_they_stand_on():
    for colour in (*PALETTE, OTHERS):
        assert contrast(colour, text_on(colour)) >= 4.5
    for paper in ("white", "#f5f5f5", "#d9d9d9"):
        assert contrast(MUTED, paper) >= 4.5


@pytest.mark.parametrize("width", [0.3, 0.8, 2.0])
def test_texts_are_cut_to_their_room(width):
    for text in ("x", "a name of some length, number 17", "wide WWWWWWWWWWWWWWWWWWWWWWWWWW"):
        short = cut(text, width, 8)
        assert measure(short, 8) <= width or short == "…"
        assert short == text or "…" in short


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_tree(changing(), max_weights=-1), "max_weights must be at least 0, got -1"),
        (lambda: plot_timeline(changing(), []), "no records to draw"),
        (lambda: plot_tradeoff([]), "no records of a learner"),
        (lambda: plot_weights_over_time(changing(), max_features=0), "at least 1, got 0"),
        (
            lambda: plot_contributions(explain_first(changing()), label="?"),
            "with two labels the log-odds are those of True, got '\\?'",
        ),
        (lambda: plot_contributions(explain_first(large()), label="?"), "label must be one of"),
    ],
)
def test_errors_say_what_to_do(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_many_explanations_are_not_drawn_at_once():
    many = changing().explain(np.zeros((3, changing().n_features_in_)))
    with pytest.raises(TypeError, match=r"got those of 3 rows: pass explanations\[0\]"):
        plot_contributions(many)
