"""What the text of a version 2 pipeline may say: fixed vocabularies, bounds, an order; and what is not compiled yet.

The messages of the format's own error contract are given word for word.
"""

from collections.abc import Iterable, Iterator

from genai_compiler.read.pipeline_config import (
    ENDINGS,
    FORMATS,
    LOOPS,
    PROCESSORS,
    STATES,
    STRATEGIES,
    Processor,
)
from genai_compiler.read.pipeline_form import (
    DATAFLOW,
    FINAL,
    FLOW,
    MAX_STAGES,
    PIPELINE,
    SESSIONS,
    PipelineForm,
    Resolving,
    Wire,
)
from genai_compiler.read.pipeline_text import VERSION
from genai_compiler.read.places import DocPath
from genai_compiler.read.suggest import closest

STATE: DocPath = (*PIPELINE, "state")
_HAND_WRITTEN = "write the package's loop as inference_metadata.yaml with pipeline.workflow"


def check_form(form: PipelineForm, resolving: Resolving) -> None:
    """Hold the text against the format's rules."""
    _version(form, resolving)
    _flow(form, resolving)
    _wires(form, resolving)
    _state(form, resolving)
    _media(form, resolving)
    _not_yet(form, resolving)


def _version(form: PipelineForm, resolving: Resolving) -> None:
    version = form.text.document.version
    if version != VERSION:
        what = f"version is {version}, but a file with a pipeline is of version {VERSION}"
        resolving.report("bad-value", ("version",), what, f'write "version": {VERSION}')


def _word(resolving: Resolving, path: DocPath, kind: str, word: str, known: Iterable[str]) -> None:
    """A word of a fixed vocabulary."""
    words = tuple(known)
    if word not in words:
        near = closest(word, words)
        what = f'Unknown {kind} "{word}". Valid options: {", ".join(words)}'
        resolving.report("bad-value", path, what, f"did you mean {near}?" if near else "")


def _flow(form: PipelineForm, resolving: Resolving) -> None:
    if len(form.flow) > MAX_STAGES:
        what = f"Pipeline exceeds the maximum of {MAX_STAGES} stages (got {len(form.flow)})."
        resolving.report("bad-value", FLOW, what, "join graphs, or " + _HAND_WRITTEN)
    seen: dict[tuple[str, str], int] = {}
    for step in form.flow:
        if step.entry.loop not in (None, ""):
            _word(resolving, (*step.path, "loop"), "loop", str(step.entry.loop), LOOPS)
        if (step.session, step.phase) in seen:
            what = f'Flow runs session "{step.session}" twice in one phase'
            resolving.report("bad-value", (*step.path, "run"), what, "keep one of the two steps")
        seen[step.session, step.phase] = 1
    if form.text.document.pipeline.flow == ():
        resolving.report("missing-key", FLOW, "the flow is empty: nothing would run", "leave it out or add steps")
    unused = [name for name in form.sessions if name not in form.running] if form.flow else []
    for name in unused:
        what = f"no flow step runs the session {name!r}"
        resolving.report("ignored-key", (*SESSIONS, name), what, "remove it, or add a step to pipeline.flow", True)


def _wires(form: PipelineForm, resolving: Resolving) -> None:
    for wire in second_wires(form):
        phases = [_phase(form, each.source) for each in form.wires if each.to == wire.to]
        if sorted(phases) != ["init", "step"]:
            resolving.report("wrong-port", wire.end(wire.to_key), fed_twice(wire), "keep one wire")
    if loop := cycle([(each.source, each.target) for each in form.wires]):
        what = f"Circular dependency detected in dataflow: {' → '.join([*loop, loop[0]])}"
        resolving.report("cyclic-dataflow", DATAFLOW, what, "a value can't be needed before it is made")
        return
    order = {name: at for at, name in enumerate(form.running)}
    for wire in form.wires:
        known = wire.source in order and wire.target in order
        sides = [_phase(form, each) == FINAL for each in (wire.source, wire.target)]
        if known and sides == [True, False]:
            what = f"'{wire.source}.{wire.output}' is made behind the loop, and {wire.target!r} takes it before"
            resolving.report("bad-value", wire.end(wire.from_key), what, 'give both sessions "when": "final"')
        elif known and sides[0] == sides[1] and order[wire.source] > order[wire.target]:
            what = f'Flow runs session "{wire.target}" before "{wire.source}", whose output "{wire.output}" it takes'
            resolving.report("bad-value", FLOW, what, "list the steps in the order of the wires")
        if wire.source not in order and wire.target in order and wire.source in form.sessions:
            what = f'Dataflow takes output "{wire.output}" of session "{wire.source}", which no flow step runs'
            resolving.report("bad-value", wire.end(wire.from_key), what, "add a step to pipeline.flow")


def second_wires(form: PipelineForm) -> Iterator[Wire]:
    """The wires to an input that an earlier one feeds: what runs with the prompt and what does later may both do so."""
    taken: set[tuple[str, str]] = set()
    for wire in form.wires:
        if wire.to in taken:
            yield wire
        taken.add(wire.to)


def fed_twice(wire: Wire) -> str:
    """What is wrong with a wire to an input that another feeds."""
    return f'Dataflow feeds input "{wire.input}" of session "{wire.target}" twice'


def _phase(form: PipelineForm, session: str) -> str:
    return form.step(session).phase if session in form.running else ""


def cycle(edges: list[tuple[str, str]]) -> tuple[str, ...]:
    """Names that feed each other in a circle, from the first one that an edge names; () when there is none."""
    after: dict[str, list[str]] = {}
    for source, target in edges:
        after.setdefault(source, []).append(target)
    closed: set[str] = set()
    for start in after:
        trail, tried = {start: 0}, [iter(after[start])]
        while tried:
            step = next(tried[-1], None)
            if step is None:
                tried.pop()
                closed.add(trail.popitem()[0])
            elif step in trail:
                return tuple(trail)[trail[step] :]
            elif step not in closed:
                trail[step] = len(trail)
                tried.append(iter(after.get(step, ())))
    return ()


def _state(form: PipelineForm, resolving: Resolving) -> None:
    state, cache = form.state, form.state.kv_cache
    _word(resolving, (*STATE, "position_ids", "strategy"), "position_ids strategy", state.position_ids.strategy,
          STRATEGIES)  # fmt: skip
    _word(resolving, (*STATE, "kv_cache", "format"), "kv_cache format", cache.format, FORMATS)
    if state.type is not None:
        _word(resolving, (*STATE, "type"), "state type", state.type, STATES)
    if (cross := state.cross_cache) is None:
        return
    path = (*STATE, "cross_cache")
    if form.sessions and cross.source not in form.sessions:
        what = f'Cross cache references session "{cross.source}" but no such session is declared in '
        near = closest(cross.source or "", form.sessions)
        help = f"did you mean {near}?" if near else ""
        resolving.report("unknown-component", (*path, "source"), what + "pipeline.sessions", help)
    if not cross.frozen:
        what = "a cross cache that changes from step to step (frozen: false) is not compiled yet"
        resolving.report("unsupported-package-class", (*path, "frozen"), what, "let the source run once")


def _media(form: PipelineForm, resolving: Resolving) -> None:
    for medium, processor in processors(form):
        path = (*PIPELINE, "preprocessing", medium)
        _word(resolving, (*path, "format"), "preprocessing format", processor.format, PROCESSORS)


def processors(form: PipelineForm) -> Iterator[tuple[str, Processor]]:
    """The processors by medium."""
    media = form.text.document.pipeline.preprocessing
    for medium, processor in (("image", media.image), ("audio", media.audio)):
        if processor is not None:
            yield medium, processor


def _not_yet(form: PipelineForm, resolving: Resolving) -> None:
    pipeline, generation = form.text.document.pipeline, form.text.document.generation

    def refuse(path: DocPath, what: str, help: str = _HAND_WRITTEN) -> None:
        resolving.report("unsupported-package-class", path, what, help)

    ending = pipeline.generation_loop
    if ending is not None:
        _word(resolving, (*PIPELINE, "generation_loop"), "generation_loop", ending, ENDINGS)
    if ending == "denoising":
        refuse((*PIPELINE, "generation_loop"), f"a generation loop of kind {ending!r} is not compiled yet")
    for step in form.flow:
        if step.phase == "final" and ending == "single_pass":
            help = "leave when out: each session runs once, in the order of the wires"
            refuse((*step.path, "when"), f"when: final is behind the loop, and a single pass has none for "
                   f"{step.session!r} to run after", help)  # fmt: skip
        if pipeline.preprocessing.image is not None:
            continue  # pictures go to a session one by one where its graph takes one, each cut to its own size
        if step.entry.loop == "per_image":
            help = "name the processor of the pictures in pipeline.preprocessing.image, or write batched"
            refuse(
                (*step.path, "loop"), f"{step.session!r} runs once an image, and nothing makes images of files", help
            )
        if step.entry.dynamic_shape is not None:
            help = "name the processor of the pictures in pipeline.preprocessing.image"
            refuse((*step.path, "dynamic_shape"), f"{step.session!r} takes items cut to their size, and nothing makes "
                   "them of files", help)  # fmt: skip
    if generation.stop is not None:
        what = "'stop' has no defined form and no effect"
        resolving.report("ignored-key", ("generation", "stop"), what, "give stop strings with the request", True)
    if form.text.document.tokens.sep is not None:
        resolving.report("ignored-key", ("tokens", "sep"), "'sep' has no effect", "remove it", True)
