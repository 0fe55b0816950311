"""Take pictures of the report as a browser shows it; one of them is the README's.

    python docs/report_picture.py

The reports of a classifier, a regressor and a forest are opened at two widths, light and dark, into
build/pictures: look at them after each change of the page. The README's picture is of the demo; the
figures in it are kept beside it, and a test compares them with a run.

Needs Chromium with its driver (Debian's packages chromium and chromium-driver), and the development
tools of pyproject.toml.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

import driftree
from driftree.cli.demo import Race
from driftree.evaluate import Evaluation

N_ROWS, SEED = 100_000, 1
WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
README_WIDTH = 1440
PICTURE = Path(__file__).parent / "pictures" / "report.png"
FIGURES = PICTURE.with_suffix(".json")
LOOKED_AT = Path(__file__).parents[1] / "build" / "pictures"
LARGEST_LEAF = (
    "chooseNode(DATA.leaves.reduce((a, b) => (b.share > a.share ? b : a)).node);"
    "document.activeElement.blur(); scrollTo(0, 0)"
)
FIRST_SPLIT = "if (DATA.splits.length) chooseNode(0); document.activeElement.blur()"


# ---------------------------------------------------------------------- pages
def write_demo(path: Path, *, alone: bool = False) -> None:
    """Write the report of the demo; `alone` is without the other learner, which takes long."""
    race = Race(N_ROWS, SEED, alone=alone)
    for _ in race.run():
        pass
    race.report(path, f"driftree demo --rows {N_ROWS} --seed {SEED}")


def write_numbers(path: Path) -> None:
    """Write the report of a regressor: demand that follows another rule after half of the rows."""
    rng = np.random.default_rng(SEED)
    hour, outside = rng.uniform(0, 24, 20_000), rng.normal(12, 8, 20_000)
    holiday = rng.random(20_000) < 0.1
    before = 200 + 12 * outside + np.where(hour > 12, 150, 0)
    after = 500 - 4 * outside + np.where(hour > 12, -100, 60) + 80 * holiday
    y = np.where(np.arange(20_000) < 10_000, before, after) + rng.normal(0, 20, 20_000)
    columns = {
        "hour of the day": hour,
        "temperature outside": outside,
        "holiday": np.where(holiday, "yes", "no").astype(object),
    }
    model = driftree.DynamicModelTreeRegressor()
    evaluation = Evaluation({"dmt": model, "mean": "mean"}, task="regression")
    records = []
    for start in range(0, 20_000, 100):
        rows = slice(start, start + 100)
        records += evaluation.take({name: own[rows] for name, own in columns.items()}, y[rows])
    records.sort(key=lambda record: record.learner != "dmt")
    driftree.report(model, records, path, title="Demand by the hour", drifts=[10_000])


def write_forest(path: Path) -> None:
    """Write the report of a forest: pairs of features matter, and turn around."""
    rng = np.random.default_rng(SEED)
    X = rng.uniform(-1, 1, size=(20_000, 4))
    granted = (X[:, 0] * X[:, 1] > 0) ^ (X[:, 2] > 0.3) ^ (np.arange(20_000) > 12_000)
    labels = np.where(granted, "granted", "refused").astype(object)
    model = driftree.DynamicModelForestClassifier()
    names = ("age", "income", "loan", "years")
    evaluation, records = Evaluation({"forest": model, "dmt": "dmt"}), []
    for start in range(0, 20_000, 100):
        rows = slice(start, start + 100)
        records += evaluation.take(dict(zip(names, X[rows].T, strict=True)), labels[rows])
    driftree.report(model, records, path, title="Loans, judged by five trees")


def headline(page: Path) -> dict[str, Any]:
    """Return the figures on top of a report, as the page rounds them."""
    text = page.read_text(encoding="utf-8")
    [block] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return {
        row["name"]: round(row["value"], 3) if isinstance(row["value"], float) else row["value"]
        for row in json.loads(block)["headline"]
    }


# ---------------------------------------------------------------------- pictures
class Browser:
    """Chromium without a window."""

    def __init__(self) -> None:
        from selenium import webdriver

        program = shutil.which("chromium") or shutil.which("google-chrome")
        driver = shutil.which("chromedriver")
        if program is None or driver is None:
            sys.exit("Chromium and its driver are needed: apt install chromium chromium-driver")
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for flag in ("headless=new", "no-sandbox", "disable-gpu", "hide-scrollbars"):
            options.add_argument(f"--{flag}")
        service = webdriver.ChromeService(executable_path=driver)
        self._driver = webdriver.Chrome(options=options, service=service)

    def take(
        self, page: Path, width: int, scheme: str, script: str = "", end: str = "body"
    ) -> bytes:
        """Return a picture of a page from its top to the end of an element, as PNG."""
        tell, run = self._driver.execute_cdp_cmd, self._driver.execute_script
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        tell("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        tell("Emulation.setEmulatedMedia", {"features": features})
        self._driver.get(page.as_uri())
        run(script)
        bottom = "document.querySelector(arguments[0]).getBoundingClientRect().bottom + scrollY"
        height = run(f"return Math.ceil({bottom})", end)
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        shot = tell("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        return base64.b64decode(shot["data"])

    def close(self) -> None:
        """End it."""
        self._driver.quit()


def main() -> None:
    """Write the pages, open them, and keep what is seen."""
    from PIL import Image

    LOOKED_AT.mkdir(parents=True, exist_ok=True)
    pages = {"labels": write_demo, "numbers": write_numbers, "forest": write_forest}
    files = {name: LOOKED_AT / f"{name}.html" for name in pages}
    for name, write in pages.items():
        write(files[name])
    browser = Browser()
    try:
        for name, page in files.items():
            scripts = {"": ""} if name == "forest" else {"": LARGEST_LEAF, "-split": FIRST_SPLIT}
            for end, script in scripts.items():
                for width in WIDTHS:
                    for scheme in SCHEMES:
                        file = LOOKED_AT / f"{name}{end}-{width}-{scheme}.png"
                        file.write_bytes(browser.take(page, width, scheme, script))
        shot = browser.take(files["labels"], README_WIDTH, "light", LARGEST_LEAF, ".tree-section")
    finally:
        browser.close()
    Image.open(io.BytesIO(shot)).convert("RGB").quantize(256).save(PICTURE, optimize=True)
    told = {
        "picture": hashlib.sha256(PICTURE.read_bytes()).hexdigest(),
        "figures": headline(files["labels"]),
    }
    FIGURES.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    print(f"look at {LOOKED_AT}; {PICTURE.name} and {FIGURES.name} are the README's")


if __name__ == "__main__":
    main()
