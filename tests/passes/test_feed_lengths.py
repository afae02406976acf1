"""Lengths in a mask's place: the plan before and after, and what keeps the mask. The program without gives the same."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import Options, compile_package
from genai_compiler.passes.feed_lengths import feed_lengths
from genai_compiler.passes.profile import Profile, profile_of
from genai_compiler.plan.edits import Edited, FeedLengths
from genai_compiler.plan.ir import Invoke, Plan, Type
from genai_compiler.plan.state import FedLengths, Window
from genai_compiler.plan.verify import verify
from genai_compiler.read.load import load_package
from genai_runtime import state
from onnx import ModelProto, helper

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy

CASE = FIXTURES / "tiny-gqa-v1"
LENGTHS = FedLengths("seqlens_k", "total_sequence_length")


def before() -> tuple[Plan, Profile]:
    """The plan as the pass gets it."""
    plan = compile_package(CASE, options=Options(stop_after="place_state")).plan
    assert plan is not None
    return plan, profile_of(load_package(CASE))


def test_ports_take_the_masks_place() -> None:
    plan, profile = before()
    after = feed_lengths(plan, profile)
    assert verify(after) == ()
    assert after.decoder == replace(plan.decoder, mask=None, lengths=LENGTHS)  # type: ignore[type-var]
    component = after.component("decoder")
    old, new = dict(plan.component("decoder").inputs), dict(component.inputs)
    assert {name: port for name, port in new.items() if name not in old} == {
        "seqlens_k": Type("int32", 1, ("batch",), 0),
        "total_sequence_length": Type("int32", 1, (1,)),
    }
    assert old.keys() - new.keys() == {"attention_mask"}
    assert isinstance(component.edit, Edited)
    assert [type(each).__name__ for each in component.edit.parts] == ["SelectLast", "FeedLengths"]
    assert after.decisions[-1].startswith("feed_lengths: attention gets its lengths as numbers")


def kept(plan: Plan, name: str) -> Plan:
    """A plan in which one thing needs the mask."""
    facts = plan.decoder
    assert facts is not None
    assert facts.mask is not None
    growing = tuple(replace(each, storage="growing") for each in plan.groups)
    runs = Invoke("decoder", (), (), "steps[0]", ())
    return {
        "growing": replace(plan, groups=growing),
        "columns": replace(plan, decoder=replace(facts, mask=replace(facts.mask, use="columns"))),
        "windows": replace(plan, decoder=replace(facts, window=Window(4, 0))),
        "prompt": replace(plan, decoder=replace(facts, prompt_component="other")),
        "token by token": replace(plan, decoder=replace(facts, one_token=True)),
        "a step": replace(plan, body=(runs, *plan.body)),
    }[name]


@pytest.mark.parametrize("name", ["growing", "columns", "windows", "prompt", "token by token", "a step"])
def test_a_mask_that_is_needed_stays(name: str) -> None:
    plan, profile = before()
    plan = kept(plan, name)
    assert feed_lengths(plan, profile) is plan


def test_a_graph_that_reads_more_is_told(tmp_path: Path) -> None:
    plan, profile = before()
    graph = profile.graphs["decoder"]
    model = ModelProto.FromString(graph.model.SerializeToString())
    model.graph.node.add(op_type="ReduceMax", input=["attention_mask"], output=["longest"])
    after = feed_lengths(plan, replace(profile, graphs={"decoder": replace(graph, model=model)}))
    assert after == replace(plan, decisions=(*plan.decisions, after.decisions[-1]))
    assert "ReduceMax takes more of 'attention_mask' than its lengths" in after.decisions[-1]


def test_operators_may_stand_in_any_order(tmp_path: Path) -> None:
    """ONNX Runtime sorts them: one that reads a length may stand before what makes it."""
    plan, profile = before()
    graph = profile.graphs["decoder"]
    model = ModelProto.FromString(graph.model.SerializeToString())
    (summed,) = [each.output[0] for each in model.graph.node if each.op_type == "ReduceSum"]
    nodes = [helper.make_node("Cast", [summed], ["as_a_float"], to=1), *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    after = feed_lengths(plan, replace(profile, graphs={"decoder": replace(graph, model=model)}))
    assert after == replace(plan, decisions=(*plan.decisions, after.decisions[-1]))
    assert "stand before it" in after.decisions[-1]


def test_a_port_of_the_graph_keeps_its_name() -> None:
    plan, profile = before()
    graph = profile.graphs["decoder"]
    model = ModelProto.FromString(graph.model.SerializeToString())
    model.graph.node.add(op_type="Identity", input=["input_ids"], output=["seqlens_k"])
    after = feed_lengths(plan, replace(profile, graphs={"decoder": replace(graph, model=model)}))
    assert after.decoder is not None
    assert after.decoder.lengths == FedLengths("seqlens_k_", "total_sequence_length")
    (edit,) = [each for each in after.component("decoder").edit.parts if isinstance(each, FeedLengths)]  # type: ignore[union-attr]
    assert (edit.last, edit.width) == ("seqlens_k_", "total_sequence_length")


# ---- what runs -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The fixture compiled with the pass, and without."""
    made = tmp_path_factory.mktemp("lengths")
    for name, left in (("with", ()), ("without", ("feed_lengths",))):
        compile_package(CASE, made / name, Options(without=left))
    return {"with": made / "with", "without": made / "without"}


ROWS = [[1, 10, 20, 30], [7], [3, 40, 41, 42, 43, 44, 5, 4]]
REQUESTS: dict[str, dict[str, Any]] = {
    "one row": {"prompt": ROWS[0]},
    "the whole context": {"prompt": ROWS[2], "max_new_tokens": 99},
    "rows of three lengths": {"batch": ROWS},
    "sampled": {"batch": ROWS, "temperature": 1.2, "seed": 3},
}


@pytest.mark.parametrize("chunk", [None, 3], ids=["", "chunks"])
@pytest.mark.parametrize("first_room", [512, 2], ids=["room enough", "growing buffers"])
@pytest.mark.parametrize("name", REQUESTS)
def test_every_run_gives_the_same_bits(
    folders: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch, name: str, first_room: int, chunk: int | None
) -> None:
    monkeypatch.setattr(state, "FIRST_ROOM", first_room)
    options = {"max_new_tokens": 20, "temperature": 0.0, "stop_on_eos": False, **REQUESTS[name]}
    seen = list[Any]()
    for folder in folders.values():
        with genai_runtime.load(folder, threads=1, prefill_chunk=chunk) as model:
            seen.append([row.tokens for row in model.generate(**options).rows])
    assert seen[0] == seen[1]
    if name == "one row":
        assert seen[0] == [greedy(CASE / "model.onnx", ROWS[0], 20)]


@pytest.mark.parametrize("rows", [1, 2])
def test_steps_give_the_logits_of_a_mask(folders: Mapping[str, Path], rows: int) -> None:
    """To the last bit, of the prompt and of each step."""
    found = list[list[bytes]]()
    for folder in folders.values():
        with genai_runtime.load(folder, threads=1) as model:
            decoder = model._executor.decoder
            assert (decoder.spec.mask is None) == (decoder.spec.lengths is not None) == (folder.name == "with")
            from genai_runtime.request import Request
            from genai_runtime.values import view

            ids = np.array([[1, 10, 20, 30]] * rows)
            decoding = decoder.start(view(ids), Request({}, prompt_lengths=np.array([4, 2][:rows])), 12)
            decoding.prompt()
            made = [decoding.logits.tobytes()]
            for token in range(9, 15):
                decoding.tokens[:] = token
                decoding.advance()
                made.append(decoding.logits.tobytes())
            found.append(made)
    assert found[0] == found[1]
    assert len(set(found[0])) == 7
