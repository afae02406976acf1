"""Steps of the runtime that a document invokes outside the form that this runtime supplies: refused by name."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import CompileError, compile_package

from tests.conftest import FIXTURES
from tests.reference.document import read_document
from tools.fixtures.document import write_document

BINDING = {"kind": "binding"}


def block_body(workflow: dict[str, Any], name: str, contract: str) -> None:
    """Write the single-token body as one step, as section 4.3 says: decoder inputs; outputs of decoder and policy."""
    components, loop = workflow["components"], workflow["steps"][0]
    decode, policy, emit = loop["steps"]
    decoder, chooser = components["decoder"], components["token_policy"]["ports"]["outputs"]
    ports = {**decoder["ports"], "outputs": {**decoder["ports"]["outputs"], **chooser}}
    components[name] = {
        "implementation": BINDING, "ports": ports, "contract": {"id": contract, "version": "1"},
        "row_scope": {"axis": 0, "stateful": True},
    }  # fmt: skip
    loop["steps"] = [
        {**decode, "component": name, "outputs": {**decode["outputs"], **policy["outputs"]}},
        {**emit, "valid_length": "body.accepted_len", "axis": 1},
    ]
    group = workflow["serving"]["state_service"]["groups"]["decoder_kv"]
    group["ports"] = {name: group["ports"]["decoder"]}
    workflow["manifest"]["capabilities"].append("emit_valid_length")


def policy_alone(workflow: dict[str, Any]) -> None:
    """The decoder is an ordinary graph, and nothing says that the runtime drives it."""
    del workflow["components"]["decoder"]["contract"]


def decoder_without_a_graph(workflow: dict[str, Any]) -> None:
    """Both steps are bindings: the form that other runtimes have in memory."""
    workflow["components"]["decoder"]["implementation"] = BINDING


def refused(folder: Path, workflow_edit: Any) -> CompileError:
    shutil.copytree(FIXTURES / "tiny-runtime-policy", folder / "package")
    document = read_document(FIXTURES / "tiny-runtime-policy")
    workflow_edit(document["pipeline"]["workflow"])
    write_document(folder / "package", document)
    with pytest.raises(CompileError) as failure:
        compile_package(folder / "package", out=folder / "compiled")
    assert not (folder / "compiled").exists()
    return failure.value


@pytest.mark.parametrize(
    ("name", "contract"),
    [("batch_step", "onnx-genai.continuous-batch"), ("speculative_block", "onnx-genai.speculative-block")],
)
def test_a_body_that_names_no_graph_is_refused_by_its_contract(tmp_path: Path, name: str, contract: str) -> None:
    found = refused(tmp_path, lambda workflow: block_body(workflow, name, contract)).problems
    assert [(each.code, each.path) for each in found] == [
        ("runtime-step", "pipeline.workflow.steps[0].steps[0].component")
    ]
    assert f"'{name}' ({contract})" in found[0].what
    assert "10.3" in found[0].help


def test_a_token_policy_outside_the_loop_of_a_decoder_is_refused(tmp_path: Path) -> None:
    found = refused(tmp_path, policy_alone).problems
    assert [each.path for each in found if each.code == "runtime-step"] == [
        "pipeline.workflow.steps[0].steps[1].component"
    ]


def test_a_decode_step_that_is_no_graph_is_refused(tmp_path: Path) -> None:
    found = refused(tmp_path, decoder_without_a_graph).problems
    assert [(each.code, each.path) for each in found] == [
        ("runtime-step", f"pipeline.workflow.steps[0].steps[{at}].component") for at in (0, 1)
    ]
    assert "no graph" in found[0].what
