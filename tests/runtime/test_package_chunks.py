"""Chunks of a prompt that a package asks for: in each dialect that has a word for it, where they hold and where not."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import onnx
import pytest
import yaml
from genai_compiler import compile_package
from genai_compiler.convert import convert_package, write_document
from genai_compiler.driver import Compiled, Options
from genai_compiler.memory import MemoryAsk
from genai_compiler.summary import summary
from genai_runtime.block_decoding import BlockDecoding
from genai_runtime.decoding import Decoding
from genai_runtime.drafting import Proposer

from tests.conftest import FIXTURES
from tests.lower.packages import Layer, Recipe, decoder, laid_over, write_package
from tests.lower.test_bare import NAMED
from tests.reference.plain_loop import greedy

PROMPT = [1, 9, 14, 3, 60, 22, 7, 31, 5, 44, 18]
CONFIG, METADATA = "genai_config.json", "inference_metadata.yaml"
CONFIGURABLE = {"model": {"runtime_configurable": {"chunked_prefill": {"chunk_size": 4}}}}
SEARCH = {"search": {"chunk_size": 4}}
Change = Callable[[Path], None]


def over_json(more: dict[str, Any]) -> Change:
    def change(folder: Path) -> None:
        file = folder / CONFIG
        file.write_text(json.dumps(laid_over(json.loads(file.read_text()), more)))

    return change


def over_yaml(more: dict[str, Any]) -> Change:
    def change(folder: Path) -> None:
        file = folder / METADATA
        file.write_text(yaml.safe_dump(laid_over(yaml.safe_load(file.read_text()), more), sort_keys=False))

    return change


def as_ports(folder: Path) -> None:
    """The package declared by its ports alone (`model.io`)."""
    layers = [(f"past_key_values.{at}.{kind}", f"present.{at}.{kind}") for at in (0, 1) for kind in ("key", "value")]
    io = {**NAMED, "kv_inputs": [past for past, _ in layers], "kv_outputs": [present for _, present in layers]}
    (folder / CONFIG).unlink()
    document = laid_over({"model": {"max_sequence_length": 64, "io": io}}, CONFIGURABLE)
    (folder / METADATA).write_text(yaml.safe_dump(document))


def as_pipeline(folder: Path) -> None:
    sessions = {"extends": "autoregressive-decoder", "sessions": {"decoder": {"file": "model.onnx"}}}
    (folder / CONFIG).write_text(json.dumps({"version": 2, "pipeline": sessions, **SEARCH}))


def converted(folder: Path) -> None:
    """The workflow that `convert` makes of the package, in its place."""
    over_json(SEARCH)(folder)
    write_document(convert_package(folder), folder / METADATA)


DIALECTS: dict[str, tuple[str, Change]] = {
    "genai_config v1, in place": ("tiny-gqa-v1", over_json(SEARCH)),
    "genai_config v1, growing": ("tiny-concat-v1", over_json(SEARCH)),
    "a fraction is cut off": ("tiny-gqa-v1", over_json({"search": {"chunk_size": 4.9}})),
    "genai_config v2": ("tiny-gqa-v1", as_pipeline),
    "model.io": ("tiny-gqa-v1", as_ports),
    "workflow": ("tiny-runtime-policy", over_yaml(CONFIGURABLE)),
    "converted": ("tiny-concat-v1", converted),
}


def edited(case: str, change: Change, folder: Path) -> Path:
    shutil.copytree(FIXTURES / case, folder)
    change(folder)
    return folder


def made(package: Path, **more: Any) -> tuple[Compiled, Path]:
    out = package.with_suffix(".compiled")
    return compile_package(package, out, Options(**more)), out


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Chunk of each request so far, 0 where its prompt goes in as a whole."""
    seen, plain = list[int](), Decoding.in_chunks

    def noted(self: Decoding, size: int) -> None:
        plain(self, size)
        seen.append(self.chunk)

    monkeypatch.setattr(Decoding, "in_chunks", noted)
    return seen


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_package_s_word_is_the_default_and_a_caller_s_counts_more(
    tmp_path: Path, chunks: list[int], dialect: str
) -> None:
    case, change = DIALECTS[dialect]
    done, out = made(edited(case, change, tmp_path / "package"))
    assert done.plan is not None
    assert [each for each in done.problems if "chunk" in each.what] == []
    assert any("runs of 4" in each for each in done.plan.decisions if each.startswith("prompt_chunks: "))
    assert "prompts of one row go in by runs of 4 tokens" in (out / "plan.txt").read_text()
    assert "  prompt      by runs of 4 tokens, of one row" in summary(done, out)
    assert json.loads((out / "manifest.json").read_text())["generation"]["prefill_chunk"] == 4
    wanted = greedy(FIXTURES / case / "model.onnx", PROMPT, 12)
    with genai_runtime.load(out) as model, genai_runtime.load(out, prefill_chunk=0) as whole:
        assert model.describe()["prefill_chunk"] == 4
        for asked in (None, 0, 3, 100):
            assert model.generate(PROMPT, max_new_tokens=12, stop_on_eos=False, prefill_chunk=asked).tokens == wanted
        assert whole.generate(PROMPT, max_new_tokens=12, stop_on_eos=False).tokens == wanted
        assert (
            model.generate(PROMPT[:4], max_new_tokens=2).tokens == whole.generate(PROMPT[:4], max_new_tokens=2).tokens
        )
    assert chunks == [4, 0, 3, 0, 0, 0, 0]


@pytest.mark.parametrize("stated", [0, -3, 0.9])
def test_less_than_a_token_is_none(tmp_path: Path, stated: float) -> None:
    done, out = made(edited("tiny-gqa-v1", over_json({"search": {"chunk_size": stated}}), tmp_path / "package"))
    assert "prefill_chunk" not in json.loads((out / "manifest.json").read_text())["generation"]
    assert done.problems == ()


@pytest.mark.parametrize(
    ("case", "why"),
    [("tiny-own-tokens-v1", "go through another graph"), ("tiny-encoder-decoder-v1", "prompts go to another graph"),
     ("tiny-shifted-v1", "windows of its own"), ("tiny-stages-v1", "windows of its own")],
)  # fmt: skip
def test_where_it_has_no_effect_it_is_said_by_name(tmp_path: Path, case: str, why: str) -> None:
    done, out = made(edited(case, over_json(SEARCH), tmp_path / "package"))
    (found,) = [each for each in done.problems if each.path == "search.chunk_size"]
    assert (found.code, found.where.file) == ("ignored-key", CONFIG)
    assert found.where.line > 1 or len((tmp_path / "package" / CONFIG).read_text().splitlines()) == 1
    assert done.plan is not None
    (told,) = [each for each in done.plan.decisions if each.startswith("prompt_chunks: ")]
    assert why in told
    assert why in found.what
    assert "prefill_chunk" not in json.loads((out / "manifest.json").read_text())["generation"]


def test_what_a_runtime_may_do_is_no_warning_where_the_document_s_own_steps_decide(tmp_path: Path) -> None:
    done, out = made(edited("tiny-decoder", over_yaml(CONFIGURABLE), tmp_path / "package"))
    assert done.problems == ()
    assert done.plan is not None
    assert any("left alone: its own steps say how a prompt runs" in each for each in done.plan.decisions)
    with genai_runtime.load(out) as model, pytest.raises(genai_runtime.RequestError) as refused:
        model.generate(PROMPT, prefill_chunk=4)
    assert refused.value.code == "unsupported-option"


@pytest.mark.parametrize("asked", [-1, 2.5, True, "4"])
def test_what_is_no_number_of_tokens_is_refused(tmp_path: Path, asked: Any) -> None:
    _, out = made(edited("tiny-gqa-v1", over_json(SEARCH), tmp_path / "package"))
    with pytest.raises(genai_runtime.LoadError, match="bad-chunk"):
        genai_runtime.load(out, prefill_chunk=asked)
    with genai_runtime.load(out) as model, pytest.raises(genai_runtime.RequestError, match="bad-chunk"):
        model.generate(PROMPT, prefill_chunk=asked)


@pytest.mark.parametrize("stated", [0, -4, True, "4", None])
def test_a_damaged_number_in_the_manifest_is_refused(tmp_path: Path, stated: Any) -> None:
    _, out = made(edited("tiny-gqa-v1", over_json(SEARCH), tmp_path / "package"))
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["generation"]["prefill_chunk"] = stated
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(genai_runtime.LoadError, match="prefill_chunk"):
        genai_runtime.load(out)


def test_the_prediction_of_memory_follows_the_package(tmp_path: Path) -> None:
    package = edited("tiny-gqa-v1", over_json(SEARCH), tmp_path / "package")

    def at_once(case: Path, chunk: int | None) -> int:
        done = compile_package(case, options=Options(write=False, memory=MemoryAsk(1, 40, 64, chunk)))
        assert done.memory is not None
        return done.memory.lengths.at_once

    assert [at_once(package, each) for each in (None, 0, 8)] == [4, 40, 8]
    assert [at_once(FIXTURES / "tiny-gqa-v1", each) for each in (None, 0, 8)] == [40, 40, 8]
    assert at_once(FIXTURES / "tiny-own-tokens-v1", 8) == 40


CASES = ("tiny-gqa-v1", "tiny-concat-v1", "tiny-runtime-policy", "tiny-own-tokens-v1", "tiny-encoder-decoder-v1",
         "tiny-shifted-v1", "tiny-stages-v1")  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_plan_says_what_the_runtime_does(tmp_path: Path, chunks: list[int], case: str) -> None:
    """Whoever asks, the runtime divides a prompt exactly where the plan says that it may be divided."""
    ask = over_yaml(CONFIGURABLE) if (FIXTURES / case / METADATA).exists() else over_json(SEARCH)
    done, out = made(edited(case, ask, tmp_path / "package"))
    assert done.plan is not None
    assert done.plan.decoder is not None
    with genai_runtime.load(out, prefill_chunk=3) as model:
        model.generate(PROMPT[:8], max_new_tokens=2).tokens  # noqa: B018
    divided = done.plan.decoder.window is None and chunks != [0]
    assert divided == (done.plan.decoder.chunk == 4)


@pytest.mark.parametrize("op", ["gqa", "attention"])
@pytest.mark.parametrize("asked", [None, 3, 0])
def test_prompts_behind_which_a_model_drafts_go_in_by_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, asked: int | None
) -> None:
    """Also the draft model's own runs of them: what verifies drafts gives logits of every position of a run."""
    model = {"model": {"draft": {"filename": "draft.onnx"}}}
    package = write_package(tmp_path / "p", Recipe(op=op), {**model, **SEARCH})
    onnx.save(decoder(Recipe(layers=(Layer(0), Layer(1)), op="attention")), package / "draft.onnx")
    prompt, runs, drafts = [each % 20 for each in PROMPT], list[int](), list[int]()
    run, step = BlockDecoding.run, Proposer._step  # pyright: ignore[reportPrivateUsage]

    def counted(self: BlockDecoding, ids: list[int], last: bool = False) -> Any:
        runs.append(len(ids))
        return run(self, ids, last)

    def drafted(self: Proposer, ids: list[int], *rest: Any) -> Any:
        drafts.append(len(ids))
        return step(self, ids, *rest)

    monkeypatch.setattr(BlockDecoding, "run", counted)
    monkeypatch.setattr(Proposer, "_step", drafted)
    with genai_runtime.load(made(package)[1], threads=1) as model_of:
        tokens = model_of.generate(prompt, max_new_tokens=12, stop_on_eos=False, prefill_chunk=asked).tokens
        size = {None: 4, 3: 3, 0: 99}[asked]
        for made_of, length in ((runs, len(prompt)), (drafts, len(prompt) + 1)):  # drafts follow the first token
            wanted = [min(size, length - at) for at in range(0, length, size)]
            assert made_of[: len(wanted)] == wanted
        assert tokens == model_of.generate(prompt, max_new_tokens=12, stop_on_eos=False, speculate=False).tokens
