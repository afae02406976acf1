"""`onnx_runtime.*` properties of graphs: which keys are read, what each becomes, and that odd ones are only named."""

import json
import re
from pathlib import Path

import onnx
import pytest
from genai_compiler.plan.hint_actions import DONE, LEFT
from genai_compiler.read.graph_hints import ARENAS, FACTS, NODE_KEYS, PREFETCHES, graph_hints
from genai_compiler.read.load import load_package
from genai_compiler.read.places import Places
from genai_compiler.read.validate import parse_hints

from tests.data import ROOT
from tests.hints.packages import NODES, advice, package, where


def lines(root: Path, *words: str, **properties: object) -> list[str]:
    """Decisions about the package that hold all these words."""
    return [each for each in advice(root, **properties).decisions if all(word in each for word in words)]


@pytest.mark.parametrize("level", ["model", "nodes"])
def test_a_device_of_all_nodes_places_the_component(level: str, tmp_path: Path) -> None:
    said = {"onnx_runtime.device": "gpu:1"}
    stated = {"model": said} if level == "model" else {"nodes": dict.fromkeys(range(NODES), said)}
    assert where(advice(tmp_path, first=stated)) == {"first": "gpu:1"}


def test_a_device_of_some_nodes_is_named_and_left_alone(tmp_path: Path) -> None:
    stated = {"nodes": {0: {"onnx_runtime.device": "gpu"}, 2: {"onnx_runtime.device": "gpu"}}}
    found = advice(tmp_path, first=stated)
    assert found.placements == ()
    assert len([each for each in found.decisions if "2 of 4 nodes" in each and "left alone" in each]) == 1


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("memory.pin", "true", "(pin) is so already"),
        ("memory.priority", "high", "(pin) is so already"),
        ("memory.priority", "low", "(low_priority) is left alone"),
        ("scheduling.cuda_graph", "true", "(cuda_graph_region) is left alone"),
        ("scheduling.cuda_graph", "FALSE", "(no_cuda_graph) is so already"),
        ("scheduling.overlap", "true", "(overlap) is left alone"),
        ("group", "attn_0", "(group) is so already"),
        ("offloadable", "true", "(offloadable) is left alone"),
        ("kernel", "flash_attention", "(kernel) is left alone"),
    ],
)
def test_other_keys_of_nodes(key: str, value: str, words: str, tmp_path: Path) -> None:
    stated = {"nodes": {1: {f"onnx_runtime.{key}": value}, 3: {f"onnx_runtime.{key}": value}}}
    (line,) = lines(tmp_path, f"onnx_runtime.{key} on 2 of 4 nodes", first=stated)
    assert words in line


@pytest.mark.parametrize(
    "pairs",
    [
        {"memory.priority": "normal", "scheduling.overlap": "false", "memory.pin": "false", "offloadable": "false"},
        {
            "version": "1",
            "num_layers": "4",
            "model.num_layers": "4",
            "layer_pattern": "b.{}",
            "model.architecture": "x",
        },
    ],
)
def test_what_asks_for_nothing_says_nothing(pairs: dict[str, str], tmp_path: Path) -> None:
    stated = {"model": {f"onnx_runtime.{key}": value for key, value in pairs.items()}}
    found = advice(tmp_path, first=stated)
    assert (found.placements, found.decisions) == ((), ())


def test_sizes_and_prefetches_of_a_graph(tmp_path: Path) -> None:
    """A limit could make a run fail: what only the graph says of it is not followed."""
    stated = {"model": {"onnx_runtime.memory.arena_gpu_mb": "4096", "onnx_runtime.prefetch": "embed"}}
    found = advice(tmp_path, first=stated)
    assert found.placements == ()
    assert len(found.decisions) == 2
    assert all("left alone" in each for each in found.decisions)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("device", "tpu"), ("device", "gpu:-1"), ("device", "gpu:99999"), ("device", ""), ("device", "gpu\x00"),
        ("memory.pin", "yes"), ("memory.priority", "urgent"), ("layer", "one"), ("layer", "-1"),
        ("memory.arena_gpu_mb", "1e9"), ("memory.arena_cpu_mb", "9" * 40), ("device.strength", "must"),
    ],
)  # fmt: skip
def test_a_value_that_can_not_be_meant_is_named(key: str, value: str, tmp_path: Path) -> None:
    stated = (
        {"model": {f"onnx_runtime.{key}": value}} if "arena" in key else {"nodes": {0: {f"onnx_runtime.{key}": value}}}
    )
    found = advice(tmp_path, first=stated)
    assert found.placements == ()
    (line,) = found.decisions
    assert "first.onnx" in line
    assert "ignored" in line


def test_an_unknown_key_is_named_and_other_namespaces_are_not(tmp_path: Path) -> None:
    stated = {"model": {"onnx_runtime.devcie": "gpu", "producer.device": "gpu", "device": "gpu"}}
    (line,) = advice(tmp_path, first=stated).decisions
    assert "onnx_runtime.devcie" in line


def test_a_hostile_graph_can_not_flood_the_plan(tmp_path: Path) -> None:
    stated = {"model": {f"onnx_runtime.{at}\n": "x" * 10_000 for at in range(500)}}
    found = advice(tmp_path, first=stated)
    assert len(found.decisions) <= 101
    assert all(len(each) < 400 and "\n" not in each for each in found.decisions)


def test_texts_that_are_no_utf8_say_nothing(tmp_path: Path) -> None:
    root = package(tmp_path, first={"nodes": {0: {"onnx_runtime.device": "gpu.."}}})
    content = (root / "first.onnx").read_bytes()
    (root / "first.onnx").write_bytes(content.replace(b"gpu..", b"gpu\xff\xfe"))
    graph = load_package(root).graphs["first"]
    found = graph_hints("first", graph)
    assert found.hints == []


def test_the_properties_do_not_change_what_is_read_of_the_graph(tmp_path: Path) -> None:
    plain, said = tmp_path / "plain", tmp_path / "said"
    package(plain)
    package(said, first={"model": {"onnx_runtime.device": "gpu"}})
    mine = onnx.load(said / "first.onnx")
    del mine.metadata_props[:]
    assert mine.SerializeToString() == onnx.load(plain / "first.onnx").SerializeToString()


def test_the_example_of_the_page_is_one() -> None:
    page = (ROOT / "docs" / "hints.md").read_text("utf-8")
    (example,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    hints = parse_hints(json.loads(example), Places("page"))
    assert (len(hints.placement), len(hints.memory)) == (2, 1)


def test_the_page_lists_every_key() -> None:
    page = (ROOT / "docs" / "hints.md").read_text("utf-8")
    listed = set(re.findall(r"`onnx_runtime\.([a-z_.]+)`", page))
    assert listed == {*NODE_KEYS, *ARENAS, *PREFETCHES, *FACTS, "device", "device.strength", "layer"}
    assert {each for each in (*DONE, *LEFT) if f"`{each}`" not in page} == set()
