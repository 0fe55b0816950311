"""The reports that the tests of the file and of the page look at."""

import pytest

from driftree.learn import history as history_module
from driftree.learn.evidence import MeasuredTrials
from driftree.show.report import report
from hostile import N_ROWS, TITLE, learn, learn_much, make_records


@pytest.fixture(scope="module")
def models(quick_pace):
    """One stream; the log keeps all changes, only the last 20, or none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MeasuredTrials, "SAMPLE_ROWS", 100)
        whole, without = learn(), learn(keep_history=False)
        patch.setattr(history_module, "MAX_EVENTS", 20)
        models = {"whole": whole, "folded": learn(), "without": without}
    models["large"] = learn_much()
    assert {event.kind for event in whole.events_} == {"split", "replace", "prune", "link"}
    assert models["folded"]._tree.history.first_step > 0
    return models


@pytest.fixture(scope="module")
def reports(models, tmp_path_factory):
    """The reports of the models; that of the whole log has several learners."""
    folder = tmp_path_factory.mktemp("reports")
    records = {"whole": make_records("dmt", "<b>other</b>", "vfdt-mc"), "folded": []}
    records["large"] = make_records("dmt", "vfdt-mc", n_batches=1000)
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
