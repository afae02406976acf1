"""The memory of a process that runs a compiled package: the plan, its graphs, and the lengths asked for."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from onnx import ModelProto

from genai_compiler.check.context import context_of
from genai_compiler.emit.graph_files import GraphFile, graph_files
from genai_compiler.emit.manifest import prompt_decoded
from genai_compiler.held_weights import NOTEWORTHY, held_weights
from genai_compiler.plan.edits import Linked
from genai_compiler.plan.ir import Plan
from genai_compiler.plan.memory import MEGABYTE, MemoryPlan, memory_plan
from genai_compiler.plan.memory_runs import Lengths
from genai_compiler.plan.prompt_chunks import undivided
from genai_compiler.process_memory import imported_process
from genai_compiler.read.package import Package
from genai_compiler.read.packing import packed_copies
from genai_compiler.read.weights import weight_bytes
from genai_compiler.shared_weights import LEAST, Shared, shared_weights

PROMPT, CONTEXT = 512, 2048
"""Tokens that are taken where nobody says how many: of a prompt, and of what a package without a limit goes on to."""


@dataclass(frozen=True)
class MemoryAsk:
    """Rows of a request, tokens of its prompt, tokens of prompt and output; None: see `lengths_of`.

    chunk: tokens of the prompt that one run takes, 0: all of them, None: what the package asks for.
    """

    batch: int | None = None
    prompt: int | None = None
    context: int | None = None
    chunk: int | None = None


def predicted(plan: Plan, package: Package, ask: MemoryAsk) -> MemoryPlan:
    """What running the plan takes. The graphs are those that the sessions run, edits and links included."""
    made = graph_files(plan, package, bundle=False)
    models = _models(made, package)
    lengths = lengths_of(package, ask, plan)
    found = memory_plan(plan, models, lengths, imported_process())
    twice = tuple(_told(each, plan, package, models) for each in shared_weights(made, package, found.sessions))
    about = _beyond(lengths, plan, package) if found.generates else _open(lengths)
    held = (f"weights of {each}" for each in held_weights(plan, models, found.sessions))
    return replace(found, notes=(*about, *held, *twice, *found.notes, *_of_text(package)))


def _models(made: Mapping[str, GraphFile], package: Package) -> dict[str, ModelProto]:
    return {
        name: package.graphs[name].model if each.content is None else ModelProto.FromString(each.content)
        for name, each in made.items()
    }


def weight_lines(
    plan: Plan, package: Package, made: Mapping[str, GraphFile], sessions: Collection[str]
) -> Iterator[str]:
    """Which session holds weights of note and why, and what several of them hold. made: what their sessions open."""
    models = _models(made, package)
    held = tuple(held_weights(plan, models, sessions))
    yield from held
    for each in shared_weights(made, package, sessions) if len(held) > 1 else ():
        if each.bytes >= NOTEWORTHY:
            yield _told(each, plan, package, models)


def _open(lengths: Lengths) -> Iterator[str]:
    """What is taken where no token follows a prompt: a picture's edges, say."""
    made = f"as {lengths.context} (--context) of what is made"
    yield f"extents that only a request decides are taken as 1 of inputs, {made}"


def _of_text(package: Package) -> Iterator[str]:
    if package.text.tokenizer is not None:
        yield "a tokenizer is left out; it comes into memory when text goes in or out"


def _beyond(lengths: Lengths, plan: Plan, package: Package) -> Iterator[str]:
    """Lengths that no request has, because the package's own context ends before."""
    limit = context_of(package).length
    if not limit:
        return
    allowed = f"the package allows {limit} tokens of prompt and output together: no request comes as far as this"
    if lengths.prompt >= limit and prompt_decoded(plan):
        yield f"the prompt has {lengths.prompt} tokens, and {allowed}"
    elif lengths.context > limit:
        yield f"the context has {lengths.context} tokens, and {allowed}"


def _told(shared: Shared, plan: Plan, package: Package, models: Mapping[str, ModelProto]) -> str:
    """A note on weights that several sessions hold: how much, why, and what of it is there more than once."""
    if any(each.parts is not None and set(shared.components) <= set(each.parts.names) for each in plan.components):
        return _of_halves(shared)
    prompt = plan.decoder.prompt_component if plan.decoder is not None else ""
    why = "the package keeps them in each graph"
    edits = [each.edit for name in shared.components for each in plan.components if each.name == name]
    linked = [{one.component for one in each.members} if isinstance(each, Linked) else set[str]() for each in edits]
    both = sorted(
        each
        for each in (set.intersection(*linked) if linked else ())
        if weight_bytes(package.graphs[each].model) >= LEAST
    )
    if both and prompt not in shared.components:
        why = f"both are linked with {', '.join(both)}"
    elif prompt in shared.components:
        why = "other stages run with the prompt, which makes two graphs"
    elif shared.one_place:
        why = "two graphs name one place"
    packed = [_packed(models[name], shared.names[name]) for name in shared.components]
    there = "read in place they are there once" if shared.one_place else "each has them for itself"
    again = f"{there}; rearranged, {(sum(packed) - max(packed)) / MEGABYTE:.3f} MB more than once would take"
    named = " and ".join(shared.components)
    return f"{shared.bytes / MEGABYTE:.3f} MB of weights are in the sessions of {named}: {why}; {again}"


def _of_halves(shared: Shared) -> str:
    """The same of two sessions of one graph (pass split_opening): what either rearranges, one session would."""
    names = ", ".join(sorted(frozenset[str]().union(*shared.names.values())))
    there = "mapped once" if shared.one_place else "in memory twice"
    return f"{' and '.join(shared.components)} both read {shared.bytes} bytes of weights, {there}: {names}"


def _packed(model: ModelProto, names: frozenset[str]) -> int:
    return sum(size for name, size in packed_copies(model).items() if name in names)


def lengths_of(package: Package, ask: MemoryAsk, plan: Plan | None = None) -> Lengths:
    """What was asked for, else one row, and the package's own context length with a prompt of a part of it.

    plan: decides whether prompts go in by chunks.
    """
    limit = _limit(package)
    prompt = ask.prompt or min(PROMPT, ask.context or limit, max(limit // 2, 1))
    return Lengths(ask.batch or 1, prompt, ask.context or max(limit, prompt), _chunk(ask, plan))


def _chunk(ask: MemoryAsk, plan: Plan | None) -> int:
    if plan is None or undivided(plan.decoder, plan.groups):
        return 0
    own = plan.decoder.chunk if plan.decoder is not None else 0
    return own if ask.chunk is None else ask.chunk


def _limit(package: Package) -> int:
    """The context that the package states, or its graphs have positions for."""
    stated = context_of(package).length
    beside = package.text.context_length[1] if package.text.context_length is not None else 0
    return max(stated or beside, 0) or CONTEXT
