"""The summary's session runs: as many as ONNX Runtime is really called for, a token and before the first.

The other count is made of the spans that a run notes at ONNX Runtime's own calls.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import genai_runtime
import onnx_ir as ir
import pytest
from genai_compiler import compile_package
from genai_compiler.session_runs import runs_text
from genai_runtime.timings import RUN

from tests.conftest import FIXTURES, Traced
from tests.lower.test_pipeline_cut import document, written
from tools.fixtures.network import concat_decoder, gqa_decoder

Compiled = Callable[[str], tuple[Path, Traced]]
STEPPED = [
    "tiny-gqa-v1",
    "tiny-concat-v1",
    "tiny-own-tokens-v1",
    "tiny-media-v2",
    "tiny-stages-v1",
    "tiny-runtime-policy",
]
"""The runtime drives them: the first token comes of what runs before the loop."""
LOOPED = ["tiny-decoder", "tiny-held-state", "tiny-turns"]
"""Their own loop chooses every token."""


def told(case: str, tmp_path: Path) -> tuple[int, int, int]:
    """Runs before the first token, for each, and how many fewer where one row has settled; of the text."""
    plan = compile_package(FIXTURES / case, tmp_path / "made").plan
    assert plan is not None
    text = runs_text(plan)
    (again,) = re.findall(r"(\d+) session runs? a token \(iteration\)", text)
    (before,) = re.findall(r"(\d+)(?: or more)? before the first", text)
    fewer = re.findall(r"(\d+) fewer for one row", text)
    return int(before), int(again), int(fewer[0]) if fewer else 0


def counted(folder: Path, tokens: int) -> int:
    """Session runs of one request for so many tokens."""
    with genai_runtime.load(folder, threads=1, timings=True) as model:
        assert model.timings is not None
        made = model.generate([1, 9, 14], max_new_tokens=tokens, stop_on_eos=False).tokens
        assert len(made) == tokens
        return sum(each.kind == RUN for each in model.timings.spans)


@pytest.mark.parametrize("case", STEPPED)
def test_a_decoder_of_the_runtime(case: str, tmp_path: Path) -> None:
    _, again, fewer = told(case, tmp_path)
    few, many = counted(tmp_path / "made", 4), counted(tmp_path / "made", 10)
    assert (many - few, fewer) == (6 * again, 0)


def test_what_makes_embeddings_counts(tmp_path: Path) -> None:
    assert told("tiny-media-v2", tmp_path)[1] == 2


@pytest.mark.parametrize("case", LOOPED)
def test_a_loop_of_its_own(case: str, tmp_path: Path) -> None:
    """Its first steps run all graphs, those of a row that has settled fewer."""
    before, again, fewer = told(case, tmp_path)
    made = {tokens: counted(tmp_path / "made", tokens) for tokens in (1, 20, 30)}
    assert made[1] == before + again
    assert made[30] - made[20] == 10 * (again - fewer)


@pytest.mark.parametrize(
    ("case", "search", "before"),
    [("tiny-gqa-v1", {"chunk_size": 2}, 2), ("tiny-ssru-v1", {}, 2)],
)
def test_a_prompt_in_parts_takes_more_than_one_run(
    case: str, search: dict[str, int], before: int, tmp_path: Path
) -> None:
    """Of three tokens in chunks of two, two. What starts an output is one token, for one run."""
    shutil.copytree(FIXTURES / case, tmp_path / "p")
    config = json.loads((tmp_path / "p" / "genai_config.json").read_text())
    config["search"] = {**config.get("search", {}), **search}
    (tmp_path / "p" / "genai_config.json").write_text(json.dumps(config))
    plan = compile_package(tmp_path / "p", tmp_path / "made").plan
    assert plan is not None
    assert counted(tmp_path / "made", 1) == before
    assert ("or more before the first" in runs_text(plan)) == (case != "tiny-ssru-v1")


def by_windows(folder: Path) -> Path:
    """Prompts of one session in windows of two tokens."""
    graphs = {"decoder": gqa_decoder().proto()}
    window = {"kv_cache": {"sliding_window": {"window_size": 2}}, "position_ids": {"strategy": "windowed"}}
    return written(folder, graphs, document(graphs, state=window))


def one_by_one(folder: Path) -> Path:
    """A graph that takes one token a run."""
    sketch = concat_decoder()
    sketch.builder.graph.inputs[0].shape = ir.Shape(["batch", 1])
    graphs = {"decoder": sketch.proto()}
    return written(folder, graphs, document(graphs))


@pytest.mark.parametrize(("made", "runs"), [(by_windows, 2), (one_by_one, 3)])
def test_a_prompt_that_the_graph_takes_in_parts_is_several_runs(
    made: Callable[[Path], Path], runs: int, tmp_path: Path
) -> None:
    """Of the three tokens that are counted with: two windows of two, or each by itself."""
    plan = compile_package(made(tmp_path / "p"), tmp_path / "made").plan
    assert plan is not None
    assert counted(tmp_path / "made", 1) == runs
    assert runs_text(plan) == "1 session run a token (iteration), 1 or more before the first"


def test_adapters_are_no_session_runs(tmp_path: Path) -> None:
    """tiny-own-tokens-v1 hears with adapters' code: of all its steps before the loop few are graphs."""
    plan = compile_package(FIXTURES / "tiny-own-tokens-v1", tmp_path / "made").plan
    assert plan is not None
    graphs = {each.name for each in plan.components if each.adapter is None and each.artifact}
    most = re.findall(r"(\d+)(?: or more)? before the first", runs_text(plan))[0]
    assert int(most) <= len(graphs)
