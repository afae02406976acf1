"""The authored decoder on a tiny checkpoint: against numpy, and in the ways of binding that loops use."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from tests.tools.tiny_checkpoint import CONFIG, tiny_checkpoint
from tools.smollm2 import numpy_model
from tools.smollm2.graph import build_decoder
from tools.smollm2.plain_loop import empty_caches, greedy, open_session, step
from tools.smollm2.precision import Float, Quantised
from tools.smollm2.weight_file import WeightFile

CHECKPOINT = tiny_checkpoint()
ROWS = ([5, 9, 3, 77, 12], [40, 2, 8, 61, 7, 9, 33, 20, 1], [64])
NEW = 10


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = {}
    for name, precision in (("float", Float), ("quantised", Quantised)):
        folder = tmp_path_factory.mktemp(name)
        with WeightFile(folder / "model.onnx.data") as weights:
            model = build_decoder(CHECKPOINT, weights, precision)
        paths[name] = folder / "model.onnx"
        ir.save(model, paths[name])
    return paths


@pytest.mark.parametrize(("form", "tolerance"), [("float", 1e-5), ("quantised", 1e-3)])
def test_first_logits_equal_numpy(graphs: dict[str, Path], form: str, tolerance: float) -> None:
    ids = ROWS[1]
    expected = numpy_model.logits(CHECKPOINT, ids)
    session = open_session(graphs[form])
    got = step(session, np.array([ids]), np.ones((1, len(ids)), np.int64), empty_caches(session))[0][0]
    assert np.abs(got - expected).max() <= tolerance * np.abs(expected).max()


def test_cached_steps_equal_numpy(graphs: dict[str, Path]) -> None:
    session = open_session(graphs["float"])
    expected = numpy_model.logits(CHECKPOINT, ROWS[1])
    caches = empty_caches(session)
    for index, token in enumerate(ROWS[1]):
        mask = np.ones((1, index + 1), np.int64)
        logits, caches = step(session, np.array([[token]]), mask, caches)
        np.testing.assert_allclose(logits[0, 0], expected[index], atol=1e-4)


def mask_widths(mask: str, capacity: int, padded: int) -> Any:
    """How wide the mask is, by the longest row's length."""
    return {"exact": lambda longest: longest, "constant": lambda _: capacity, "padded": lambda n: max(n, padded)}[mask]


@pytest.mark.parametrize("mask", ["exact", "constant", "padded"])
@pytest.mark.parametrize("form", ["float", "quantised"])
def test_padded_rows_over_one_shared_buffer_equal_solo_runs(graphs: dict[str, Path], form: str, mask: str) -> None:
    session = open_session(graphs[form])
    lengths = np.array([len(row) for row in ROWS])
    padded = int(lengths.max()) + (4 if mask == "padded" else 0)
    capacity = padded + NEW + 3
    width = mask_widths(mask, capacity, padded)
    buffers = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(
            np.full((len(ROWS), CONFIG.kv_heads, capacity, CONFIG.head_size), 9, np.float32)  # stale contents
        )
        for name in empty_caches(session)
    }
    chunk = np.full((len(ROWS), padded), 17)
    for index, row in enumerate(ROWS):
        chunk[index, : len(row)] = row
    last, tokens = lengths - 1, []
    for _ in range(NEW):
        ones = (np.arange(width(int(lengths.max()))) < lengths[:, None]).astype(np.int64)
        logits = run_bound(session, chunk, ones, buffers)
        tokens.append(logits[np.arange(len(ROWS)), last].argmax(-1))
        chunk, last, lengths = tokens[-1][:, None], np.zeros(len(ROWS), int), lengths + 1
    assert np.stack(tokens, axis=1).tolist() == [greedy(session, row, NEW) for row in ROWS]


def run_bound(session: Any, chunk: Any, mask: Any, buffers: dict[str, Any]) -> Any:
    """One pass with every cache bound to one buffer as past and as present."""
    binding = session.io_binding()
    binding.bind_cpu_input("input_ids", chunk)
    binding.bind_cpu_input("attention_mask", mask)
    binding.bind_output("logits")
    for name, value in buffers.items():
        binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output(name.replace("past_key_values", "present"), value)
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0].numpy()


def test_embedding_and_head_share_their_bytes(graphs: dict[str, Path]) -> None:
    model = onnx.load(graphs["quantised"], load_external_data=False)
    places = {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in model.graph.initializer
    }
    for part in ("quants", "scale"):
        assert places[f"embedding.{part}"] == places[f"head.{part}"]


def test_the_graph_has_the_promised_ports(graphs: dict[str, Path]) -> None:
    for path in graphs.values():
        onnx.checker.check_model(str(path))
        session = open_session(path)
        inputs = {port.name: (port.type, port.shape) for port in session.get_inputs()}
        outputs = {port.name: port.shape for port in session.get_outputs()}
        assert inputs["input_ids"] == ("tensor(int64)", ["batch", "sequence"])
        assert inputs["attention_mask"] == ("tensor(int64)", ["batch", "total_sequence"])
        assert inputs["past_key_values.1.value"] == ("tensor(float)", ["batch", 2, "past_sequence", 16])
        assert outputs["logits"] == ["batch", "sequence", 96]
        assert outputs["present.0.key"] == ["batch", 2, "present_sequence", 16]
