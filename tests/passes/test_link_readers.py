"""Readers linked to a decoder that runs in two places, and a selection that moves before its projection."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from genai_compiler import Options, compile_package
from genai_compiler.driver import plan_package
from genai_compiler.emit import linked_graph
from genai_compiler.passes.hoist_selection import hoist_selection
from genai_compiler.passes.joinable import LIGHT
from genai_compiler.passes.link_readers import link_readers
from genai_compiler.passes.profile import Profile, profile_of
from genai_compiler.plan.edits import Linked
from genai_compiler.plan.ir import Emit, Hold, Invoke, Loop, Op, Plan
from genai_compiler.plan.placement import Placement
from genai_compiler.plan.uses import walk
from genai_compiler.plan.verify import verify
from genai_compiler.read import onnx_wire
from genai_compiler.read.load import load_package
from onnx import ModelProto, NodeProto, TensorProto, helper

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy

HELD = FIXTURES / "tiny-held-state"
Base = tuple[Plan, Profile]


@pytest.fixture(scope="module")
def base() -> Base:
    """The plan of the fixture, light invokes still on their own."""
    package = load_package(HELD)
    plan, _ = plan_package(package, "prove_extents", lambda stage, text: None)
    return plan, profile_of(package)


def invokes(plan: Plan, component: str) -> list[Invoke]:
    return [op for op in walk(plan.body) if isinstance(op, Invoke) and op.component == component]


def changed(ops: tuple[Op, ...], change: Callable[[Op], Iterator[Op]]) -> tuple[Op, ...]:
    """The ops with each replaced by what `change` makes of it, in loops too."""
    return tuple(
        made
        for op in ops
        for made in change(replace(op, body=changed(op.body, change)) if isinstance(op, Loop) else op)
    )


def with_ops(plan: Plan, change: Callable[[Op], Iterator[Op]]) -> Plan:
    return replace(plan, body=changed(plan.body, change))


# ---- what it makes ---------------------------------------------------------------------------------------------------


def test_both_places_run_one_graph(base: Base) -> None:
    plan, profile = base
    assert len(invokes(plan, "model")) == len(invokes(plan, "last_token_logits")) == 2
    after = link_readers(plan, profile)
    assert verify(after) == ()
    assert invokes(after, "model") == invokes(after, "last_token_logits") == []
    before_loop, in_loop = invokes(after, "model_linked")
    assert (before_loop.held, in_loop.held) == ("", in_loop.held)
    made = after.component("model_linked")
    assert isinstance(made.edit, Linked)
    assert "logits" not in dict(made.outputs)
    assert {"present.0.key", "last_token_logits.last_logits"} <= set(dict(made.outputs))
    (hold,) = (op for op in walk(after.body) if isinstance(op, Hold))
    assert hold.run == in_loop
    assert {group.component for group in after.groups} == {"model_linked"}


def test_what_something_else_reads_leaves_the_graph_too(base: Base) -> None:
    plan, profile = base
    logits = dict(invokes(plan, "model")[0].outputs)["logits"]

    def published(op: Op) -> Iterator[Op]:
        yield op
        if op == invokes(plan, "model")[0]:
            yield Emit(logits, "tokens", "append", "", "", 1, False, "here")

    after = link_readers(with_ops(plan, published), profile)
    assert "logits" in dict(after.component("model_linked").outputs)
    assert hoist_selection(after, profile) == after


# ---- what it leaves alone --------------------------------------------------------------------------------------------


def refuses(plan: Plan, profile: Profile) -> None:
    assert link_readers(plan, profile) == plan


def test_a_place_without_the_reader(base: Base) -> None:
    plan, profile = base
    first = invokes(plan, "last_token_logits")[0]

    def dropped(op: Op) -> Iterator[Op]:
        yield from () if op == first else (op,)

    refuses(with_ops(plan, dropped), profile)


def test_a_place_where_it_reads_something_else(base: Base) -> None:
    plan, profile = base
    first = invokes(plan, "last_token_logits")[0]

    def swapped(op: Op) -> Iterator[Op]:
        yield replace(op, inputs=(op.inputs[0],)) if op == first else op  # type: ignore[union-attr]

    refuses(with_ops(plan, swapped), profile)


def test_a_reader_that_needs_what_is_made_between(base: Base) -> None:
    plan, profile = base
    _, second = invokes(plan, "last_token_logits")
    (port, lengths) = next(pair for pair in second.inputs if pair[0] == "lengths")

    def between(op: Op) -> Iterator[Op]:
        if op != second:
            yield op
            return
        yield Invoke("cache_length_update", (("left", lengths), ("right", lengths)), (("total", "between"),), "here")
        yield replace(second, inputs=(second.inputs[0], (port, "between")))

    types = {**plan.types, "between": plan.types[lengths]}
    refuses(replace(with_ops(plan, between), types=types), profile)


@pytest.mark.parametrize("name", ["model", "last_token_logits"])
def test_components_that_a_request_may_replace_or_that_have_effects(base: Base, name: str) -> None:
    plan, profile = base
    for change in ({"overridable": True}, {"pure": False}):
        components = tuple(replace(each, **change) if each.name == name else each for each in plan.components)
        refuses(replace(plan, components=components), profile)


def test_a_component_that_hints_place(base: Base) -> None:
    plan, profile = base
    refuses(replace(plan, placements=(Placement("model", "gpu"),)), profile)


# ---- what the graph computes -----------------------------------------------------------------------------------------


def feeds(prompt: int) -> dict[str, Any]:
    dice = np.random.default_rng(3)
    ids = dice.integers(3, 60, (2, prompt))
    past = {f"past_key_values.{layer}.{each}": np.zeros((2, 2, prompt + 4, 16), np.float32)
            for layer in (0, 1) for each in ("key", "value")}  # fmt: skip
    return {"input_ids": ids, "attention_mask": np.array([[1] * prompt, [1] * (prompt - 1) + [0]]), **past}


def plain(folder: Path, given: dict[str, Any], lengths: Any) -> Any:
    """The two graphs of the package, one after the other."""
    logits = ort.InferenceSession(folder / "model.onnx").run(["logits"], given)[0]
    last = ort.InferenceSession(folder / "policies" / "last_token_logits.onnx")
    return last.run(None, {"logits": logits, "lengths": lengths})[0]


@pytest.mark.parametrize("copied", [1 << 20, 0], ids=["weights copied", "weights by reference"])
@pytest.mark.parametrize("without", [(), ("hoist_selection",)], ids=["hoisted", "not hoisted"])
def test_the_linked_graph_gives_what_its_members_give(
    without: tuple[str, ...], copied: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linked_graph, "COPIED", copied)
    monkeypatch.setattr(onnx_wire, "KEEP", 1024)
    compile_package(HELD, tmp_path / "out", Options(without=without))
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(HELD))
    file = tmp_path / "out" / "graphs" / "model_linked.onnx"
    graph = onnx.load(file, load_external_data=False).graph
    assert any(each.data_location == TensorProto.EXTERNAL for each in graph.initializer) == (copied == 0)
    session = ort.InferenceSession(file.read_bytes(), options)
    given, lengths = feeds(6), np.array([6, 5])
    found = session.run(["last_token_logits.last_logits"], {**given, "last_token_logits.lengths": lengths})[0]
    wanted = plain(HELD, given, lengths)
    assert found.shape == wanted.shape == (2, 64)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    if without:
        assert np.array_equal(found, wanted)
    assert any(name.endswith("_row") for each in graph.node for name in each.input) == (without == ())


# ---- which selections move -------------------------------------------------------------------------------------------


def reader(*nodes: NodeProto, rank: int = 2) -> ModelProto:
    """A reader of `logits` and `lengths` with an output of some rank."""
    ports = [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", "s", "v"]),
        helper.make_tensor_value_info("lengths", TensorProto.INT64, ["b"]),
    ]
    held = [helper.make_tensor(f"c{value}", TensorProto.INT64, [1], [value]) for value in (0, 1, 2, 3)]
    held.append(helper.make_tensor("last", TensorProto.INT64, [], [-1]))
    made = [helper.make_tensor_value_info("last_logits", TensorProto.FLOAT, [None] * rank)]
    graph = helper.make_graph(list(nodes), "reader", ports, made, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def node(operation: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operation, inputs.split(), [output], **attributes)


COUNT = node("Shape", "logits", "count", start=1, end=2)
AT = (
    COUNT,
    node("Min", "lengths count", "least"),
    node("Sub", "least c1", "place"),
    node("Unsqueeze", "place c1", "at"),
)
MOVES = {
    "GatherND": reader(*AT, node("GatherND", "logits at", "last_logits", batch_dims=1)),
    "Gather": reader(node("Gather", "logits last", "last_logits", axis=1)),
    "Gather from the end": reader(node("Gather", "logits last", "last_logits", axis=-2)),
    "Gather of a list": reader(node("Gather", "logits c0", "last_logits", axis=1), rank=3),
    "Slice": reader(
        COUNT, node("Sub", "count c1", "from"), node("Slice", "logits from count c1", "last_logits"), rank=3
    ),
    "and then more": reader(node("Gather", "logits last", "row", axis=1), node("Softmax", "row", "last_logits")),
}
STAYS = {
    "of rows": reader(node("Gather", "logits last", "last_logits", axis=0)),
    "of the vocabulary": reader(node("Gather", "logits last", "last_logits", axis=2)),
    "a slice of the vocabulary": reader(node("Slice", "logits c0 c3 c2", "last_logits"), rank=3),
    "a mean": reader(node("ReduceMean", "logits c1", "last_logits", keepdims=0)),
    "two selections": reader(node("Gather", "logits last", "a", axis=1), node("Gather", "logits c0", "b", axis=1),
                             node("Squeeze", "b c1", "b2"), node("Add", "a b2", "last_logits")),
    "the width of the vocabulary": reader(
        node("Shape", "logits", "width", start=2, end=3), node("Gather", "logits last", "row", axis=1),
        node("Cast", "width", "wide", to=1), node("Mul", "row wide", "last_logits")),
    "positions by what is projected": reader(
        node("ReduceMax", "logits c2", "most", keepdims=0), node("ArgMax", "most", "at", axis=1),
        node("GatherND", "logits at", "last_logits", batch_dims=1)),
}  # fmt: skip


def with_reader(folder: Path, made: ModelProto, plan: Base) -> Base:
    """The plan, the last-token component being another graph."""
    file = folder / "reader.onnx"
    file.write_bytes(made.SerializeToString())
    from genai_compiler.read.package import Graph
    from genai_compiler.read.signature import read_signature

    profile = plan[1]
    graph = Graph("reader.onnx", read_signature(file, folder), made, False)
    return plan[0], replace(profile, graphs={**profile.graphs, "last_token_logits": graph})


@pytest.mark.parametrize("name", [*MOVES, *STAYS])
def test_only_a_selection_of_positions_moves(name: str, base: Base, tmp_path: Path) -> None:
    plan, profile = base
    linked = link_readers(plan, profile)
    _, other = with_reader(tmp_path, {**MOVES, **STAYS}[name], base)
    after = hoist_selection(linked, other)
    edit = after.component("model_linked").edit
    assert isinstance(edit, Linked)
    assert (edit.hoist is not None) == (name in MOVES)


@pytest.mark.parametrize("name", MOVES)
def test_a_moved_selection_gives_the_same(name: str, base: Base, tmp_path: Path) -> None:
    """Against the decoder's graph and the reader's, run one after the other."""
    package = load_package(HELD)
    plan, profile = with_reader(tmp_path, MOVES[name], base)
    edit = hoist_selection(link_readers(plan, profile), profile).component("model_linked").edit
    assert isinstance(edit, Linked)
    graphs = {**package.graphs, "last_token_logits": replace(profile.graphs["last_token_logits"], textproto=True)}
    session = ort.InferenceSession(linked_graph.linked_bytes(edit, replace(package, graphs=graphs)))
    given, lengths = feeds(6), np.array([6, 5])
    taken = {each.name for each in session.get_inputs()}
    everything = {**given, "last_token_logits.lengths": lengths}
    found = session.run([edit.outputs[-1]], {name: value for name, value in everything.items() if name in taken})[0]
    logits = ort.InferenceSession(HELD / "model.onnx").run(["logits"], given)[0]
    wanted = ort.InferenceSession(MOVES[name].SerializeToString()).run(None, {"logits": logits, "lengths": lengths})[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("heavy", ["state_update", "sampler", "termination", "initializer"])
def test_two_heavy_graphs_of_which_one_reads_the_other(heavy: str, tmp_path: Path) -> None:
    """What is linked already is no reader that may join; nor is it forgotten."""
    package = shutil.copytree(FIXTURES / "tiny-turns", tmp_path / "package")
    model = onnx.load(package / f"{heavy}.onnx")
    large = np.zeros(LIGHT // 4 + 1, np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(large, "large"))
    onnx.save(model, package / f"{heavy}.onnx")
    compile_package(package, tmp_path / "out")
    with genai_runtime.load(tmp_path / "out", threads=1) as compiled:
        tokens = compiled.generate([1, 9, 14], max_new_tokens=20, stop_on_eos=False).tokens
    assert tokens == greedy(package / "model.onnx", [1, 9, 14], 20, ())
