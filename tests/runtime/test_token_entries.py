"""Token ids that a package has not: refused by name at every entry, before any graph runs, wherever they go."""

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import compile_package
from genai_runtime import Model, RequestError, binding
from genai_runtime.cli import main

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy
from tests.runtime.conversations import conversation
from tests.speculative_packages import edited, own_decoder_as_proposer, plain
from tools.fixtures.document import Document
from tools.fixtures.network import VOCABULARY

Models = Callable[[str], Model]
DECODERS = [
    "tiny-gqa-v1", "tiny-concat-v1", "tiny-decoder", "tiny-turns", "tiny-stages-v1", "tiny-minimal-v2", "tiny-media-v2",
    "tiny-own-tokens-v1", "tiny-block-drafts", "tiny-chained-drafts", "tiny-runtime-policy", "tiny-shifted-v1",
]  # fmt: skip
OTHERS = ["tiny-encoder-decoder-v1", "tiny-encoder-v2", "tiny-ssru-v1", "tiny-embedder-v2"]
"""Whose prompt goes to an encoder."""
ODD = [-1, -VOCABULARY, VOCABULARY, 1 << 40]


def refused(call: Callable[[], object]) -> RequestError:
    with pytest.raises(RequestError) as caught:
        call()
    assert caught.value.code == "bad-token", caught.value
    return caught.value


def given(model: Model, ids: Any) -> dict[str, Any]:
    """What `run` takes for two tokens at most behind these."""
    inputs = model.describe()["inputs"]
    prompt = next(each for each in inputs if each["role"] == "prompt_tokens")
    array = np.asarray(ids).astype(prompt["dtype"])
    most = {each["name"]: [2] for each in inputs if each["role"] in ("max_iterations", "max_output_tokens")}
    masks = {each["application"]: np.ones_like(array) for each in inputs if each["application"] == "attention_mask"}
    return {prompt["name"]: array, **most, **masks}


def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: Any) -> Callable[..., Any]:
        def never(*_: Any) -> Any:
            raise AssertionError("a graph has run")

        return never

    for name in ("run_bound", "run_with_values"):
        monkeypatch.setattr(binding, name, opened)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("case", DECODERS + OTHERS)
def test_run_refuses_ids_that_the_table_has_not(model: Models, case: str, odd: int) -> None:
    tiny = model(case)
    tiny.run(given(tiny, [[1, VOCABULARY - 1]]))
    for ids in ([[1, odd]], [[1, 9], [odd, 9]]):
        said = str(refused(lambda ids=ids: tiny.run(given(tiny, ids))))  # type: ignore[misc]
        assert f"no such token ids: [{odd}]; ids are 0 to {VOCABULARY - 1}" in said
        assert "input_ids'" in said
    refused(lambda: list(tiny.stream(given(tiny, [[1, odd]]))))


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-encoder-v2"])
def test_that_is_before_any_graph_runs(model: Models, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    tiny = model(case)
    nothing_runs(monkeypatch)
    with pytest.raises(AssertionError, match="a graph has run"):
        tiny.run(given(tiny, [[1, 9]]))
    refused(lambda: tiny.run(given(tiny, [[1, -1]])))


@pytest.mark.parametrize("case", [*DECODERS, *OTHERS[:3]])
def test_generate_refuses_them_alone_and_in_batches(model: Models, case: str) -> None:
    tiny = model(case)
    for odd in ODD:
        refused(lambda odd=odd: tiny.generate([1, odd]))  # type: ignore[misc]
        refused(lambda odd=odd: tiny.generate(batch=[[1], [1, odd]]))  # type: ignore[misc]
        refused(lambda odd=odd: tiny.count_tokens([odd]))  # type: ignore[misc]


@pytest.mark.parametrize("case", OTHERS[:3])
@pytest.mark.parametrize("odd", ODD[:3])
def test_tokens_that_start_an_output_are_held_too(model: Models, case: str, odd: int) -> None:
    tiny = model(case)
    dtype = next(each["dtype"] for each in tiny.describe()["inputs"] if each["application"] == "decoder_input_ids")
    inputs = {**given(tiny, [[1, 9]]), "decoder_input_ids": np.array([[odd]], dtype)}
    assert "'decoder_input_ids'" in str(refused(lambda: tiny.run(inputs)))


def test_prompts_of_a_picture_are_held_too(model: Models) -> None:
    tiny = model("tiny-denoiser")
    for prompt, negative in (([VOCABULARY], [1]), ([1], [VOCABULARY]), ([-1], [1]), ([1], [-1])):
        refused(lambda p=prompt, n=negative: tiny.draw(p, n, width=16, height=16))  # type: ignore[misc]


def test_the_command_line_names_them(compiled: Callable[[str], Any], capsys: pytest.CaptureFixture[str]) -> None:
    for case, words in (
        ("tiny-decoder", ["--tokens", "1,64"]),
        ("tiny-encoder-decoder-v1", ["--tokens", "64"]),
        ("tiny-embedder-v2", ["--tokens", "64", "--input", "attention_mask=[[1]]"]),
        ("tiny-embedder-v2", ["--tokens=-1", "--input", "attention_mask=[[1]]"]),
        ("tiny-embedder-v2", ["--input", "input_ids=[[-1]]", "--input", "attention_mask=[[1]]"]),
    ):
        assert main([str(compiled(case)[0]), *words]) == 2
        assert "genai-run: bad-token: " in capsys.readouterr().err


@pytest.mark.parametrize("name", ["input_ids", "application.input_ids"])
def test_ids_that_are_given_as_an_input_need_no_prompt(name: str, compiled: Callable[[str], Any]) -> None:
    """By either of the names of the input."""
    folder = compiled("tiny-embedder-v2")[0]
    assert main([str(folder), "--input", f"{name}=[[1, 2]]", "--input", "attention_mask=[[1, 1]]"]) == 0


@pytest.mark.parametrize("pad", [-1, VOCABULARY])
def test_a_padding_id_that_is_no_token_does_not_reach_a_table(tmp_path: Path, pad: int) -> None:
    package = shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")
    stated = json.loads((package / "genai_config.json").read_text())
    stated["model"]["pad_token_id"] = pad
    (package / "genai_config.json").write_text(json.dumps(stated))
    compile_package(package, out=tmp_path / "c")
    prompts = [[1, 9, 14, 7], [7]]
    with genai_runtime.load(tmp_path / "c", threads=1) as tiny:
        rows = tiny.generate(batch=prompts, max_new_tokens=5, stop_on_eos=False).rows
    network = FIXTURES / "tiny-concat-v1" / "model.onnx"
    assert [each.tokens for each in rows] == [greedy(network, each, 5) for each in prompts]


def test_a_conversation_that_was_written_by_hand_is_held(tmp_path: Path) -> None:
    """What `restore` takes is a caller's, too."""
    case = "tiny-runtime-policy"
    with genai_runtime.load(conversation(tmp_path / case, case)) as talking:
        assert talking.generate([1, 9, 14], session="a", max_new_tokens=3).tokens
        stored = np.load(io.BytesIO(talking.checkpoint("a")))
        for odd in (-1, VOCABULARY):
            changed = io.BytesIO()
            np.savez(changed, header=stored["header"], cell0=np.array([[1, odd]]))
            talking.restore("b", changed.getvalue())
            refused(lambda: talking.generate([7], session="b", max_new_tokens=1).tokens)


def test_where_no_table_tells_the_logits_do(tmp_path: Path) -> None:
    """A graph that takes 0 for what is below 0: its table says nothing of what may come, its vocabulary does."""
    package = shutil.copytree(FIXTURES / "tiny-concat-v1", tmp_path / "package")
    model = onnx.load(package / "model.onnx")
    lookup = next(node for node in model.graph.node if "embedding" in node.input)
    at = list(model.graph.node).index(lookup)
    lookup.input[1] = "kept"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "nought"))
    for node in (
        onnx.helper.make_node("Where", ["below", "nought", "input_ids"], ["kept"]),
        onnx.helper.make_node("Less", ["input_ids", "nought"], ["below"]),
    ):
        model.graph.node.insert(at, node)
    onnx.save(model, package / "model.onnx")
    compile_package(package, out=tmp_path / "c")
    with genai_runtime.load(tmp_path / "c", threads=1) as tiny:
        assert tiny.generate([1, 63], max_new_tokens=3, stop_on_eos=False).tokens == greedy(
            package / "model.onnx", [1, 63], 3
        )
        for odd in ODD:
            refused(lambda odd=odd: tiny.run(given(tiny, [[1, odd]])))  # type: ignore[misc]


@pytest.mark.parametrize("looked_up", [False, True])
def test_a_proposer_that_has_not_all_of_the_tokens_is_not_used(tmp_path: Path, looked_up: bool) -> None:
    """Its table ends before the target's: a token of the target's could not be fed to it."""

    def narrow(package: Path, _: Document) -> None:
        draft = onnx.load(str(package / "draft.onnx"))
        tables = [each for each in draft.graph.initializer if each.name == "embedding"]
        tables[0].CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tables[0])[:40], tables[0].name))
        onnx.save(draft, str(package / "draft.onnx"))

    shutil.copytree(FIXTURES / "tiny-chained-drafts", tmp_path / "package")
    document = own_decoder_as_proposer(tmp_path / "package")
    model = edited(tmp_path, document, *([narrow] if looked_up else []))
    assert model._manifest.data["speculation"]["driven"] is not looked_up
    if looked_up:
        said = "it embeds the ids 0 to 39, and the target's tokens end at 63"
        assert said in model._manifest.data["speculation"]["reason"]
    assert model.generate([1, 63, 50], max_new_tokens=4, stop_on_eos=False).tokens == plain(
        tmp_path / "package", [1, 63, 50], 4
    )
