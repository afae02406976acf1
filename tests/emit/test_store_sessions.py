"""Storing sessions: weights stay where they lie, what can't be stored is told, and a folder is whole or not there."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler.cli import main
from genai_compiler.driver import Options, compile_package
from genai_compiler.emit import stored
from genai_compiler.read.external_data import external_tensors
from genai_runtime.stored import PROCESSOR
from onnx import ModelProto, NodeProto, helper, numpy_helper, save

from tests.conftest import FIXTURES
from tests.lower.packages import Layer, Recipe, decoder, outside, write_config
from tests.traps.packages import gives_plain_tokens

pytestmark = pytest.mark.skipif(not PROCESSOR.exists(), reason="this system does not tell its processor")
SIZES = {"model": {"decoder": {"head_size": 16, "num_key_value_heads": 4}}}
TABLE = np.random.default_rng(7).standard_normal((64, 96)).astype(np.float32)
"""24 kB, which a graph has as [96, 64] and reshapes: the optimiser makes a second weight of the same bytes."""


def with_sum(*between: NodeProto, table: str) -> ModelProto:
    """A decoder that adds nothing times the sum of a row of `table` to its embeddings. between: nodes that make it."""
    model = decoder(Recipe(layers=(Layer(0, 4, 16),)))
    numbers = {"zero": np.array(0, np.int64), "nothing": np.array(0.0, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in numbers.items())
    at = next(at for at, each in enumerate(model.graph.node) if "x.0" in each.output)
    model.graph.node[at].output[0] = "embedded"
    nodes = [
        *between,
        helper.make_node("ReduceMax", ["input_ids"], ["largest"], keepdims=0),
        helper.make_node("Mul", ["largest", "zero"], ["first"]),
        helper.make_node("Gather", [table, "first"], ["row"]),
        helper.make_node("ReduceSum", ["row"], ["sum"], keepdims=0),
        helper.make_node("Mul", ["sum", "nothing"], ["none"]),
        helper.make_node("Add", ["embedded", "none"], ["x.0"]),
    ]
    for node in reversed(nodes):
        model.graph.node.insert(at + 1, node)
    return model


def with_table(folder: Path) -> Path:
    """A package whose weights lie in a file beside the graph, TABLE among them, which is reshaped."""
    model = with_sum(helper.make_node("Reshape", ["table", "form"], ["formed"]), table="formed")
    form = numpy_helper.from_array(np.array([64, 96], np.int64), "form")
    model.graph.initializer.extend([numpy_helper.from_array(TABLE.reshape(96, 64), "table"), form])
    folder.mkdir(parents=True)
    save(outside(model, "model.onnx.data"), folder / "model.onnx")
    write_config(folder, SIZES)
    return folder


def store(package: Path, out: Path, **more: Any) -> tuple[dict[str, Any] | None, str]:
    """(manifest's entry, notes)."""
    made = compile_package(package, out, Options(store_sessions=True, **more))
    data = json.loads((out / "manifest.json").read_text("utf-8"))
    return data["stored"], "\n".join(made.notes)


def spans(graph: Path) -> dict[str, dict[str, str]]:
    """Weight -> where it lies."""
    model = onnx.load(graph, load_external_data=False)
    return {each.name: {part.key: part.value for part in each.external_data} for each in external_tensors(model)}


def only_file(entry: dict[str, Any] | None) -> str:
    assert entry is not None
    ((_, graph),) = entry["graphs"].items()
    return str(graph["file"])


def test_weights_are_referred_to_where_the_package_has_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every weight of the plain graph at its place, and what the optimiser has reshaped at that of the same bytes."""
    package = with_table(tmp_path / "p")
    entry, notes = store(package, tmp_path / "out")
    file = tmp_path / "out" / only_file(entry)
    plain, kept = spans(package / "model.onnx"), spans(file)
    large = {name for name, place in plain.items() if int(place["length"]) >= 1024}
    assert len(large & set(kept)) > 3
    assert {name: kept[name] for name in large & set(kept)} == {name: plain[name] for name in large & set(kept)}
    (folded,) = [place for name, place in kept.items() if name not in plain]
    assert folded == plain["table"]
    assert file.stat().st_size < (package / "model.onnx.data").stat().st_size / 2
    assert f"stored sessions: 1, {file.stat().st_size / 1e3:.1f} kB, for this processor and ONNX Runtime" in notes
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        gives_plain_tokens(model, package / "model.onnx")
    assert caplog.text == "", "the stored graph is opened"


def test_weights_inside_the_graph_are_referred_to_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = with_sum(table="table")
    model.graph.initializer.append(numpy_helper.from_array(TABLE, "table"))
    (tmp_path / "p").mkdir()
    save(model, tmp_path / "p" / "model.onnx")
    write_config(tmp_path / "p", SIZES)
    entry, notes = store(tmp_path / "p", tmp_path / "out", without=("select_last", "feed_lengths"))
    assert "not stored" not in notes
    kept = spans(tmp_path / "out" / only_file(entry))
    assert {place["location"] for place in kept.values()} == {"model.onnx"}
    with genai_runtime.load(tmp_path / "out", threads=1) as loaded:
        gives_plain_tokens(loaded, tmp_path / "p" / "model.onnx")
    assert caplog.text == "", "the stored graph is opened"


@pytest.mark.parametrize("edits", [(), ("select_last", "feed_lengths")], ids=["edited", "the package's own"])
@pytest.mark.parametrize("bundle", [False, True], ids=["beside", "bundle"])
def test_a_package_of_links(
    bundle: bool, edits: tuple[str, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A hub's cache: every file of the snapshot is a link into `blobs`, weights included."""
    plain = with_table(tmp_path / "plain")
    (blobs := tmp_path / "hub" / "blobs").mkdir(parents=True)
    (snapshot := tmp_path / "hub" / "snapshots" / "0123abcd").mkdir(parents=True)
    for at, file in enumerate(sorted(plain.iterdir())):
        shutil.copyfile(file, blobs / f"{at:040x}")
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", f"{at:040x}"))
    entry, notes = store(snapshot, tmp_path / "out", bundle=bundle, without=edits)
    assert "not stored" not in notes
    assert only_file(entry)
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        gives_plain_tokens(model, plain / "model.onnx")
    assert caplog.text == "", "the stored graph is opened"


def test_a_bundle_goes_anywhere_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    package = with_table(tmp_path / "p")
    plain = shutil.copytree(package, tmp_path / "plain") / "model.onnx"
    store(package, tmp_path / "out", bundle=True)
    shutil.rmtree(package)
    (tmp_path / "out").rename(tmp_path / "away")
    with genai_runtime.load(tmp_path / "away", threads=1) as model:
        gives_plain_tokens(model, plain)
    assert caplog.text == "", "the stored graph is opened"


# ---- what can't be stored --------------------------------------------------------------------------------------------


def test_weights_that_the_optimiser_computes_are_not_kept_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "MOST", 1000)
    entry, notes = store(with_table(tmp_path / "p"), tmp_path / "out")
    assert entry is None
    assert "is not stored: the optimiser computes weights" in notes
    assert not (tmp_path / "out" / "stored").exists()
    genai_runtime.load(tmp_path / "out", threads=1)


def test_of_weights_that_are_too_many_none_is_held(tmp_path: Path) -> None:
    """They may be as large as the package, and more than a graph's own file can hold."""

    def one(name: str, fill: float) -> Path:
        table = numpy_helper.from_array(np.full((300, 4096), fill, np.float32), "w")
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        ports = [helper.make_tensor_value_info("x", 1, [1, 300])], [helper.make_tensor_value_info("y", 1, [1, 4096])]
        model = helper.make_model(helper.make_graph([node], "g", *ports, [table]))
        save(outside(model, f"{name}.data"), tmp_path / f"{name}.onnx")
        return tmp_path / f"{name}.onnx"

    plain, same, other = one("plain", 1.0), one("same", 1.0), one("other", 2.0)
    content, size = stored._referring(same, plain, tmp_path)
    assert size == len(content) < 1000
    assert stored._referring(other, plain, tmp_path)[0] == b""
    assert stored._referring(other, plain, tmp_path)[1] > 300 * 4096 * 4 > stored.MOST


def test_what_opens_later_is_stored_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of pictures and sound open with the first request for them. A copy of weights goes before the next."""
    copies, optimised = list[int](), stored._optimised

    def counted(graph: Path, weights: Path, target: Path, *more: Any) -> Any:
        copies.append(len([*target.parents[1].rglob("*.onnx.data")]))
        return optimised(graph, weights, target, *more)

    monkeypatch.setattr(stored, "_optimised", counted)
    entry, _ = store(FIXTURES / "tiny-media-v2", tmp_path / "out")
    assert entry is not None
    assert set(entry["graphs"]) == {"decoder", "embedding", "speech", "vision"}
    assert copies == [0, 0, 0, 0]


def ended(code: int, words: str, said: str = "null") -> Callable[..., Any]:
    return lambda *_, **__: subprocess.CompletedProcess((), code, said, words)


@pytest.mark.parametrize(
    ("process", "reason"),
    [
        (ended(1, "Traceback\nFail: no kernel for X\n"), "is not stored: Fail: no kernel for X"),
        (ended(-11, ""), "is not stored: the process that opened it ended with -11"),
    ],
    ids=["refused", "crashed"],
)
def test_what_fails_is_told_and_the_folder_is_whole_without(
    process: Callable[..., Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored.subprocess, "run", process)
    entry, notes = store(FIXTURES / "tiny-gqa-v1", tmp_path / "out")
    assert entry is None
    assert reason in notes
    monkeypatch.undo()
    assert genai_runtime.load(tmp_path / "out", threads=1).notices == ()


def test_a_system_that_tells_no_processor_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[object]()

    def untold(*_: object, **__: object) -> Any:
        asked.append(None)
        return subprocess.CompletedProcess((), 0, "null", "")

    monkeypatch.setattr(stored.subprocess, "run", untold)
    entry, notes = store(FIXTURES / "tiny-media-v2", tmp_path / "out")
    assert (entry, len(asked)) == (None, 1)
    assert notes.count("sessions are not stored: this system does not tell its processor") == 1


def test_another_processor_of_choice_has_none(tmp_path: Path) -> None:
    package = with_table(tmp_path / "p")
    options = {"decoder": {**SIZES["model"]["decoder"], "session_options": {"provider_options": [{"cuda": {}}]}}}
    write_config(package, {"model": options})
    entry, notes = store(package, tmp_path / "out")
    assert entry is None
    assert "the package prefers CUDAExecutionProvider" in notes


def test_the_packages_own_level_counts(tmp_path: Path) -> None:
    """Where it asks for no optimisation, nothing is fused in the stored graph either."""
    package = with_table(tmp_path / "p")
    options = {"graph_optimization_level": "ORT_DISABLE_ALL"}
    write_config(package, {"model": {"decoder": {**SIZES["model"]["decoder"], "session_options": options}}})
    entry, _ = store(package, tmp_path / "out")
    model = onnx.load(tmp_path / "out" / only_file(entry), load_external_data=False)
    assert "Reshape" in {node.op_type for node in model.graph.node}


# ---- the command -----------------------------------------------------------------------------------------------------


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package, out = with_table(tmp_path / "p"), tmp_path / "out"
    assert main([str(package), "-o", str(out), "-q"]) == 0
    before = {each: each.read_bytes() for each in out.rglob("*") if each.is_file()}
    monkeypatch.setattr(stored, "_referring", interrupt)
    assert main([str(package), "-o", str(out), "--store-sessions"]) == 3
    assert "interrupted: nothing was written" in capsys.readouterr().err
    assert {each: each.read_bytes() for each in out.rglob("*") if each.is_file()} == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "p"]


def test_the_summary_says_what_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(with_table(tmp_path / "p")), "-o", str(tmp_path / "out"), "--store-sessions"]) == 0
    size = sum(each.stat().st_size for each in (tmp_path / "out" / "stored").iterdir())
    said = f"note        stored sessions: 1, {size / 1e3:.1f} kB, for this processor and ONNX Runtime"
    assert said in capsys.readouterr().out
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "p"]


@pytest.mark.parametrize(
    "other", [["--check"], ["--no-artifacts"], ["--print", "read"], ["--stop-after", "build"], ["--memory"]], ids=str
)
def test_with_what_writes_nothing_it_is_refused(other: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(FIXTURES / "tiny-gqa-v1"), "--store-sessions", *other])
    assert "--store-sessions writes into the compiled folder" in capsys.readouterr().err
