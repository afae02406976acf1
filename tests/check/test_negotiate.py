"""Rules V309 and V310, and which capabilities a workflow is found to use (standard, 8.1)."""

from pathlib import Path
from typing import Any

import pytest
from genai_compiler.check.capabilities import derived
from genai_compiler.plan.report import Report
from genai_compiler.problem import Problem
from genai_compiler.read.load import load_package
from genai_compiler.read.negotiate import ALWAYS, OFFERED, negotiate
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_metadata

from tests.check.bases import BASES, base, broken
from tests.check.cases_steps import LOOP, STEP, P, S
from tests.check.packages import document, package
from tests.data import DATA, needs_data


def asked(root: Path, data: Any) -> list[Problem]:
    loaded = load_package(package(root, data))
    report = Report(loaded.places)
    negotiate(loaded, report)
    return report.problems


def used(data: Any) -> set[str]:
    metadata = parse_metadata(data, Places("m.yaml"))
    assert metadata.pipeline is not None
    return set(derived(metadata.pipeline.workflow))


def test_what_is_offered_is_not_missing(tmp_path: Path) -> None:
    data = document(required_capabilities=sorted(OFFERED))
    assert asked(tmp_path, data) == []


def test_a_required_capability_that_nobody_offers(tmp_path: Path) -> None:
    (problem,) = asked(tmp_path, document(required_capabilities=["workflow_ssa", "time_travel"]))
    assert (problem.code, problem.path) == ("capability-missing", "required_capabilities[1]")


def test_a_declared_capability_names_what_needs_it(tmp_path: Path) -> None:
    data = document()
    workflow = data["pipeline"]["workflow"]
    workflow["manifest"] = {"capabilities": ["workflow_ssa", "adaptive_proposal_budget"]}
    workflow["components"]["two"]["contract"] = {"id": "onnx-genai.adaptive-proposal-budget", "version": "1"}
    problems = asked(tmp_path, data)
    if "adaptive_proposal_budget" in OFFERED:
        assert problems == []
        return
    (problem,) = problems
    assert problem.path == "pipeline.workflow.manifest.capabilities[1]"
    assert "component 'two' needs it" in problem.what


def test_an_adapter_that_nobody_provides(tmp_path: Path) -> None:
    data = document()
    workflow = data["pipeline"]["workflow"]
    workflow["manifest"]["adapter_abis"] = {"own.thing": "7"}
    workflow["components"]["thing"] = {"implementation": {"kind": "adapter", "abi": "own.thing", "version": "7"}}
    (problem,) = asked(tmp_path, data)
    assert (problem.code, problem.path) == ("adapter-missing", "pipeline.workflow.components.thing.implementation")


@pytest.mark.parametrize("name", BASES)
def test_the_bases_declare_exactly_what_they_use(name: str) -> None:
    data = base(name)
    declared = set(data["pipeline"]["workflow"]["manifest"]["capabilities"])
    assert used(data) | ({"parameter_adapters", "heterogeneous_adapter_batching"} & declared) == declared


def _without_control(extra: dict[str, Any]) -> Any:
    """The base of flow with its steps, cells and outputs' users taken out, then changed."""
    return broken("flow", {S: [STEP], f"{P}/state": {}, f"{P}/inputs": {}, **extra})


@pytest.mark.parametrize(
    ("steps", "linear"),
    [
        ([{"kind": "emit", "value": "new", "output": "y", "mode": "replace"}], False),
        ([{**LOOP, "carried": []}], False),
        ([LOOP], True),
        ([{**LOOP, "carried": [], "setup": [{"kind": "emit", "value": "a", "output": "y", "mode": "replace"}]}], False),
        ([{**LOOP, "carried": [], "steps": [{"kind": "emit", "value": "a", "output": "y", "mode": "replace"}]}], True),
        ([{**LOOP, "carried": [], "steps": [{**LOOP, "carried": [], "setup": [
            {"kind": "emit", "value": "a", "output": "y", "mode": "replace"}]}]}], True),
        ([{"kind": "branch", "predicate": "p", "cases": {"true": STEP}}], False),
        ([{"kind": "branch", "predicate": "p", "cases": {"true": LOOP}}], True),
        ([{"kind": "branch", "predicate": "p", "cases": {"true": STEP}, "default": {
            "kind": "emit", "value": "a", "output": "y", "mode": "event"}}], True),
    ],
)  # fmt: skip
def test_linear_effects_follow_from_loops_and_branches(steps: list[Any], linear: bool) -> None:
    assert ("linear_effects" in used(_without_control({S: steps}))) == linear


def test_ids_that_ask_for_capabilities() -> None:
    wanted = {
        "onnx-genai.parameter-overlay": "parameter_adapters",
        "onnx-genai.adaptive-proposal-budget": "adaptive_proposal_budget",
        "onnx-genai.grammar-guidance": "grammar_guidance_adapter",
        "onnx-genai.telemetry": "telemetry_adapter",
    }
    for identity, capability in wanted.items():
        adapter = {"implementation": {"kind": "adapter", "abi": identity, "version": "1"}}
        labelled = {"implementation": {"kind": "binding"}, "contract": {"id": identity, "version": "1"}}
        for component in (adapter, labelled):
            assert capability in used(_without_control({f"{P}/components/new": component}))


@needs_data
def test_the_catalogue_declares_what_it_uses() -> None:
    from genai_compiler.read.files import read_document

    for file in sorted((DATA / "conformance" / "catalogue").iterdir()):
        data, places = read_document(file, file.parent)
        pipeline = parse_metadata(data, places).pipeline
        assert pipeline is not None
        assert set(derived(pipeline.workflow)) - ALWAYS <= set(pipeline.workflow.manifest.capabilities), file.name
