"""A decoder in two sessions: the tokens of a plain loop and of the whole graph, whatever is asked of it."""

import json
import sys
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import Options, compile_package
from genai_compiler.memory import MemoryAsk
from genai_runtime.parted import Parted
from genai_runtime.request import Request
from genai_runtime.stored import PROCESSOR
from genai_runtime.values import to_value

from tests.conftest import FIXTURES
from tests.cut_packages import cut_anything, typed
from tests.data import ROOT
from tests.reference.plain_loop import greedy

CASES = {
    "tiny-gqa-v1": "model.onnx",
    "tiny-tied-v1": "model.onnx",
    "tiny-concat-v1": "model.onnx",
    "tiny-minimal-v2": "model.onnx",
    "tiny-runtime-policy": "model.onnx",
}
"""A shared buffer, a tied weight, growing state; version 2; an authored workflow."""
PROMPTS = [[1, 10, 20, 30], [5], [3, 40, 41, 42, 43, 44, 5, 4]]
WITHOUT = Options(without=("split_opening",))


@pytest.fixture(autouse=True)
def anyhow(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_anything(monkeypatch)


def stated(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text("utf-8"))
    return found


def made(package: Path, out: Path, options: Options | None = None) -> Path:
    """Compiled, and cut."""
    plan = compile_package(package, out, options).plan
    assert plan is not None
    assert [each.name for each in plan.components if each.parts is not None] == ["decoder"]
    return out


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [1, 2])
def test_tokens_are_those_of_a_plain_loop(case: str, threads: int, tmp_path: Path) -> None:
    package = typed(case, tmp_path)
    compile_package(package, tmp_path / "whole", WITHOUT)
    wanted = [greedy(FIXTURES / case / CASES[case], each, 12) for each in PROMPTS]
    sampled = list[list[int]]()
    for folder in (made(package, tmp_path / "cut"), tmp_path / "whole"):
        with genai_runtime.load(folder, threads=threads) as model:
            options: dict[str, Any] = {"stop_on_eos": False, "max_new_tokens": 12}
            assert [model.generate(each, **options).tokens for each in PROMPTS] == wanted
            assert [row.tokens for row in model.generate(batch=PROMPTS, **options).rows] == wanted
            assert model.generate(PROMPTS[2], prefill_chunk=3, **options).tokens == wanted[2]
            sampled.append(model.generate(PROMPTS[2], temperature=0.9, seed=3, **options).tokens)
    assert sampled[0] == sampled[1]


def test_the_folder_and_the_plan_say_where(tmp_path: Path) -> None:
    folder = made(typed("tiny-gqa-v1", tmp_path), tmp_path / "out")
    data, text = stated(folder), (folder / "plan.txt").read_text("utf-8")
    graphs = {"decoder_first", "decoder_second"}
    assert set(data["graphs"]) == graphs == set(data["opens"])
    (crossing,) = data["parts"]["decoder"]["crossing"]
    assert data["parts"]["decoder"]["graphs"] == ["decoder_first", "decoder_second"]
    assert sorted(each.stem for each in (folder / "graphs").iterdir()) == sorted(graphs)
    assert "component decoder = model.onnx, edited, in two sessions" in text
    assert f"  from one to the other: {crossing}[input_ids 0, input_ids 1, 16]" in text
    assert "decision split_opening: decoder opens in two sessions at once" in text


def test_state_belongs_to_the_part_that_reads_it(tmp_path: Path) -> None:
    """Two layers, one on each side: keys and values of a layer are ports of one session alone."""
    folder = made(typed("tiny-gqa-v1", tmp_path), tmp_path / "out")
    with genai_runtime.load(folder, threads=1) as model:
        whole = model._sessions.session("decoder")
        assert isinstance(whole, Parted)
        assert model.describe()["providers"] == {"decoder": ["CPUExecutionProvider"]}
        first, second = ({each.name for each in session.get_inputs()} for session in (whole.first, whole.second))
        assert {name for name in first if "past" in name} == {f"past_key_values.0.{kind}" for kind in ("key", "value")}
        assert {name for name in second if "past" in name} == {f"past_key_values.1.{kind}" for kind in ("key", "value")}
        assert {each.name for each in whole.get_inputs()} == (first | second) - set(whole.crossing)


@pytest.mark.skipif(not PROCESSOR.exists(), reason="this system does not tell its processor")
@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-concat-v1"])
def test_both_sessions_are_stored(case: str, tmp_path: Path) -> None:
    folder = made(typed(case, tmp_path), tmp_path / "out", Options(store_sessions=True))
    assert set(stated(folder)["stored"]["graphs"]) == {"decoder_first", "decoder_second"}
    with genai_runtime.load(folder, threads=1) as model:
        tokens = model.generate(PROMPTS[2], max_new_tokens=12, stop_on_eos=False).tokens
    assert tokens == greedy(FIXTURES / case / "model.onnx", PROMPTS[2], 12)


@pytest.mark.parametrize("case", ["tiny-block-drafts", "tiny-chained-drafts"])
def test_what_drafts_are_verified_with_stays_whole(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inference does not see through this graph's attention; that what crosses has a vector a token is known here."""
    known = ("input_ids 0", "input_ids 1", 16)
    one_pass = sys.modules["genai_compiler.passes.split_opening"]
    monkeypatch.setattr(one_pass, "_extents", lambda _, place: tuple((name, known) for name, _ in place.crossing))
    compile_package(typed(case, tmp_path), tmp_path / "out")
    assert "parts" not in stated(tmp_path / "out")
    assert (
        "opens in one session: drafts are verified in runs of other lengths"
        in (tmp_path / "out" / "plan.txt").read_text()
    )


def test_a_profile_shows_the_runs_of_both(tmp_path: Path) -> None:
    folder = made(typed("tiny-gqa-v1", tmp_path), tmp_path / "out")
    with genai_runtime.load(folder, threads=1, timings=True) as model:
        assert len(model.generate(PROMPTS[0], max_new_tokens=4, stop_on_eos=False).tokens) == 4
        assert model.timings is not None
        runs = [(span.name, span.origin, span.step) for span in model.timings.spans if span.kind == "session run"]
    lines = (FIXTURES / "tiny-gqa-v1" / "genai_config.json").read_text("utf-8").splitlines()
    at = next(number for number, line in enumerate(lines, 1) if '"filename"' in line)
    place = f"genai_config.json:{at} model.decoder.filename", "pipeline.workflow.steps[0].steps[0]"
    assert runs == [("decoder_first", *place), ("decoder_second", *place)] * 4


def test_memory_counts_the_workspace_of_both(tmp_path: Path) -> None:
    package, ask = typed("tiny-gqa-v1", tmp_path), MemoryAsk(2, 16, 32)
    found = compile_package(package, options=Options(write=False, memory=ask)).memory
    whole = compile_package(package, options=Options(write=False, memory=ask, without=("split_opening",))).memory
    assert found is not None
    assert whole is not None
    named = {each.name: each.bytes for each in found.terms if each.name.startswith("workspace")}
    assert set(named) == {"workspace of decoder_first", "workspace of decoder_second"}
    alone = {each.name: each.bytes for each in whole.terms}["workspace of decoder"]
    assert max(named.values()) <= alone <= sum(named.values())
    assert found.sessions == ("decoder_first", "decoder_second")
    states = [[(each.name, each.bytes) for each in every.terms if "state" in each.name] for every in (found, whole)]
    assert states[0] == states[1]


def test_caches_grow(tmp_path: Path) -> None:
    """Beyond the first room of a buffer: both sessions get larger ones."""
    prompt = [7] * 8
    for case in ("tiny-gqa-v1", "tiny-concat-v1"):
        folder = made(typed(case, tmp_path), tmp_path / f"{case}.out")
        with genai_runtime.load(folder, threads=1) as model:
            tokens = model.generate(prompt, max_new_tokens=50, stop_on_eos=False).tokens
        assert tokens == greedy(FIXTURES / case / "model.onnx", prompt, 50)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda parts: parts.pop("crossing"), "parts[0].crossing is missing"),
        (lambda parts: parts.update(graphs=["decoder_first"]), "parts.decoder are not two of the graphs"),
        (lambda parts: parts.update(graphs=["decoder_first", "else"]), "parts.decoder are not two of the graphs"),
        (lambda parts: parts.update(graphs=["decoder_first"] * 2), "decoder_first hands other values to decoder_first"),
        (lambda parts: parts["graphs"].reverse(), "decoder_second hands other values to decoder_first"),
        (lambda parts: parts.update(crossing=["else"]), "decoder_first hands other values to decoder_second than"),
        (lambda parts: parts.update(crossing=[]), "decoder_first hands other values to decoder_second than []"),
    ],
    ids=["missing", "one", "unknown", "twice", "reversed", "no port", "nothing"],
)
def test_a_manifest_that_names_other_parts_is_damaged(change: Any, said: str, tmp_path: Path) -> None:
    folder = made(typed("tiny-gqa-v1", tmp_path), tmp_path / "out")
    data = stated(folder)
    change(data["parts"]["decoder"])
    (folder / "manifest.json").write_text(json.dumps(data), "utf-8")
    with pytest.raises(genai_runtime.LoadError, match="parts") as refused:
        genai_runtime.load(folder)
    assert refused.value.code == "damaged-folder"
    assert said in str(refused.value)


# ---- the real model --------------------------------------------------------------------------------------------------

REAL = ROOT / "build" / "peers" / "packages"


@pytest.mark.heavy
@pytest.mark.parametrize("form", ["int4", "int8", "fp32"])
def test_the_real_model_gives_the_same_bits(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SmolLM2 by the peer's builder, with the bounds as they are: logits of a prompt and of steps, and tokens."""
    if not (REAL / form / "genai_config.json").exists():
        pytest.skip("not built (python -m tools.peers packages)")
    monkeypatch.undo()
    compile_package(REAL / form, tmp_path / "whole", WITHOUT)
    prompt, logits, tokens = [*range(5, 69)], list[list[bytes]](), list[Any]()
    for folder in (made(REAL / form, tmp_path / "cut"), tmp_path / "whole"):
        with genai_runtime.load(folder, threads=1) as model:
            options: dict[str, Any] = {"stop_on_eos": False, "max_new_tokens": 24, "temperature": 0}
            rows = model.generate(batch=[prompt, prompt[:7]], **options).rows
            found = [model.generate(prompt, prefill_chunk=size, **options).tokens for size in (0, 16)]
            tokens.append([found, [row.tokens for row in rows]])
            executor: Any = model._open
            request = Request({})
            decoding = executor.decoder.start(to_value(np.array([prompt])), request, 8)
            decoding.prompt()
            seen = [decoding.logits.tobytes()]
            for token in (9, 4000, 77):
                decoding.tokens[:] = token
                decoding.advance()
                seen.append(decoding.logits.tobytes())
            logits.append(seen)
    assert tokens[0] == tokens[1]
    assert logits[0] == logits[1]
