"""The whole compiler on one screen: read -> build -> passes -> emit.

Each stage has a name in STAGES; `trace` is told what it made, and a caller can stop after any.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from genai_compiler.check.adapter_files import check_adapter_files
from genai_compiler.check.adapter_parameters import check_adapter_parameters
from genai_compiler.check.admission import check_admission
from genai_compiler.check.context import context_doubts, context_notes
from genai_compiler.check.document import check_document
from genai_compiler.check.generation_defaults import check_generation_defaults
from genai_compiler.check.lora_uses import check_lora_uses
from genai_compiler.check.revision import check_revision
from genai_compiler.check.sound_side import sound_side
from genai_compiler.check.text_side import check_text_side
from genai_compiler.costs import Costs
from genai_compiler.emit.folder import write_folder
from genai_compiler.emit.graph_files import graph_files, made_graphs
from genai_compiler.emit.manifest import file_hash, manifest, package_files, relative_path
from genai_compiler.emit.plan_only import prepare_plan_folder, write_plan
from genai_compiler.emit.policy_graphs import policy_files
from genai_compiler.emit.render import render_executor
from genai_compiler.emit.tables import tables
from genai_compiler.emit.target import prepare_target
from genai_compiler.emit.view import executor_view
from genai_compiler.memory import MemoryAsk, predicted, weight_lines
from genai_compiler.option_types import check_options
from genai_compiler.own_faults import within
from genai_compiler.passes import PASSES
from genai_compiler.passes.asked_forms import check_asked_forms
from genai_compiler.passes.choose_forms import choose_forms, form_bars, possible_forms
from genai_compiler.passes.left_out import check_left_out, left_out
from genai_compiler.passes.profile import Pass, Profile, profile_of
from genai_compiler.plan.build import build
from genai_compiler.plan.hints import resolve_hints
from genai_compiler.plan.ir import Form, Plan
from genai_compiler.plan.limits import limit_notes
from genai_compiler.plan.link_stages import link_stages
from genai_compiler.plan.memory import MemoryPlan
from genai_compiler.plan.place_entries import place_entries
from genai_compiler.plan.processor_files import processor_faults
from genai_compiler.plan.report import Report
from genai_compiler.plan.shared_rows import row_notes
from genai_compiler.plan.task_views import task_views
from genai_compiler.plan.text import plan_text
from genai_compiler.plan.verify import changed_effects, verify
from genai_compiler.problem import CompileError, InternalError, Problem, errors, ordered
from genai_compiler.read.below import hold_package_name
from genai_compiler.read.hint_sources import SourcedHints, caller_hints, file_hints
from genai_compiler.read.hints import ExecutionHints
from genai_compiler.read.load import GENAI_CONFIG, GENAI_CONFIG_V2, load_package
from genai_compiler.read.negotiate import negotiate
from genai_compiler.read.package import Package
from genai_compiler.read.unchanged import Hold, held_still
from genai_compiler.reference_load import reference_name, reference_refusals

STAGES = ("read", "build", *(each.__name__ for each in PASSES), "emit")
"""Names for `--stop-after` and `--print`."""

Trace = Callable[[str, str], None]
"""Told after each stage: its name and the plan's text (or the executor's, after `emit`)."""


@dataclass(frozen=True)
class Options:
    """How to compile. bundle: copy what the package needs into the folder. force: replace a folder that is not ours.

    artifacts: False plans the document where files are absent and writes no executor. hints: advice of the caller;
    hints_file: advice of the user, an `execution_hints.json` (standard, section 9). without: passes to leave out.
    graph: the graph (or graphs) to take of a folder that declares none, package-relative. strict: refuse what the
    reference runtime would not load, too. memory: predict what a process needs that runs a request of these lengths.
    forms: how components are to run, by name ("" for all others): fused, own (session), host. costs: the table that
    decides where nothing is asked; None is the shipped one. write: whether a last stage that was reached writes.
    store_sessions: store graphs as this machine's ONNX Runtime optimises them; it opens the package's graphs for that.
    """

    bundle: bool = False
    force: bool = False
    stop_after: str = "emit"
    artifacts: bool = True
    hints: ExecutionHints | Mapping[str, Any] | None = None
    hints_file: str | Path | None = None
    without: tuple[str, ...] = ()
    graph: str | Sequence[str] | None = None
    strict: bool = False
    memory: MemoryAsk | None = None
    forms: Mapping[str, Form] = field(default_factory=dict)
    costs: Costs | None = None
    write: bool = True
    store_sessions: bool = False

    @property
    def writes(self) -> bool:
        """Whether anything is to be written."""
        return self.write and self.stop_after == "emit"


@dataclass(frozen=True)
class Compiled:
    """What compiling made: the folder (None when stopped early), the plan, warnings, notes, memory if asked for.

    weights: which session holds them and why, a line each; of a folder that was written.
    """

    out: Path | None
    plan: Plan | None
    executor: str
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    memory: MemoryPlan | None = None
    weights: tuple[str, ...] = ()


def compile_package(
    package: str | Path, out: str | Path | None = None, options: Options | None = None, trace: Trace | None = None
) -> Compiled:
    """Compile the package in a folder into `out` (default: `<package>.compiled` beside it).

    Raises CompileError with every problem of the package (or of `options`); InternalError for a bug of the compiler.
    Nothing is written unless everything succeeded, and the package is never changed; where somebody else changes it
    meanwhile, the problem is `changed-meanwhile`.
    """
    root, options, trace = Path(package), options if options is not None else Options(), trace or _silent
    check_options(options, Options, STAGES)
    check_left_out(options.without, [each.__name__ for each in PASSES])
    hold_package_name(root)
    hints_of(options)  # a file that is wrong is told before the work
    with held_still(root) as hold:
        if not options.artifacts:
            return _plan_only(root, Path(out) if out is not None else None, options, trace)
        return _whole(root, out, options, trace, hold)


def _whole(root: Path, out: str | Path | None, options: Options, trace: Trace, hold: Hold) -> Compiled:
    """A package with all its files. hold: told which of them were read, before anything is written."""
    target = Path(out) if out is not None else root.resolve().with_name(root.resolve().name + ".compiled")
    if options.writes:
        target = prepare_target(target, root, options.force)
    with within("read"):
        loaded = _judged(root, options) if options.strict else load_package(root, graph=options.graph)
    trace("read", "\n".join(str(each) for each in loaded.warnings))
    if options.stop_after == "read":
        return Compiled(None, None, "", loaded.warnings, loaded.notes)
    with within("read"):  # before planning, which takes the memory that a tokenizer's library gives back
        of_text = check_text_side(loaded)
    plan, warnings = _planned(loaded, options, trace)
    problems = ordered((*loaded.warnings, *warnings, *of_text, *sound_side(loaded)[1]))
    notes = (*loaded.notes, *task_views(loaded)[2], *context_notes(loaded), *limit_notes(plan))
    notes = (*notes, *row_notes(plan, loaded))
    with within("memory", plan):
        memory = predicted(plan, loaded, options.memory) if options.memory is not None else None
    if options.stop_after != "emit":
        return Compiled(None, plan, "", problems, notes, memory)
    with within("emit", plan):
        executor = emit_executor(plan, loaded)
    trace("emit", executor)
    if not options.writes:
        return Compiled(None, plan, executor, problems, notes, memory)
    with within("emit", plan):
        stored, weights = _write(plan, loaded, executor, target, options, hold)
    return Compiled(target, plan, executor, problems, (*notes, *stored), memory, weights)


def _write(
    plan: Plan, loaded: Package, executor: str, target: Path, options: Options, hold: Hold
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Make all files, then write them; returns notes on what was stored, and which session holds which weights."""
    path = "package" if options.bundle else relative_path(loaded.root, target)
    graphs, (mapped, files) = graph_files(plan, loaded, options.bundle), tables(plan, loaded)
    facts = manifest(plan, loaded, compiler_version(), path, executor, graphs, mapped)
    texts = {"executor.py": executor, "plan.txt": plan_text(plan)}
    made = {**made_graphs(graphs), **files, **policy_files(plan)}
    hold(package_files(loaded))
    stored = write_folder(target, loaded, texts, facts, made, options.bundle, options.store_sessions)
    return stored, tuple(weight_lines(plan, loaded, graphs, (*facts["opens"], *facts["on_demand"])))


def _judged(root: Path, options: Options) -> Package:
    """The package, held against the reference runtime as well. Raises CompileError with the reasons of both."""
    refusals = reference_refusals(root)
    try:
        loaded = load_package(root, graph=options.graph)
    except CompileError as refused:
        raise CompileError([*refused.problems, *refusals]) from refused
    if errors(refusals):
        raise CompileError([*loaded.warnings, *refusals])
    where = ", where what the warnings say of it holds" if refusals else ""
    notes = (*loaded.notes, f"{reference_name()} would load this package{where}")
    return replace(loaded, warnings=(*loaded.warnings, *refusals), notes=notes)


def _plan_only(root: Path, out: Path | None, options: Options, trace: Trace) -> Compiled:
    """Plan the package or document at `root`, standing in for what is absent; `out` then holds plan.txt alone."""
    target = prepare_plan_folder(out, root) if out is not None and options.writes else None
    with within("read"):
        loaded = load_package(root, False, options.graph)
    trace("read", "\n".join(str(each) for each in loaded.warnings))
    if options.stop_after == "read":
        return Compiled(None, None, "", loaded.warnings, loaded.notes)
    plan, warnings = _planned(loaded, options, trace)
    if target is not None:
        write_plan(target, plan_text(plan))
    return Compiled(target, plan, "", ordered((*loaded.warnings, *warnings)), loaded.notes)


def _planned(package: Package, options: Options, trace: Trace) -> tuple[Plan, tuple[Problem, ...]]:
    """The plan that the options ask for. Raises CompileError as plan_package."""
    choice = options.costs, options.forms
    return plan_package(package, options.stop_after, trace, hints_of(options), options.without, *choice)


def check_package(package: str | Path, artifacts: bool = True) -> tuple[Problem, ...]:
    """Every problem of a package, errors and warnings; nothing is written."""
    try:
        return compile_package(package, options=Options(stop_after=PASSES[-1].__name__, artifacts=artifacts)).problems
    except CompileError as refused:
        return refused.problems


def plan_package(
    package: Package,
    stop_after: str,
    trace: Trace,
    hints: Sequence[SourcedHints] = (),
    without: Sequence[str] = (),
    costs: Costs | None = None,
    forms: Mapping[str, Form] | None = None,
) -> tuple[Plan, tuple[Problem, ...]]:
    """Build the plan and run the passes, verifying after each. costs, forms: as in Options.

    Raises CompileError when the build found errors, and for forms that are asked for and that the package can't have.
    """
    with within("build"):
        doubts = _checked(package)
        package = link_stages(place_entries(package))
        plan, found = build(package)
        advice = resolve_hints(package, hints)
    problems = (*doubts, *found, *advice.problems)
    if errors(problems):
        raise CompileError((*package.warnings, *problems))
    plan = replace(plan, placements=advice.placements, decisions=(*plan.decisions, *advice.decisions))
    _verified("build", plan)
    trace("build", plan_text(plan))
    if stop_after == "build":
        return plan, problems
    plan, profile = left_out(plan, without), profile_of(package, costs, forms)
    for each in PASSES:
        made = plan if each.__name__ in without else _passed(plan, each, profile)
        _verified(each.__name__, made, plan)
        if each is choose_forms:
            possible, bars = possible_forms(plan, profile), partial(form_bars, plan, profile)
            problems = (*problems, *check_asked_forms(made, profile.forms, possible, bars))
        plan = made
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
    if not errors(problems):
        problems = (*problems, *check_lora_uses(package), *check_adapter_files(package), *processor_faults(package))
        problems = (*problems, *check_adapter_parameters(package))
    report = Report(package.places)
    negotiate(package, report)
    if not errors(problems):
        own = () if package.dialect in (GENAI_CONFIG, GENAI_CONFIG_V2) else check_generation_defaults(package)
        own = (*own, *check_revision(package.metadata, package.places))
        problems = (*problems, *task_views(package)[1], *own, *context_doubts(package))
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


def hints_of(options: Options) -> tuple[SourcedHints, ...]:
    """The advice that options carry, strongest first. Raises CompileError with every fault of it."""
    caller = [caller_hints(options.hints)] if options.hints is not None else []
    return (*caller, *([file_hints(options.hints_file)] if options.hints_file is not None else []))


def compiler_version() -> str:
    """The version of the installed distribution."""
    return version("genai-compile")


def _passed(plan: Plan, run: Pass, profile: Profile) -> Plan:
    """The plan behind one pass; what a pass raises, a bug of ours, is reported with the plan that it had in hand."""
    with within(run.__name__, plan):
        return run(plan, profile)


def _verified(stage: str, plan: Plan, before: Plan | None = None) -> None:
    faults = (*verify(plan), *(changed_effects(before, plan) if before is not None else ()))
    if faults:
        raise InternalError(stage, "; ".join(faults), plan_text(plan))


def _silent(stage: str, text: str) -> None:
    pass
