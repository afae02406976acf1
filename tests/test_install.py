"""Installed as users do: what each extra brings, what is said where one is missing, and no need of the checkout."""

from collections.abc import Callable
from pathlib import Path

import pytest
from genai_compiler import Options, compile_package

from tests.conftest import FIXTURES, Traced
from tests.reference.plain_loop import greedy
from tools.check_install import Environment, build_wheel, compile_and_run, new_environment, top_level

pytestmark = pytest.mark.heavy

PACKAGE = FIXTURES / "tiny-gqa-v1"
COMPILER_ONLY = ("onnx", "onnx_ir", "pydantic", "networkx", "libcst")
"""Not yaml: the tokenizers library brings it along for purposes of its own."""
WANTED = ",".join(map(str, greedy(PACKAGE / "model.onnx", [1, 9, 14], 6)))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled folder that stands alone, made here."""
    return compile_package(PACKAGE, tmp_path_factory.mktemp("bundle") / "c", Options(bundle=True)).out or Path()


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel without any extra."""
    environment = new_environment(tmp_path_factory.mktemp("bare"))
    environment.install(wheel)
    return environment


@pytest.fixture(scope="module")
def running(bare: Environment, wheel: Path) -> Environment:
    """The same environment with `cpu`: all that running takes."""
    bare.install(f"{wheel}[cpu]")
    return bare


def test_site_packages_gets_two_packages_and_nothing_else(wheel: Path) -> None:
    assert {each for each in top_level(wheel) if not each.endswith(".dist-info")} == {"genai_compiler", "genai_runtime"}


def test_without_extras_both_commands_say_what_to_install(bare: Environment, bundle: Path) -> None:
    compiling = bare.run("genai-compile", PACKAGE)
    assert compiling.code == 2
    assert compiling.err.count("\n") == 1
    assert "pip install 'genai-compile[compile]'" in compiling.err
    running = bare.run("genai-run", bundle, "--tokens", "1,9,14")
    assert running.code == 2
    assert "Traceback" not in running.err
    assert "genai-compile[cpu]" in running.err
    assert "genai-compile[gpu]" in running.err
    assert bare.run("genai-run", "--help").code == 0


def test_running_needs_nothing_of_the_compilers(running: Environment, bundle: Path) -> None:
    assert [module for module in COMPILER_ONLY if running.has(module)] == []
    ended = running.run("genai-run", bundle, "--tokens", "1,9,14", "-n", "6")
    assert (ended.code, ended.out.strip()) == (0, WANTED), ended.err
    assert running.run("genai-run", bundle, "--prompt", "the hat", "-n", "3", "--json").code == 0
    assert "genai-compile[compile]" in running.run("genai-compile", PACKAGE).err


def test_the_wheel_compiles_far_from_the_checkout(running: Environment, wheel: Path) -> None:
    running.install(f"{wheel}[compile]")
    assert compile_and_run(running, PACKAGE) == WANTED
    assert running.run("genai-compile", FIXTURES / "tiny-decoder", "--check").code == 0


def test_so_does_an_editable_installation(tmp_path: Path) -> None:
    environment = new_environment(tmp_path)
    environment.install("--editable", f"{Path(__file__).parent.parent}[compile,cpu]")
    assert compile_and_run(environment, PACKAGE) == WANTED


def test_a_folder_compiled_here_runs_there(
    running: Environment, compiled: Callable[[str], tuple[Path, Traced]]
) -> None:
    ended = running.run("genai-run", compiled("tiny-concat-v1")[0], "--tokens", "3", "-n", "4")
    assert ended.out.strip() == ",".join(map(str, greedy(FIXTURES / "tiny-concat-v1" / "model.onnx", [3], 4))), (
        ended.err
    )
