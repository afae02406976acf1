"""The decoder's document with the stages before its loop, and with what makes their tensors of files.

What a front can't be made for stays as it is: tensors that the caller gives.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from genai_compiler.lower.decoder_components import Data, application_contract
from genai_compiler.lower.decoder_facts import DecoderFacts
from genai_compiler.lower.decoder_workflow import application_inputs
from genai_compiler.lower.entry_check import count_entries
from genai_compiler.lower.file_fronts import FileFront, declare_front, of_files
from genai_compiler.lower.file_or_tensors import file_or_tensors, media_told
from genai_compiler.lower.given_tensors import of_tensors
from genai_compiler.lower.media_doubts import media_doubts
from genai_compiler.lower.media_notes import AUDIO, IMAGE, MediaNotes
from genai_compiler.lower.own_adapters import adapter
from genai_compiler.lower.picture_fitting import Roles
from genai_compiler.lower.picture_front import picture_front, picture_roles
from genai_compiler.lower.program_front import program_front
from genai_compiler.lower.sound_front import sound_fits, sound_front
from genai_compiler.lower.sound_roles import MODE, sound_roles
from genai_compiler.lower.stages import Medium, Stage, binding, invoke_stage
from genai_compiler.problem import CompileError, Place, Problem, Severity
from genai_compiler.read.special_tokens import SpecialTokens, special_tokens

GRID_POSITIONS = "genai-compile.grid-positions"
POSITIONS = "prompt.position_ids"
"""The value of the prompt's positions where a grid tells them."""


def with_media(
    document: Data,
    once: list[Stage],
    media: list[Medium],
    notes: MediaNotes,
    facts: DecoderFacts,
    tokenizer: Path | None,
) -> tuple[Data, tuple[Problem, ...]]:
    """(the document with its stages, problems). tokenizer: the package's tokenizer.json.

    once: stages that always run; media: those that run when their medium is given. Raises CompileError `wrong-port`.
    """
    if nobodys := [
        medium for medium in media if not any(each.asked for stage in medium.stages for each in stage.inputs)
    ]:
        raise CompileError([_never_given(each) for each in nobodys])
    workflow, tokens = document["pipeline"]["workflow"], special_tokens(tokenizer)
    problems: list[Problem] = []
    steps: list[Data] = []
    taken: set[str] = set()
    for stage in once:
        roles = sound_roles([stage], notes) if AUDIO not in taken else None
        front = None
        if roles is not None and MODE not in roles:
            front, found = sound_front(notes, stage, roles, tokens)
            problems += found
            taken.add(AUDIO)
        steps += [invoke_stage(stage, workflow)] if front is None else file_or_tensors(front, stage, document)
    for stage in (stage for medium in media for stage in medium.stages):
        invoke_stage(stage, workflow)  # components stand in the order in which they run
    sound = _of_sound(media, notes)
    fronts = [_front(notes, medium, tokens, taken, problems, medium is sound) for medium in media]
    shown = [flag for medium, front in zip(media, fronts, strict=True) for flag in _shows(medium, front)]
    for medium, front in zip(media, fronts, strict=True):
        if front is None:
            steps.append(of_tensors(medium, workflow))
            continue
        declare_front(front, document)
        steps += _either(front, medium, facts, workflow, shown)
        if front.kind == AUDIO and front.token is not None:
            steps.append(count_entries(workflow, facts, (medium.port, medium.value), front.token, AUDIO))
    workflow["steps"] = [*steps, *workflow["steps"]]
    if any(each["kind"] == "branch" for each in steps):
        workflow["manifest"]["capabilities"].append("input_presence")
    return document, (*problems, *_unused(notes, taken, bool(media)))


def _never_given(medium: Medium) -> Problem:
    stage = medium.stages[0]
    what = f"{stage.name!r} takes no tensor that a request brings, so that nothing tells when it runs"
    return Problem("wrong-port", Place(stage.artifact), "", what, "export it with the inputs that its medium goes into")


def _of_sound(media: list[Medium], notes: MediaNotes) -> Medium | None:
    """The medium that is sound: of several that could be, the first that takes what a file makes."""
    roles = [(each, sound_roles(each.stages, notes)) for each in media if picture_roles(each) is None]
    found = [(each, its) for each, its in roles if its is not None]
    fitting = [each for each, its in found if len(found) > 1 and sound_fits(notes, its, each.stages)]
    return next(iter([*fitting, *(each for each, _ in found)]), None)


def _front(
    notes: MediaNotes, medium: Medium, tokens: SpecialTokens, taken: set[str], problems: list[Problem], heard: bool
) -> FileFront | None:
    """The front of a medium, None where its tensors are the caller's. taken: the media that have one already."""
    pictures, sounds = picture_roles(medium), sound_roles(medium.stages, notes) if heard else None
    if pictures is not None and IMAGE not in taken:
        kind = IMAGE
        front, found = _picture_front(notes, medium, pictures, tokens)
    elif pictures is None and sounds is not None and AUDIO not in taken:
        kind = AUDIO
        front, found = sound_front(notes, medium.stages[-1], sounds, tokens, medium)
    else:
        return None
    taken.add(kind)
    problems += (*found, *media_doubts(kind, notes.said[kind], medium, tokens))
    return front


def _shows(medium: Medium, front: FileFront | None) -> Iterator[str]:
    """The flags that tell whether a request has pictures."""
    if picture_roles(medium) is not None:
        if front is not None:
            yield front.presence
        yield from (each.presence for stage in medium.stages for each in stage.inputs if each.asked)


def _unused(notes: MediaNotes, taken: set[str], media: bool) -> Iterator[Problem]:
    """Warnings where a processor is named, or a program given, for what no stage takes as that."""
    for kind, said in notes.said.items():
        if kind not in taken and (said.config is not None or said.program is not None):
            stage = f"no stage takes tensors that are known for {kind}" if media else f"no stage takes {kind}"
            what = f"{stage}: {kind} goes in as tensors that the caller makes"
            yield Problem("capability-missing", *said.spot, what, "give them to run(inputs)", Severity.WARNING)


def _picture_front(
    notes: MediaNotes, medium: Medium, roles: Roles, tokens: SpecialTokens
) -> tuple[FileFront | None, tuple[Problem, ...]]:
    """By the document's own program, else by a processor file."""
    said = notes.said[IMAGE]
    if said.program is not None:
        return program_front(said, medium, roles, tokens)
    return picture_front(notes, medium, roles, tokens)


def _either(front: FileFront, medium: Medium, facts: DecoderFacts, workflow: Data, shown: Sequence[str]) -> list[Data]:
    """The steps that make the medium's value of files, else of tensors; and positions, where grids tell them.

    shown: the flags that tell whether there are pictures.
    """
    made, result = of_files(front, medium, workflow, media_told(front, medium, workflow, shown))
    tensors = of_tensors(_called(medium, f"{medium.value}.tensors"), workflow)
    outputs = {medium.value: {"cases": {"true": result}, "default": f"{medium.value}.tensors"}}
    default: Data = tensors
    positions: list[Data] = []
    if placed(front, facts):
        grid = f"media.{front.grid}"
        default = {"kind": "sequence", "steps": [tensors, _given_grid(front, medium, workflow, f"{grid}.tensors")]}
        outputs[grid] = {"cases": {"true": front.feeds[front.grid]}, "default": f"{grid}.tensors"}
        positions = [_positions(front, medium, facts, workflow, grid)]
    branch = {"predicate": front.presence, "cases": {"true": made}, "default": default, "outputs": outputs}
    return [{"kind": "branch", **branch}, *positions]


def _called(medium: Medium, value: str) -> Medium:
    return replace(medium, value=value)


def placed(front: FileFront, facts: DecoderFacts) -> bool:
    """Whether the prompt's positions follow from the front's grids: three axes, and a token that says where they go."""
    positions = facts.position_ids
    shape = positions.shape if positions is not None else None
    return bool(front.grid) and front.token is not None and shape is not None and len(shape) == 3 and shape[0] == 3


def _given_grid(front: FileFront, medium: Medium, workflow: Data, value: str) -> Data:
    """The step that gives the caller's grid, or an empty one."""
    stage, given = next(
        (stage, each) for stage in medium.stages for each in stage.inputs if each.port.name == front.grid
    )
    contract = stage.contract(given.port)
    nothing = f"package.no_{front.grid}"
    literal = {"contract": {**contract, "shape": [0, 3]}, "role": {"kind": "opaque"}, "source": {"kind": "literal"}}
    workflow["inputs"][nothing] = {**literal, "default": 0}
    name = binding("same_grid", contract, contract, workflow, {})

    def same(source: str, made: str) -> Data:
        return {"kind": "invoke", "component": name, "inputs": {"entries": source}, "outputs": {"entries": made}}

    return {
        "kind": "branch",
        "predicate": given.presence,
        "cases": {"true": same(given.value, f"{value}.given")},
        "default": same(nothing, f"{value}.none"),
        "outputs": {value: {"cases": {"true": f"{value}.given"}, "default": f"{value}.none"}},
    }


def _positions(front: FileFront, medium: Medium, facts: DecoderFacts, workflow: Data, grid: str) -> Data:
    """The step that makes the prompt's positions of its tokens and the grids; the decoder takes them from there."""
    port = facts.position_ids
    assert port is not None
    contract = application_contract(port, "placed")
    inputs: Data = {
        "tokens": workflow["inputs"][facts.prompt]["contract"],
        "grids": {"dtype": "int64", "rank": 2, "shape": ["grids", 3]},
        "given": application_contract(port, "given"),  # one place where the caller gives none
    }
    parameters = {"entry_token": front.token, "merge": front.merge}
    name = adapter(workflow, GRID_POSITIONS, inputs, {"positions": contract}, parameters)
    own = application_inputs(facts)[port.name]
    for step in _invokes(workflow["steps"][-1]["steps"]):
        step["inputs"] |= {taken: POSITIONS for taken, value in step["inputs"].items() if value == own}
    given = {"tokens": facts.prompt, "grids": grid, "given": own}
    return {"kind": "invoke", "component": name, "inputs": given, "outputs": {"positions": POSITIONS}}


def _invokes(steps: list[Data]) -> Iterator[Data]:
    """Every invoke among steps, those in cases of branches too."""
    for step in steps:
        if step["kind"] == "invoke":
            yield step
        yield from _invokes([*step.get("steps", ()), *step.get("cases", {}).values()])


def made_of_files(document: Data) -> frozenset[str]:
    """What the document does by itself: `image` and `audio`, tensors of files; `positions`, those of a prompt."""
    workflow = document["pipeline"]["workflow"]
    kinds = {kind for kind in ("image", "audio") if f"request.{kind}" in workflow["inputs"]}
    placed_here = any(each.get("contract", {}).get("id") == GRID_POSITIONS for each in workflow["components"].values())
    return frozenset(kinds | ({"positions"} if placed_here else set()))
