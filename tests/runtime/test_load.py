"""Loading a compiled folder: whatever is missing, moved, changed or damaged has a name, and nothing else is raised."""

import hashlib
import importlib.machinery
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import genai_runtime
import onnx
import pytest
from genai_compiler import compile_package
from genai_compiler.driver import Options
from genai_runtime import GenaiError, LoadError
from genai_runtime import manifest as manifest_module
from google.protobuf import text_format

from tests.conftest import FIXTURES
from tests.reference.plain_loop import greedy

PROMPT = [1, 9, 14]


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """`package` and `compiled` side by side in a folder."""
    shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")
    compile_package(tmp_path / "package", out=tmp_path / "compiled")
    return tmp_path


def refused(folder: Path, code: str, **options: Any) -> LoadError:
    """The error of loading, which must have this code and a way out."""
    with pytest.raises(LoadError) as caught:
        genai_runtime.load(folder, **options)
    assert caught.value.code == code
    return caught.value


def tokens(folder: Path, **options: Any) -> list[int]:
    """Four greedy tokens after PROMPT."""
    with genai_runtime.load(folder, threads=1, **options) as model:
        return model.generate(PROMPT, max_new_tokens=4).tokens


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest of a compiled folder."""
    data = json.loads((folder / "manifest.json").read_text("utf-8"))
    change(data)
    (folder / "manifest.json").write_text(json.dumps(data), "utf-8")


def replace_executor(folder: Path, text: str) -> None:
    """Another executor, which the manifest vouches for."""
    (folder / "executor.py").write_text(text, "utf-8")
    edit(folder, lambda data: data.update(executor_sha256=hashlib.sha256(text.encode()).hexdigest()))


# ---- the folder ------------------------------------------------------------------------------------------------------


def test_an_intact_folder_gives_the_plain_loops_tokens(pair: Path) -> None:
    assert tokens(pair / "compiled") == greedy(pair / "package" / "model.onnx", PROMPT, 4)


def test_a_folder_without_manifest_is_not_compiled(pair: Path) -> None:
    assert "run genai-compile" in refused(pair / "package", "not-compiled").help
    assert "genai-compile wrote" in refused(pair, "not-compiled").help
    refused(pair / "absent", "not-compiled")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\0", '{"format": 1', "[" * 9999])
def test_a_damaged_manifest(pair: Path, text: str) -> None:
    (pair / "compiled" / "manifest.json").write_text(text, "utf-8")
    assert "compile" in refused(pair / "compiled", "damaged-folder").help


def test_a_manifest_of_another_format_or_abi(pair: Path) -> None:
    for change in ({"format": 99}, {"format": 1, "abi": 99}, {"abi": None}):
        edit(pair / "compiled", lambda data: data.update(change))  # noqa: B023
        refused(pair / "compiled", "abi-mismatch")


def test_a_folder_of_before_the_policy_graphs_is_to_be_compiled_again(pair: Path) -> None:
    """Format 2 had neither `policy_graphs` nor `lengths_vary`: not a damage, whatever ABI it names."""

    def older(data: dict[str, Any]) -> None:
        data["format"] = 2
        del data["policy_graphs"]
        for each in data["graphs"].values():
            del each["lengths_vary"]

    edit(pair / "compiled", older)
    error = refused(pair / "compiled", "abi-mismatch")
    assert "format 2" in error.what
    assert "compile the package again" in error.help


def spots(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value of a JSON document."""
    if path:
        yield path
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from spots(each, (*path, key))


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-decoder"])
@pytest.mark.parametrize("harm", ["missing", "number", "text", "list"])
def test_any_damage_to_a_manifest_has_a_name(
    compiled: Callable[[str], tuple[Path, object]], tmp_path: Path, case: str, harm: str
) -> None:
    folder = shutil.copytree(compiled(case)[0], tmp_path / "c")
    whole = (folder / "manifest.json").read_text("utf-8")
    whole = whole.replace(json.loads(whole)["package"]["path"], str(FIXTURES / case))
    unnamed = []
    for path in spots(json.loads(whole)):
        if harm == "text" and path[-1] == "dtype":
            continue  # another type's name in an otherwise whole manifest: edited, not damaged
        data = json.loads(whole)
        holder = data
        for key in path[:-1]:
            holder = holder[key]
        if harm == "missing":
            del holder[path[-1]]
        else:
            holder[path[-1]] = {"number": -7, "text": "x", "list": [[]]}[harm]
        (folder / "manifest.json").write_text(json.dumps(data), "utf-8")
        try:
            tokens(folder)
        except GenaiError:
            pass
        except Exception as other:
            unnamed.append((path, repr(other)))
    assert unnamed == []


def test_a_changed_or_missing_executor_is_not_run(pair: Path) -> None:
    executor = pair / "compiled" / "executor.py"
    executor.write_text("raise SystemExit('this must not run')\n" + executor.read_text("utf-8"), "utf-8")
    refused(pair / "compiled", "damaged-folder")
    executor.unlink()
    refused(pair / "compiled", "damaged-folder")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ABI_VERSION = 0\n", "abi-mismatch"),
        ("", "abi-mismatch"),
        ("def def", "damaged-folder"),
        ("import a_module_that_nobody_has", "damaged-folder"),
        (f"ABI_VERSION = {genai_runtime.ABI_VERSION}\n", "damaged-folder"),
    ],
)
def test_an_executor_that_is_none(pair: Path, text: str, code: str) -> None:
    replace_executor(pair / "compiled", text)
    before = set(sys.modules)
    refused(pair / "compiled", code)
    assert not any(each.startswith("genai_executor_") for each in set(sys.modules) - before)


# ---- the package -----------------------------------------------------------------------------------------------------


def test_both_may_move_together_but_not_apart(pair: Path) -> None:
    wanted = tokens(pair / "compiled")
    (pair / "elsewhere").mkdir()
    for each in ("package", "compiled"):
        (pair / each).rename(pair / "elsewhere" / each)
    assert tokens(pair / "elsewhere" / "compiled") == wanted
    (pair / "elsewhere" / "package").rename(pair / "package")
    failure = refused(pair / "elsewhere" / "compiled", "package-moved")
    assert "../package" in failure.what
    assert "--bundle" in failure.help


def test_every_changed_file_is_named(pair: Path) -> None:
    package = pair / "package"
    (package / "tokenizer.json").unlink()
    (package / "model.onnx").write_bytes((package / "model.onnx").read_bytes()[:-1])
    config = (package / "genai_config.json").read_text("utf-8")
    (package / "genai_config.json").write_text(config.replace("64", "46"), "utf-8")  # the same size
    failure = refused(pair / "compiled", "package-changed")
    assert "'tokenizer.json' is missing" in failure.what
    assert "'model.onnx' has" in failure.what
    assert "the content of 'genai_config.json' has changed" in failure.what


def test_a_large_file_is_known_by_size_and_time_and_by_content_with_verify(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "SMALL_FILE", 100)
    config = pair / "package" / "tokenizer_config.json"  # nothing that decides tokens
    kept = config.stat().st_mtime_ns
    config.write_text(config.read_text("utf-8").replace("trim", "TRIM"), "utf-8")
    refused(pair / "compiled", "package-changed")
    os.utime(config, ns=(kept, kept))
    assert tokens(pair / "compiled")
    refused(pair / "compiled", "package-changed", verify=True)


def test_a_large_file_with_another_time_and_the_same_content_is_unchanged(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_module, "SMALL_FILE", 100)
    os.utime(pair / "package" / "model.onnx", ns=(1, 1))
    assert tokens(pair / "compiled")


def test_files_beside_those_that_were_compiled_do_not_matter(pair: Path) -> None:
    (pair / "package" / "README.md").write_text("hello", "utf-8")
    assert tokens(pair / "compiled")


@pytest.mark.parametrize("linked", ["output", "package"])
def test_the_way_to_the_package_survives_links_above_either(tmp_path: Path, linked: str) -> None:
    deep = tmp_path / "real" / "deep" / "down"
    deep.mkdir(parents=True)
    (tmp_path / "link").symlink_to(deep)
    home = {"output": tmp_path, "package": tmp_path / "link"}[linked]
    shutil.copytree(FIXTURES / "tiny-gqa-v1", home / "package")
    out = {"output": tmp_path / "link", "package": tmp_path}[linked] / "compiled"
    compile_package(home / "package", out=out)
    assert tokens(out)
    assert tokens(out.resolve())


def test_a_graph_that_onnx_runtime_refuses_is_named(pair: Path) -> None:
    graph = pair / "compiled" / "graphs" / "decoder.edited.onnx"
    graph.write_bytes(b"no graph at all")
    digest = hashlib.sha256(b"no graph at all").hexdigest()
    edit(pair / "compiled", lambda data: data["graphs"]["decoder"].update(sha256=digest))
    assert "decoder.edited.onnx of component 'decoder'" in refused(pair / "compiled", "session-failed").what


# ---- converted graphs and bundles ------------------------------------------------------------------------------------


def as_text_graphs(package: Path) -> Path:
    """The package with every graph in the text form that ONNX Runtime can't read."""
    for file in sorted(package.glob("*.onnx")):
        text = text_format.MessageToString(onnx.load(file))
        file.with_name(file.name + ".textproto").write_text(text, "utf-8")
        file.unlink()
    document = package / "inference_metadata.yaml"
    document.write_text(document.read_text("utf-8").replace(".onnx", ".onnx.textproto"), "utf-8")
    return package


@pytest.mark.parametrize("harm", ["remove", "truncate"])
def test_a_converted_graph_is_checked_like_the_rest(tmp_path: Path, harm: str) -> None:
    package = as_text_graphs(shutil.copytree(FIXTURES / "branch-joins", tmp_path / "package"))
    compile_package(package, out=tmp_path / "compiled")
    graph = tmp_path / "compiled" / "graphs" / "double.onnx"
    genai_runtime.load(tmp_path / "compiled").close()
    whole = graph.read_bytes()
    graph.unlink()
    if harm == "truncate":
        graph.write_bytes(whole[:-1])
    assert "double.onnx" in refused(tmp_path / "compiled", "damaged-folder").what


@pytest.mark.parametrize("case", ["tiny-gqa-v1", "tiny-decoder"])
def test_a_bundle_stands_alone(tmp_path: Path, case: str) -> None:
    package = shutil.copytree(FIXTURES / case, tmp_path / "package")
    wanted = greedy(package / "model.onnx", PROMPT, 4)
    compile_package(package, out=tmp_path / "first", options=Options(bundle=True))
    shutil.rmtree(package)
    (tmp_path / "first").rename(tmp_path / "second")
    shutil.copytree(tmp_path / "second", tmp_path / "third", copy_function=shutil.copyfile)  # new time stamps
    assert tokens(tmp_path / "second") == tokens(tmp_path / "third") == wanted


# ---- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_are_at_least_one(pair: Path, threads: int) -> None:
    refused(pair / "compiled", "bad-threads", threads=threads)


def test_threads_reach_the_sessions(pair: Path) -> None:
    with genai_runtime.load(pair / "compiled", threads=1) as model:
        assert model.describe()["threads"] == 1
    with genai_runtime.load(pair / "compiled") as model:
        assert model.describe()["threads"] == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("spelling", ["cpu", "CPU", "CPUExecutionProvider", "cpuexecutionprovider"])
def test_a_provider_in_any_spelling(pair: Path, spelling: str) -> None:
    with genai_runtime.load(pair / "compiled", providers=[spelling]) as model:
        assert set(map(tuple, model.describe()["providers"].values())) == {("CPUExecutionProvider",)}


def test_a_provider_that_the_user_names_is_strict(pair: Path) -> None:
    assert "did you mean 'cuda'" in refused(pair / "compiled", "unknown-provider", providers=["cudda"]).help
    absent = "qnn"
    assert "was asked for" in refused(pair / "compiled", "provider-unavailable", providers=[absent]).what


def test_two_models_of_one_folder_are_independent(pair: Path) -> None:
    first, second = genai_runtime.load(pair / "compiled"), genai_runtime.load(pair / "compiled")
    first.close()
    assert second.generate(PROMPT, max_new_tokens=4).tokens == greedy(pair / "package" / "model.onnx", PROMPT, 4)


def test_threads_that_load_one_folder_at_once_never_see_half_an_executor(
    pair: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one is held in the middle of its import for as long as the others need to come by."""
    imports, waiting = list[str](), threading.Event()
    real = importlib.machinery.SourceFileLoader.exec_module

    def slowly(loader: importlib.machinery.SourceFileLoader, module: ModuleType) -> None:
        if loader.path == str(pair / "compiled" / "executor.py"):
            imports.append(module.__name__)
            waiting.wait(0.5)
        real(loader, module)

    monkeypatch.setattr(importlib.machinery.SourceFileLoader, "exec_module", slowly)
    with ThreadPoolExecutor(8) as pool:
        made = [each.result() for each in [pool.submit(tokens, pair / "compiled") for _ in range(8)]]
    assert made == [greedy(pair / "package" / "model.onnx", PROMPT, 4)] * 8
    assert len(imports) == 1
