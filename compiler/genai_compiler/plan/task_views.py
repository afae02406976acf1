"""Task profiles as what a run needs: which output is pooled or decoded, and what says which positions are valid (1.9).

The schema has no field for either: the outputs' own types decide, never the spelling of a role. Of a profile that
pools or decodes, one role has floats; an integer output of rank 1 holds lengths, one of rank 2 (or bool) a mask.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from genai_compiler.check.generation_profiles import PROFILES
from genai_compiler.plan.dtypes import FLOATS, INTEGERS
from genai_compiler.plan.ir import Type
from genai_compiler.plan.report import Path, Report
from genai_compiler.plan.types import type_of
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.document import Pooling, SequenceDecoding, TaskProfile
from genai_compiler.read.package import Package
from genai_compiler.read.places import format_path

DECODINGS = ("ctc", "greedy_argmax")
VOCABULARIES = ("inline", "tokenizer")
_FLOATS = FLOATS | {"float64"}


@dataclass(frozen=True)
class TaskView:
    """A profile and the outputs it is computed from. source, lengths, mask: outputs, "" for none.

    rows: the axis of `source` with one entry a request row, -1 for none.
    """

    name: str
    profile: TaskProfile
    source: str = ""
    lengths: str = ""
    mask: str = ""
    rows: int = -1


def task_views(package: Package) -> tuple[tuple[TaskView, ...], tuple[Problem, ...], tuple[str, ...]]:
    """(views, problems, notes on ignorable profiles that are left out)."""
    report, views, notes, doubts = Report(package.places), list[TaskView](), list[str](), list[Problem]()
    for name, profile in package.metadata.profiles.items():
        path: Path = ("profiles", name)
        reason = _unsupported(profile, package)
        if reason and profile.requirement == "ignorable":
            notes.append(f"profile '{name}' is left out: {reason}")
        elif reason:
            help = "write requirement: ignorable, and the package runs without this profile"
            report.error("unsupported-profile", path, f"profile '{name}' is required and {reason}", help)
        else:
            view = _view(name, profile, _types(profile, package), path, report)
            views.append(view)
            doubts += _doubts(view, _types(profile, package), path, report)
    return tuple(views), (*report.problems, *doubts), tuple(notes)


def _unsupported(profile: TaskProfile, package: Package) -> str:
    """Why this compiler can't compute a profile, "" when it can."""
    if profile.kind not in PROFILES:
        return f"its kind '{profile.kind}' is none of {', '.join(PROFILES)}"
    if profile.pooling is not None and profile.decoding is not None:
        return "it both pools and decodes"
    decoding = profile.decoding
    if decoding is None:
        return ""
    if decoding.kind not in DECODINGS:
        return f"its decoding '{decoding.kind}' is none of {', '.join(DECODINGS)}"
    vocabulary = decoding.vocabulary
    if vocabulary is None or vocabulary.tokens:
        return ""
    if vocabulary.source not in VOCABULARIES:
        return f"its vocabulary's source '{vocabulary.source}' is none of {', '.join(VOCABULARIES)}"
    return "" if package.text.tokenizer else "its vocabulary is the tokenizer's, and the package has none"


def _types(profile: TaskProfile, package: Package) -> dict[str, Type]:
    """Output -> its declared type, for every output the profile names."""
    return {name: type_of(package.workflow.outputs[name].contract) for name in profile.outputs.values()}


def _view(name: str, profile: TaskProfile, types: Mapping[str, Type], path: Path, report: Report) -> TaskView:
    if profile.pooling is None and profile.decoding is None:
        return TaskView(name, profile)
    stated = profile.decoding.lengths if profile.decoding is not None else None
    lengths = [profile.outputs[stated]] if stated is not None else []
    if stated is None and profile.pooling is not None:
        lengths = [output for output, type in types.items() if type.dtype in INTEGERS and type.rank == 1]
    masks = [output for output, type in types.items() if type.dtype in INTEGERS | {"bool"} and type.rank == 2]
    masks = masks if profile.pooling is not None else []
    sources = [output for output, type in types.items() if type.dtype in _FLOATS and output not in lengths]
    verb = "pools" if profile.pooling is not None else "decodes"
    if len(sources) != 1:
        what = f"profile '{name}' {verb} one output of floats, and its roles name {len(sources)}"
        report.error("profile-outputs", (*path, "outputs"), what, "name that output, and what says its valid positions")
        return TaskView(name, profile)
    if len(lengths) + len(masks) > 1:
        what = f"several outputs say which positions profile '{name}' {verb}: {', '.join((*lengths, *masks))}"
        report.error("profile-outputs", (*path, "outputs"), what, "keep one of them")
    axis = types[sources[0]].row_axis
    source, rows = sources[0], -1 if axis is None else axis
    return TaskView(name, profile, source, next(iter(lengths), ""), next(iter(masks), ""), rows)


def _doubts(view: TaskView, types: Mapping[str, Type], path: Path, report: Report) -> Iterator[Problem]:
    """Axes that the declared output does not have: a run fails there, unless the declaration is wrong (14.4)."""
    type = types.get(view.source)
    if type is None:
        return
    for field, axis in _axes(view.profile):
        place = (*path, *field)
        if axis >= type.rank:
            what = f"axis {axis} is none of '{view.source}', which has rank {type.rank}"
            yield _warning(report, place, what, f"its axes are 0 to {type.rank - 1}")
        elif axis == type.row_axis:
            yield _warning(report, place, f"axis {axis} of '{view.source}' holds the request's rows", "name another")
    decoding = view.profile.decoding
    if decoding is not None and type.rank not in (2, 3):
        what = f"'{view.source}' has rank {type.rank}: decoding takes time and classes, and rows at most"
        yield _warning(report, (*path, "decoding"), what, "declare an output of rank 2 or 3")
    if decoding is not None and decoding.vocabulary is not None and decoding.class_axis < type.rank:
        extent, tokens = type.dims[decoding.class_axis], decoding.vocabulary.tokens
        if isinstance(extent, int) and tokens and extent > len(tokens):
            what = f"'{view.source}' has {extent} classes and the vocabulary {len(tokens)} tokens"
            yield _warning(report, (*path, "decoding", "vocabulary"), what, "list a token for every class")


def _axes(profile: TaskProfile) -> Iterator[tuple[tuple[str, str], int]]:
    match profile.pooling, profile.decoding:
        case Pooling(), _:
            yield ("pooling", "axis"), profile.pooling.axis
        case _, SequenceDecoding():
            yield ("decoding", "time_axis"), profile.decoding.time_axis
            yield ("decoding", "class_axis"), profile.decoding.class_axis
        case _:
            pass


def _warning(report: Report, path: Path, what: str, help: str) -> Problem:
    return Problem("profile-axis", report.where(path), format_path(path), what, help, Severity.WARNING)
