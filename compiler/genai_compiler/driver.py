"""The whole compiler on one screen: read -> build -> passes -> emit.

Each stage has a name in STAGES; `trace` is told what it made, and a caller can stop after any.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from genai_compiler.check.admission import check_admission
from genai_compiler.check.document import check_document
from genai_compiler.check.text_side import check_text_side
from genai_compiler.emit.folder import write_folder
from genai_compiler.emit.manifest import file_hash, manifest, relative_path
from genai_compiler.emit.render import render_executor
from genai_compiler.emit.tables import tables
from genai_compiler.emit.target import prepare_target
from genai_compiler.emit.view import executor_view
from genai_compiler.passes import PASSES
from genai_compiler.passes.profile import Pass, Profile
from genai_compiler.plan.build import build
from genai_compiler.plan.ir import Plan
from genai_compiler.plan.report import Report
from genai_compiler.plan.text import plan_text
from genai_compiler.plan.verify import verify
from genai_compiler.problem import CompileError, InternalError, Problem, errors, ordered
from genai_compiler.read.load import load_package
from genai_compiler.read.negotiate import negotiate
from genai_compiler.read.package import Package

STAGES = ("read", "build", *(each.__name__ for each in PASSES), "emit")
"""Names for `--stop-after` and `--print`."""

Trace = Callable[[str, str], None]
"""Told after each stage: its name and the plan's text (or the executor's, after `emit`)."""


@dataclass(frozen=True)
class Options:
    """How to compile. bundle: copy what the package needs into the folder. force: replace a folder that is not ours."""

    bundle: bool = False
    force: bool = False
    stop_after: str = "emit"


@dataclass(frozen=True)
class Compiled:
    """What compiling made: the folder (None when stopped early), the plan, warnings, notes."""

    out: Path | None
    plan: Plan | None
    executor: str
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]


def compile_package(
    package: str | Path, out: str | Path | None = None, options: Options | None = None, trace: Trace | None = None
) -> Compiled:
    """Compile the package in a folder into `out` (default: `<package>.compiled` beside it).

    Raises CompileError with every problem of the package; InternalError for a bug of the compiler. Nothing is written
    unless everything succeeded, and the package is never changed.
    """
    root, options, trace = Path(package), options or Options(), trace or _silent
    target = Path(out) if out is not None else root.resolve().with_name(root.resolve().name + ".compiled")
    if options.stop_after == "emit":
        target = prepare_target(target, root, options.force)
    loaded = load_package(root)
    trace("read", "\n".join(str(each) for each in loaded.warnings))
    if options.stop_after == "read":
        return Compiled(None, None, "", loaded.warnings, loaded.notes)
    plan, warnings = plan_package(loaded, options.stop_after, trace)
    problems = ordered((*loaded.warnings, *warnings, *check_text_side(loaded)))
    if options.stop_after != "emit":
        return Compiled(None, plan, "", problems, loaded.notes)
    executor = emit_executor(plan, loaded)
    trace("emit", executor)
    path = "package" if options.bundle else relative_path(loaded.root, target)
    mapped, files = tables(plan, loaded)
    facts = manifest(plan, loaded, compiler_version(), path, executor, mapped)
    texts = {"executor.py": executor, "plan.txt": plan_text(plan)}
    write_folder(target, loaded, texts, facts, options.bundle, files)
    return Compiled(target, plan, executor, problems, loaded.notes)


def check_package(package: str | Path) -> tuple[Problem, ...]:
    """Every problem of a package, errors and warnings; nothing is written."""
    try:
        return compile_package(package, options=Options(stop_after=PASSES[-1].__name__)).problems
    except CompileError as refused:
        return refused.problems


def plan_package(package: Package, stop_after: str, trace: Trace) -> tuple[Plan, tuple[Problem, ...]]:
    """Build the plan and run the passes, verifying after each. Raises CompileError when the build found errors."""
    doubts = _checked(package)
    plan, found = build(package)
    problems = (*doubts, *found)
    if errors(problems):
        raise CompileError((*package.warnings, *problems))
    _verified("build", plan)
    trace("build", plan_text(plan))
    serving = package.workflow.serving
    profile = Profile(package.graphs, serving.state_service.groups if serving else {})
    if stop_after == "build":
        return plan, problems
    for each in PASSES:
        plan = _guarded(each.__name__, plan, each, profile)
        _verified(each.__name__, plan)
        trace(each.__name__, plan_text(plan))
        if stop_after == each.__name__:
            break
    return plan, problems


def _checked(package: Package) -> tuple[Problem, ...]:
    """Hold the document against the standard and against its files; what needs a sound document waits for one.

    Returns warnings. Raises CompileError when there are errors.
    """
    problems = check_document(package.metadata, package.places)
    if not errors(problems):
        problems = (*problems, *check_admission(package))
    report = Report(package.places)
    negotiate(package, report)
    problems = (*problems, *report.problems)
    if errors(problems):
        raise CompileError((*package.warnings, *problems))
    return problems


def emit_executor(plan: Plan, package: Package) -> str:
    """The text of executor.py."""
    source = package.document_file
    digest = file_hash(package.root / source)[:12]
    return render_executor(
        executor_view(plan, f"Generated by genai-compile {compiler_version()} from {source} (sha256 {digest}).")
    )


def compiler_version() -> str:
    """The version of the installed distribution."""
    return version("genai-compile")


def _guarded(stage: str, plan: Plan, run: Pass, profile: Profile) -> Plan:
    """One pass; what it raises is a bug of ours and is reported with the plan that it had in hand."""
    try:
        return run(plan, profile)
    except Exception as bug:
        raise InternalError(stage, f"{type(bug).__name__}: {bug}", plan_text(plan)) from bug


def _verified(stage: str, plan: Plan) -> None:
    faults = verify(plan)
    if faults:
        raise InternalError(stage, "; ".join(faults), plan_text(plan))


def _silent(stage: str, text: str) -> None:
    pass
