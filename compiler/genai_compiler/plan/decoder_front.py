"""The component between tokens and a decoder that takes embeddings: it runs before every decoder pass.

    loop { invoke embed(ids <- the tokens, media <- a cell); invoke decoder(embeds <- embed's); policy; emit }

A cell that it reads beside the tokens starts as what belongs to the prompt and then becomes a constant of the document
(media of the prompt, nothing afterwards). A decoder without a front may read such cells itself: a flag that picks one
network for the prompt and another for later tokens.

A decoder that takes the token ids beside what is made of them reads the same value there as the front does.

A decoder over packed rows has a binding there, which takes the two axes of its tokens together; and so has one that
takes one token of each row, [rows].
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from genai_compiler.lower.packed_rows import MERGE_AXES
from genai_compiler.plan.report import Path
from genai_compiler.read.document import Component, InvokeStep, LiteralSource, LoopStep, OnnxImplementation, Workflow

Fault = tuple[Path, str]


@dataclass(frozen=True)
class FrontStep:
    """The invoke at the head of the loop. streams: (its output port, the decoder's input port); (its port for tokens,
    the decoder's) where the decoder takes these too. media: port -> cell.

    packs: it only takes the two axes of the tokens together.
    """

    step: InvokeStep
    tokens: str
    streams: tuple[tuple[str, str], ...]
    media: Mapping[str, str]
    packs: bool = False


def front_of(workflow: Workflow, loop: LoopStep, decode: InvokeStep) -> FrontStep | None:
    """What makes embeddings of a decoder's tokens, or packs them; None when it takes tokens alone."""
    first = loop.steps[0] if loop.steps else None
    if not isinstance(first, InvokeStep) or first is decode:
        return None
    component = workflow.components.get(first.component)
    if component is not None and _packs(component):
        return _packing(first, component, decode)
    if component is None or not isinstance(component.implementation, OnnxImplementation):
        return None
    tokens = tokens_port(component)
    made = {value: port for port, value in first.outputs.items()}
    streams = tuple((made[value], port) for port, value in decode.inputs.items() if value in made)
    media = {port: value for port, value in first.inputs.items() if port != tokens}
    own = tokens_port(workflow.components[decode.component])
    if tokens and streams and own and decode.inputs.get(own) == first.inputs.get(tokens):
        streams = (*streams, (tokens, own))
    return FrontStep(first, tokens, streams, media) if tokens and streams else None


def _packs(component: Component) -> bool:
    contract = component.contract
    return component.implementation.kind == "binding" and contract is not None and contract.id == MERGE_AXES


def _packing(first: InvokeStep, component: Component, decode: InvokeStep) -> FrontStep | None:
    tokens = tokens_port(component)
    made = first.outputs.get(tokens, "")
    streams = tuple((tokens, port) for port, value in decode.inputs.items() if made and value == made)
    return FrontStep(first, tokens, streams, {}, packs=True) if tokens and streams else None


def tokens_port(component: Component) -> str:
    """The port of a component that takes token ids, "" for none."""
    return next((port for port, role in component.ports.roles.items() if role == "token_ids"), "")


def switch_cells(workflow: Workflow, loop: LoopStep, decode: InvokeStep) -> dict[str, str]:
    """Port -> cell, for ports of the decoder that take a cell which becomes a literal after the prompt."""
    carried = {each.cell: each.next for each in loop.carried}
    return {
        port: value
        for port, value in decode.inputs.items()
        if value in carried and _is_literal(workflow, carried[value])
    }


def media_faults(workflow: Workflow, loop: LoopStep, front: FrontStep) -> Iterator[Fault]:
    """Whether every value that the front takes beside the tokens is a cell which becomes a literal."""
    cells = {each.cell: (at, each) for at, each in enumerate(loop.carried)}
    for port, value in front.media.items():
        if value not in cells:
            yield ("steps", 0, "inputs", port), f"'{port}' takes a cell of the loop: the prompt's value, then a literal"
            continue
        at, carry = cells[value]
        if not _is_literal(workflow, carry.next):
            yield ("carried", at), f"after the prompt the cell '{value}' becomes a literal"


def _is_literal(workflow: Workflow, value: str) -> bool:
    given = workflow.inputs.get(value)
    return given is not None and isinstance(given.source, LiteralSource)
