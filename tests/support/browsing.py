"""A reader of a page in a real browser: looking, clicking, typing."""

import math
import re

SIZES = [(1280, 900), (390, 800)]


def find(page, selector):
    return page.find_elements("css selector", selector)


def text_of(page, selector, *, spaces=False):
    script = "return document.querySelector(arguments[0]).textContent"
    text = page.execute_script(script, selector)
    return text if spaces else re.sub(r"\s+", " ", text)


def press(page, *keys):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(page, duration=0).send_keys(*keys).perform()


def key(name):
    from selenium.webdriver.common.keys import Keys

    return getattr(Keys, name)


def focused(page, attribute):
    return page.switch_to.active_element.get_attribute(attribute)


def click_at(page, x, y):
    """A real click at a place of the window, on whatever lies on top there."""
    for kind in ("mousePressed", "mouseReleased"):
        place = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
        page.execute_cdp_cmd("Input.dispatchMouseEvent", place)


def boxes(page, selector):
    """Left, top, right and bottom of all that is drawn of a selector."""
    return page.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((part) => {"
        "const box = part.getBoundingClientRect();"
        "return [box.left, box.top, box.right, box.bottom]})",
        selector,
    )


def texts(page, selector):
    """The text of each part."""
    script = "return [...document.querySelectorAll(arguments[0])].map((part) => part.textContent)"
    return page.execute_script(script, selector)


def attributes(page, selector, name):
    """An attribute of each part."""
    script = (
        "return [...document.querySelectorAll(arguments[0])]"
        ".map((part) => part.getAttribute(arguments[1]))"
    )
    return page.execute_script(script, selector, name)


def number(text):
    """A number as the page writes it."""
    return float(text.replace("\N{MINUS SIGN}", "-").replace(",", "").replace("+", ""))


def in_percent(share):
    """A share as the page writes it."""
    return "< 1 %" if 0 < share < 0.01 else f"{math.floor(100 * share + 0.5)} %"


def visible(page, selector):
    """Whether each part is drawn at all; asked at once, as the page may draw again at any time."""
    script = (
        "return [...document.querySelectorAll(arguments[0])]"
        ".map((part) => part.getClientRects().length > 0)"
    )
    return page.execute_script(script, selector)
