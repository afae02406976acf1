"""Rules of the source tree: who imports what, no model family decides anything, files stay small and well named."""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import CASES, GOLDEN
from tests.data import ROOT

COMPILER, RUNTIME = ROOT / "compiler" / "genai_compiler", ROOT / "runtime" / "genai_runtime"
SOURCES = sorted((*COMPILER.rglob("*.py"), *RUNTIME.rglob("*.py")))
PYTHON = sorted(
    file
    for folder in ("compiler", "runtime", "tests", "tools", "golden")
    for file in (ROOT / folder).rglob("*.py")
    if ".mypy_cache" not in file.parts
)
COMPILER_ONLY = ("genai_compiler", "onnx", "onnx_ir", "onnxscript", "pydantic", "yaml", "networkx", "libcst")
ORDER = ("read", "check", "lower", "plan", "passes", "emit")
"""The compiler's folders in data-flow order: each imports only from itself and from those to its left."""
BETWEEN = {"read/load.py", "read/negotiate.py"}
"""Files that join stages: the choice of a front end, and what the whole document asks of this compiler."""
SHARED = {"plan.dtypes", "plan.report"}
"""What earlier stages may fetch: a table, and problems at their places."""


def imported(file: Path) -> Iterator[str]:
    """Modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            yield node.module or ""


def roots(file: Path) -> set[str]:
    return {each.partition(".")[0] for each in imported(file)}


# ---- imports ---------------------------------------------------------------------------------------------------------


def test_the_runtime_imports_nothing_of_the_compiler() -> None:
    assert {file.name: found for file in RUNTIME.rglob("*.py") if (found := roots(file) & set(COMPILER_ONLY))} == {}


def test_the_compiler_asks_the_runtime_only_about_text_adapters_and_times() -> None:
    """Tokenizer, template, files and parameters of adapters: what is said of them is what the runtime will do.

    And to measure what its calls take.
    """
    assert {file.name for file in COMPILER.rglob("*.py") if "genai_runtime" in roots(file)} == {
        "text_side.py",
        "adapter_files.py",
        "adapter_parameters.py",
        "calibrate.py",
        "measure.py",
        "timed_draws.py",
    }


def test_the_runtime_runs_where_the_compiler_and_its_dependencies_are_absent() -> None:
    script = f"""
import importlib.abc, pkgutil, sys

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {COMPILER_ONLY!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Block())
import genai_runtime
for each in pkgutil.iter_modules(genai_runtime.__path__):
    if each.name != "__main__":
        __import__(f"genai_runtime.{{each.name}}")
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("case", CASES)
def test_a_generated_module_imports_the_abi_and_the_standard_library_only(case: str) -> None:
    executor = GOLDEN / case / "executor.py"
    if executor.exists():
        outside = {each for each in imported(executor) if each.partition(".")[0] not in sys.stdlib_module_names}
        assert outside == {"genai_runtime.abi"}


def test_imports_point_upstream() -> None:
    backwards = [
        f"{file.relative_to(COMPILER)} imports {name}"
        for at, stage in enumerate(ORDER)
        for file in sorted((COMPILER / stage).rglob("*.py"))
        for name in imported(file)
        if name.startswith("genai_compiler.") and name.split(".")[1] in ORDER[at + 1 :]
    ]
    assert [each for each in backwards if each.split()[0] not in BETWEEN and not each.endswith(tuple(SHARED))] == []


def test_emit_knows_no_yaml_and_read_no_python_text() -> None:
    assert [file.name for file in (COMPILER / "emit").rglob("*.py") if "yaml" in roots(file)] == []
    assert [file.name for file in (COMPILER / "read").rglob("*.py") if {"jinja2", "ast"} & roots(file)] == []


# ---- names -----------------------------------------------------------------------------------------------------------

FAMILIES = frozenset(
    """llama qwen gemma phi mistral mixtral whisper pixtral gpt2 gptj gptneox deepseek marian smollm mamba bert roberta
    t5 falcon olmo nemotron chatglm baichuan internlm starcoder stablelm hunyuan ernie siglip llava moonshine kokoro
    fara bart mpt rwkv zamba jamba cohere exaone minicpm bloom bamba lfm flux granite parakeet silero sdxl plamo
    seamless wav2vec hubert kimi ministral codestral apertus glm yi molmo florence paligemma idefics smolvlm dbrx grok
    olmoe openelm internvl ovis vits bark musicgen distil electra mpnet minilm albert dinov2 swin pixart sana""".split()  # noqa: SIM905
)
"""No file is excepted, and no comment. Families with the name of an ordinary word are left out."""
_ORDINARY = "text audio moe decoder pipeline speech tdt streaming enc dec asr flash small unified"
ORDINARY = frozenset(_ORDINARY.split())
"""Words of the reference runtime's type strings that name no family."""
OF_THE_STANDARD = ("whisper_log_mel",)
"""Values that documents write: words of the metadata standard's own vocabulary (5.7)."""


def words(file: Path) -> set[str]:
    """Words of a file in lower case, with snake_case and CamelCase taken apart; digits stay on their word."""
    text = file.read_text("utf-8")
    for each in OF_THE_STANDARD:
        text = text.replace(f'"{each}"', "")
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    found = set(re.findall(r"[a-z]+[0-9]*", text.lower().replace("_", " ")))
    return found | {each.rstrip("0123456789") for each in found}


def reference_families() -> frozenset[str]:
    """The families among the types that the reference runtime dispatches on, with and without their number."""
    table = json.loads((COMPILER / "reference_types.json").read_text("utf-8"))
    listed = [named for named in table.values() if isinstance(named, list)]
    types = [each for named in (*listed, *(kind["types"] for kind in table["classes"].values())) for each in named]
    found = {word for each in types for word in re.findall(r"[a-z]+[0-9]*", each.replace("_", " "))}
    found |= {each.rstrip("0123456789") for each in found}
    return frozenset(each for each in found - ORDINARY if len(each) > 2)


def test_no_model_family_is_named() -> None:
    templates = sorted((ROOT / "templates").iterdir())
    families = FAMILIES | reference_families()
    assert {"llama", "chatglm", "smollm3", "lfm", "parakeet"} <= families
    named = {
        str(file.relative_to(ROOT)): sorted(hits) for file in (*SOURCES, *templates) if (hits := words(file) & families)
    }
    assert named == {}


def test_tables_that_name_families_have_one_reader_each() -> None:
    """What the reference runtime dispatches on is data; nothing that decides how a package is compiled sees it.

    The names of operations and extractors are the foreign format's own: their tables say in our words what each does.
    The one of costs holds what was measured, and no names.
    """
    data = sorted(each.name for each in COMPILER.rglob("*.json") if "_shipped" not in each.parts)
    assert data == [
        "audio_operations.json",
        "image_operations.json",
        "reference_types.json",
        "shipped.json",
        "sound_extractors.json",
    ]
    readers = {table: {file.name for file in SOURCES if f'"{table}"' in file.read_text("utf-8")} for table in data}
    assert readers == {
        "audio_operations.json": {"audio_operations.py"},
        "image_operations.json": {"image_operations.py"},
        "reference_types.json": {"reference_classes.py"},
        "shipped.json": {"table.py"},
        "sound_extractors.json": {"sound_extractors.py"},
    }
    judges = {"reference_load.py", "reference_numbers.py", "reference_rows.py"}
    askers = {file.name for file in SOURCES if any("reference_" in each for each in imported(file))}
    assert askers == {"driver.py", *judges}
    askers = {file.name for file in SOURCES if any("reference_load" in each for each in imported(file))}
    assert askers == {"driver.py"}


# ---- files -----------------------------------------------------------------------------------------------------------


def test_no_file_has_a_name_that_says_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc", "core", "tools"}
    assert [str(file.relative_to(ROOT)) for file in PYTHON if file.stem in vague] == []


def test_files_stay_under_the_soft_stop() -> None:
    long = {
        str(file.relative_to(ROOT)): lines
        for file in PYTHON
        if "golden" not in file.relative_to(ROOT).parts and (lines := len(file.read_text("utf-8").splitlines())) > 400
    }
    assert long == {}, "split by data-flow step"


def test_no_import_hides_in_the_root() -> None:
    assert sorted(each.name for each in ROOT.glob("*.py")) == []


def test_sources_say_nothing_of_where_they_were_written() -> None:
    places = re.compile(r"/tmp/|/root/|/home/|\.venv/")
    named = [
        f"{file.relative_to(ROOT)}:{token.start[0]}"
        for file in SOURCES
        for token in tokenize.generate_tokens(io.StringIO(file.read_text("utf-8")).readline)
        if token.type in (tokenize.STRING, tokenize.COMMENT) and places.search(token.string)
    ]
    assert named == []
