"""All pictures: that they fit, that another content is another picture, and where they go."""

import builtins
import functools
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from driftree import DynamicModelTreeClassifier
from driftree.explain import outline
from driftree.show.contributions import plot_contributions
from driftree.show.over_time import plot_gain_race, plot_weights_over_time
from driftree.show.scores import plot_tradeoff
from driftree.show.style import DOWN, MUTED, OTHERS, PALETTE, UP, cut, measure, text_on
from driftree.show.timeline import plot_drift_by_level, plot_timeline
from driftree.show.trees import plot_tree
from picture_models import changing, explain_first, large, many_records, records, texts_of
from readable_models import MODELS, NUMBERS, learn, many, numbers, one_label, paper_numbers

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
@pytest.mark.parametrize("model", [learn, changing, large, many, numbers, paper_numbers])
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


@pytest.mark.parametrize("draw", [plot_tradeoff, lambda r: plot_timeline(changing(), r)[0]])
def test_other_records_are_another_picture(draw):
    first, again, other = (render(draw(taken)) for taken in (records(), records(), records()[::2]))
    assert np.array_equal(first, again)
    assert np.mean(first != other) > 0.002


def test_a_timeline_is_drawn_into_two_axes():
    figure = Figure(figsize=(8, 6))
    panels = figure.subplots(3, 1)
    drawn = plot_timeline(changing(), ax=panels[1:])
    assert drawn.tolist() == panels[1:].tolist()
    assert all(panel.has_data() for panel in panels[1:])
    assert not panels[0].has_data()
    with pytest.raises(ValueError, match="ax must be a pair of Axes"):
        plot_timeline(changing(), ax=panels)


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
    if name in NUMBERS:
        lay_out(plot_timeline(model)[0])
        with pytest.raises(ValueError, match=r"the records have no MAE, .* but f1, accuracy, "):
            plot_timeline(model, records())
    else:
        lay_out(plot_timeline(model, records())[0])


def few_rows(n_rows):
    X = np.random.default_rng(1).uniform(size=(n_rows, 2))
    model = DynamicModelTreeClassifier()
    for rows in (slice(100), slice(100, 200), slice(200, None)):
        if len(X[rows]):
            model.partial_fit(X[rows], X[rows, 0] > 0.5)
    return model


@pytest.mark.parametrize("name", ["timeline", "race", "weights", "drift"])
def test_before_the_first_sample_the_message_says_when_it_is_due(name):
    message = "no sample of .* yet: the next one is due at row 100, the model has learnt 50; learn"
    with pytest.raises(ValueError, match=message):
        PICTURES[name](few_rows(50))


@pytest.mark.parametrize("name", ["timeline", "race", "weights", "drift"])
def test_where_samples_end_early_the_picture_says_so(name):
    for n_rows, is_told in ((199, True), (201, False)):
        figure = lay_out(PICTURES[name](few_rows(n_rows)))
        words = " ".join(text.get_text() for text in visible_texts(figure))
        assert ("last sample at row 100" in words) == is_told


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
        with pytest.raises(ImportError, match=r"plots need matplotlib: pip install matplotlib"):
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
    names = model._tree.encoder.feature_names
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


def test_a_probability_of_nearly_1_is_not_called_100_percent():
    explanation = explain_first(changing())
    probabilities = dict.fromkeys(explanation.probabilities, 0.0004)
    sure = replace(explanation, probabilities=probabilities | {explanation.prediction: 0.9996})
    assert "probability 99.9%" in plot_contributions(sure).get_title(loc="left")


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
    for colour in (*PALETTE, OTHERS, UP, DOWN):
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
        (
            lambda: plot_contributions(explain_first(one_label())),
            "need at least two labels, the model has met 'yes' only",
        ),
    ],
)
def test_errors_say_what_to_do(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


def test_many_explanations_are_not_drawn_at_once():
    many = changing().explain(np.zeros((3, changing().n_features_in_)))
    with pytest.raises(TypeError, match=r"got those of 3 rows: pass explanations\[0\]"):
        plot_contributions(many)
