"""No graph that is written has a finding of ONNX's checker or of strict inference that the package's own graphs lack.

Every graph of every compiled folder, of fixtures, conformance packages and packages of the field's exporters: islands,
linked readers, cells held in place, stages, selections of a position, text form made binary, policy graphs. It is
looked at where its weights lie.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from genai_compiler import Compiled, CompileError, Options, compile_package
from genai_compiler.plan.edits import Linked
from onnx import ModelProto, shape_inference

from tests.conftest import CASES, FIXTURES
from tests.real_packages import NAMES
from tests.real_packages import PACKAGES as REAL
from tests.reference.cases import PACKAGES

SHARED = sorted(each for each in PACKAGES.iterdir() if each.is_dir()) if PACKAGES.is_dir() else []
FOLDERS = [*(FIXTURES / each for each in CASES), *SHARED, *(REAL / each for each in NAMES)]
FEWER = ("hoist_selection", "use_numbers", "select_last")
"""Left out, other graphs are written."""
JUDGED = [*((each, ()) for each in FOLDERS), *((FIXTURES / each, FEWER) for each in CASES)]
_FAULT = re.compile(r"\(op_type:(\w+), node name: ([^)]*)\): (.*)")


def findings(file: Path) -> set[str]:
    """What the checker says, and strict inference node by node."""
    found = set[str]()
    try:
        onnx.checker.check_model(str(file))
    except onnx.checker.ValidationError as fault:
        found.add(str(fault).partition("\n")[0])
    model = onnx.load(str(file), load_external_data=False)
    for follow in (False, True):
        try:
            shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=follow)
        except shape_inference.InferenceError as fault:
            nodes = {" ".join(each) for each in _FAULT.findall(str(fault))}
            found |= nodes or {str(fault)}
    return found


def written(out: Path, package: Path, folder: Path) -> Iterator[tuple[list[str], str, set[str]]]:
    """(components, file, findings) of each graph in a compiled folder, looked at in a copy of the package."""
    said = json.loads((out / "manifest.json").read_text("utf-8"))
    places = dict[str, tuple[str, list[str]]]()
    for name, each in said["graphs"].items():
        if each["in"] == "compiled":
            places.setdefault(each["file"], (each["weights"], []))[1].append(name)
    for file in sorted(out.rglob("*.onnx")):
        name = file.relative_to(out).as_posix()
        weights, components = places.pop(name, (".", []))
        home = folder / weights
        looked_at = home / f"looked at {file.name}"
        shutil.copyfile(file, looked_at)
        yield components, name, findings(looked_at)
    assert not places


def members(component: str, made: Compiled) -> list[str]:
    """The components whose graphs are in a component's."""
    assert made.plan is not None
    edit = next((each.edit for each in made.plan.components if each.name == component), None)
    return [each.component for each in edit.members] if isinstance(edit, Linked) else [component]


def own_findings(made: Compiled, components: list[str], package: Path, folder: Path) -> set[str]:
    """Findings of the package's own graphs behind these components."""
    assert made.plan is not None
    artifacts = {each.name: each.artifact for each in made.plan.components}
    names = [artifacts.get(each, "") for name in components for each in members(name, made)]
    found = set[str]()
    for name in dict.fromkeys(name for each in names for name in each.split(" + ") if name):
        file = folder / name
        if name.endswith(".textproto"):
            model = ModelProto()
            model.CopyFrom(onnx.load(file, "textproto", load_external_data=False))
            file = file.with_name(f"looked at {file.name}.onnx")
            file.write_bytes(model.SerializeToString())
        found |= findings(file)
    return found


@pytest.mark.parametrize(("package", "left"), JUDGED, ids=lambda each: getattr(each, "name", "") or len(each))
def test_no_graph_has_findings_of_its_own(package: Path, left: tuple[str, ...], tmp_path: Path) -> None:
    try:
        made = compile_package(package, tmp_path / "out", Options(without=left))
    except CompileError:
        return  # what must be refused is held against INDEX.md elsewhere
    folder = tmp_path / "package"
    shutil.copytree(package, folder, copy_function=shutil.copyfile)
    for each in (folder, *(each for each in folder.rglob("*") if each.is_dir())):
        each.chmod(0o755)
    for components, name, found in written(tmp_path / "out", package, folder):
        assert found <= (own_findings(made, components, package, folder) if found else set()), name


def test_islands_and_all_kinds_of_linked_graphs_are_among_them(tmp_path: Path) -> None:
    """So that something is looked at: the checker is asked about graphs of each kind that links make."""
    seen = set[str]()
    for case in ("tiny-decoder", "tiny-held-state", "tiny-turns", "tiny-stages-v1", "tiny-gqa-v1"):
        compile_package(FIXTURES / case, tmp_path / case)
        seen |= {each.name for each in (tmp_path / case / "graphs").iterdir()}
    assert {"island_1.onnx", "island_3.onnx", "model_linked.onnx"} <= seen
    assert {"decoder.onnx", "decoder_prompt.onnx", "decoder.edited.onnx"} <= seen


def test_the_checker_s_findings_are_found(tmp_path: Path) -> None:
    """A result without a shape, and a wrong extent behind it."""
    compile_package(FIXTURES / "tiny-decoder", tmp_path / "out")
    file = tmp_path / "out" / "graphs" / "island_3.onnx"
    assert findings(file) == set()
    model = onnx.load(file)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, file)
    assert findings(file) == {"Field 'shape' of 'type' is required but missing."}
    model.graph.output[0].type.tensor_type.shape.dim.add(dim_value=3)
    onnx.save(model, file)
    assert any("differ in rank: (4) vs (1)" in each for each in findings(file))
