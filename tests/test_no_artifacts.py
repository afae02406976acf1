"""`--no-artifacts`: documents whose graphs are absent are judged and planned, and nothing is made that could run."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_compiler.cli import main
from genai_compiler.driver import STAGES, Options
from genai_compiler.plan.build import build
from genai_compiler.plan.ir import Branch, Copy, Decode, Emit, Invoke, Loop, Plan, SelectToken
from genai_compiler.plan.text import plan_text
from genai_compiler.plan.uses import walk
from genai_compiler.plan.verify import verify
from genai_compiler.problem import errors
from genai_compiler.read.load import load_package

from tests.conftest import CASES, FIXTURES
from tests.data import DATA, needs_data

CONFORMANCE = DATA / "conformance"
CATALOGUE = sorted((CONFORMANCE / "catalogue").glob("*.yaml"))
DOCUMENTS = [*CATALOGUE, CONFORMANCE / "packages" / "tts"]
NO_FILES = Options(artifacts=False)


def document(path: Path) -> Any:
    """The document as plain data, read by nothing of ours."""
    return yaml.safe_load((path if path.is_file() else path / "inference_metadata.yaml").read_text("utf-8"))


def steps(value: Any) -> Iterator[Any]:
    """Every step of plain data, wherever it is nested: each mapping in the workflow's steps that has a known kind."""
    if isinstance(value, list):
        for each in value:
            yield from steps(each)
    elif isinstance(value, dict):
        if value.get("kind") in ("invoke", "loop", "emit", "branch", "sequence"):
            yield value
        for key in ("steps", "setup", "cases", "default"):
            inner = value.get(key)
            yield from steps(list(inner.values()) if key == "cases" and inner else inner)


def plan_of(path: Path) -> Plan:
    """The plan after the last stage."""
    plan = compile_package(path, options=NO_FILES).plan
    assert plan is not None
    return plan


def built(path: Path) -> Plan:
    """The plan as it is built, before any pass."""
    plan, found = build(load_package(path, complete=False))
    assert errors(found) == ()
    return plan


# ---- every document of the catalogue ---------------------------------------------------------------------------------


@needs_data
def test_there_are_nineteen() -> None:
    verdicts = json.loads((CONFORMANCE / "expected" / "validation.json").read_text())["catalogue"]
    assert {each.name for each in CATALOGUE} == set(verdicts)
    assert len(CATALOGUE) == 19
    assert all(each["valid"] for each in verdicts.values())


@needs_data
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_a_document_is_planned_and_its_plan_is_sound(path: Path) -> None:
    assert verify(plan_of(path)) == ()


@needs_data
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_the_command_plans_a_document(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is refused and nothing is missing; all it warns of is files that are not there. The plan is printed."""
    assert main(["--no-artifacts", "--format", "text", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == plan_text(plan_of(path))
    assert all("warning: missing-file" in line for line in err.splitlines() if line.startswith("  ") and ": " in line)
    assert "not offered" not in err
    assert main(["--no-artifacts", "--format", "json", str(path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["missing"] == []
    assert {(each["severity"], each["code"]) for each in said["problems"]} <= {("warning", "missing-file")}


@needs_data
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_a_plan_has_the_steps_of_its_document(path: Path) -> None:
    """Counted in the text itself: each step is one op, at its own place, whatever loop or case it stands in."""
    workflow = document(path)["pipeline"]["workflow"]
    stated = Counter(each["kind"] for each in steps(workflow["steps"]))
    ops = list(walk(built(path).body))
    kinds = {"invoke": Invoke | Copy | Decode | SelectToken, "loop": Loop, "emit": Emit, "branch": Branch}
    assert {kind: sum(isinstance(op, form) for op in ops) for kind, form in kinds.items()} == {
        kind: stated[kind] for kind in kinds
    }
    places = [op.origin for op in ops if isinstance(op, Invoke | Emit | Loop | Branch)]
    assert len(set(places)) == len(places)


@needs_data
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_a_plan_has_the_parts_of_its_document(path: Path) -> None:
    workflow, plan = document(path)["pipeline"]["workflow"], built(path)
    assert {each.name for each in plan.inputs} == set(workflow["inputs"])
    assert {each.name for each in plan.outputs} == set(workflow["outputs"])
    assert {each.name for each in plan.components} == set(workflow["components"])
    assert {each.name for each in plan.cells} == set(workflow.get("state") or {})
    stated = [each for each in steps(workflow["steps"]) if each["kind"] == "loop"]
    made = [op for op in walk(plan.body) if isinstance(op, Loop)]
    assert Counter(len(each.get("carried") or ()) for each in stated) == Counter(len(op.carried) for op in made)
    bound = Counter(
        (each["component"], port) for each in steps(workflow["steps"]) if each["kind"] == "invoke"
        for port in {*each.get("inputs", {}), *each.get("outputs", {})}
    )  # fmt: skip
    ports = Counter(
        (op.component, port) for op in walk(plan.body) if isinstance(op, Invoke)
        for port in {port for port, _ in (*op.inputs, *op.outputs)}
    )  # fmt: skip
    copied = {op.component for op in walk(plan.body) if isinstance(op, Copy)}
    assert {key: count for key, count in bound.items() if key[0] not in copied} == dict(ports)


@needs_data
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_what_is_taken_for_granted_is_said(path: Path) -> None:
    """One sentence for each graph that is not there; it says whether the document declares the component's ports."""
    root = path if path.is_dir() else path.parent
    plan, components = built(path), document(path)["pipeline"]["workflow"]["components"]
    assert "nothing can be run" in plan.decisions[0]
    for name, each in components.items():
        if each["implementation"]["kind"] != "onnx":
            continue
        said = [line for line in plan.decisions if f"component '{name}' is absent" in line]
        if (root / each["implementation"]["artifact"]).exists():
            assert said == []
        else:
            assert len(said) == 1
            ports = each.get("ports") or {}
            assert ("no ports are declared" in said[0]) == (not ports.get("inputs") and not ports.get("outputs"))


@needs_data
def test_an_absent_graph_proves_nothing() -> None:
    """No cache is shared, no state is held in place where no operator can be looked at."""
    plans = [plan_of(each) for each in CATALOGUE]
    assert {group.storage for plan in plans for group in plan.groups} <= {"growing"}


# ---- with and without the flag ---------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A fixture without its graphs."""
    folder = shutil.copytree(FIXTURES / "tiny-held-state", tmp_path / "package")
    for each in [*folder.rglob("*.onnx*")]:
        each.unlink()
    return folder


def test_without_the_flag_an_absent_graph_is_an_error_that_names_it(package: Path) -> None:
    with pytest.raises(CompileError) as refused:
        compile_package(package)
    missing = [each for each in refused.value.problems if each.code == "missing-file"]
    components = document(package)["pipeline"]["workflow"]["components"]
    assert len(missing) == sum(each["implementation"]["kind"] == "onnx" for each in components.values())
    assert all("--no-artifacts" in each.help for each in missing)
    assert not package.with_name("package.compiled").exists()


def test_a_document_alone_needs_the_flag(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = package / "inference_metadata.yaml"
    assert main([str(file)]) == 2
    assert "--no-artifacts" in capsys.readouterr().err
    assert main(["--no-artifacts", str(file)]) == 0
    assert capsys.readouterr().out.startswith("plan package from workflow\n")


def test_the_plan_is_printed_and_nothing_written(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-artifacts", str(package)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("plan package from workflow\n")
    assert "nothing can be run from this" in printed
    assert sorted(each.name for each in package.parent.iterdir()) == ["package"]


def test_an_output_holds_the_plan_only(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    for _ in range(2):  # a plan replaces a plan
        assert main(["--no-artifacts", str(package), "-o", str(out)]) == 0
        assert [each.name for each in out.iterdir()] == ["plan.txt"]
    capsys.readouterr()
    assert main(["--no-artifacts", str(package), "--print", STAGES[-2]]) == 0
    assert capsys.readouterr().out == (out / "plan.txt").read_text("utf-8")


def test_a_compiled_folder_is_not_replaced_by_a_plan(package: Path, tmp_path: Path) -> None:
    out = tmp_path / "compiled"
    compile_package(FIXTURES / "tiny-held-state", out=out)
    before = sorted(each.name for each in out.iterdir())
    with pytest.raises(CompileError) as refused:
        compile_package(package, out, Options(artifacts=False, force=True))
    assert [each.code for each in refused.value.problems] == ["output-exists"]
    assert sorted(each.name for each in out.iterdir()) == before


@pytest.mark.parametrize("inner", ["", "sub", "a/b"])
def test_the_package_is_never_written_to(inner: str, package: Path) -> None:
    before = sorted(package.rglob("*"))
    with pytest.raises(CompileError) as refused:
        compile_package(package, package / inner, NO_FILES)
    assert [each.code for each in refused.value.problems] == ["bad-output"]
    assert sorted(package.rglob("*")) == before


def test_a_folder_of_a_plan_is_no_compiled_folder(package: Path, tmp_path: Path) -> None:
    import genai_runtime

    compile_package(package, tmp_path / "out", NO_FILES)
    with pytest.raises(genai_runtime.LoadError) as refused:
        genai_runtime.load(tmp_path / "out")
    assert refused.value.code == "not-compiled"


@pytest.mark.parametrize("case", [each for each in CASES if (FIXTURES / each / "inference_metadata.yaml").exists()])
def test_where_every_file_is_there_the_plan_is_the_same(case: str, tmp_path: Path) -> None:
    whole = compile_package(FIXTURES / case, tmp_path / "whole").plan
    planned = compile_package(FIXTURES / case, options=NO_FILES).plan
    assert whole is not None
    assert planned is not None
    assert planned.body == whole.body
    assert [each for each in planned.decisions if "no_artifacts" not in each] == list(whole.decisions)


def test_weights_may_be_absent_too(tmp_path: Path) -> None:
    """A graph whose external data did not come along is read; only its weights are not looked at."""
    import onnx

    package = shutil.copytree(FIXTURES / "tiny-held-state", tmp_path / "package")
    file = next(each for each in sorted(package.rglob("*.onnx")) if onnx.load(each).graph.initializer)
    model = onnx.load(file)
    onnx.save(model, file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (file.parent / "weights.bin").unlink()
    with pytest.raises(CompileError) as refused:
        compile_package(package, tmp_path / "out")
    assert {each.code for each in refused.value.problems} == {"missing-file"}
    assert compile_package(package, options=NO_FILES).plan is not None


def test_other_faults_stay_errors(package: Path) -> None:
    """A name that leads out of the package is refused whether the file is there or not."""
    data = document(package)
    name = next(name for name, each in data["pipeline"]["workflow"]["components"].items()
                if each["implementation"]["kind"] == "onnx")  # fmt: skip
    data["pipeline"]["workflow"]["components"][name]["implementation"]["artifact"] = "../elsewhere.onnx"
    (package / "inference_metadata.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    with pytest.raises(CompileError) as refused:
        compile_package(package, options=NO_FILES)
    assert [each.code for each in refused.value.problems] == ["outside-package"]


def test_what_is_not_offered_is_fatal_with_the_flag_too(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = document(package)
    data["required_capabilities"] = ["time_travel"]
    (package / "inference_metadata.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    assert main(["--no-artifacts", str(package), "--format", "json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert said["problems"] == []
    assert [each["id"] for each in said["missing"]] == ["time_travel"]


@pytest.mark.parametrize("arguments", [["--bundle"], ["--print", "emit"]])
def test_there_is_nothing_to_bundle_or_to_emit(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--no-artifacts", "somewhere", *arguments])
    assert left.value.code == 2
    assert "--no-artifacts" in capsys.readouterr().err


ALONE = "only inference_metadata.yaml can be planned without its graphs, because it declares the ports"


@pytest.mark.parametrize("artifacts", [True, False])
@pytest.mark.parametrize("name", ["genai_config.json", "model.onnx"])
def test_a_file_that_declares_no_ports_is_no_document(name: str, artifacts: bool) -> None:
    folder = FIXTURES / "tiny-gqa-v1"
    with pytest.raises(CompileError) as refused:
        compile_package(folder / name, options=Options(artifacts=artifacts, write=False))
    (found,) = refused.value.problems
    assert (found.code, found.help) == ("no-package", f"give the folder, '{folder.as_posix()}'; {ALONE}")


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-vision-v2"])
def test_a_configuration_alone_is_not_planned_and_says_why(case: str, tmp_path: Path) -> None:
    shutil.copy(FIXTURES / case / "genai_config.json", tmp_path)
    with pytest.raises(CompileError) as refused:
        compile_package(tmp_path, options=NO_FILES)
    lacking = [each for each in errors(refused.value.problems) if each.code == "missing-file"]
    assert lacking
    assert all(each.help.endswith(ALONE) for each in lacking)
