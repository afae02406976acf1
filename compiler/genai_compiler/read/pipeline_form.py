"""A version 2 pipeline with its preset expanded: the one normal form of every dialect, and what is wrong with it.

Sessions merge by name, lists replace the preset's whole (an empty one too), fields of `state` replace one by one.
Everything here is said by the text alone; no graph has been looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from genai_compiler.problem import CompileError, Problem, Severity
from genai_compiler.read.pipeline_config import (
    PHASES,
    FlowEntry,
    Phase,
    PipelineEntry,
    PipelineState,
    SessionEntry,
    WireEntry,
)
from genai_compiler.read.pipeline_drafts import Drafting, drafting_of, target_of
from genai_compiler.read.pipeline_presets import PRESETS
from genai_compiler.read.pipeline_text import PipelineText
from genai_compiler.read.places import DocPath, format_path
from genai_compiler.read.suggest import closest

PIPELINE: DocPath = ("pipeline",)
SESSIONS: DocPath = (*PIPELINE, "sessions")
FLOW: DocPath = (*PIPELINE, "flow")
DATAFLOW: DocPath = (*PIPELINE, "dataflow")
EXTENDS: DocPath = (*PIPELINE, "extends")
FINAL: Phase = "final"
"""Behind the loop, once."""
MAX_STAGES = 10
"""Steps that a flow may have."""
MAX_ENTRIES = 256
"""Sessions, steps or wires that are read: beyond any pipeline that the format allows."""


@dataclass(frozen=True)
class FlowStep:
    """A stage of the flow. path: where it is stated, the preset's name when the preset says it."""

    session: str
    phase: Phase
    cross: str
    path: DocPath
    entry: FlowEntry


@dataclass(frozen=True)
class Wire:
    """One session's output that is another's input. path: of it, or of the preset that says it."""

    source: str
    output: str
    target: str
    input: str
    path: DocPath
    from_key: str = ""
    to_key: str = ""

    @property
    def to(self) -> tuple[str, str]:
        """The end that it feeds."""
        return self.target, self.input

    def end(self, key: str) -> DocPath:
        """Where one end is stated."""
        return (*self.path, key) if key and self.path != EXTENDS else self.path


@dataclass(frozen=True)
class PipelineForm:
    """The normal form. defaulted: one line for each part that the preset said, for the summary.

    target: the session that a role or the strategy says to decode, "" where none does. drafting: the session that
    drafts for it, which is none of `sessions`: no step runs it. drafter: its entry.
    """

    text: PipelineText
    preset: str
    sessions: Mapping[str, SessionEntry]
    flow: tuple[FlowStep, ...]
    wires: tuple[Wire, ...]
    state: PipelineState
    defaulted: tuple[str, ...]
    target: str = ""
    drafting: Drafting | None = None
    drafter: SessionEntry | None = None

    @property
    def running(self) -> tuple[str, ...]:
        """The sessions that the flow runs, in its order."""
        return tuple(dict.fromkeys(each.session for each in self.flow))

    def step(self, session: str) -> FlowStep:
        """The flow's stage of a session."""
        return next(each for each in self.flow if each.session == session)


@dataclass
class Resolving:
    """The problems found on the way."""

    text: PipelineText
    problems: list[Problem] = field(default_factory=list[Problem])

    def report(self, code: str, path: DocPath, what: str, help: str = "", warning: bool = False) -> None:
        """Note a problem of the value at `path`."""
        severity = Severity.WARNING if warning else Severity.ERROR
        self.problems.append(Problem(code, self.text.places.find(path), format_path(path), what, help, severity))


def expand(resolving: Resolving) -> PipelineForm:
    """The normal form; reports what can't be brought into it and leaves that out."""
    pipeline = resolving.text.document.pipeline
    _bound(pipeline, resolving)
    preset, name = _preset(pipeline, resolving)
    declared = _sessions(pipeline, preset, resolving)
    target = target_of(pipeline, declared, resolving.report)
    drafting = drafting_of(pipeline, declared, target, resolving.report)
    draft = drafting.session if drafting is not None else ""
    sessions = {name: entry for name, entry in declared.items() if name != draft}
    flow = _flow(pipeline, preset, sessions, resolving, draft)
    wires = _wires(pipeline, preset, sessions, resolving, draft)
    said = [part for part, own in (("flow", pipeline.flow), ("dataflow", pipeline.dataflow)) if own is None]
    said = [part for part in said if preset is not None and getattr(preset, part) is not None]
    defaulted = tuple(f"pipeline.{part}: from the preset {name}" for part in said)
    state, drafter = _state(pipeline, preset), declared.get(draft)
    return PipelineForm(resolving.text, name, sessions, flow, wires, state, defaulted, target, drafting, drafter)


def _bound(pipeline: PipelineEntry, resolving: Resolving) -> None:
    """Raises CompileError for more entries than any real pipeline has."""
    parts = ((SESSIONS, pipeline.sessions), (FLOW, pipeline.flow or ()), (DATAFLOW, pipeline.dataflow or ()))
    for path, entries in parts:
        if len(entries) > MAX_ENTRIES:
            what = f"there are {len(entries)} entries; at most {MAX_ENTRIES} are read"
            resolving.report("too-many-values", path, what, f"a pipeline has at most {MAX_STAGES} stages")
    if resolving.problems:
        raise CompileError([*resolving.text.problems, *resolving.problems])


def _preset(pipeline: PipelineEntry, resolving: Resolving) -> tuple[PipelineEntry | None, str]:
    name = pipeline.extends
    if name is None:
        return None, ""
    if name not in PRESETS:
        what = f'Unknown pipeline preset "{name}". Built-in presets: {", ".join(PRESETS)}'
        near = closest(name, PRESETS)
        resolving.report("bad-value", EXTENDS, what, f"did you mean {near}?" if near else "")
        return None, ""
    return PipelineEntry.model_validate(PRESETS[name]), name


def _sessions(
    pipeline: PipelineEntry, preset: PipelineEntry | None, resolving: Resolving
) -> Mapping[str, SessionEntry]:
    """The file's sessions, completed by the preset's; a session of the preset alone counts where its file is there."""
    found: dict[str, SessionEntry] = {}
    known = preset.sessions if preset is not None else {}
    for name, entry in pipeline.sessions.items():
        default = known.get(name, SessionEntry())
        stated = {key: getattr(entry, key) for key in entry.model_fields_set}
        found[name] = default.model_copy(update=stated)
        if found[name].file is None:
            what = f"the session {name!r} names no file"
            resolving.report("missing-key", (*SESSIONS, name), what, 'add "file"')
        if "." in name or not name:
            what = f"the session's name {name!r} is empty or holds a dot, at which ends of wires are cut"
            resolving.report("bad-value", (*SESSIONS, name), what, "call it by a plain word")
    for name, entry in known.items():
        if name not in found and entry.file is not None and (resolving.text.root / entry.file).is_file():
            found[name] = entry
    if not found and pipeline.plugin is None:
        what = 'Pipeline config requires at least one session. Add "sessions": {"decoder": {"file": "model.onnx"}}'
        resolving.report("missing-key", SESSIONS, what)
    return found


def _flow(
    pipeline: PipelineEntry,
    preset: PipelineEntry | None,
    sessions: Mapping[str, SessionEntry],
    resolving: Resolving,
    draft: str,
) -> tuple[FlowStep, ...]:
    """The steps; one of the session that drafts says nothing, since drafts are driven by the decoder's own step."""
    own = pipeline.flow
    entries = own if own is not None else preset.flow if preset is not None else None
    if entries is None:
        known = pipeline.plugin is not None or pipeline.extends is not None or len(sessions) < 2
        if not known:
            what = "there are several sessions, and neither a flow nor a preset says which runs when"
            resolving.report("missing-key", FLOW, what, 'add "flow": [{"run": ..., "when": ...}] or "extends"')
        entries = tuple(FlowEntry(run=name) for name in sessions) if len(sessions) == 1 else ()
    found: list[FlowStep] = []
    for at, entry in enumerate(entries):
        if draft and entry.run == draft:
            continue
        path = (*FLOW, at) if own is not None else EXTENDS if preset is not None else SESSIONS
        cross = entry.cross_attention_from or ""
        for key, name in (("run", entry.run), ("cross_attention_from", cross)):
            if name and name not in sessions and sessions:
                what = f'Flow step references session "{name}" but no such session is declared in pipeline.sessions'
                near = closest(name, sessions)
                where = (*path, key) if own is not None else path
                resolving.report("unknown-component", where, what, f"did you mean {near}?" if near else "")
        phase = PHASES.get(entry.when or "step")
        if phase is None:
            what = f'Flow step "{entry.run}" has an unknown "when": "{entry.when}". Valid options: {", ".join(PHASES)}'
            near = closest(entry.when or "", PHASES)
            resolving.report("bad-value", (*path, "when"), what, f"did you mean {near}?" if near else "")
        if entry.run in sessions:
            found.append(FlowStep(entry.run, phase or "step", cross if cross in sessions else "", path, entry))
    return tuple(found)


def _wires(
    pipeline: PipelineEntry,
    preset: PipelineEntry | None,
    sessions: Mapping[str, SessionEntry],
    resolving: Resolving,
    draft: str,
) -> tuple[Wire, ...]:
    own = pipeline.dataflow
    entries = own if own is not None else (preset.dataflow or ()) if preset is not None else ()
    found: list[Wire] = []
    for at, entry in enumerate(entries):
        path = (*DATAFLOW, at) if own is not None else EXTENDS
        wire = _wire(entry, path, resolving)
        if wire is None:
            continue
        if draft and draft in (wire.source, wire.target):
            what = f"the wire joins {draft!r}, which drafts: drafts are made of the tokens alone"
            help = "leave it out; what takes the target's hidden states can be stated in inference_metadata.yaml"
            resolving.report("unsupported-package-class", path, what, help)
            continue
        unknown = [(key, name) for key, name in _ends(wire) if name not in sessions]
        if unknown and own is None:
            if pipeline.flow is not None:
                what = f"the preset's wire {wire.source}.{wire.output} -> {wire.target}.{wire.input} is left out: "
                what += f'no session "{unknown[0][1]}" is declared'
                resolving.report("config-read-as", path, what, "state pipeline.dataflow", True)
            continue  # else the preset's flow names that session too, which is reported
        for key, name in unknown:
            what = f'Dataflow wire references session "{name}" but no such session is declared in pipeline.sessions'
            near = closest(name, sessions)
            resolving.report("unknown-component", wire.end(key), what, f"did you mean {near}?" if near else "")
        if not unknown:
            found.append(wire)
    return tuple(found)


def _ends(wire: Wire) -> tuple[tuple[str, str], tuple[str, str]]:
    return (wire.from_key, wire.source), (wire.to_key, wire.target)


def _wire(entry: WireEntry, path: DocPath, resolving: Resolving) -> Wire | None:
    """Both spellings of a wire; None, with a problem, for what is neither."""
    if entry.source is None and entry.target is None:
        if entry.from_session and entry.from_output and entry.to_session and entry.to_input:
            source, target = (entry.from_session, entry.from_output), (entry.to_session, entry.to_input)
            return Wire(*source, *target, path, "from_session", "to_session")
        what = "the wire lacks an end"
        help = 'write "from": "session.output" and "to": "session.input"'
        resolving.report("missing-key", path, what, help)
        return None
    ends: list[tuple[str, str]] = []
    for key, end in (("from", entry.source), ("to", entry.target)):
        session, dot, port = (end or "").partition(".")
        if not (dot and session and port):
            side = "output" if key == "from" else "input"
            what = f'Dataflow wire end "{end}" is not of the form session.{side}' if end else f"the wire has no {key!r}"
            resolving.report("bad-value" if end else "missing-key", (*path, key), what, f'write "session.{side}"')
            return None
        ends.append((session, port))
    return Wire(*ends[0], *ends[1], path, "from", "to")


def _state(pipeline: PipelineEntry, preset: PipelineEntry | None) -> PipelineState:
    """The file's state, and the preset's cross cache where the file does not state its own."""
    cross, default = pipeline.state.cross_cache, preset.state.cross_cache if preset is not None else None
    if default is None:
        return pipeline.state
    stated = {key: getattr(cross, key) for key in cross.model_fields_set} if cross is not None else {}
    return pipeline.state.model_copy(update={"cross_cache": default.model_copy(update=stated)})
