"""Which token ids a request's inputs may hold, by the tables that they look into: a graph would count ids below 0 from
the table's end, and fail over those behind it.

Before: %request.input_ids -> Gather from a table [32000, 576]
After:  %request.input_ids: 0 to 31999
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

from genai_compiler.plan.ir import Branch, Component, Copy, Decode, Input, Invoke, Loop, Op
from genai_compiler.plan.state import DecodeFacts
from genai_compiler.plan.uses import walk
from genai_compiler.read.package import Package

END_SOURCE = "genai-compile.end-source@1"
"""The adapter that puts an end id behind each row of `tokens`."""
TOKENS = frozenset({"prompt_tokens", "negative_prompt_tokens"})
"""Roles of inputs that hold token ids; what a decoder's loop begins with does, too."""


def with_entries(
    inputs: Iterable[Input],
    body: Iterable[Op],
    components: Iterable[Component],
    package: Package,
    decoder: DecodeFacts | None,
) -> tuple[Input, ...]:
    """The inputs of token ids with how many there are, where every id goes to a table or to a decoder alone."""
    ops = list(walk(tuple(body)))
    ends = {each.name for each in components if each.adapter is not None and each.adapter.abi == END_SOURCE}
    sources = _sources(ops, ends)
    rows: dict[str, int] = {}
    fed: dict[str, int] = {}
    for value, count in _looked_up(ops, package, decoder):
        for each in _origins(value, sources):
            rows[each] = min(count, rows.get(each, count))
    for op in (each for each in ops if isinstance(each, Decode)):
        size = decoder.vocab_size if decoder is not None and not op.media else 0
        fed |= dict.fromkeys(_origins(op.tokens, sources), size)
    return tuple(
        replace(each, entries=rows.get(each.name) or fed.get(each.name, 0))
        if each.role in TOKENS or each.name in fed
        else each
        for each in inputs
    )


def _looked_up(ops: Iterable[Op], package: Package, decoder: DecodeFacts | None) -> Iterator[tuple[str, int]]:
    """(value, rows of the table) for each value whose entries all look into one."""
    for op in ops:
        if isinstance(op, Invoke):
            known = _rows(package, op.component)
            yield from ((value, known[port]) for port, value in op.inputs if port in known)
        elif isinstance(op, Decode) and decoder is not None:
            yield from ((op.tokens, count) for count in _of_decoder(package, decoder))


def _of_decoder(package: Package, facts: DecodeFacts) -> Iterator[int]:
    takers = [(name, facts.tokens) for name in (facts.component, facts.prompt_component) if name]
    if facts.front is not None:
        own = [port for made, port in facts.front.streams if made == facts.tokens]
        takers = [(facts.front.component, facts.tokens), *((facts.component, port) for port in own)]
    for component, port in takers:
        yield from [count] if (count := _rows(package, component).get(port)) else []


def _rows(package: Package, component: str) -> Mapping[str, int]:
    graph = package.graphs.get(component)
    return dict(graph.signature.entries) if graph is not None else {}


def _sources(ops: Iterable[Op], ends: Container[str]) -> dict[str, set[str]]:
    """Value -> values whose entries it has, in some case. ends: components that put an end behind tokens."""
    found: dict[str, set[str]] = {}
    for op in ops:
        for source, made in op.pairs if isinstance(op, Copy) else ():
            found.setdefault(made, set()).add(source)
        if isinstance(op, Invoke) and op.component in ends:
            found.setdefault(dict(op.outputs)["tokens"], set()).add(dict(op.inputs)["tokens"])
        for carry in op.carried if isinstance(op, Loop) else ():
            found.setdefault(carry.cell, set()).add(carry.initial)
        for join in op.joins if isinstance(op, Branch) else ():
            found.setdefault(join.name, set()).update(value for _, value in join.cases)
            found[join.name].update([join.default] if join.default else [])
    return found


def _origins(value: str, sources: Mapping[str, set[str]]) -> set[str]:
    """The value and all that it begins as."""
    pending, seen = [value], set[str]()
    while pending:
        each = pending.pop()
        if each not in seen:
            seen.add(each)
            pending.extend(sources.get(each, ()))
    return seen
