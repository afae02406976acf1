"""Weights in files of their own, large ones, and folders that move (known traps N)."""

import os
import shutil
from pathlib import Path

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.driver import Options
from onnx import ModelProto, TensorProto, helper, numpy_helper, save
from onnx.external_data_helper import set_external_data

from tests.lower.packages import Layer, Recipe, decoder, outside, write_config
from tests.traps.packages import gives_plain_tokens, loaded, problems
from tests.traps.probe import run_probe

SIZES = {"model": {"decoder": {"head_size": 16, "num_key_value_heads": 4}}}


def with_data(folder: Path, name: str = "model.onnx.data") -> Path:
    """A package whose weights lie in a file beside the graph."""
    folder.mkdir(parents=True)
    save(outside(decoder(Recipe(layers=(Layer(0, 4, 16),))), name), folder / "model.onnx")
    write_config(folder, SIZES)
    return folder


RUN_ELSEWHERE = """
import os, genai_runtime
os.chdir({there!r})
with genai_runtime.load({folder!r}, threads=1) as model:
    print(model.generate([3, 7], max_new_tokens=6, temperature=0, stop_on_eos=False).tokens)
"""


def test_n1_any_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file of the weights' name lies in the working folder, full of other numbers."""
    folder = with_data(tmp_path / "p")
    model = loaded(folder)
    gives_plain_tokens(model, folder / "model.onnx")
    there = tmp_path / "there"
    there.mkdir()
    (there / "model.onnx.data").write_bytes(bytes((folder / "model.onnx.data").stat().st_size))
    wanted = model.generate([3, 7], max_new_tokens=6, temperature=0, stop_on_eos=False).tokens
    assert run_probe(RUN_ELSEWHERE.format(there=str(there), folder=str(tmp_path / "p.out"))).strip() == str(wanted)
    monkeypatch.chdir(there)
    compile_package(Path(os.path.relpath(folder)), out=Path(os.path.relpath(tmp_path / "second")))
    with genai_runtime.load(Path("../second"), threads=1) as again:
        assert again.generate([3, 7], max_new_tokens=6, temperature=0, stop_on_eos=False).tokens == wanted


def test_n2_a_package_of_links_runs(tmp_path: Path) -> None:
    """A hub's cache: every file of the snapshot is a link into `blobs`, weights included."""
    plain = with_data(tmp_path / "plain")
    (blobs := tmp_path / "hub" / "blobs").mkdir(parents=True)
    (snapshot := tmp_path / "hub" / "snapshots" / "0123abcd").mkdir(parents=True)
    for at, file in enumerate(sorted(plain.iterdir())):
        shutil.copyfile(file, blobs / f"{at:040x}")
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", f"{at:040x}"))
    gives_plain_tokens(loaded(snapshot, tmp_path / "out"), plain / "model.onnx")


HUGE = 2_200_000_000
"""Bytes: more than a protobuf message, and with it a model file, can hold (2 GiB)."""


def with_a_huge_table(folder: Path) -> Path:
    """A decoder that adds the first number of a table of 2.2 GB to its embeddings; the file is one hole."""
    model = decoder(Recipe())
    huge = TensorProto(name="huge", data_type=TensorProto.FLOAT, dims=[HUGE // 4], raw_data=b"")
    set_external_data(huge, "huge.data", offset=0, length=HUGE)
    huge.ClearField("raw_data")
    model.graph.initializer.extend([huge, numpy_helper.from_array(np.array([0]), "first")])
    at = next(at for at, each in enumerate(model.graph.node) if "x.0" in each.output)
    model.graph.node[at].output[0] = "embedded"
    model.graph.node.insert(at + 1, helper.make_node("Gather", ["huge", "first"], ["zero"]))
    model.graph.node.insert(at + 2, helper.make_node("Add", ["embedded", "zero"], ["x.0"]))
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    with (folder / "huge.data").open("wb") as hole:
        hole.truncate(HUGE)
    write_config(folder, {})
    return folder


def test_n4_weights_of_two_gigabytes_are_referred_to_when_a_graph_is_written(tmp_path: Path) -> None:
    """The decoder's edited graph, and all else that compiling writes, is small and names the package's file."""
    compile_package(with_a_huge_table(tmp_path / "p"), out=tmp_path / "out")
    written = {each.name: each.stat().st_size for each in (tmp_path / "out").rglob("*") if each.is_file()}
    assert sum(written.values()) < 1_000_000, written
    (graph,) = (tmp_path / "out" / "graphs").rglob("*.onnx")
    edited = onnx.load(graph, load_external_data=False)
    (held,) = [each for each in edited.graph.initializer if each.name == "huge"]
    place = {each.key: each.value for each in held.external_data}
    assert (place["location"], int(place["length"])) == ("huge.data", HUGE)


@pytest.mark.parametrize("bundle", [True, False])
def test_n5_weights_travel_with_what_needs_them(tmp_path: Path, bundle: bool) -> None:
    """A bundle goes anywhere alone; a compiled folder goes with its package."""
    with_data(tmp_path / "home" / "p")
    compile_package(tmp_path / "home" / "p", out=tmp_path / "home" / "out", options=Options(bundle=bundle))
    plain = with_data(tmp_path / "plain") / "model.onnx"
    if bundle:
        shutil.rmtree(tmp_path / "home" / "p")
    (tmp_path / "home").rename(tmp_path / "away")
    shutil.copytree(tmp_path / "away", tmp_path / "copy", copy_function=shutil.copy2, symlinks=True)
    for each in ("away", "copy"):
        with genai_runtime.load(tmp_path / each / "out", threads=1) as model:
            gives_plain_tokens(model, plain)


def pointing(at: str) -> ModelProto:
    """A decoder one of whose weights says that it lies there."""
    model = decoder(Recipe())
    held = next(each for each in model.graph.initializer if each.name == "head")
    held.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(held), "head"))
    set_external_data(held, at)
    held.ClearField("raw_data")
    return model


@pytest.mark.parametrize("place", ["/tmp/w.data", "../w.data", "a/../../w.data", "C:\\w.data", "..\\w.data", ""])
def test_n6_a_place_outside_the_package_is_refused_with_the_tensor(tmp_path: Path, place: str) -> None:
    """Also where the file is there."""
    folder = tmp_path / "p"
    folder.mkdir()
    (tmp_path / "w.data").write_bytes(bytes(24 * 8 * 4))
    (folder / "model.onnx").write_bytes(pointing(place).SerializeToString())
    write_config(folder, {})
    with pytest.raises(CompileError):
        compile_package(folder, out=tmp_path / "out")
    assert any("'head'" in each.what for each in problems(folder))
    assert not (tmp_path / "out").exists()
