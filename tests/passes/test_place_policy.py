"""Who draws tokens: the side that costs less at a vocabulary, by a table whose numbers the test gives."""

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

import onnx
import pytest
from genai_compiler import Options, compile_package
from genai_compiler.emit.policy_graphs import KINDS, policy_graph
from genai_compiler.passes import policy_costs
from genai_compiler.passes.policy_costs import SAVES, WAYS, draw_cost, graph_costs_less
from genai_runtime.policy_graphs import way_of
from genai_runtime.sample import SamplingOptions

from tests.conftest import FIXTURES

TABLE: dict[str, Any] = {
    "vocabularies": [100, 1100],
    "host": {way: [10.0, 110.0] for way in WAYS},
    "graph": {way: [30.0, 50.0] for way in WAYS},
}


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_costs, "_measured", lambda: TABLE)


@pytest.mark.usefixtures("table")
def test_costs_lie_on_a_line_between_two_sizes() -> None:
    """Host 10 us at 100 and 110 at 1100: a tenth of a microsecond a score; the graph a fiftieth."""
    assert draw_cost("top_k", "host", 600) == pytest.approx(60)
    assert draw_cost("top_k", "graph", 600) == pytest.approx(40)
    assert [draw_cost("top_k", "host", size) for size in (1, 100, 1100, 9999)] == [10, 10, 110, 110]


@pytest.mark.usefixtures("table")
def test_the_graph_takes_over_where_it_saves_enough() -> None:
    """0.85 * 0.1 V > 28 + 0.02 V, so from V = 28 / 0.065 = 430.8 on."""
    assert SAVES == 0.85
    crossing = 28 / 0.065
    assert not graph_costs_less("top_k", int(crossing))
    assert graph_costs_less("top_k", int(crossing) + 1)
    assert not graph_costs_less("top_p", int(crossing) + 1), "a share of its draws is the host's afterwards"
    assert graph_costs_less("top_p", 1000), "48 + 100 / 4 = 73 < 85"


def test_the_measured_table_is_whole() -> None:
    found = json.loads(Path(policy_costs.__file__).with_name("policy_costs.json").read_text("utf-8"))
    sizes = found["vocabularies"]
    assert sizes == sorted(set(sizes))
    for side in ("host", "graph"):
        assert set(found[side]) == set(WAYS)
        assert all(len(costs) == len(sizes) and min(costs) > 0 for costs in found[side].values())


def test_ways_are_those_of_the_runtime() -> None:
    asked = [
        SamplingOptions(top_k=k, top_p=p, min_p=m, do_sample=True)
        for k in (0, 5)
        for p in (1.0, 0.5)
        for m in (0.0, 0.1)
    ]
    assert {way_of(each) for each in asked} == set(WAYS)
    assert get_args(get_type_hints(draw_cost)["side"]) == ("host", "graph")


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(("factor", "drawn"), [(0.01, WAYS), (100.0, ())])
def test_the_plan_says_who_draws(factor: float, drawn: tuple[str, ...], tmp_path: Path) -> None:
    graph = {way: [cost * factor for cost in costs] for way, costs in TABLE["graph"].items()}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(policy_costs, "_measured", lambda: {**TABLE, "graph": graph})
        made = compile_package(FIXTURES / "tiny-gqa-v1", tmp_path / "made")
    assert made.plan is not None
    assert made.plan.decoder is not None
    assert made.plan.decoder.by_graph == drawn
    note = next(each for each in made.plan.decisions if each.startswith("place_policy:"))
    assert all(way in note for way in WAYS)
    manifest = json.loads((tmp_path / "made" / "manifest.json").read_text("utf-8"))
    assert manifest["policy_graphs"]["by_graph"] == list(drawn)


def test_left_out_there_are_no_graphs(tmp_path: Path) -> None:
    compile_package(FIXTURES / "tiny-gqa-v1", tmp_path / "made", Options(without=("place_policy",)))
    manifest = json.loads((tmp_path / "made" / "manifest.json").read_text("utf-8"))
    assert manifest["policy_graphs"] is None
    assert "place_policy: left out" in (tmp_path / "made" / "plan.txt").read_text("utf-8")
    assert not (tmp_path / "made" / "policy").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_are_valid_onnx_and_always_the_same(kind: str) -> None:
    content = policy_graph(kind)
    model = onnx.load_model_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    policy_graph.cache_clear()
    assert policy_graph(kind) == content
    assert {each.domain for each in model.opset_import} == {""}
