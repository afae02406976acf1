"""The memory of a process that runs a compiled package: the plan, its graphs, and the lengths asked for."""

from dataclasses import dataclass

from onnx import ModelProto

from genai_compiler.emit.graph_files import graph_files
from genai_compiler.plan.ir import Plan
from genai_compiler.plan.memory import MemoryPlan, memory_plan
from genai_compiler.plan.memory_runs import Lengths
from genai_compiler.process_memory import imported_process
from genai_compiler.read.package import Package

PROMPT, CONTEXT = 512, 2048
"""Tokens that are taken where nobody says how many: of a prompt, and of what a package without a limit goes on to."""


@dataclass(frozen=True)
class MemoryAsk:
    """Rows of a request, tokens of its prompt, tokens of prompt and output; None: see `lengths_of`.

    chunk: tokens of the prompt that one run takes, None: all of them.
    """

    batch: int | None = None
    prompt: int | None = None
    context: int | None = None
    chunk: int | None = None


def predicted(plan: Plan, package: Package, ask: MemoryAsk) -> MemoryPlan:
    """What running the plan takes. The graphs are those that the sessions run, edits and links included."""
    made = graph_files(plan, package, bundle=False)
    models = {
        name: package.graphs[name].model if each.content is None else ModelProto.FromString(each.content)
        for name, each in made.items()
    }
    return memory_plan(plan, models, lengths_of(package, ask), imported_process())


def lengths_of(package: Package, ask: MemoryAsk) -> Lengths:
    """What was asked for, else one row, and the package's own context length with a prompt of a part of it."""
    limit = _limit(package)
    prompt = ask.prompt or min(PROMPT, ask.context or limit, max(limit // 2, 1))
    return Lengths(ask.batch or 1, prompt, ask.context or max(limit, prompt), ask.chunk or 0)


def _limit(package: Package) -> int:
    """The context that the package states."""
    model = package.metadata.model
    stated = (model.max_sequence_length if model is not None else None) or 0
    beside = package.text.context_length[1] if package.text.context_length is not None else 0
    return max(stated or beside, 0) or CONTEXT
