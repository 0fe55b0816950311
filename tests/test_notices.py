"""What is built contains the notices of all that is compiled into it."""

from importlib.metadata import distribution

import pytest

NOTICES = {
    "LICENSE": "driftree developers",
    "LICENSES/nanobind.txt": "Wenzel Jakob",
    "LICENSES/robin-map.txt": "Thibaut Goetghebuer-Planchon",
}


@pytest.mark.parametrize(("name", "holder"), NOTICES.items(), ids=NOTICES)
def test_a_notice_is_in_what_was_installed(name, holder):
    """The editable wheel of `make` has the metadata of any other."""
    found = distribution("driftree")
    assert name in found.metadata.get_all("License-File")
    (file,) = (file for file in found.files if str(file).endswith(f".dist-info/licenses/{name}"))
    text = file.read_text()
    assert holder in text
    assert "Copyright (c)" in text
    assert "WARRANT" in text
