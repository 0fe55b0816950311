"""The reports that the tests of the file and of the page look at."""

import json
import shutil
from dataclasses import replace

import pytest

from browsing import SIZES
from driftree.explain.changes import KINDS
from driftree.learn import constants
from driftree.learn import history as history_module
from driftree.show.report import report
from hostile import (
    N_ROWS,
    TITLE,
    learn,
    learn_forest,
    learn_much,
    learn_shift,
    make_number_records,
    make_records,
)
from readable_models import numbers
from shifts import learn_deep, shift_and_back


@pytest.fixture(scope="module")
def models(quick_pace):
    """One stream; the log keeps all changes, only the last 20, or none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "MEASURED", replace(constants.MEASURED, sample_rows=40))
        whole, without = learn(), learn(keep_history=False)
        patch.setattr(history_module, "MAX_EVENTS", 20)
        models = {"whole": whole, "folded": learn(), "without": without}
    models |= {"large": learn_much(), "shifted": learn_shift(), "numbers": numbers()}
    models |= {"forest": learn_forest(), "moved": learn_deep()}
    shift_and_back(models["moved"])
    kinds = {event.kind for name in ("whole", "moved") for event in models[name].events_}
    assert kinds == set(KINDS)
    assert models["folded"]._tree.history.first_step > 0
    return models


@pytest.fixture(scope="module")
def reports(models, tmp_path_factory):
    """The reports of the models; that of the whole log has several learners."""
    folder = tmp_path_factory.mktemp("reports")
    records = {"whole": make_records("dmt", "<b>other</b>", "vfdt-mc"), "folded": []}
    names = [f"label {place}" for place in range(10)] + ["(others)"]
    records["large"] = make_records("dmt", "vfdt-mc", n_batches=1000, labels=names)
    records["numbers"] = make_number_records()
    drifts = {"whole": [N_ROWS // 2, (100, 200)]}
    return {
        name: report(
            model,
            records.get(name),
            folder / f"{name}.html",
            title=TITLE,
            drifts=drifts.get(name, ()),
        )
        for name, model in models.items()
    }


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One headless Chromium, with the browser's log and its requests recorded."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{flag}")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)  # so that none is downloaded
    chromium = webdriver.Chrome(options=options, service=service)
    yield chromium
    chromium.quit()


@pytest.fixture
def page(browser, reports):
    """Open a report, at a width, in a colour scheme; at the end, nothing was complained about."""

    def open_report(name, size=SIZES[0], scheme="light"):
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get(reports[name].as_uri())
        return browser

    browser.get("about:blank")
    browser.get_log("browser"), browser.get_log("performance")
    yield open_report
    assert browser.get_log("browser") == []
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert {request["request"]["url"].split(":")[0] for request in sent} <= {"file"}
