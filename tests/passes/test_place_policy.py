"""Who draws tokens: the side that costs less at a vocabulary, by a table whose numbers the test gives."""

import json
from pathlib import Path

import onnx
import pytest
from genai_compiler import Options, compile_package
from genai_compiler.costs import WAYS, Costs
from genai_compiler.emit.policy_graphs import KINDS, policy_graph
from genai_compiler.passes.place_policy import SAVES, graph_costs_less
from genai_runtime.policy_graphs import way_of
from genai_runtime.sample import SamplingOptions

from tests.conftest import FIXTURES
from tests.costs.tables import table


def costs_of(factor: float = 1.0) -> Costs:
    """Host 10 us at 100 scores and 110 at 1100, a tenth of a microsecond a score; the graph 30 and 50, a fiftieth."""
    both = {"host": [[100, 10.0], [1100, 110.0]], "graph": [[100, 30.0 * factor], [1100, 50.0 * factor]]}
    return table(draws=dict.fromkeys(WAYS, both))


def test_the_graph_takes_over_where_it_saves_enough() -> None:
    """0.85 * 0.1 V > 28 + 0.02 V, so from V = 28 / 0.065 = 430.8 on."""
    assert SAVES == 0.85
    costs, crossing = costs_of(), int(28 / 0.065)
    assert not graph_costs_less(costs, "top_k", crossing)
    assert graph_costs_less(costs, "top_k", crossing + 1)
    assert not graph_costs_less(costs, "top_p", crossing + 1), "a share of its draws is the host's afterwards"
    assert graph_costs_less(costs, "top_p", 1000), "48 + 100 / 4 = 73 < 85"


def test_ways_are_those_of_the_runtime() -> None:
    asked = [
        SamplingOptions(top_k=k, top_p=p, min_p=m, do_sample=True)
        for k in (0, 5)
        for p in (1.0, 0.5)
        for m in (0.0, 0.1)
    ]
    assert {way_of(each) for each in asked} == set(WAYS)


@pytest.mark.parametrize(("factor", "drawn"), [(0.01, WAYS), (100.0, ())])
def test_the_plan_says_who_draws_by_the_table_that_is_asked_for(
    factor: float, drawn: tuple[str, ...], tmp_path: Path
) -> None:
    made = compile_package(FIXTURES / "tiny-gqa-v1", tmp_path / "made", Options(costs=costs_of(factor)))
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
