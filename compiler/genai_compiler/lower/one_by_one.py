"""Stages that take one picture a run, or one sound: a loop over those of a request, and what they make put together.

loop { one_picture(tensors, at) -> one picture's, next, more; the stages; join_pictures(so far, made) }

Stages with an axis of pictures take several of one size at once, as many as have no more numbers than TOGETHER.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from genai_compiler.lower.decoder_components import SCALAR, Data
from genai_compiler.lower.own_adapters import adapter
from genai_compiler.lower.stages import ENTRIES, Medium, Stage, merge_step
from genai_compiler.lower.window_order import run_stage

ONE_PICTURE, JOIN_PICTURES = "genai-compile.one-picture", "genai-compile.join-pictures"
ONE_SOUND = "genai-compile.one-sound"
LIMIT = (1 << 31) - 1
"""More than there are, of pictures and of entries: the loop ends behind the last picture, or sound, of the request."""
TOGETHER = 1 << 20
"""Numbers of pictures of one run, as those of one picture of 590 x 590 pixels: a bound to what the run holds."""
ONE_FLAG = {"dtype": "bool", "rank": 1, "shape": [1]}


@dataclass(frozen=True)
class Pictures:
    """What the loop goes over. name: what its values are called after. feeds: a stage's input -> the value of all
    pictures; contracts: input -> that value's.

    sizes: the (value, contract) that says how much of each picture is its own, None where all of it is. grid: the
    input of the patches' grids, where the pixels are rows of patches, one picture behind another; "" where not. axis:
    that of a sound's frames, where these are sounds; 0 where not; blank: frames of each behind those that sizes count.
    whole: input -> the value, for what all share.
    """

    name: str
    feeds: Mapping[str, str]
    contracts: Mapping[str, Data]
    sizes: tuple[str, Data] | None = None
    grid: str = ""
    axis: int = 0
    blank: int = 0
    whole: Mapping[str, str] = field(default_factory=dict[str, str])


def one_by_one(medium: Medium, workflow: Data, pictures: Pictures) -> tuple[Data, str]:
    """(the loop, the value of all that the stages make)."""
    at, more, all_of = f"{pictures.name}.at", f"{pictures.name}.more", f"{medium.value}.files"
    pick, slices = _picker(pictures, medium, workflow)
    moves = {"next": f"{at}.next", "more": f"{more}.next"}
    steps = [
        {**pick, "inputs": {**pick["inputs"], "at": at}, "outputs": {**pick["outputs"], **moves}},
        *(each for stage in medium.stages for each in run_stage(stage, workflow, slices)),
    ]
    result = medium.result
    if medium.merges is not None:
        result = f"{medium.value}.one"
        steps.append(merge_step(medium, *medium.merges, workflow, result))
    steps.append(_joining(medium, workflow, all_of, result))
    _cells(medium, workflow, at, more, all_of)
    loop = {
        "kind": "loop",
        "setup": [],
        "steps": steps,
        "continue_when": more,
        "max_iterations": "package.media_limit",
        "carried": [{"cell": each, "next": f"{each}.next"} for each in (at, more, all_of)],
    }
    return loop, all_of


def _picker(pictures: Pictures, medium: Medium, workflow: Data) -> tuple[Data, dict[str, str]]:
    """(the step that takes one picture out, input of a stage -> its value there)."""
    slices = {port: f"one.{port}" for port in pictures.feeds}
    ports = {each.port.name: stage for stage in medium.stages for each in stage.inputs if each.asked}
    together = not pictures.grid and not pictures.axis and _has_axis(medium)
    outputs = {port: _one(ports[port], port, bool(pictures.grid), together) for port in pictures.feeds}
    inputs: Data = dict(pictures.contracts)
    given = dict(pictures.feeds)
    if pictures.sizes is not None:
        given["sizes"], inputs["sizes"] = pictures.sizes
    moves = {"next": SCALAR, "more": ONE_FLAG}
    parameters: Data | None = {"grid": pictures.grid} if pictures.grid else {"together": TOGETHER} if together else None
    if pictures.axis:
        parameters = {"axis": pictures.axis, **({"blank": pictures.blank} if pictures.blank else {})}
    abi = ONE_SOUND if pictures.axis else ONE_PICTURE
    name = adapter(workflow, abi, {**inputs, "at": SCALAR}, {**outputs, **moves}, parameters)
    step: Data = {"kind": "invoke", "component": name, "inputs": given, "outputs": dict(slices)}
    return step, {**slices, **pictures.whole}


def _has_axis(medium: Medium) -> bool:
    """Whether the first axis of every port of the stages is that of pictures, and no other axis has to do with it; and
    the graphs do as they say.
    """
    for stage in medium.stages:
        ports = (*(each.port for each in stage.inputs if not each.beside), *stage.signature.outputs)
        first = {(each.shape or (None,))[0] for each in ports}
        axis = next(iter(first))
        if (
            stage.signature.traits.single
            or len(first) > 1
            or not isinstance(axis, str)
            or any(axis in (each.shape or ())[1:] for each in ports)
        ):
            return False
    return True


def _one(stage: Stage, port: str, patches: bool, together: bool) -> Data:
    """The contract of one picture for a stage's input: its first axis is 1, but where it is one of patches.

    together: it may be several pictures.
    """
    taken = next(each.port for each in stage.inputs if each.port.name == port)
    contract = stage.contract(taken)
    inner = [each if isinstance(each, int) else f"one.{port}.{axis}" for axis, each in enumerate(contract["shape"])]
    first = inner[0] if patches and "float" in taken.dtype else "one.pictures" if together else 1
    return {"dtype": contract["dtype"], "rank": contract["rank"], "shape": [first, *inner[1:]]}


def _joining(medium: Medium, workflow: Data, all_of: str, result: str) -> Data:
    shape = list(medium.port.shape or ())
    contract = {"dtype": medium.port.dtype, "rank": len(shape)}
    inputs = {
        "so_far": {**contract, "shape": ["so_far", *shape[1:]]},
        "more": {**contract, "shape": ["more", *shape[1:]]},
    }
    name = adapter(workflow, JOIN_PICTURES, inputs, {ENTRIES: {**contract, "shape": ["joined", *shape[1:]]}})
    given = {"so_far": all_of, "more": result}
    return {"kind": "invoke", "component": name, "inputs": given, "outputs": {ENTRIES: f"{all_of}.next"}}


def _cells(medium: Medium, workflow: Data, at: str, more: str, all_of: str) -> None:
    """The loop's cells: which picture is next, whether there is one, and what has been made so far."""
    for name, contract, value in ((at, SCALAR, 0), (more, ONE_FLAG, True), ("media_limit", SCALAR, LIMIT)):
        literal = {"contract": contract, "role": {"kind": "opaque"}, "source": {"kind": "literal"}, "default": value}
        workflow["inputs"][f"package.{name}"] = literal
    plain = {"scope": "invocation", "management": "workflow"}
    shape = ["all_pictures", *(medium.port.shape or ())[1:]]
    features = {"dtype": medium.port.dtype, "rank": len(shape), "shape": shape}
    invariant, rule = {"kind": "invariant"}, {"kind": "bounded", "axis": 0, "max": "package.media_limit"}
    workflow["state"] |= {
        at: {"contract": SCALAR, "initializer": f"package.{at}", "recurrence": invariant, **plain},
        more: {"contract": ONE_FLAG, "initializer": f"package.{more}", "recurrence": invariant, **plain},
        all_of: {"contract": features, "initializer": medium.nothing, "recurrence": rule, **plain},
    }
