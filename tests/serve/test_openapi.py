"""A real server against its own OpenAPI: whatever fits it, or does not, gets no 5xx."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving import draw_batches, learn_offline, serving

schemathesis = pytest.importorskip("schemathesis")
ROUTES = [("POST", f"/{name}") for name in ("predict", "learn", "explain", "counterfactual")]
READ = ("", "explain", "report", "drifts", "events", "metrics", "model", "model/file", "health")
ROUTES += [("GET", f"/{name}") for name in READ]


@pytest.fixture(scope="module", params=[False, True], ids=["labels", "numbers"])
def schema(tmp_path_factory, request):
    """What a server that has learnt something says of itself."""
    path = tmp_path_factory.mktemp("api") / "model.dmt"
    kind = {"are_numbers": request.param}
    learn_offline(draw_batches(20, **kind), **kind).save(path)
    with serving(path) as server:
        yield schemathesis.openapi.from_url(f"{server.address}/openapi.json")
        code, words = server.end()
        assert (code, words) == (0, "")  # no traceback either


def test_all_routes_are_described(schema):
    paths = schema.raw_schema["paths"]
    found = [(method.upper(), path) for path, item in paths.items() for method in item]
    assert sorted(found) == sorted(ROUTES)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_no_request_gets_a_server_error_or_an_answer_that_is_not_described(schema, method, path):
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    modes, operation = schemathesis.GenerationMode, schema[path][method]
    cases = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in modes))
    expected = [not_a_server_error, checks.status_code_conformance]
    expected += [checks.content_type_conformance, checks.response_schema_conformance]

    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def run(case):
        case.call_and_validate(checks=expected)

    run()
