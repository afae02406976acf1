"""What a decoder's last run gave, read behind its loop: cells that hold nothing else, and the op that gives them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from genai_compiler.plan.decoder_form import left_cells
from genai_compiler.plan.ir import LastRun
from genai_compiler.plan.report import Path
from genai_compiler.plan.scope import Scope
from genai_compiler.read.document import InvokeStep, LoopStep
from genai_compiler.read.places import format_path

if TYPE_CHECKING:
    from genai_compiler.plan.build_steps import StepBuilder


def left_ports(steps: "StepBuilder", loop: LoopStep, decode: InvokeStep) -> tuple[str, ...]:
    """The decoder's ports of which what the last run gave is read behind the loop."""
    return tuple(left_cells(steps.package.workflow, loop, decode).values())


def last_run(steps: "StepBuilder", loop: LoopStep, decode: InvokeStep, path: Path, scope: Scope) -> Iterator[LastRun]:
    """The op behind the loop, where there are such ports. path: of the decoder's step; scope: around the loop."""
    types = dict(steps.components[decode.component].outputs)
    cells = left_cells(steps.package.workflow, loop, decode)
    pairs = tuple((port, scope.define(cell, types[port])) for cell, port in cells.items())
    if pairs:
        yield LastRun(decode.component, pairs, format_path(path))
