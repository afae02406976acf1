"""Graphs whose tables of positions change behind a length: kept, computed again, or refused.

`recompute` is compared with a graph that is run without caches: the whole sequence for every token.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package
from genai_compiler.read.switch_length import switch_length
from genai_runtime import LoadError, RequestError
from genai_runtime.cli import main
from genai_runtime.command_options import LENGTH_SWITCHES
from genai_runtime.length_switch import CHOICES
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.data import needs_data
from tests.lower.packages import VOCABULARY, Recipe, decoder, write_package
from tests.real_packages import GREEDY, PACKAGES, cases
from tests.traps.loop import plain_tokens

LAST = 16
"""Positions with the first tables."""
PROMPTS = [[5, 6, 7], [9, 3, 11], [4, 4, 8, 1, 2, 9, 13]]


def switching(op: str, comparison: str = "Greater", constant: int = LAST, swapped: bool = False) -> ModelProto:
    """The usual decoder whose tokens get an entry of one of two tables, by the mask's width."""
    model = decoder(Recipe(op=op))
    graph, random = model.graph, np.random.default_rng(11)
    held = {
        "short": random.normal(size=(64, 8)).astype(np.float32) * 2,
        "long": random.normal(size=(64, 8)).astype(np.float32) * 2,
        "turn": np.array(constant, np.int64),
        "first": np.array(0, np.int64),
    }
    graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in held.items())
    node = helper.make_node
    sides = ["turn", "width"] if swapped else ["width", "turn"]
    head = [
        node("Shape", ["attention_mask"], ["of_mask"]),
        node("Gather", ["of_mask", "one"], ["width"], axis=0),
        node(comparison, sides, ["behind"]),
        node("Where", ["behind", "long", "short"], ["table"]),
        node("Shape", ["input_ids"], ["ids_shape"]),
        node("Gather", ["ids_shape", "one"], ["fresh"], axis=0),
        node("Sub", ["width", "fresh"], ["before"]),
        node("Range", ["before", "width", "one"], ["at"]),
        node("Gather", ["table", "at"], ["placed"]),
        node("Add", ["words", "placed"], ["x.0"]),
    ]
    nodes = list(graph.node)
    at = next(at for at, each in enumerate(nodes) if "embedding" in each.input)
    nodes[at].output[0] = "words"
    del graph.node[:]
    graph.node.extend([*nodes[: at + 1], *head, *nodes[at + 1 :]])
    return model


def without_caches(graph: Path, prompt: Sequence[int], count: int, head: int = 8) -> list[int]:
    """Greedy tokens, the whole sequence run anew for each."""
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    ids, made = list(prompt), list[int]()
    for _ in range(count):
        feeds: dict[str, Any] = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
        for each in session.get_inputs():
            if each.name.startswith("past"):
                feeds[each.name] = np.zeros((1, each.shape[1], 0, head), np.float32)
        made.append(int(session.run(["logits"], feeds)[0][0, -1].argmax()))
        ids.append(made[-1])
    return made


@pytest.fixture(params=["attention", "gqa"])
def package(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Compiled, beside the package."""
    search = {"past_present_share_buffer": request.param == "gqa"}
    model = {"eos_token_id": VOCABULARY - 1}
    write_package(tmp_path / "package", switching(request.param), {"model": model, "search": search})
    compile_package(tmp_path / "package", out=tmp_path / "out")
    return tmp_path


def made(package: Path, choice: str, prompts: Sequence[Sequence[int]], count: int, **options: Any) -> list[list[int]]:
    with genai_runtime.load(package / "out", threads=1, length_switch=choice, **options) as model:
        rows = model.generate(batch=prompts, max_new_tokens=count, temperature=0, stop_on_eos=False).rows
        return [each.tokens for each in rows]


def test_recomputed_it_equals_a_run_without_caches(package: Path) -> None:
    """For every row, through the length and beyond; kept, it equals the plain loop, which differs."""
    graph = package / "package" / "model.onnx"
    wanted = [without_caches(graph, each, 24) for each in PROMPTS]
    assert made(package, "recompute", PROMPTS, 24) == wanted
    plain = [plain_tokens(graph, each, 24) for each in PROMPTS]
    assert made(package, "keep", PROMPTS, 24) == plain
    assert plain != wanted, "the case must tell both apart"


@pytest.mark.parametrize("length", [LAST - 1, LAST, LAST + 1])
def test_prompts_that_end_at_the_length(package: Path, length: int) -> None:
    graph, prompt = package / "package" / "model.onnx", [3 + at % 7 for at in range(length)]
    wanted = without_caches(graph, prompt, 6)
    assert made(package, "recompute", [prompt], 6) == [wanted]
    if length > LAST:  # all of it is on one side
        assert made(package, "keep", [prompt], 6) == made(package, "refuse", [prompt], 6) == [wanted]


def test_a_long_prompt_in_chunks_takes_the_tables_of_the_whole(package: Path) -> None:
    prompt = [3 + at % 7 for at in range(LAST + 9)]
    wanted = without_caches(package / "package" / "model.onnx", prompt, 5)
    assert made(package, "keep", [prompt], 5, prefill_chunk=4) == [wanted]
    short = prompt[:10]
    assert made(package, "recompute", [short], 12, prefill_chunk=4) == [
        without_caches(package / "package" / "model.onnx", short, 12)
    ]


def test_refused_with_the_numbers_before_anything_runs(package: Path) -> None:
    prompt = PROMPTS[0]
    room = LAST + 1 - len(prompt)  # the last new token goes into no run
    assert made(package, "refuse", [prompt], room) == [plain_tokens(package / "package" / "model.onnx", prompt, room)]
    with pytest.raises(RequestError) as caught:
        made(package, "refuse", [prompt], room + 1)
    assert caught.value.code == "length-switch"
    assert f"pass {LAST} positions" in str(caught.value)
    assert f"at most {room} new tokens" in str(caught.value)


def test_requests_at_the_workflow_level_and_one_after_the_other(package: Path) -> None:
    wanted = without_caches(package / "package" / "model.onnx", PROMPTS[0], 20)
    inputs = {"request.input_ids": [PROMPTS[0]], "request.max_iterations": [20]}
    with genai_runtime.load(package / "out", threads=1, length_switch="recompute") as model:
        for _ in range(2):
            assert model.run(inputs, stop_on_eos=False)["tokens"].tolist() == [wanted]
        two = [model.generate(PROMPTS[0], max_new_tokens=20, temperature=0, stop_on_eos=False) for _ in range(2)]
        taken = [[], []]
        for each, found in zip(two, taken, strict=True):
            found.extend(each.tokens)
        assert taken == [wanted, wanted]


def test_the_command_takes_the_choice(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(package / "out"), "--tokens", "5,6,7", "-n", "20", "--length-switch"]
    assert main([*arguments, "recompute"]) == 0
    wanted = without_caches(package / "package" / "model.onnx", [5, 6, 7], 20)
    shown = [int(each) for each in capsys.readouterr().out.strip().split(",")]
    assert shown == wanted[: len(shown)]
    assert len(shown) > LAST - 3 or shown[-1] == VOCABULARY - 1
    assert main([*arguments, "refuse"]) == 2
    assert "length-switch" in capsys.readouterr().err


def test_another_word_is_refused(package: Path) -> None:
    assert LENGTH_SWITCHES == CHOICES
    with pytest.raises(LoadError, match="bad-length-switch"):
        genai_runtime.load(package / "out", length_switch="again")


# ---- where it changes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comparison", "constant", "swapped"),
    [
        ("Greater", LAST, False),
        ("GreaterOrEqual", LAST + 1, False),
        ("Less", LAST + 1, False),
        ("LessOrEqual", LAST, False),
        ("Less", LAST, True),
        ("GreaterOrEqual", LAST, True),
    ],
)
def test_the_length_is_the_one_at_which_the_condition_turns(comparison: str, constant: int, swapped: bool) -> None:
    assert switch_length(switching("attention", comparison, constant, swapped), "attention_mask") == LAST


def test_a_graph_of_one_set_of_tables_has_none() -> None:
    assert switch_length(decoder(Recipe()), "attention_mask") == 0
    equal = switching("attention", "Equal")
    assert switch_length(equal, "attention_mask") == 0  # it turns twice


def test_the_constant_may_be_moved_by_sums() -> None:
    """One more than the width, compared with one more than the length."""
    model = switching("attention", "Greater", LAST + 1)
    nodes = list(model.graph.node)
    at = next(at for at, each in enumerate(nodes) if each.op_type == "Greater")
    nodes[at].input[0] = "more"
    nodes.insert(at, helper.make_node("Add", ["width", "one"], ["more"]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    assert model.graph.input[1].type.tensor_type.elem_type == TensorProto.INT64
    assert switch_length(model, "attention_mask") == LAST


# ---- a package of the field ------------------------------------------------------------------------------------------


@needs_data
def test_a_package_of_an_exporter(tmp_path: Path) -> None:
    """Kept, its own values hold (another test); computed again, those of its graph without caches."""
    shutil.copytree(PACKAGES / "og-phi3long", tmp_path / "package")
    compile_package(tmp_path / "package", out=tmp_path / "out")
    prompts = [each["prompt"] for each in cases("og-phi3long")]
    wanted = [without_caches(tmp_path / "package" / "model.onnx", each, 16, 16) for each in prompts]
    with genai_runtime.load(tmp_path / "out", threads=1, length_switch="recompute") as model:
        rows = model.generate(batch=[*prompts, prompts[-1]], max_new_tokens=16, **GREEDY).rows
        assert [each.tokens for each in rows] == [*wanted, wanted[-1]]
    assert wanted[-1] != cases("og-phi3long")[-1]["greedy"]
