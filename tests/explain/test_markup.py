"""The tree in a notebook."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier
from driftree.explain.describe import leaf_models
from driftree.explain.markup import explanation_html, tree_html
from driftree.explain.rules import rules
from driftree.explain.text import write_number
from readable_models import FEEDS, MODELS, just_split, learn, many, noisy, numbers, one_label

ALL_MODELS = {**MODELS, "just split": just_split}


class Page(HTMLParser):
    """Tags and text of a fragment; fails where tags are not closed in order."""

    def __init__(self, fragment):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(fragment)
        self.close()
        assert self.open == []
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)


@pytest.mark.parametrize("make", ALL_MODELS.values(), ids=ALL_MODELS)
def test_a_fragment_of_known_tags_only(make):
    model = make()
    fragment = tree_html(model)
    page = Page(fragment)
    allowed = {"div", "style", "b", "ul", "li", "details", "summary", "small", "code", "span"}
    assert set(page.tags) <= allowed | {"i", "br"}
    assert {name for name, _ in page.attributes} <= {
        "class", "style", "open", "title", "role", "aria-label"
    }  # fmt: skip
    assert not re.search(r"url\(|@import|http|javascript:", fragment)
    assert page.tags.count("li") == page.tags.count("details") * 2 + 1
    shown = sorted(leaf_models(model), key=lambda leaf: -leaf.share)[:40]
    assert len([1 for name, value in page.attributes if value == "bar"]) == len(shown)
    assert f"{model.n_rows_seen_:,} row" in page.text


def test_text_from_data_stays_text():
    page = Page(tree_html(many()))
    assert "script" not in page.tags
    assert '<script>"' in page.text
    assert '"></b> label\\l ' in page.text
    titles = [value for name, value in page.attributes if name == "title"]
    assert any(re.fullmatch(r"(?s)<script>.*so on \d [<>].*", title) for title in titles)


def test_leaves_of_a_regressor_say_shares_means_and_weights():
    page = Page(tree_html(numbers()))
    for rule in rules(numbers()):
        assert f"mean {write_number(rule.mean, rule.unit)} {rule.share:.0%} of rows" in page.text
    assert "y: " in page.text
    assert "log-odds" not in page.text


def test_leaves_say_shares_labels_and_weights():
    page = Page(tree_html(learn()))
    for rule in rules(learn()):
        likely = max(rule.probabilities, key=rule.probabilities.get)
        words = f"{likely} {rule.probabilities[likely]:.0%} {rule.share:.0%} of rows"
        terms = ", ".join(f"{own.weight:+.3g} {own.name}" for own in rule.weights[True])
        words += f", since row {rule.since_row:,}" if rule.since_row else ""
        assert f"{rule.path[-1]}{words}log-odds of True: {terms}" in page.text
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", tree_html(learn()))]
    assert sum(widths) == pytest.approx(100 * learn().n_leaves_, abs=1)
    assert "of labels look random" in tree_html(noisy())
    assert "yes 100%" in Page(tree_html(one_label())).text


def test_too_many_leaves_are_folded_and_counted():
    model = many()
    assert model.n_leaves_ > 40
    text = Page(tree_html(model)).text
    assert f"{model.n_leaves_} leaves" in text
    assert "the 40 leaves with the most rows are shown" in text
    hidden = [int(n) for n in re.findall(r"(\d+) lea(?:f|ves) not shown", text)]
    assert sum(hidden) == model.n_leaves_ - 40
    assert "14 other labels" in text


def test_same_from_dicts_arrays_and_frames():
    assert len({tree_html(learn(feed)) for feed in FEEDS}) == 1


def test_notebooks_show_the_tree_above_the_parameters():
    model = DynamicModelTreeClassifier(max_depth=7)
    before = model._repr_html_()
    assert "driftree-tree" not in before
    assert "max_depth" in before
    model.partial_fit(np.eye(4), [0, 1, 0, 1])
    shown = model._repr_html_()
    assert shown.startswith(tree_html(model))
    assert "max_depth" in shown.removeprefix(tree_html(model))
    bundle = model._repr_mimebundle_()
    assert bundle["text/html"].startswith(tree_html(model))
    assert bundle["text/plain"] == repr(model)


def test_text_display_is_respected():
    with sklearn.config_context(display="text"):
        assert not hasattr(one_label(), "_repr_html_")
        assert set(one_label()._repr_mimebundle_()) == {"text/plain"}


def test_nothing_learnt_is_an_error():
    with pytest.raises(NotFittedError):
        tree_html(DynamicModelTreeClassifier())


@pytest.mark.parametrize("kind", ["numbers", "noisy"])
def test_an_explanation_shows_its_words_and_a_bar_for_each_contribution(kind):
    model = {"numbers": numbers, "noisy": noisy}[kind]()
    names = [name for name in model.feature_importance() if not name.startswith("last")]
    why = model.explain_one(dict.fromkeys(names, 1.0))
    fragment = why._repr_html_()
    page = Page(fragment)
    assert fragment == explanation_html(why)
    first, *_, last = str(why).splitlines()
    assert page.text.startswith(first)
    assert page.text.endswith(last)
    assert page.tags.count("tr") == str(why).count("\n    ") - str(why).count("\n    An average")
    widths = re.findall(r"width:([\d.]+)%;background", fragment)
    assert max(map(float, widths)) == 100


def test_an_explanation_escapes_what_comes_from_data():
    model = DynamicModelTreeClassifier()
    for x in range(60):
        model.learn_one({"<b>x": x}, "<i>" if x > 30 else "&")
    fragment = model.explain_one({"<b>x": 12})._repr_html_()
    Page(fragment)
    assert "<b>x" not in fragment
    assert "&lt;b&gt;x" in fragment


def test_counterfactuals_show_what_would_change():
    model = DynamicModelTreeClassifier()
    for x in np.random.default_rng(1).permutation(300).tolist():
        model.learn_one({"<b>x": x, "y": x % 7}, "<i>" if x > 150 else "&")
    ways = model.counterfactuals({"<b>x": 12, "y": 1}, n=2)
    for shown in (ways, ways[0]):
        fragment = shown._repr_html_()
        page = Page(fragment)
        assert "<b>x" not in fragment.replace("<b>&", "")
        assert "It would be '<i>'" in page.text
        assert page.text.count("now") == len(ways if shown is ways else [shown])
    [(name, (_, new))] = ways[0].changes.items()
    assert name in Page(ways[0]._repr_html_()).text
    assert str(new).rstrip("0").rstrip(".") in Page(ways[0]._repr_html_()).text
    assert str(ways).splitlines() == [str(way) for way in ways]
    nothing = model.counterfactual({"<b>x": 12, "y": 1}, fixed=["<b>x", "y"])
    assert Page(nothing._repr_html_()).text == str(nothing)
