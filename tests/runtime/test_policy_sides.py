"""Whole packages, sampled by the host and by graphs: the same tokens for a seed; and what `load` takes and refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_compiler import Options, compile_package
from genai_runtime.graph_sampler import GraphSampler
from genai_runtime.policy_graphs import graph_of

from tests.conftest import FIXTURES, Traced
from tests.test_equivalence import DECODERS, PROMPTS

Compiled = Callable[[str], tuple[Path, Traced]]
ASKED: list[dict[str, Any]] = [
    {"temperature": 0.9, "top_k": 0, "seed": 3},
    {"top_k": 20, "top_p": 0.9, "seed": 4},
    {"top_k": 0, "top_p": 0.8, "temperature": 1.3, "seed": 5},
    {"top_k": 0, "min_p": 0.05, "seed": 6},
    {"top_k": 9, "repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "min_new_tokens": 6, "seed": 7},
    {"temperature": 0},
]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kind of graph of every row that is drawn from by one."""
    seen = list[str]()
    over = GraphSampler.over

    def noted(self: GraphSampler, row: Any) -> Callable[[], int]:
        seen.append(graph_of(self._options))
        return over(self, row)

    monkeypatch.setattr(GraphSampler, "over", noted)
    return seen


@pytest.mark.parametrize("options", ASKED, ids=str)
@pytest.mark.parametrize("case", DECODERS)
def test_both_sides_give_the_same_tokens(
    compiled: Compiled, drawn: list[str], case: str, options: dict[str, Any]
) -> None:
    folder, made = compiled(case)[0], []
    for side in ("host", "graph", None):
        with genai_runtime.load(folder, threads=1, policy=side) as model:
            made.append([model.generate(each, max_new_tokens=24, **options).tokens for each in PROMPTS])
        if side == "host":
            assert drawn == []
        if side == "graph":
            assert len(drawn) == (0 if options.get("temperature") == 0 else len(PROMPTS))
    assert made[0] == made[1] == made[2]


def test_rows_of_different_options_are_their_solo_runs(compiled: Compiled, drawn: list[str]) -> None:
    """A batch in which one row is greedy and each of the others is another graph's."""
    rows: dict[str, list[Any]] = {
        "temperature": [0, 0.8, 1.0, 1.2, 1.0],
        "top_k": [0, 0, 7, 0, 0],
        "top_p": [1.0, 1.0, 0.9, 0.8, 1.0],
        "min_p": [0.0, 0.0, 0.0, 0.0, 0.1],
        "seed": [None, 1, 2, 3, 4],
    }
    prompts = [[1, 9, 14], [5], [3, 40, 41], [22, 7], [60]]
    made: dict[str, Any] = {}
    for side in ("host", "graph"):
        with genai_runtime.load(compiled("tiny-gqa-v1")[0], threads=1, policy=side) as model:
            batch = model.generate(batch=prompts, max_new_tokens=12, stop_on_eos=False, **rows).rows
            made[side] = [row.tokens for row in batch]
            alone = [
                model.generate(
                    each, max_new_tokens=12, stop_on_eos=False, **{name: values[at] for name, values in rows.items()}
                ).tokens
                for at, each in enumerate(prompts)
            ]
            assert made[side] == alone
    assert made["host"] == made["graph"]
    assert drawn == ["temperature", "top_k", "top_p", "min_p"] * 2  # as a batch, and each alone


def test_drafts_change_no_token(compiled: Compiled) -> None:
    made = []
    for side, drafts in (("host", False), ("graph", False), ("graph", True)):
        with genai_runtime.load(compiled("tiny-chained-drafts")[0], threads=1, policy=side) as model:
            asked = {"max_new_tokens": 20, "top_k": 12, "top_p": 0.9, "seed": 8, "speculate": drafts}
            made.append(model.generate([1, 10, 20, 30], stop_on_eos=False, **asked).tokens)
    assert made[0] == made[1] == made[2]


def test_what_load_takes(compiled: Compiled, tmp_path: Path) -> None:
    with pytest.raises(genai_runtime.LoadError, match="'host' or 'graph'") as refused:
        genai_runtime.load(compiled("tiny-gqa-v1")[0], policy="gpu")
    assert refused.value.code == "bad-policy"
    for folder in (compiled("tiny-decoder")[0], tmp_path / "without"):
        if folder.parent == tmp_path:
            compile_package(FIXTURES / "tiny-gqa-v1", folder, Options(without=("place_policy",)))
        with pytest.raises(genai_runtime.LoadError) as none:
            genai_runtime.load(folder, policy="graph")
        assert none.value.code == "no-policy-graphs"
        assert not (folder / "policy").exists()
        genai_runtime.load(folder, policy="host").close()


def test_a_changed_graph_is_damage(tmp_path: Path) -> None:
    compile_package(FIXTURES / "tiny-gqa-v1", tmp_path / "made")
    graph = tmp_path / "made" / "policy" / "min_p.onnx"
    graph.write_bytes(graph.read_bytes() + b" ")
    with pytest.raises(genai_runtime.LoadError, match=r"min_p\.onnx") as refused:
        genai_runtime.load(tmp_path / "made")
    assert refused.value.code == "damaged-folder"


@pytest.mark.parametrize(
    "entry", [{}, {"graphs": {}, "by_graph": [], "most": 1}, {"by_graph": 3}, [], "graph"], ids=str
)
def test_a_damaged_entry_is_refused(tmp_path: Path, entry: object) -> None:
    compile_package(FIXTURES / "tiny-gqa-v1", tmp_path / "made")
    file = tmp_path / "made" / "manifest.json"
    manifest = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**manifest, "policy_graphs": entry}), "utf-8")
    with pytest.raises(genai_runtime.LoadError, match="policy_graphs") as refused:
        genai_runtime.load(tmp_path / "made")
    assert refused.value.code == "damaged-folder"


def test_sessions_are_opened_by_the_request_that_needs_them(compiled: Compiled) -> None:
    with genai_runtime.load(compiled("tiny-gqa-v1")[0], policy="graph") as model:
        graphs = model._sessions.policy_graphs
        assert graphs is not None
        assert model.generate([1, 2], max_new_tokens=3, temperature=0).tokens
        assert graphs._open == {}
        assert model.generate([1, 2], max_new_tokens=3, top_k=4, seed=1).tokens
        assert set(graphs._open) == {"top_k"}
