"""A proposer that borrows the target's caches: the graphs of a conformance package whose document is older than drafts.

The document is written here; the tokens to be met are those that the conformance data expect of the target alone.
"""

import json
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
from genai_runtime import binding

from tests.data import DATA, needs_data
from tests.speculative_packages import edited, width
from tools.fixtures.document import Document, onnx, tensor
from tools.fixtures.runtime_decoder import CELLS, PORTS
from tools.fixtures.speculative import with_proposer

NAME = "tiny-gemma4-assistant"
GRAPHS = DATA / "conformance" / "packages" / NAME
EXPECTED = DATA / "conformance" / "expected" / f"{NAME}.json"
LENT = ("shared_kv.sliding_attention.key", "shared_kv.sliding_attention.value", "shared_kv.full_attention.key",
        "shared_kv.full_attention.value")  # fmt: skip
IDS, CACHE = 32, tensor("float32", "batch", 2, "kv_sequence", 8, rows=True)
FUSED = tensor("float32", "batch", "q", 32, rows=True)
TOKENS = tensor("int64", "batch", "q", rows=True)
MASK = tensor("int64", "batch", "kv_len", rows=True)


def assistant() -> Document:
    inputs = {"inputs_embeds": FUSED, "position_ids": TOKENS, "attention_mask": MASK}
    inputs |= {port: tensor("float32", "batch", 2, "kv_len", 8, rows=True) for port in LENT}
    outputs = {"logits": tensor("float32", "batch", "q", IDS, rows=True)}
    outputs["projected_state"] = tensor("float32", "batch", "q", 16, rows=True)
    roles = {"attention_mask": "attention_mask", "position_ids": "position_ids"}
    return onnx("draft.onnx.textproto", inputs, outputs, roles=roles)


def document_of(folder: Path) -> Document:
    chain = {
        "kind": "chained",
        "token_embedding_input": "inputs_embeds",
        "logits_output": "logits",
        "folded_carry_output": "projected_state",
        "folded_carry_seed": {"component": "decoder", "output": "hidden_states.0"},
        "token_embedding": {"component": "decoder", "table": "hidden_table"},
    }
    document = with_proposer(folder, assistant(), chain, {"target_hidden_context": "inputs_embeds"})
    (folder / "model.onnx").unlink()
    for artifact, source in (("model", GRAPHS), ("draft", GRAPHS / "assistant")):
        (folder / f"{artifact}.onnx.textproto").write_bytes((source / "model.onnx.textproto").read_bytes())
    for_the_graphs(document)
    return document


def for_the_graphs(document: Document) -> None:
    """The document of the fixture's own decoder, for the conformance package's."""
    workflow = document["pipeline"]["workflow"]
    decoder, step = workflow["components"]["decoder"], workflow["steps"][0]["steps"][0]
    decoder["implementation"]["artifact"] = "model.onnx.textproto"
    hidden = tensor("float32", "batch", "sequence", 16, rows=True)
    decoder["ports"]["outputs"] |= {
        "logits": tensor("float32", "batch", "sequence", IDS, rows=True), "hidden_states.0": hidden,
    }  # fmt: skip
    workflow["components"]["token_policy"]["ports"]["inputs"]["logits"] = decoder["ports"]["outputs"]["logits"]
    step["outputs"]["hidden_states.0"] = "step.hidden"
    for name, port in zip(CELLS, PORTS, strict=True):
        workflow["state"][name]["contract"] = CACHE
        decoder["ports"]["inputs"][f"past_key_values.{port}"] = CACHE
        decoder["ports"]["outputs"][f"present.{port}"] = CACHE
    workflow["inputs"]["package.state_seed"]["contract"] = CACHE
    group = workflow["serving"]["state_service"]["groups"]["decoder_kv"]
    group["ports"]["draft"] = {
        name: {"input": port, "access": "read_only"} for name, port in zip(CELLS, LENT, strict=True)
    }
    document["model"] = {"max_sequence_length": 16, "vocab_size": IDS}
    del document["package"]


@needs_data
def test_what_is_lent_is_what_the_target_has_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every draft the caches hold the tokens before the block's first, as the target's own runs made them."""
    (tmp_path / "package").mkdir()
    model: Any = edited(tmp_path, document_of(tmp_path / "package"), width(3))
    real, seen = binding.run_with_values, list[tuple[int, int, int]]()

    def watched(session: Any, origin: str = "") -> Any:
        run = real(session)

        def call(feeds: dict[str, Any], outputs: list[str], options: None) -> Any:
            if LENT[3] in feeds:
                place = int(feeds["position_ids"].numpy()[0, 0])
                seen.append((feeds[LENT[3]].shape()[2], feeds["attention_mask"].shape()[1], place))
            return run(feeds, outputs, options)

        return call

    monkeypatch.setattr(binding, "run_with_values", watched)
    generation = model.generate([2, 4, 5, 3], max_new_tokens=8, temperature=0, stop_on_eos=False, speculate=True)
    assert len(generation.tokens) == 8
    assert len(seen) == generation.stats.drafted > 0
    assert {(lent, mask) for lent, mask, _ in seen} <= {(count, count) for count in range(4, 12)}
    assert all(lent <= place < lent + 3 for lent, _, place in seen), "the block's first token stands behind them"


@needs_data
@pytest.mark.parametrize("most", [1, 2, 4, 7])
def test_a_proposer_may_borrow_the_targets_caches(tmp_path: Path, most: int) -> None:
    (tmp_path / "package").mkdir()
    model: Any = edited(tmp_path, document_of(tmp_path / "package"), width(most))
    told = (tmp_path / "compiled" / "plan.txt").read_text("utf-8")
    assert "shared_kv.full_attention.value borrows decoder.past_key_values.1.value" in told
    assert (tmp_path / "compiled" / "graphs" / "embedding.bin").stat().st_size == 4 * IDS * 16
    for case in json.loads(EXPECTED.read_text("utf-8"))["cases"]:
        count = case["new_tokens"]
        for speculate in (True, False):
            generation: genai_runtime.Generation = model.generate(
                case["prompt"], max_new_tokens=count, temperature=0, stop_on_eos=False, speculate=speculate
            )
            assert generation.tokens == case["expected_tokens"]
            assert (generation.stats.drafted > 0) == speculate
