"""The report as a page: what a reader sees and does in a real browser."""

import base64
import re

import pytest

from browsing import (
    SIZES,
    find,
    focused,
    in_percent,
    key,
    number,
    press,
    text_of,
    texts,
    visible,
)
from driftree.evaluate import label_blocks
from driftree.explain.describe import leaf_model
from driftree.explain.text import write_number
from driftree.learn.events import join_path
from hostile import LABELS, N_ROWS, SCRIPT, TITLE, make_records

pytestmark = pytest.mark.usefixtures("quick_pace")


@pytest.mark.parametrize("name", ["whole", "folded", "without"])
def test_hostile_text_stays_text(page, name):
    opened = page(name)
    assert opened.title == " ".join(TITLE.split())
    assert text_of(opened, "h1") == TITLE
    assert [len(find(opened, tag)) for tag in ("script", "img", "b", "i")] == [2, 0, 0, 0]
    assert SCRIPT in text_of(opened, "#rules")
    assert LABELS[1] in text_of(opened, "#numbers")
    if name == "whole":
        assert "<b>other</b>" in text_of(opened, "#comparison")


@pytest.mark.parametrize("name", ["whole", "folded", "moved"])
def test_tree_replays_at_every_change(page, models, name):
    opened, model = page(name), models[name]
    first = model._tree.history.first_step
    for step in sorted({first, *(event.step for event in model.events_)}):
        structure = model.tree_at(step)
        expected = [
            {
                "node": spot.node,
                "parent": spot.parent,
                "depth": spot.depth,
                "condition": None if spot.condition is None else str(spot.condition),
                "left": spot.left,
                "right": spot.right,
                "since_step": spot.since_step,
                "since_row": spot.since_row,
            }
            for spot in structure.nodes.values()
        ]
        replayed = opened.execute_script("return treeAtStep(arguments[0])", step)
        assert [{name: spot[name] for name in expected[0]} for spot in replayed] == expected
        size = "return treeAfter(countUntilStep(arguments[0])).size"
        assert opened.execute_script(size, step) == len(expected)
        rules = [join_path(structure.path(node)) or "all rows" for node in structure.nodes]
        assert [spot["rule"] for spot in replayed] == rules


def test_leaves_of_a_regressor_show_means_errors_and_formulas(page, models):
    opened, rules = page("numbers"), models["numbers"].rules()
    cards = find(opened, "#tree .leaf")
    assert len(cards) == len(rules)
    for card, rule in zip(cards, rules, strict=True):
        assert write_number(rule.mean, rule.unit) in card.get_attribute("textContent")
    rail = (
        "const g = arguments[0].querySelector('.gauge .mean'); return Number(g.getAttribute('x1'))"
    )
    places = [opened.execute_script(rail, card) for card in cards]
    means = [rule.mean for rule in rules]
    assert sorted(range(len(rules)), key=places.__getitem__) == sorted(
        range(len(rules)), key=means.__getitem__
    )
    for rule in rules:
        opened.execute_script("chooseNode(arguments[0])", rule.leaf)
        words = text_of(opened, "#reading")
        assert write_number(rule.error, rule.unit) in words
        assert "y = " in words
        assert "what y gains when" in words
    seen = text_of(opened, "main")
    assert "log-odds" not in seen
    assert "label" not in seen
    assert write_number(rules[0].mean, rules[0].unit) in text_of(opened, "#rules")


def test_known_drifts_are_marked(page):
    opened = page("whole")
    titles = [text_of(opened, f"#timeline {tag}.drift") for tag in ("line", "rect")]
    assert titles == [f"Known drift at row {N_ROWS // 2:,}", "Known drift rows 100 to 200"]
    assert "known drift" in text_of(opened, "#legend")
    opened = page("folded")
    assert find(opened, "#timeline .drift") == []


def test_slider_moves_the_tree(page, models):
    opened, model = page("whole"), models["whole"]
    assert len(find(opened, "#tree .leaf")) == model.n_leaves_
    for share in (0.0, 0.31, 0.78, 1.0):
        row = round(N_ROWS * share)
        opened.execute_script(
            "const slider = document.getElementById('slider'); slider.value = arguments[0];"
            "slider.dispatchEvent(new Event('input'))",
            row,
        )
        structure = model.tree_at(max([0, *(e.step for e in model.events_ if e.n_rows <= row)]))
        drawn = [int(leaf.get_attribute("data-node")) for leaf in find(opened, "#tree .leaf")]
        assert drawn == structure.leaves()
        assert f"Row {row:,}" in text_of(opened, "#place")
        changes = sum(event.n_rows <= row for event in model.events_)
        assert f"{changes} of {len(model.events_)} changes" in text_of(opened, "#place")


def test_chosen_event_says_why(page, models):
    opened, events = page("whole"), models["whole"].events_
    opened.execute_script("goToRow(0)")
    assert "No change yet" in text_of(opened, "#reading")
    find(opened, f"#timeline [data-event='{len(events) - 1}']")[0].click()
    reading = text_of(opened, "#reading")
    assert " ".join(str(events[-1]).split()) in reading
    assert f"{events[-1].loss_before:,.1f}" in text_of(opened, "#reading table")
    changed = {int(node.get_attribute("data-node")) for node in find(opened, "#tree .changed")}
    last = events[-1]
    assert changed == {
        last.node,
        getattr(last, "left", last.node),
        getattr(last, "right", last.node),
    }
    find(opened, "#previous")[0].click()
    assert " ".join(str(events[-2]).split()) in text_of(opened, "#reading")
    find(opened, "#changes button")[-1].click()
    assert " ".join(str(events[0]).split()) in text_of(opened, "#reading")


def test_chosen_leaf_says_its_rule_weights_and_history(page, models):
    opened, model = page("whole"), models["whole"]
    now = model.tree_at(model._tree.engine.n_steps)
    rules = {rule.leaf: rule for rule in model.rules()}
    oldest = min(rules, key=lambda leaf: now.nodes[leaf].since_step)
    labels = [label for label, share in rules[oldest].probabilities.items() if share]
    [leaf] = [leaf for leaf in model.leaf_models() if leaf.leaf == oldest]
    find(opened, f"#tree .leaf[data-node='{leaf.leaf}']")[0].click()
    reading = text_of(opened, "#reading")
    assert " ".join(join_path(leaf.path).split()) in reading
    assert all(text in reading for text in (SCRIPT, *labels))
    assert f"has learnt {leaf.rows:,.0f}" in reading
    [weights] = leaf.weights.values()
    n_weights = sum(weight != 0 for weight in weights.values())
    n_curves = sum(map(len, leaf.curves.values()))
    assert len(find(opened, "#reading .weights path")) == n_weights + n_curves
    story = find(opened, "#reading .story button")
    numbers = [int(button.get_attribute("data-event")) for button in story]
    others = ("shift", "bend", "unbend", "memory")  # the nodes stay
    shaping = [n for n in numbers if model.events_[n].kind not in others]
    assert model.events_[shaping[0]].step == now.nodes[oldest].since_step
    assert numbers == sorted(numbers, reverse=True)
    story[0].click()
    assert " ".join(str(model.events_[numbers[0]]).split()) in text_of(opened, "#reading")


def test_chosen_inner_node_says_its_split_and_its_model(page, models):
    opened, model = page("whole"), models["whole"]
    tree, now = model._tree, model.tree_at(model._tree.engine.n_steps)
    names = opened.execute_script("return DATA.inputs")
    inner = [spot for spot in now.nodes.values() if not spot.is_leaf]
    assert inner
    for spot in inner:
        find(opened, f"#tree .split-node[data-node='{spot.node}']")[0].click()
        reading = text_of(opened, "#reading")
        assert f"Inner node {spot.node}, since row {spot.since_row:,}" in reading
        assert " ".join(str(spot.condition).split())[:100] in reading
        [made] = [
            event
            for event in model.events_
            if (event.step, event.node) == (spot.since_step, spot.node)
            and event.kind in ("split", "replace")
        ]
        assert " ".join(str(made).split()) in reading
        if made.runner_up is not None:
            assert "Next best" in reading
        own = leaf_model(tree, tree.encoder, spot.node, 1.0)
        effects = {name: value for name, value in own.effects[LABELS[1]].items() if value}
        [told] = opened.execute_script(
            "return DATA.splits.filter(({ node }) => node === arguments[0])", spot.node
        )
        found = {names[column]: value for _, column, value in told["weights"]}
        assert found == pytest.approx(dict(list(effects.items())[:6]), rel=1e-5)
        assert "Its own model" in reading
    opened.execute_script("goToChange(1)")
    opened.execute_script("chooseNode(EVENTS[0].node)")
    assert " ".join(str(model.events_[0]).split()) in text_of(opened, "#reading")
    assert "Its own model" not in text_of(opened, "#reading")  # known at present only


def test_chosen_inner_node_says_that_its_threshold_moved(page, models):
    opened, events = page("moved"), models["moved"].events_
    [first, *_] = [event for event in events if event.node == 0]
    for place, event in enumerate(events):
        opened.execute_script("goToChange(arguments[0])", place + 1)
        assert " ".join(str(event).split()) in text_of(opened, "#reading")
        if event.kind == "shift":
            assert text_of(opened, "#reading-title") == f"Threshold moved: {event.condition}"
            assert "moved" in text_of(opened, "#tree .badge.shift")
            opened.execute_script("chooseNode(0)")
            reading = text_of(opened, "#reading")
            assert f"Inner node 0, since row {first.n_rows:,}" in reading
            assert f"Splits by {event.condition}" in reading
            assert str(first) in reading
            assert str(event) in reading


def test_labels_over_time_are_those_of_the_records(page):
    opened = page("whole")
    figures = "Accuracy 0.750; always predicting the most frequent label so far has 0.600"
    assert figures in text_of(opened, "#labels-words")
    assert "macro F1 0.550, AUC 0.650." in text_of(opened, "#labels-words")
    [whole] = label_blocks(make_records("dmt"), most=1)
    told = [" ".join(row.split()) for row in texts(opened, "#found tbody tr")]
    assert told == [
        f"{one.label}{in_percent(one.share)}{one.recall:.3f}{one.precision:.3f}{one.f1:.3f}"
        for one in whole.labels()
    ]
    blocks = label_blocks(make_records("dmt"), most=60)
    assert len(blocks) == 60
    for block in (blocks[0], blocks[30], blocks[-1]):
        opened.execute_script("goToRow(arguments[0])", block.last)
        assert f"Rows {block.first + 1:,} to {block.last:,}:" in text_of(opened, "#confusion")
        cells = texts(opened, "#confusion td span")
        counts = [block.confusion[label][said] for label in LABELS for said in LABELS]
        assert [number(cell.split()[0]) for cell in cells if cell.strip()] == counts


def test_numbers_over_time_and_what_matters(page, models):
    opened = page("numbers")
    assert visible(opened, "#numbers-section, #labels-section") == [True, False]
    assert len(find(opened, "#means path.curve")) == 2
    for name in ("numbers", "whole"):
        opened = page(name)
        known = models[name].feature_importance()
        rows = texts(opened, "#importance tbody th")
        assert len(rows) == len(known)
        assert rows[0] == next(iter(known)) or "…" in rows[0]


def test_a_forest_needs_no_script(page, models):
    opened = page("forest")
    assert find(opened, "script, img") == []
    assert SCRIPT in text_of(opened, "main")
    look = models["forest"].looks_[-1]
    told = [row.split("%")[0] for row in texts(opened, "main table:first-of-type tbody tr")[:3]]
    assert told == [f"tree {i}{look.weights[i]:.2f}{look.agreement[i]:.1%}"[:-1] for i in range(3)]
    assert visible(opened, ".member") == [True, False, False]
    find(opened, "label[for=show2]")[0].click()
    assert visible(opened, ".member") == [False, False, True]


def test_history_of_leaf_is_that_of_the_nodes_above(page, models):
    """Ids are used again: what an earlier node of the same id went through is not the leaf's."""
    opened, events = page("whole"), models["whole"].events_
    made = {0: -1}
    for place, event in enumerate(events):
        made.update(dict.fromkeys((getattr(event, side, 0) for side in ("left", "right")), place))
        made[0] = -1
    now = models["whole"].tree_at(models["whole"]._tree.engine.n_steps)
    for leaf in now.leaves():
        path = [leaf]
        while path[-1] != 0:
            path.append(now.nodes[path[-1]].parent)
        expected = {made[node] for node in path} - {-1} | {
            place
            for place, event in enumerate(events)
            if event.node in path and place > made[event.node]
        }
        script = "return changesOnPath(treeAfter(EVENTS.length), arguments[0], EVENTS.length)"
        assert opened.execute_script(script, leaf) == sorted(expected)


def test_keyboard_is_enough(page, models):
    opened, events = page("whole"), models["whole"].events_
    press(opened, key("TAB"))
    assert focused(opened, "class") == "skip"
    press(opened, key("TAB"))
    assert focused(opened, "data-event") == str(len(events) - 1)
    press(opened, key("ARROW_LEFT"), key("ARROW_LEFT"), key("ENTER"))
    assert " ".join(str(events[-3]).split()) in text_of(opened, "#reading")
    assert focused(opened, "id") == "reading-title"
    press(opened, key("TAB"), key("ENTER"))
    assert focused(opened, "data-event") == str(len(events) - 3)
    press(opened, key("TAB"))
    assert focused(opened, "id") == "slider"
    press(opened, key("ARROW_RIGHT"))
    assert f"{len(events) - 1} of {len(events)}" in text_of(opened, "#place")
    press(opened, key("HOME"))
    assert text_of(opened, "#place").startswith("Row 0")
    press(opened, key("END"))
    for goal in ("previous", "next", "latest", "why"):
        press(opened, key("TAB"))
        assert focused(opened, "id") == goal
    press(opened, key("TAB"))
    assert "leaf" in focused(opened, "class")
    outline = "return getComputedStyle(document.activeElement.querySelector('.card')).strokeWidth"
    assert opened.execute_script(outline) == "3px"
    press(opened, key("HOME"), key("SPACE"))
    assert "Inner node 0" in text_of(opened, "#reading")
    assert focused(opened, "id") == "reading-title"
    press(opened, key("TAB"), key("ENTER"), key("END"), key("SPACE"))
    assert f"Leaf {models['whole'].leaf_models()[-1].leaf}" in text_of(opened, "#reading")
    press(opened, key("TAB"), key("ENTER"))
    assert focused(opened, "aria-pressed") == "true"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_fits_both_widths_and_schemes(page, size, scheme):
    for name in ("whole", "without", "large", "numbers", "forest"):
        opened = page(name, size, scheme)
        leaf = "chooseNode(Number(document.querySelector('.leaf').dataset.node))"
        split = "chooseNode(0)"
        scripts = ("", leaf, split, f"goToChange(EVENTS.length - 1); {leaf}")
        for script in scripts if name != "forest" else ("",):
            opened.execute_script(script)
            width = opened.execute_script("return document.documentElement.scrollWidth")
            assert width <= size[0]
        ground = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (int(re.search(r"\d+", ground)[0]) < 128) == (scheme == "dark")


def test_prints_light_and_without_controls(page, models):
    opened, model = page("large", scheme="dark"), models["large"]
    tree = model._tree.history.at(500)
    opened.execute_script("goToChange(countUntilStep(500))")
    pdf = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 20_000
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert visible(opened, "#slider, .buttons, #keys, .back") == [False] * 4
    assert visible(opened, "#rules, #reading, #code") == [True] * 3
    # a picture of many leaves cannot be read on paper: lines of text can
    lines = text_of(opened, "#tree .text-tree", spaces=True).split("\n")
    assert len(tree.leaves()) > 4
    assert len(lines) == len(tree.nodes)
    assert visible(opened, "#tree > svg, #tree > pre") == [False, True]
    ground = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_history_says_so(page):
    opened = page("without")
    assert "keeps no history" in text_of(opened, "main")
    assert "since row" not in text_of(opened, "#reading")
    find(opened, "#tree .leaf")[0].click()
    assert "Strongest weights" in text_of(opened, "#reading")
