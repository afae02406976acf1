"""Files of a medium before the stages that take tensors of it, as components and steps of the workflow.

    branch on given.request.image {
      true:    invoke image_processor(encoded); the stages on what it makes
      default: the stages on tensors that the caller gives, or nothing
    }

A stage that takes one picture a run stands in a loop over the pictures; so does one before an embedding, over sounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.one_by_one import Pictures, one_by_one
from genai_compiler.lower.own_adapters import pin
from genai_compiler.lower.stages import Medium, merge_step
from genai_compiler.lower.window_order import run_stage


@dataclass(frozen=True)
class FileFront:
    """An adapter that makes tensors of files. kind: image or audio.

    component: its name; declared: its declaration; values: its output port -> the workflow value; feeds: a stage's
    input -> the value. each: the stages take one picture a run; sizes: the output that says how much of each picture is
    its own, "" where all of it is. grid: the stage's input for the patches' grids, "" for none. merge: patches of an
    edge that a token stands for. mode: the value that tells which media a request has, "" for none. token: the id that
    stands for an entry of the medium in a prompt, None: not known. program: what `preprocessing` says of the medium.
    axis: that of the frames, where the stages take one sound a run; blank: frames behind those that its sizes count.
    """

    kind: str
    component: str
    declared: Data
    values: Mapping[str, str]
    feeds: Mapping[str, str]
    each: bool = False
    sizes: str = ""
    grid: str = ""
    merge: int = 1
    mode: str = ""
    token: int | None = None
    program: Data | None = None
    axis: int = 0
    blank: int = 0

    @property
    def request(self) -> str:
        """The workflow input that takes the files."""
        return f"request.{self.kind}"

    @property
    def presence(self) -> str:
        """The flag that tells whether there are any."""
        return f"given.{self.request}"


def declare_front(front: FileFront, document: Data) -> None:
    """The front's input, component and program in the document."""
    workflow = document["pipeline"]["workflow"]
    workflow["inputs"][front.request] = {
        "contract": {"dtype": "uint8", "rank": 1, "shape": [f"{front.kind}_bytes"]},
        "role": {"kind": "runtime", "version": "1.0", "role": "media"},
        "source": {"kind": "request"},
        "required": False,
        "present_as": front.presence,
    }
    workflow["components"][front.component] = front.declared
    pin(workflow, front.declared)
    if front.program is not None:
        document.setdefault("preprocessing", {})[front.kind] = front.program


def run_front(front: FileFront) -> Data:
    """The step that runs the front."""
    return {
        "kind": "invoke",
        "component": front.component,
        "inputs": {"encoded": front.request},
        "outputs": dict(front.values),
    }


def of_files(front: FileFront, medium: Medium, workflow: Data, before: Sequence[Data] = ()) -> tuple[Data, str]:
    """(the steps from files to what the front of the decoder takes, the value of that). before: steps to run first."""
    if front.each or medium.apart:
        loop, result = one_by_one(medium, workflow, _pictures(front, medium))
        return {"kind": "sequence", "steps": [*before, run_front(front), loop]}, result
    made = (each for stage in medium.stages for each in run_stage(stage, workflow, front.feeds))
    steps = [*before, run_front(front), *made]
    result = medium.result
    if medium.merges is not None:
        result = f"{medium.value}.files"
        steps.append(merge_step(medium, *medium.merges, workflow, result))
    return {"kind": "sequence", "steps": steps}, result


def _pictures(front: FileFront, medium: Medium) -> Pictures:
    """What the front makes as pictures of a loop."""
    made = {value: port for port, value in front.values.items()}
    ports = front.declared["ports"]["outputs"]
    own = {port: value for port, value in front.feeds.items() if value in made}
    contracts = {port: ports[made[value]] for port, value in own.items()}
    sizes = (front.values[front.sizes], ports[front.sizes]) if front.sizes else None
    whole = {port: value for port, value in front.feeds.items() if port not in own}
    return Pictures(
        front.kind, own, contracts, sizes, front.grid if medium.apart else "", front.axis, front.blank, whole
    )
