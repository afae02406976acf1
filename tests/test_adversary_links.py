"""Packages of links, as a hub cache keeps them, when what runs is a graph made here that refers to their weights."""

from pathlib import Path

import genai_runtime
import numpy as np
import onnx
import pytest
from genai_compiler import compile_package
from genai_compiler.driver import Options
from genai_compiler.read import onnx_wire

from tests.conftest import FIXTURES
from tests.reference.interpreter import interpret
from tests.test_adversary_islands import op, pair, save

PROMPT, LARGE = [1, 9, 14], 500
"""LARGE: bytes from which a weight of these small graphs is left where it is."""


def snapshot(package: Path, top: Path) -> Path:
    """The package as a hub cache keeps it: every file a link to one without its name."""
    blobs, home = top / "models--a--b" / "blobs", top / "models--a--b" / "snapshots" / "0123abcd"
    blobs.mkdir(parents=True)
    for number, file in enumerate(sorted(each for each in package.rglob("*") if each.is_file())):
        link = home / file.relative_to(package)
        link.parent.mkdir(parents=True, exist_ok=True)
        (blobs / f"{number:08x}").write_bytes(file.read_bytes())
        link.symlink_to(Path(*[".."] * (len(link.relative_to(top).parts) - 2), "blobs", f"{number:08x}"))
    return home


def decoder(folder: Path, beside: bool) -> Path:
    """A decoder whose weights lie inside its graph's file or beside it."""
    folder.mkdir(parents=True)
    for each in (FIXTURES / "tiny-gqa-v1").iterdir():
        (folder / each.name).write_bytes(each.read_bytes())
    if beside:
        model = onnx.load(folder / "model.onnx")
        (folder / "model.onnx").unlink()
        onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=LARGE)
    return folder


def tokens(compiled: Path) -> list[int]:
    with genai_runtime.load(compiled, threads=1) as model:
        return model.generate(PROMPT, max_new_tokens=6).tokens


@pytest.mark.parametrize("bundle", [False, True], ids=["", "bundle"])
@pytest.mark.parametrize("beside", [False, True], ids=["weights inside", "weights beside"])
def test_an_edited_graph_finds_its_weights_behind_links(
    tmp_path: Path, beside: bool, bundle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_wire, "KEEP", LARGE)
    plain = decoder(tmp_path / "plain", beside)
    compile_package(plain, tmp_path / "of plain")
    made = compile_package(snapshot(plain, tmp_path / "hub"), tmp_path / "out", Options(bundle=bundle))
    assert made.out is not None
    assert (made.out / "graphs").is_dir()
    assert tokens(tmp_path / "out") == tokens(tmp_path / "of plain")


def test_links_of_a_hub_and_links_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is a link into the cache's folder, its data a file of the snapshot."""
    monkeypatch.setattr(onnx_wire, "KEEP", LARGE)
    plain = decoder(tmp_path / "plain", beside=True)
    home = snapshot(plain, tmp_path / "hub")
    (home / "w.bin").unlink()
    (home / "data").mkdir()
    (home / "data" / "d").write_bytes((plain / "w.bin").read_bytes())
    (home / "w.bin").symlink_to("data/d")
    compile_package(plain, tmp_path / "of plain")
    compile_package(home, tmp_path / "out")
    assert tokens(tmp_path / "out") == tokens(tmp_path / "of plain")


def test_a_graph_that_runs_as_it_is_may_be_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime itself follows links from the folder of the graph, when none is named to it."""
    root, weight = tmp_path / "plain", np.arange(3, dtype=np.float32)
    save(root / "sub" / "a.onnx", [op("Mul", ["x", "w"], ["y"])], w=weight)
    model = onnx.load(root / "sub" / "a.onnx")
    onnx.save(model, root / "sub" / "a.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    save(root / "b.onnx", [op("Exp", ["x"], ["y"])])
    home = snapshot(pair(root, "sub/a.onnx", "b.onnx"), tmp_path / "hub")
    given = {"in": np.array([1, -2, 3], np.float32)}
    wanted = interpret(root, given).outputs
    for passes in (True, False):
        if not passes:
            monkeypatch.setattr("genai_compiler.driver.PASSES", ())
        compile_package(home, tmp_path / f"out {passes}")
        with genai_runtime.load(tmp_path / f"out {passes}", threads=1) as running:
            result = running.run(given)
            for name, value in wanted.items():
                np.testing.assert_array_equal(result[name], value)
