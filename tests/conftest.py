"""Profiles for Hypothesis (HYPOTHESIS_PROFILE=fast or ci), and the quick pace of the learner."""

import os

import pytest
from hypothesis import settings

# The same examples in every run: a red test is red for everybody, and nobody waits for a timer.
settings.register_profile("fast", derandomize=True, deadline=None, max_examples=60)
settings.register_profile("ci", settings.get_profile("fast"), max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="module")
def quick_pace():
    """Small numbers of rows in the learner, so that short streams reach every branch."""
    import quick

    with pytest.MonkeyPatch.context() as patch:
        quick.set_pace(patch)
        yield


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Keep what is drawn or downloaded in tests out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTREE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
