"""Which components only some requests need: their sessions open when a request first comes to them."""

from collections.abc import Iterator

from genai_compiler.plan.ir import Branch, Fused, Hold, Invoke, Op, Plan
from genai_compiler.plan.uses import walk


def on_demand(plan: Plan) -> frozenset[str]:
    """Components whose every run stands in a case of a branch that a request passes once at most.

    A model of pictures beside a decoder, for one: a request without a picture takes the other case. Branches inside
    loops do not count: there an opening would stand between two tokens.
    """
    outer = tuple(op for op in plan.body if not isinstance(op, Branch))
    cases = tuple(op for branch in plan.body if isinstance(branch, Branch) for op in walk((branch,)))
    always = {*_run_by(walk(outer)), *_driven(plan)}
    return frozenset(_run_by(iter(cases))) - always


def _run_by(ops: Iterator[Op]) -> Iterator[str]:
    for op in ops:
        match op:
            case Invoke():
                yield op.component
            case Fused():
                yield op.run.component
            case Hold():
                yield op.run.component
            case _:
                pass


def _driven(plan: Plan) -> Iterator[str]:
    """Components that the runtime's own decoding opens."""
    facts = plan.decoder
    if facts is not None:
        yield facts.component
        yield facts.prompt_component or ""
        yield facts.front.component if facts.front else ""
