"""Positions of a prompt that the caller gives, far from the number of tokens: later tokens stand behind the largest.

Expected tokens are those of a bare ONNX Runtime loop, a row at a time. The graph adds a row of a table to each token.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from genai_runtime.decoding import Decoder, DecoderSpec, Mask
from genai_runtime.request import Request
from genai_runtime.sessions import Graph, Sessions, Settings
from genai_runtime.state import GROWTH, ROWS, Slot
from genai_runtime.values import to_value
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from tests.lower.packages import HIDDEN, VOCABULARY, Recipe, decoder

Array = np.ndarray[Any, Any]
NEW, FAR = 8, 900
PROMPT, SHORT = [5, 9, 14, 3, 7], [11, 4, 6]
GRID = [0, FAR, FAR + 1, FAR + 1, FAR + 2]
"""As a picture's entries stand: neither counted by the tokens nor apart."""


def placed(op: str, rank: int) -> ModelProto:
    """A decoder to whose embeddings a row of a table is added, by its positions [rows, n] or [3, rows, n]."""
    shape = [*([3] if rank == 3 else []), "batch", "sequence"]
    model = decoder(Recipe(op=op, extra_inputs={"position_ids": (TensorProto.INT64, shape)}))
    graph, source = model.graph, "position_ids"
    nodes = list(graph.node)
    at = next(at for at, each in enumerate(nodes) if each.output[0] == "x.0")
    nodes[at].output[0] = "words"
    more = []
    if rank == 3:
        graph.initializer.append(numpy_helper.from_array(np.array(0), "zero"))
        source = "height"
        more.append(helper.make_node("Gather", ["position_ids", "zero"], [source], axis=0))
    table = np.random.default_rng(9).normal(size=(2 * FAR, HIDDEN)).astype(np.float32)
    graph.initializer.append(numpy_helper.from_array(table, "places"))
    more.append(helper.make_node("Gather", ["places", source], ["placed"]))
    more.append(helper.make_node("Add", ["words", "placed"], ["x.0"]))
    del graph.node[:]
    graph.node.extend([*nodes[: at + 1], *more, *nodes[at + 1 :]])
    return model


@cache
def session(file: Path) -> Any:
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


def plain(file: Path, prompt: Sequence[int], positions: Sequence[int], rank: int, count: int) -> list[int]:
    """Greedy tokens of one row whose caches grow."""
    past = {f"past_key_values.0.{part}": np.zeros((1, 1, 0, 8), np.float32) for part in ("key", "value")}
    fresh, places, made, length = list(prompt), list(positions), list[int](), 0
    while len(made) < count:
        length += len(fresh)
        where = np.array([places])
        feeds = {"input_ids": np.array([fresh]), "attention_mask": np.ones((1, length), np.int64)}
        feeds |= {"position_ids": np.tile(where, (3, 1, 1)) if rank == 3 else where}
        logits, *state = session(file).run(None, {**feeds, **past})
        past = dict(zip(past, state, strict=True))
        fresh, places = [int(logits[0, -1].argmax())], [max(positions) + 1 + len(made)]
        made += fresh
    return made


def driven(
    file: Path,
    op: str,
    rank: int,
    rows: list[list[int]],
    given: list[list[int]],
    most: int = 0,
    one_token: bool = False,
) -> Array:
    """Greedy tokens [rows, NEW] of the runtime's own loop.

    most: places of a row, 0 for what it needs. one_token: the prompt goes in token by token.
    """
    dims = (ROWS, 1, GROWTH, 8)
    slots = tuple(Slot(f"past_key_values.0.{each}", f"present.0.{each}", "float32", dims) for each in ("key", "value"))
    spec = DecoderSpec(
        component="decoder", origin="here", tokens="input_ids", token_dtype="int64", logits="logits",
        logits_dtype="float32", mask=Mask("attention_mask", "int64", False, op == "gqa"),
        positions=("position_ids", "int64", rank),
        slots=slots, shared=op == "gqa", capacity=None, ragged=True, vocab_size=VOCABULARY, one_token=one_token,
    )  # fmt: skip
    width = max(map(len, rows))
    padded = np.array([[*row, *[0] * (width - len(row))] for row in rows])
    where = np.array([[*row, *[2 * FAR - 1] * (width - len(row))] for row in given])
    where = np.tile(where, (3, 1, 1)) if rank == 3 else where
    request = Request({}, prompt_lengths=tuple(map(len, rows)), context_length=most)
    held = Sessions({"decoder": Graph(file, file.parent)}, Settings())
    decoding = Decoder(held, spec).start(to_value(padded), request, NEW, positions=to_value(where))
    decoding.prompt()
    made = list[Array]()
    for step in range(NEW):
        made.append(decoding.logits.argmax(axis=-1))
        decoding.tokens[:, 0] = made[-1]
        if step < NEW - 1:
            decoding.advance()
    return np.stack(made, axis=1)


@pytest.mark.parametrize("op", ["gqa", "attention"])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("one_token", [False, True])
def test_tokens_behind_far_positions_stand_behind_the_largest(
    op: str, rank: int, one_token: bool, tmp_path: Path
) -> None:
    save(placed(op, rank), tmp_path / "model.onnx")
    wanted = plain(tmp_path / "model.onnx", PROMPT, GRID, rank, NEW)
    assert wanted != plain(tmp_path / "model.onnx", PROMPT, range(len(PROMPT)), rank, NEW), "the positions count"
    made = driven(tmp_path / "model.onnx", op, rank, [PROMPT], [GRID], one_token=one_token)
    assert made.tolist() == [wanted]


@pytest.mark.parametrize("rank", [2, 3])
def test_rows_of_different_length_go_on_behind_their_own(rank: int, tmp_path: Path) -> None:
    """What stands in the padding of the shorter row is no position of it."""
    save(placed("gqa", rank), tmp_path / "model.onnx")
    rows, given = [PROMPT, SHORT], [GRID, [7, 300, 301]]
    wanted = [plain(tmp_path / "model.onnx", *pair, rank, NEW) for pair in zip(rows, given, strict=True)]
    assert driven(tmp_path / "model.onnx", "gqa", rank, rows, given).tolist() == wanted


def test_a_full_row_leaves_the_positions_of_others_alone(tmp_path: Path) -> None:
    """The longer row fills its places while the shorter one goes on."""
    save(placed("gqa", 2), tmp_path / "model.onnx")
    rows, given, most = [PROMPT, SHORT], [GRID, [7, 300, 301]], len(PROMPT) + 4
    wanted = [plain(tmp_path / "model.onnx", *pair, 2, NEW) for pair in zip(rows, given, strict=True)]
    made = driven(tmp_path / "model.onnx", "gqa", 2, rows, given, most).tolist()
    for row, own, text in zip(made, wanted, rows, strict=True):
        count = most - len(text) + 1
        assert row[:count] == own[:count]
