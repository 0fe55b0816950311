"""The tree and its contributions: what is drawn against the data, from places to colours."""

import itertools

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch, Rectangle

from driftree import DynamicModelForestClassifier, DynamicModelTreeClassifier
from driftree.explain.over_time import outline
from driftree.show.contributions import plot_contributions
from driftree.show.style import DOWN, OTHERS, PALETTE, UP, write_signed
from driftree.show.tree_parts import MAX_LEAVES, hide_small
from driftree.show.trees import plot_tree
from picture_models import changing, explain_first, large, texts_of
from readable_models import just_split, learn, many, noisy, numbers, one_label


def colour_of(patch):
    return to_hex(patch.get_facecolor())


def rectangles(ax):
    return [patch for patch in ax.patches if isinstance(patch, Rectangle)]


def text_at(ax, x, y):
    """Return the text whose anchor is nearest to a place, of those on its height."""
    near = [text for text in ax.texts if abs(text.get_position()[1] - y) < 1e-6]
    return min(near, key=lambda text: abs(text.get_position()[0] - x))


def assert_bars(ax, bars, values):
    """A bar goes to its side, in its colour, with its signed number beyond its end."""
    assert len(bars) == len(values)
    for bar, value in zip(bars, values, strict=True):
        assert np.sign(bar.get_width()) == np.sign(value)
        assert colour_of(bar).upper() == (UP if value > 0 else DOWN)
        end = bar.get_x() + bar.get_width()
        number = min(
            (text for text in ax.texts if text.get_text()[:1] in "+-"),
            key=lambda text, bar=bar, end=end: (
                abs(text.get_position()[1] - (bar.get_y() + bar.get_height() / 2)) > 0.02,
                abs(text.get_position()[0] - end),
            ),
        )
        assert number.get_text() == write_signed(value)
        assert np.sign(number.get_position()[0] - end) == np.sign(value)


# ---------------------------------------------------------------------- numbers
def test_leaves_of_a_regressor_are_coloured_by_their_mean():
    model = numbers()
    ax = plot_tree(model)
    means = {leaf.leaf: leaf.mean for leaf in model.leaf_models()}
    stripes = [bar for bar in rectangles(ax) if bar.get_width() == pytest.approx(0.06)]
    assert len(stripes) == len(means) > 1
    light = {colour_of(bar): sum(bar.get_facecolor()[:3]) for bar in stripes}
    assert len(light) == len(means)
    ticks = [bar for bar in rectangles(ax) if bar.get_width() == pytest.approx(0.024)]
    assert [*np.argsort([bar.get_x() for bar in ticks])] == [*np.argsort(list(means.values()))]
    assert [*np.argsort(list(light.values()))] == [*np.argsort(list(means.values()))]
    words = texts_of(ax)
    assert not any("log-odds" in text or "label" in text for text in words)
    assert any(text.startswith("mean ") for text in words)


def test_contributions_to_a_number_lead_from_the_average_to_the_prediction():
    why = numbers().explain_one({"hour": 6.0, "temp": 20.0, "kind": "work"})
    ax = plot_contributions(why)
    bars = [bar for bar in rectangles(ax) if bar.get_height() == pytest.approx(0.66)]
    assert [bar.get_width() for bar in bars] == pytest.approx(list(why.contributions.values()))
    assert bars[0].get_x() == pytest.approx(why.intercept)
    assert bars[-1].get_x() + bars[-1].get_width() == pytest.approx(why.prediction)
    assert ax.get_xlim()[0] > 0  # the axis is where the numbers are
    assert ax.get_xlabel() == "y"
    assert f"Predicted: {why.prediction:.1f}, with" in ax.get_title(loc="left")
    with pytest.raises(ValueError, match="a number has no labels"):
        plot_contributions(why, label="y")


def test_contributions_of_a_forest_are_refused():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    forest = DynamicModelForestClassifier(n_trees=2).partial_fit(X, X[:, 0] * X[:, 1] > 0)
    with pytest.raises(TypeError, match=r"of a tree returns, got ForestExplanation: .* printed"):
        plot_contributions(forest.explain_one({"x0": 1.0, "x1": 1.0}))


# ---------------------------------------------------------------------- the tree
def effect_bars(ax):
    """Return the bars of effects: they all begin at the upright line of their card."""
    zeros = {round(line.get_xdata()[0], 6) for line in ax.lines}
    return [bar for bar in rectangles(ax) if round(bar.get_x(), 6) in zeros]


def shown_leaves(model):
    return [node for node in outline(model).values() if node.left < 0]


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
    bars = effect_bars(ax)
    assert_bars(ax, bars, effects)
    widths = [bar.get_width() for bar in bars]
    np.testing.assert_allclose(widths, np.array(effects) * (0.8 / np.abs(effects).max()))
    assert any("strongest 3 of" in text for text in words)


@pytest.mark.parametrize("model", [learn, changing, noisy])
def test_label_bars_divide_the_card_by_the_shares_of_labels(model):
    ax = plot_tree(model())
    colours = dict(zip(model()._tree.target.labels, (DOWN, UP), strict=True))  # the second is for
    bars = [bar for bar in rectangles(ax) if bar.get_height() == pytest.approx(0.16)]
    bars = iter([bar for bar in bars if bar.get_width() or colour_of(bar) != OTHERS])
    for leaf in shown_leaves(model()):
        for label, colour in colours.items():
            bar = next(bars)
            assert bar.get_width() == pytest.approx(1.65 * leaf.probabilities[label])
            assert colour_of(bar).upper() == colour
    assert next(bars, None) is None


def test_labels_have_their_colours_in_the_order_of_the_model():
    """Whatever is frequent: the next picture must not swap them."""
    for model in (large(), many()):
        ax = plot_tree(model)
        swatches = [bar for bar in rectangles(ax) if bar.get_width() == pytest.approx(0.12)]
        assert [colour_of(bar) for bar in swatches] == [c.lower() for c in (*PALETTE, OTHERS)]
        names = [text_at(ax, bar.get_x() + 0.17, bar.get_y() + 0.05) for bar in swatches[:-1]]
        numbers = [int(name.get_text().split()[-1]) for name in names]
        known = [int(label.split()[-1]) for label in model._tree.target.labels]
        assert numbers == sorted(numbers, key=known.index)
    assert not {UP, DOWN} & set(PALETTE)  # these say more and less likely


def ways(ax):
    """Return the drawn lines as (words at the start, at the end, written on it, line)."""
    found = []
    for line in ax.patches:
        if isinstance(line, PathPatch):
            (x, y), (end_x, end_y) = line.get_path().vertices[[0, -1]]
            start = text_at(ax, x, y - 0.085).get_text()
            end = _card_at(ax, end_x, end_y) or text_at(ax, end_x, end_y - 0.085).get_text()
            bend = line.get_path().vertices[3][0] - 0.05
            words = [text for text in ax.texts if text.get_position()[0] == pytest.approx(bend)]
            word = min(words, key=lambda text, y=end_y: abs(text.get_position()[1] - y))
            found.append((start, end, word.get_text(), line))
    return found


def _card_at(ax, x, y):
    for card in rectangles(ax):
        low, high = card.get_y(), card.get_y() + card.get_height()
        if card.get_x() == pytest.approx(x) and low < y < high and card.get_width() > 1:
            inside = [text for text in ax.texts if low < text.get_position()[1] < high]
            titles = [text.get_text() for text in inside if text.get_text().startswith("leaf ")]
            return titles[0]
    return None


@pytest.mark.parametrize("model", [learn, changing])
def test_rows_that_pass_go_to_the_left_child_and_lines_are_as_thick_as_their_share(model):
    nodes = outline(model())

    def name(node):
        return str(node.condition) if node.condition else f"leaf {node.node}"

    expected = {
        (name(node), name(nodes[child]), word): 0.8 + 10.2 * nodes[child].share
        for node in nodes.values()
        if node.left >= 0
        for child, word in ((node.left, "yes"), (node.right, "no"))
    }
    drawn = {
        (start, end, word): line.get_linewidth() for *(start, end, word), line in ways_of(model)
    }
    assert drawn == pytest.approx(expected)
    # rows that pass take the upper line
    for _, group in itertools.groupby(ways_of(model), key=lambda way: way[0]):
        ends = {way[2]: way[3].get_path().vertices[-1][1] for way in group}
        assert ends["yes"] < ends["no"]


def ways_of(model):
    return ways(plot_tree(model()))


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


def test_words_say_whose_effects_a_leaf_shows():
    most, strongest = "the leaf's most frequent label", "the label with the strongest effect"
    words = " ".join(texts_of(plot_tree(large())))
    assert f"{most} (without rows: {strongest}) gain when" in words
    words = " ".join(texts_of(plot_tree(large(), step=large().events_[-1].step)))
    assert f"log-odds of {strongest} gain when" in words
    assert "label True gain when" in " ".join(texts_of(plot_tree(changing())))


def test_one_leaf_is_drawn():
    assert "leaf 0" in texts_of(plot_tree(one_label()))


def test_of_leaves_without_rows_nothing_is_told_but_their_model():
    ax = plot_tree(just_split())
    words = texts_of(ax)
    assert words.count("no rows yet") == 2
    assert not any("%" in text for text in words if text != "100% of rows")
    assert "Dashed: not known yet." in " ".join(words)
    assert all(way[3].get_linestyle() != "-" for way in ways(ax))
    assert not [bar for bar in rectangles(ax) if bar.get_height() == pytest.approx(0.16)]
    assert all(way[3].get_linestyle() in ("-", "solid") for way in ways_of(changing))


# ---------------------------------------------------------------------- contributions
@pytest.mark.parametrize("max_features", [1, 2, 10])
@pytest.mark.parametrize("model", [changing, large])
def test_contributions_lead_from_the_average_row_to_this_one(model, max_features):
    explanation = explain_first(model())
    ax = plot_contributions(explanation, max_features=max_features)
    intercept, contributions = explanation.sums_of(None)
    values = list(contributions.values())
    n_shown = len(values) if len(values) <= max_features + 1 else max_features
    rest = values[n_shown:]
    expected = values[:n_shown] + ([sum(rest)] if rest else [])
    steps = rectangles(ax)
    assert_bars(ax, steps, expected)
    np.testing.assert_allclose([step.get_width() for step in steps], expected)
    ends = np.cumsum([intercept, *expected])
    np.testing.assert_allclose([step.get_x() for step in steps], ends[:-1])
    marks = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "D"]
    np.testing.assert_allclose(marks, ends[[0, -1]])
    for row, end in ((0, ends[0]), (len(steps) + 1, ends[-1])):
        assert text_at(ax, end, row).get_text() == write_signed(end)
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[1].startswith(f"{next(iter(contributions))} = "[:8])
    if rest:
        assert names[-2] == f"{len(rest)} weaker features"


def test_a_case_has_bars_to_both_sides():
    values = explain_first(changing()).contributions.values()
    assert min(values) < 0 < max(values)


def test_contributions_are_those_of_the_predicted_label_or_of_another():
    explanation = explain_first(large())
    other = next(label for label in explanation.intercept if label != explanation.prediction)
    for label in (None, other):
        chosen = explanation.prediction if label is None else label
        ax = plot_contributions(explanation, label=label)
        assert rectangles(ax)[0].get_x() == pytest.approx(explanation.intercept[chosen])
        start, _, end = ax.get_xlabel().partition("…")  # of the label only
        assert start.startswith("logit of a label")
        assert end.endswith(f"{chosen.split()[-1]}: to the right, more likely")


def test_bent_numbers_have_their_curve_beside_the_bar():
    X = np.random.default_rng(1).uniform(-1, 1, size=(2000, 2))
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, abs(X[:, 0]) > 0.5)
    [leaf] = model.leaf_models()
    [curves] = leaf.curves.values()
    ax = plot_tree(model)
    drawn = [line for line in ax.lines if line.get_gid() == "curve"]
    assert len(drawn) == len(curves) > 0
    for line, name in zip(drawn, leaf.effects[True], strict=True):
        curve = curves[name]
        knots = [curve.first, *(k for k in curve.knots if curve.first < k < curve.last), curve.last]
        heights = -np.asarray(line.get_ydata())  # downwards
        assert np.corrcoef(heights, [curve(knot) for knot in knots])[0, 1] == pytest.approx(1.0)
