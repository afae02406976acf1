"""The manifest's part about files of media: which input takes them, and what a prompt says of each."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from genai_compiler.plan.audio_program import AudioProgram
from genai_compiler.plan.image_program import ImageProgram
from genai_compiler.plan.ir import Branch, Input, Invoke, Plan
from genai_compiler.plan.uses import all_reads, walk

_NUMBERS = {"numbered": (1, 1), "entry_token": (0, (1 << 31) - 1), "entries": (1, 1 << 20), "cell": (1, 1 << 20)}
"""Parameters that say where pictures stand in a prompt -> the values that mean something."""
_TEXTS = frozenset({"entry", "opens", "closes", "before", "after", "row_end", "last_row_end"})


def media_facts(plan: Plan) -> list[dict[str, Any]]:
    """One entry an adapter that takes files, as plain data."""
    return list(_entries(plan))


def _entries(plan: Plan) -> Iterator[dict[str, Any]]:
    inputs = {each.name: each for each in plan.inputs}
    for op in walk(plan.body):
        if not isinstance(op, Invoke):
            continue
        component = plan.component(op.component)
        adapter = component.adapter
        value = dict(op.inputs).get("encoded", "")
        program = adapter.program if adapter is not None else None
        if adapter is None or not isinstance(program, AudioProgram | ImageProgram) or value not in inputs:
            continue
        tensors = _instead(plan, inputs[value])
        yield {
            "kind": "image" if isinstance(program, ImageProgram) else "audio",
            "input": value,
            "prompt": {
                **dict(_of_prompts(adapter.parameters)),
                **_of_sound(program, dict(adapter.parameters)),
                **({"several": True} if _taken_apart(plan, op) else {}),
                **(_start(plan) if isinstance(program, AudioProgram) else {}),
            },
            **_sizes(program),
            "tensors": [name for each in tensors for name in (each.name, each.application_name) if name],
            "required": inputs[value].required or _is_needed(plan, inputs[value]),
        }


def _of_prompts(parameters: tuple[tuple[str, Any], ...]) -> Iterator[tuple[str, Any]]:
    """The parameters that say where pictures stand in a prompt; what no package of ours would write has no meaning."""
    for name, value in parameters:
        if name in _NUMBERS and isinstance(value, int) and not isinstance(value, bool):
            if _NUMBERS[name][0] <= value <= _NUMBERS[name][1]:
                yield name, value
        elif name in _TEXTS and isinstance(value, str) and 0 < len(value) <= 256:
            yield name, value


def _of_sound(program: ImageProgram | AudioProgram, parameters: dict[str, Any]) -> dict[str, Any]:
    """What decides how many entries of a prompt a sound takes, where its length does."""
    if not isinstance(program, AudioProgram) or not program.variants or not parameters.get("of_sound"):
        return {}
    variants = [asdict(each) for each in program.variants]
    heard: dict[str, Any] = {"variants": variants, "strides": program.strides, "most": program.most}
    frames, more = (parameters.get(each) for each in ("entry_frames", "entry_more"))
    if type(frames) is int and type(more) is int and frames > 0:
        heard["entry"] = [frames, more]
    return {"heard": heard}


def _taken_apart(plan: Plan, op: Invoke) -> bool:
    """Whether sounds go on one by one, so that several are one behind the other."""
    made = {value for _, value in op.outputs}
    for each in walk(plan.body):
        adapter = plan.component(each.component).adapter if isinstance(each, Invoke) else None
        if adapter is not None and adapter.abi == "genai-compile.one-sound@1" and made & set(all_reads(each)):
            return True
    return False


def _start(plan: Plan) -> dict[str, int]:
    """The token that an output starts with where a caller gives a sound and no prompt."""
    found = [each.default for each in plan.inputs if each.role == "prompt_tokens"]
    return {"start": found[0]} if len(found) == 1 and type(found[0]) is int else {}


def _sizes(program: ImageProgram | AudioProgram) -> dict[str, Any]:
    """What decides how large a picture becomes, None where the size is its own; whether it is cut into tiles."""
    if not isinstance(program, ImageProgram):
        return {"resize": None, "crop": None, "tiled": False, "views": None}
    resize = asdict(program.resize) if program.resize is not None else None
    counted = program.views is not None and program.views.mode != "tiles"
    views = asdict(program.views) if program.views is not None and counted else None
    tiled = program.tiles is not None or (program.views is not None and not counted)
    return {"resize": resize, "crop": program.crop, "tiled": tiled, "views": views}


def _branches(plan: Plan, given: Input) -> list[Branch]:
    return [
        op for op in walk(plan.body) if isinstance(op, Branch) and given.present_as and op.predicate == given.present_as
    ]


def _instead(plan: Plan, given: Input) -> list[Input]:
    """The optional inputs that are read where there are no files: tensors in their place."""
    others = {value for each in _branches(plan, given) for op in each.default or () for value in all_reads(op)}
    return [each for each in plan.inputs if not each.required and each.present_as and each.name in others]


def _is_needed(plan: Plan, given: Input) -> bool:
    """Whether a run can't do without the medium: with neither files nor tensors nothing takes their place."""
    inner = [op for each in _branches(plan, given) for op in walk(each.default or ()) if isinstance(op, Branch)]
    return bool(inner) and all(op.default is None for op in inner)
