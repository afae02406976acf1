"""What a cached result depends on, against sets read off the documents by hand (standard, 1.11)."""

from pathlib import Path

from genai_compiler.plan.dependencies import cache_dependencies
from genai_compiler.read.document import Metadata
from genai_compiler.read.files import read_document
from genai_compiler.read.validate import parse_metadata

from tests.check.bases import base
from tests.conftest import FIXTURES
from tests.flow_packages import ONE, add, below, flow_package, traced
from tools.fixtures.document import branch, emit, invoke, onnx, sequence


def read(folder: Path) -> Metadata:
    return parse_metadata(*read_document(folder / "inference_metadata.yaml", folder))


def test_only_what_reaches_an_emit_or_a_state_write_counts(tmp_path: Path) -> None:
    steps = [
        add("a", "b", "sum"),
        below("sum", "n", "flag"),  # only a predicate: not what the result is made of
        branch(
            "flag",
            {"true": sequence(add("sum", "m", "x")), "false": sequence(add("sum", "a", "y"))},
            outputs={"z": {"cases": {"true": "x", "false": "y"}}},
        ),
        invoke("mix", {"acc": "z", "outer": "b", "inner": "one"}, {"next": "unused"}),
        emit("z", "out"),
    ]
    more = {"inputs": {"one": {"contract": {"dtype": "int64", "rank": 0, "shape": []}, "role": {"kind": "opaque"},
                               "source": {"kind": "literal"}, "required": False, "default": 1}}}  # fmt: skip
    found = cache_dependencies(read(flow_package(tmp_path, steps, **more)))
    assert found["components"] == ["add=onnx:add.onnx"]
    assert found["inputs"] == found["external_state"] == found["profiles"] == found["adapters"] == []


def test_suppliable_inputs_and_undeclared_state_count_where_they_are_live(tmp_path: Path) -> None:
    folder = flow_package(tmp_path, [add("a", "b", "sum"), traced("sum"), below("n", "m", "dead")],
                          components={"below": {**onnx("below.onnx", {"value": ONE, "limit": ONE}, {"below": ONE}),
                                                "cache_affects_state": ["dead.table"]},
                                      "add": {**onnx("add.onnx", {"a": ONE, "b": ONE}, {"sum": ONE}),
                                              "cache_affects_state": ["host.table"]}})  # fmt: skip
    text = (folder / "inference_metadata.yaml").read_text("utf-8")
    for name in "an":
        text = text.replace(f"      {name}:\n", f"      {name}:\n        externally_suppliable: true\n", 1)
    (folder / "inference_metadata.yaml").write_text(text, "utf-8")
    found = cache_dependencies(read(folder))
    assert found["inputs"] == ["a"]
    assert found["external_state"] == ["host.table"]


def test_a_decoder_depends_on_its_policies_too() -> None:
    """Every component of this fixture makes a value that the loop carries or emits; `binding` ones say so."""
    found = cache_dependencies(read(FIXTURES / "tiny-runtime-policy"))
    assert found["components"] == ["decoder=onnx:model.onnx", "token_policy=binding"]
    # its two application inputs are read by the decoder, the end ids by nothing that makes a value
    assert found["inputs"] == ["application.attention_mask", "application.position_ids"]


def test_profiles_that_affect_generation_and_adapters_by_alias() -> None:
    tasks = base("tasks")
    name = next(iter(tasks["profiles"]))
    tasks["profiles"][name] |= {"generation_affecting": True, "version": "7"}
    assert cache_dependencies(Metadata.model_validate(tasks))["profiles"] == [f"{name}@7"]
    lora = base("lora")
    wanted = sorted(f"{k}@{v['identity']}:{v['version']}" for k, v in lora["adapters"]["artifacts"].items())
    assert cache_dependencies(Metadata.model_validate(lora))["adapters"] == wanted != []
