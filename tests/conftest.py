"""The fixture packages, what compiling one traces, and goldens that lie as plain files under golden/<case>/."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import genai_runtime
import pytest
from genai_compiler import CompileError, compile_package
from genai_compiler.driver import STAGES
from hypothesis import HealthCheck, settings
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from syrupy.location import PyTestLocation
from syrupy.types import SnapshotIndex

from tests.data import ROOT

SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # a busy machine is no fault
settings.register_profile("repeatable", derandomize=True, database=None, **SLOW)
settings.register_profile("random", database=None, **SLOW)
settings.load_profile("repeatable")  # the same examples in every run; `make test-long` takes others each time

FIXTURES, GOLDEN = ROOT / "fixtures", ROOT / "golden"
CASES = sorted(each.name for each in FIXTURES.iterdir() if each.is_dir() and each.suffix != ".compiled")


@dataclass(frozen=True)
class Traced:
    """What compiling one package gave: stage -> text in order, or its problems."""

    stages: dict[str, str]
    problems: str = ""

    @property
    def files(self) -> dict[str, str]:
        """Golden file -> content. A stage that changed nothing has no file: the folder shows what each pass did."""
        if self.problems:
            return {"problems.txt": self.problems}
        texts = {f"{STAGES.index(stage)}-{stage}.plan": text for stage, text in self.stages.items() if stage != "emit"}
        before = ["", *texts.values()]
        changed = {name: text for (name, text), last in zip(texts.items(), before, strict=False) if text != last}
        return {**changed, "executor.py": self.stages["emit"]}


def trace_package(package: Path, out: Path) -> Traced:
    """Compile a package and keep the text of every stage."""
    stages: dict[str, str] = {}
    try:
        compile_package(package, out=out, trace=stages.__setitem__)
    except CompileError as refused:
        return Traced(stages, f"{refused}\n")
    return Traced(stages)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Traced]]:
    """The compiled folder and the trace of a fixture; compiled once a session."""
    made: dict[str, tuple[Path, Traced]] = {}

    def get(case: str) -> tuple[Path, Traced]:
        if case not in made:
            out = tmp_path_factory.mktemp("compiled") / case
            made[case] = out, trace_package(FIXTURES / case, out)
        return made[case]

    return get


@pytest.fixture(scope="session")
def model(compiled: Callable[[str], tuple[Path, Traced]]) -> Callable[[str], genai_runtime.Model]:
    """The loaded model of a fixture; loaded once a session."""
    loaded: dict[str, genai_runtime.Model] = {}

    def get(case: str) -> genai_runtime.Model:
        if case not in loaded:
            loaded[case] = genai_runtime.load(compiled(case)[0], threads=1)
        return loaded[case]

    return get


class GoldenFile(SingleFileSnapshotExtension):
    """A golden is golden/<parameter id>/<name given in the test>, as text.

    Overriding get_file_basename instead of get_snapshot_name makes `--snapshot-update` delete what it has just written.
    """

    _write_mode = WriteMode.TEXT
    file_extension = ""

    @classmethod
    def dirname(cls, *, test_location: PyTestLocation) -> str:
        """The folder of the case; one that is not there for tests without cases, which syrupy asks about too."""
        case = getattr(test_location.item, "callspec", None)
        return str(GOLDEN / (case.id if case is not None else "no case"))

    @classmethod
    def get_snapshot_name(cls, *, test_location: PyTestLocation, index: SnapshotIndex = 0) -> str:
        """The name that the test gave."""
        return str(index)


class PlanGolden(GoldenFile):
    """The plan after one stage."""

    file_extension = "plan"


class ExecutorGolden(GoldenFile):
    """The generated module."""

    file_extension = "py"


class ProblemsGolden(GoldenFile):
    """Why a package is refused."""

    file_extension = "txt"


@pytest.fixture
def golden(snapshot: SnapshotAssertion) -> Callable[[str], SnapshotAssertion]:
    """The golden of a file name."""
    kinds = {each.file_extension: each for each in (PlanGolden, ExecutorGolden, ProblemsGolden)}

    def get(file: str) -> SnapshotAssertion:
        name, _, kind = file.rpartition(".")
        return snapshot.use_extension(kinds[kind])(name=name)

    return get
