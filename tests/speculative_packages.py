"""Packages with a proposer for the tests: variants of the fixtures, and what a perfect proposer should come to."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx_ir as ir
from genai_compiler import compile_package

from tests.conftest import FIXTURES
from tests.reference.document import read_document
from tests.reference.plain_loop import greedy
from tools.fixtures.document import Document, onnx, tensor, write_document
from tools.fixtures.graph import Sketch, weights
from tools.fixtures.network import CONTEXT, HEAD, KV_HEADS, VOCABULARY, concat_decoder
from tools.fixtures.runtime_decoder import CELLS, PORTS, STATE, TOKENS
from tools.fixtures.speculative import DRAFT_CELLS, with_proposer

Edit = Callable[[Path, Document], None]
BLOCK, CHAIN = "tiny-block-drafts", "tiny-chained-drafts"
CASES = (BLOCK, CHAIN)
PROMPTS = [[1, 10, 20, 30], [5], [3, 40, 41, 42, 43, 44, 5, 4], [1, 2, 3] * 5, [7] * 60]


def plain(folder: Path, prompt: list[int], count: int = CONTEXT, stop: tuple[int, ...] = ()) -> list[int]:
    """Greedy tokens of the target alone."""
    return greedy(folder / "model.onnx", prompt, min(count, CONTEXT - len(prompt)), stop)


def drafted(model: genai_runtime.Model, prompt: list[int], **options: Any) -> genai_runtime.Generation:
    return model.generate(prompt, **{"temperature": 0, "stop_on_eos": False, "speculate": True, **options})


def finished(model: genai_runtime.Model, prompt: list[int]) -> genai_runtime.Result:
    """The result of a generation with drafts, run to its end."""
    generation = drafted(model, prompt)
    assert generation.tokens
    assert generation.result is not None
    return generation.result


def onnx_session(path: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def variant(folder: Path, case: str, *edits: Edit) -> genai_runtime.Model:
    """A fixture with changes, compiled and loaded. An edit may write files and change the document."""
    shutil.copytree(FIXTURES / case, folder / "package")
    return edited(folder, read_document(FIXTURES / case), *edits)


def edited(folder: Path, document: Document, *edits: Edit) -> genai_runtime.Model:
    """The package at folder/package with a changed document, compiled and loaded."""
    for edit in edits:
        edit(folder / "package", document)
    write_document(folder / "package", document)
    compile_package(folder / "package", out=folder / "compiled")
    return genai_runtime.load(folder / "compiled", threads=1)


def width(count: int) -> Edit:
    """So many drafts a block at most, and state that can be rolled back that far."""

    def edit(_: Path, document: Document) -> None:
        document["speculative"]["max_proposal_width"] = count
        for group in document["pipeline"]["workflow"]["serving"]["state_service"]["groups"].values():
            group["capabilities"]["rollback_positions"] = count

    return edit


def in_place(hidden: bool) -> Edit:
    """The decoder with GroupQueryAttention, whose past and present are one buffer."""
    from tools.fixtures.network import gqa_decoder

    def edit(package: Path, document: Document) -> None:
        gqa_decoder(hidden).save(package / "model.onnx")
        workflow = document["pipeline"]["workflow"]
        ports = workflow["components"]["decoder"]["ports"]
        del ports["inputs"]["position_ids"], ports["roles"]["position_ids"]
        del workflow["steps"][0]["steps"][0]["inputs"]["position_ids"], workflow["inputs"]["application.position_ids"]
        workflow["serving"]["state_service"]["groups"]["decoder_kv"]["aliasing"] = "permitted"

    return edit


def own_decoder_as_proposer(folder: Path, known: int = VOCABULARY, one_position: bool = False) -> Document:
    """A document whose proposer is the decoder itself, with a cache of its own, and knows the first ids only."""
    draft = concat_decoder()
    if one_position:
        draft.builder.graph.inputs[0].shape = ir.Shape(["batch", 1])
    draft.save(folder / "draft.onnx")
    inputs = {
        "input_ids": TOKENS,
        "attention_mask": tensor("int64", "batch", "total", rows=True),
        "position_ids": TOKENS,
    }
    if one_position:
        inputs["input_ids"] = tensor("int64", "batch", 1, rows=True)
    outputs = {"logits": tensor("float32", "batch", "sequence", VOCABULARY, rows=True)}
    for port in PORTS:
        inputs[f"past_key_values.{port}"] = tensor("float32", "batch", KV_HEADS, "past_sequence", HEAD, rows=True)
        outputs[f"present.{port}"] = tensor("float32", "batch", KV_HEADS, "present_sequence", HEAD, rows=True)
    roles = {"attention_mask": "attention_mask", "position_ids": "position_ids"}
    chain = {
        "kind": "chained",
        "token_embedding_input": "input_ids",
        "logits_output": "logits",
        "recurrent": [
            {"state": name, "input": f"past_key_values.{port}", "output": f"present.{port}"}
            for name, port in zip(DRAFT_CELLS, PORTS, strict=True)
        ],
    }
    document = with_proposer(folder, onnx("draft.onnx", inputs, outputs, roles=roles), chain, None, DRAFT_CELLS)
    add_draft_state(document)
    if known < VOCABULARY:
        document["speculative"]["vocabulary"] = {"kind": "subset", "proposer_vocab_size": known}
    return document


def add_draft_state(document: Document) -> None:
    """Cells and group of a proposer whose cache is like the decoder's."""
    workflow = document["pipeline"]["workflow"]
    workflow["inputs"]["package.draft_seed"] = {**workflow["inputs"]["package.state_seed"]}
    groups = workflow["serving"]["state_service"]["groups"]
    renamed = dict(zip(CELLS, DRAFT_CELLS, strict=True))
    for old, new in renamed.items():
        workflow["state"][new] = {
            **workflow["state"][old],
            "contract": STATE,
            "initializer": "package.draft_seed",
            "service_group": "draft_kv",
        }
    aliases = {renamed[name]: alias for name, alias in groups["decoder_kv"]["ports"]["decoder"].items()}
    groups["draft_kv"] = {**groups["decoder_kv"], "ports": {"draft": aliases}}


def expected_blocks(
    tokens: Sequence[int], known: int, most: int, budget: Callable[[int, int], int] | None = None
) -> tuple[int, int, int]:
    """(blocks, drafted, accepted) of a proposer that is right wherever the next token is below `known`.

    Simulated on the tokens that came out. budget: (width, accepted) -> the next width.
    """
    blocks, drafted, accepted, at, wide = 1, 0, 0, 1, most  # the first token is the prompt's
    while at < len(tokens):
        drafts = min(wide, len(tokens) - at - 1)
        right = 0
        while right < drafts and tokens[at + right] < known:
            right += 1
        blocks, drafted, accepted = blocks + 1, drafted + drafts, accepted + right
        if budget is not None and drafts:
            wide = budget(wide, right)
        at += right + 1
    return blocks, drafted, accepted


def leaky_decoder() -> Sketch:
    """A decoder with one state of fixed size: half of what it was, and the token's embedding. Powers of two: exact.

    input_ids int64 [batch, sequence], past_state float32 [batch, 16] -> logits float32 [batch, sequence, 64],
    present_state float32 [batch, 16].
    """
    sketch = Sketch("leaky_decoder")
    op = sketch.op
    ids = sketch.input("input_ids", "int64", "batch", "sequence")
    past = sketch.input("past_state", "float32", "batch", 16)
    new = op.Gather(sketch.weight("embedding", weights(8, VOCABULARY, 16)), ids)
    count = op.Squeeze(op.Shape(ids, start=1, end=2), [0])
    places = op.Cast(op.Range(0, count, 1), to=ir.DataType.FLOAT)
    lag = op.Sub(op.Unsqueeze(places, [1]), op.Unsqueeze(places, [0]))
    seen = op.Where(op.GreaterOrEqual(lag, 0.0), op.Pow(2.0, op.Neg(op.Abs(lag))), 0.0)
    kept = op.Pow(2.0, op.Neg(op.Add(op.Unsqueeze(places, [1]), 1.0)))
    states = op.Add(op.MatMul(seen, new), op.Mul(kept, op.Unsqueeze(past, [1])))
    logits = op.MatMul(op.Tanh(states), sketch.weight("head", weights(9, 16, VOCABULARY)))
    sketch.output(logits, "logits", "float32", "batch", "sequence", VOCABULARY)
    last = op.Slice(states, [-1], [np.iinfo(np.int64).max], [1])
    sketch.output(op.Squeeze(last, [1]), "present_state", "float32", "batch", 16)
    return sketch


def with_leaky_decoder(package: Path, document: Document) -> None:
    """Put `leaky_decoder` in the decoder's place."""
    leaky_decoder().save(package / "model.onnx")
    workflow = document["pipeline"]["workflow"]
    decoder, step = workflow["components"]["decoder"], workflow["steps"][0]["steps"][0]
    state = tensor("float32", "batch", 16, rows=True)
    decoder["ports"]["inputs"] = {"input_ids": TOKENS, "past_state": state}
    outputs = decoder["ports"]["outputs"]
    decoder["ports"]["outputs"] = {"logits": outputs["logits"], "present_state": state}
    decoder["ports"]["roles"] = {"input_ids": "token_ids", "logits": "logits"}
    step["inputs"] = {"input_ids": "request.input_ids", "past_state": "memory"}
    step["outputs"] = {"logits": "step.logits", "present_state": "body.memory"}
    for name in ("application.attention_mask", "application.position_ids"):
        del workflow["inputs"][name]
    workflow["inputs"]["package.state_seed"]["contract"] = state
    cell: Any = workflow["state"].pop(CELLS[0])
    for name in CELLS[1:]:
        del workflow["state"][name]
    workflow["state"]["memory"] = {**cell, "contract": state}
    workflow["steps"][0]["carried"] = [
        each for each in workflow["steps"][0]["carried"] if each["cell"] not in CELLS
    ] + [{"cell": "memory", "next": "body.memory"}]
    group = workflow["serving"]["state_service"]["groups"]["decoder_kv"]
    group |= {"kind": "recurrent", "layout": "any", "update": {"kind": "replace"}}
    del group["sequence_axis"]
    group["ports"] = {"decoder": {"memory": {"input": "past_state", "output": "present_state"}}}
    document["speculative"]["rollback_state"] = ["memory"]
