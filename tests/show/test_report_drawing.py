"""What the page draws: lengths, sides, places and figures, against Python's numbers."""

import re

import numpy as np
import pytest

from browsing import (
    SIZES,
    attributes,
    boxes,
    click_at,
    find,
    focused,
    in_percent,
    number,
    text_of,
    texts,
)
from driftree.explain.describe import row_shares
from hostile import LABELS, N_ROWS

pytestmark = pytest.mark.usefixtures("quick_pace")

# A bar, the line that it starts from, and the cell with its number.
BARS = {
    "rules": ("#rules td:nth-child(4) li", ".number"),
    "reading": ("#reading .column:nth-child(2) tbody tr", "td:nth-child(2)"),
}


def effects_of(model):
    """The effects of each leaf's inputs, the strongest first, without those that are 0."""
    return {
        leaf.leaf: [effect for effect in leaf.effects[LABELS[1]].values() if effect]
        for leaf in model.leaf_models()
    }


def bent_of(model):
    """Whether each of these is drawn as a curve, since its line is bent."""
    return {
        leaf.leaf: [
            name in leaf.curves[LABELS[1]]
            for name, effect in leaf.effects[LABELS[1]].items()
            if effect
        ]
        for leaf in model.leaf_models()
    }


def check_bars(opened, rows, bent):
    """Each bar starts at the line, goes to the side of its sign, and is as long as its number."""
    measured = opened.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((row) => {"
        "const text = row.querySelector(arguments[1]).textContent;"
        "if (row.querySelector('.bar .bent')) return [text];"
        "const box = row.querySelector('.bar rect').getBoundingClientRect();"
        "const line = row.querySelector('.bar line').getBoundingClientRect();"
        "const room = row.querySelector('.bar').getBoundingClientRect().width;"
        "return [text, row.querySelector('.bar rect').getAttribute('class'),"
        "box.left - line.left, box.right - line.left, room / 2]})",
        *rows,
    )
    assert [len(bar) == 1 for bar in measured] == bent
    values = np.array([number(text) for text, *_ in measured])
    for value, (_, *bar) in zip(values, measured, strict=True):
        if bar:
            kind, left, right, room = bar
            assert kind == ("for" if value > 0 else "against")
            assert (right if value < 0 else left) == pytest.approx(0, abs=0.6)
            expected = max(1, room * abs(value) / abs(values).max())
            assert right - left == pytest.approx(expected, abs=0.6)
    return values


@pytest.mark.parametrize("name", ["whole", "shifted"])
def test_rules_and_reading_say_the_same_weights(page, models, name):
    opened, effects, bent = page(name), effects_of(models[name]), bent_of(models[name])
    told = check_bars(opened, BARS["rules"], [one for leaf in bent.values() for one in leaf[:3]])
    expected = [effect for leaf in effects.values() for effect in leaf[:3]]
    np.testing.assert_allclose(told, expected, rtol=6e-3)
    for leaf, own in effects.items():
        opened.execute_script("chooseNode(arguments[0])", leaf)
        told = check_bars(opened, BARS["reading"], [False] * len(own[:6]))  # curves stand below
        assert len(find(opened, "#reading .curve-part")) == sum(bent[leaf][:6])
        np.testing.assert_allclose(told, own[:6], rtol=6e-3)
        # over time: the strongest at present, and the strongest on average
        assert len(find(opened, "#reading .weights path")) == len(own)


def test_knots_have_as_many_digits_as_tell_them_apart(page):
    opened = page("whole")
    written = [
        ([10, 44.913, 90], ["10", "44.91", "90"]),
        ([122.4001, 122.4249, 122.4351], ["122.4", "122.42", "122.44"]),
        ([1700000060.2, 1700001014.8], ["1,700,000,000", "1,700,001,000"]),
        ([5, 5], ["5", "5"]),
    ]
    for knots, expected in written:
        assert opened.execute_script("return figures(arguments[0], 4)", knots) == expected


def test_cards_have_one_scale_and_the_strongest_weights(page, models):
    opened, model = page("whole"), models["whole"]
    effects, bent = effects_of(model), bent_of(model)
    assert any(one for leaf in bent.values() for one in leaf[:3])
    largest = max(abs(effect) for leaf in effects.values() for effect in leaf[:6])
    for leaf, own in effects.items():
        card = f"#tree .leaf[data-node='{leaf}'] .bar"
        assert len(find(opened, f"{card} .bent")) == sum(bent[leaf][:3])
        pairs = zip(own[:3], bent[leaf][:3], strict=True)
        straight = [effect for effect, is_bent in pairs if not is_bent]
        kinds = attributes(opened, f"{card} rect", "class")
        assert kinds == ["for" if effect > 0 else "against" for effect in straight]
        widths = [float(width) for width in attributes(opened, f"{card} rect", "width")]
        expected = np.maximum(1, 20 * np.abs(straight) / largest)
        np.testing.assert_allclose(widths, expected, rtol=1e-4)
        sides = zip(boxes(opened, f"{card} rect"), boxes(opened, f"{card} .axis"), strict=True)
        for (bar, line), effect in zip(sides, straight, strict=True):
            assert bar[0 if effect > 0 else 2] == pytest.approx(line[0], abs=0.6)


def test_shares_and_labels_are_told(page, models):
    opened, rules = page("whole"), models["whole"].rules()
    expected = [in_percent(rule.share) for rule in rules]
    assert texts(opened, "#rules td:nth-child(2) span") == expected
    assert texts(opened, "#tree .leaf > text.quiet:nth-of-type(2)") == expected
    for rule, cell in zip(rules, texts(opened, "#rules td:nth-child(3)"), strict=True):
        ranked = sorted(rule.probabilities.items(), key=lambda item: -item[1])
        assert cell == "".join(f"{name}{in_percent(p)}" for name, p in ranked if p)


def test_edges_are_as_wide_as_their_share_and_yes_is_left(page, models):
    opened, model = page("whole"), models["whole"]
    shares = row_shares(model._tree)
    children = [int(child) for child in attributes(opened, "#tree .edge", "data-child")]
    widths = [float(width) for width in attributes(opened, "#tree .edge", "stroke-width")]
    np.testing.assert_allclose(widths, [1.5 + 9 * shares[child] for child in children], atol=0.01)
    nodes = model.tree_at(model._tree.engine.n_steps).nodes
    places = opened.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('#tree .node')].map((node) => {"
        "const box = node.querySelector('rect').getBoundingClientRect();"
        "return [node.dataset.node, (box.left + box.right) / 2]}))"
    )
    answers = dict(zip(children, texts(opened, "#tree .answer"), strict=True))
    for spot in nodes.values():
        if not spot.is_leaf:
            assert places[str(spot.left)] < places[str(spot.node)] < places[str(spot.right)]
            assert (answers[spot.left], answers[spot.right]) == ("yes", "no")


def test_branches_of_new_leaves_are_not_thin(page, models):
    """Right after a split nothing is known of its leaves, but still of the branch they are in."""
    opened, model = page("whole"), models["whole"]
    found = 0
    for place, event in enumerate(model.events_):
        opened.execute_script("goToChange(arguments[0])", place + 1)
        nodes = model.tree_at(event.step).nodes
        is_last = place + 1 == len(model.events_) or model.events_[place + 1].step > event.step
        if event.kind != "split" or event.node == 0 or not is_last:
            continue
        edges = "return [...document.querySelectorAll('#tree .edge')].map((edge) => ["
        edges += "Number(edge.dataset.child), edge.classList.contains('unknown')])"
        unknown = dict(opened.execute_script(edges))
        above = nodes[event.node].parent
        sibling = nodes[above].left + nodes[above].right - event.node
        if unknown[event.left] and not unknown[sibling]:
            found += 1
            assert not unknown[event.node]
    assert found


def test_past_is_not_drawn_from_the_future(page, models):
    opened, history = page("whole"), models["whole"]._tree.history
    seen = 0
    for event in history.events:
        nodes = history.at(event.step).nodes
        side = getattr(event, "left", 0)
        seen_at = [
            sample
            for sample in history.samples
            if side in sample.nodes and sample.nodes[side].since_step == event.step
        ]
        if not side or not seen_at or nodes[side].since_step < event.step:
            continue
        first = seen_at[0]
        if first.n_rows <= event.n_rows:
            continue
        seen += 1
        opened.execute_script("goToRow(arguments[0]); chooseNode(arguments[1])", event.n_rows, side)
        reading = text_of(opened, "#reading")
        assert f"first sampled at row {first.n_rows:,}" in reading
        assert "has learnt" not in reading
        assert "its weights are from then" in reading
        card = text_of(opened, f"#tree .leaf[data-node='{side}']")
        assert "as of row" in card
        opened.execute_script("goToRow(arguments[0]); chooseNode(arguments[1])", first.n_rows, side)
        if text_of(opened, "#reading .kicker").startswith(f"Leaf {side},"):
            rows, others = first.nodes[side].rows, first.nodes[event.right].rows
            words = f"has learnt {rows:,.0f} of them" if rows + others else "has seen no rows yet"
            assert words in text_of(opened, "#reading")
    assert seen > 3


def test_event_tells_losses_gains_and_rows(page, models):
    opened = page("whole")
    for place, event in enumerate(models["whole"].events_):
        opened.execute_script("goToChange(arguments[0])", place + 1)
        is_saving = event.kind == "prune" and event.threshold <= 0
        sign = -1 if is_saving else 1
        figures = [event.loss_before, event.loss_after, sign * event.gain, sign * event.threshold]
        runner = [] if event.runner_up is None else [event.runner_up.gain]
        cells = texts(opened, "#reading td")
        expected = [f"{figure + 0.0:,.1f} nats" for figure in figures + runner]
        expected.insert(4, f"{event.rows:,.0f} row{'' if round(event.rows) == 1 else 's'}")
        shown = [number(cell.split()[0]) for cell in cells]
        np.testing.assert_allclose(
            shown, [float(cell.split()[0].replace(",", "")) for cell in expected], atol=0.1001
        )
        assert [cell.split()[1] for cell in cells] == [cell.split()[1] for cell in expected]
        bars = figures[2:] + ([] if is_saving else runner)
        widths = [float(width) for width in attributes(opened, ".gain rect", "width")]
        span = max(0, *bars) - min(0, *bars)
        expected = [max(1.5, 200 * abs(figure) / span) for figure in bars]
        np.testing.assert_allclose(widths, expected, rtol=1e-3)


# ---------------------------------------------------------------------- the timeline
def scale_of(opened, selector, axis):
    """Where the ticks' texts say that a value lies: slope and start."""
    ticks = opened.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((tick) => "
        "[tick.textContent, Number(tick.getAttribute(arguments[1]))])",
        selector,
        axis,
    )
    known = [(text, place) for text, place in ticks if re.match(r"[\d.]", text)]
    factor = {"k": 1e3, "M": 1e6}
    values = [float(t.split()[0].replace(",", "")) * factor.get(t.split()[-1], 1) for t, _ in known]
    return np.polyfit(values, [place for _, place in known], 1)


def test_marks_and_curves_lie_where_the_axes_say(page, models):
    opened = page("whole")
    lines = sorted({line[0] for line in boxes(opened, "#timeline .tick")})
    marks = attributes(opened, "#timeline .mark", "transform")
    x = np.array([float(re.search(r"\(([\d.]+)", mark)[1]) for mark in marks])
    rows = np.array([event.n_rows for event in models["whole"].events_])
    texts_at = attributes(opened, "#timeline .axes text[text-anchor]", "x")
    slope, start = scale_of(opened, "#timeline .axes text[text-anchor]", "x")
    assert slope > 0
    assert len(lines) == len(texts_at)
    np.testing.assert_allclose(x, start + slope * rows, atol=0.1)
    for number_, kind in enumerate(event.kind for event in models["whole"].events_):
        assert kind in attributes(opened, f"#timeline [data-event='{number_}']", "class")[0]

    curves = opened.execute_script("return DATA.curves")
    slope_y, start_y = scale_of(opened, "#timeline .curves text[text-anchor]", "y")
    assert slope_y < 0  # the better, the higher
    paths = attributes(opened, "#timeline .curves path", "d")
    for curve, path in zip(reversed(curves), paths, strict=True):
        drawn = np.array([list(map(float, p.split(","))) for p in re.findall("[ML]([^ML]+)", path)])
        known = [(r, v) for r, v in zip(curve["rows"], curve["values"], strict=True) if v]
        np.testing.assert_allclose(drawn[:, 0], start + slope * np.array(known)[:, 0], atol=0.1)
        y = start_y - 4 + slope_y * np.array(known)[:, 1]  # a text stands 4 px below its line
        np.testing.assert_allclose(drawn[:, 1], y, atol=0.2)
    [line] = boxes(opened, "#timeline .cursor line")
    opened.execute_script("goToRow(arguments[0])", N_ROWS // 2)
    [moved] = boxes(opened, "#timeline .cursor line")
    assert line[0] - moved[0] == pytest.approx(slope * N_ROWS / 2, abs=1)


# ---------------------------------------------------------------------- to click and to read
@pytest.mark.parametrize("size", SIZES)
def test_what_is_chosen_comes_into_view_with_the_focus(page, size):
    opened = page("large", size)
    opened.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]},
    )
    for selector in ("#timeline .mark", "#tree .leaf", "#rules button", "#changes button"):
        opened.execute_script(
            "const part = document.querySelectorAll(arguments[0]);"
            "part[part.length - 1].dispatchEvent(new MouseEvent('click', {bubbles: true}))",
            selector,
        )
        [(_, top, _, bottom)] = boxes(opened, "#reading-title")
        assert top >= 0
        assert bottom < size[1]
        assert focused(opened, "id") == "reading-title"
        opened.execute_script("redraw()")
        assert focused(opened, "id") == "reading-title"


def test_focus_stays_when_what_has_it_is_drawn_again(page):
    opened = page("whole")
    for selector in ("#timeline .mark.chosen", "#tree .leaf", "#reading .back"):
        opened.execute_script("document.querySelector(arguments[0]).focus(); redraw()", selector)
        home = selector.split()[0]
        inside = "return document.activeElement.closest(arguments[0]) !== null"
        assert opened.execute_script(inside, home)


def test_click_takes_the_nearest_mark_and_then_the_next(page):
    opened = page("whole")
    opened.execute_script("$('timeline').scrollIntoView(); goToReading = () => {}")
    marks = boxes(opened, "#timeline .mark .touch")
    kinds = [event["kind"] for event in opened.execute_script("return EVENTS")]
    for place, (left, top, right, bottom) in enumerate(marks):
        assert round(right - left, 3) >= 24
        x, y = (left + right) / 2, (top + bottom) / 2
        near = {
            reach: {
                other
                for other, box in enumerate(marks)
                if kinds[other] == kinds[place] and abs(box[0] - left) <= reach
            }
            for reach in (0.4, 3)  # a click lies on a whole pixel
        }
        chosen = set()
        for _ in near[3]:
            click_at(opened, x, y)
            chosen.add(opened.execute_script("return view.count - 1"))
        assert near[0.4] <= chosen <= near[3]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_and_letters_stand_out(page, scheme):
    """Three to one for what is drawn, four and a half for what is written."""
    opened = page("whole", scheme=scheme)
    style = "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0])"

    def brightness(name):
        colour = opened.execute_script(style, f"--{name}").strip()
        parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    paper = brightness("paper")
    kinds = ["split", "replace", "shift", "prune", "link"]
    drawn = ["track", "edge", *kinds, "for", "against", "share"]
    for name, least in [*((name, 3) for name in drawn), ("ink", 4.5), ("quiet", 4.5)]:
        bright, dark = sorted([paper, brightness(name)], reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= least, name
