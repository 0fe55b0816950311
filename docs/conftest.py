"""Pages that need real data run where it is, in a folder of their own."""

import pytest

from driftree.streams.datasets import data_folder

collect_ignore = ["site_pages.py"]  # it imports MkDocs, which tests do without
NEEDS = {"reading.md": "electricity"}


@pytest.fixture(autouse=True)
def data_of_the_page(request, tmp_path, monkeypatch):
    """Skip a page whose data are not in DRIFTREE_DATA; what its examples write goes elsewhere."""
    name = NEEDS.get(request.path.name)
    if name is None:
        return
    folder = data_folder()
    if folder is None or not (folder / f"{name}.csv.gz").exists():
        pytest.skip(f"needs {name}.csv.gz in the folder that DRIFTREE_DATA names")
    monkeypatch.setenv("DRIFTREE_DATA", str(folder.resolve()))
    monkeypatch.setenv("DRIFTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def pytest_itemcollected(item):
    """Let such a page open its data: what they look like, it tells anyway."""
    if item.path.name in NEEDS:
        item.add_marker(
            pytest.mark.filterwarnings("ignore::driftree.learn.validation.InputWarning")
        )
