"""How many session runs a plan takes, in words: before the first token, and for each.

What is counted is what ONNX Runtime is called for: every graph that runs, what makes embeddings of a decoder's tokens
too; no step that numpy or an adapter's own code does. Branches make it a range.
"""

from collections.abc import Iterable
from typing import NamedTuple

from genai_compiler.plan.graph_program import GraphProgram
from genai_compiler.plan.ir import Branch, Decode, Fused, Invoke, Loop, Op, Plan, SpeculativeBlock
from genai_compiler.plan.uses import walk


class Runs(NamedTuple):
    """From `least` to `most` runs; more: as many as the turns of an inner loop, or the parts of a prompt, ask for."""

    least: int = 0
    most: int = 0
    more: bool = False

    def __str__(self) -> str:
        span = str(self.most) if self.least == self.most else f"{self.least} to {self.most}"
        return f"{span} or more" if self.more else span

    @property
    def named(self) -> str:
        """With the noun: `2 session runs`."""
        return f"{self} session run{'s' * ((self.least, self.most, self.more) != (1, 1, False))}"


def runs_text(plan: Plan) -> str:
    """Session runs before, and in one iteration of, the outermost loop; fewer for a row that has settled."""
    loops = [at for at, op in enumerate(plan.body) if isinstance(op, Loop)]
    if not loops:
        return f"{runs_of(plan.body, plan).named} an invocation"
    at = loops[-1]  # what stands before it makes what it begins with
    loop = plan.body[at]
    assert isinstance(loop, Loop)
    text = f"{runs_of((*loop.body, *loop.advance), plan).named} a token (iteration)"
    if numbers := sum(isinstance(op, Invoke) and op.numbers is not None for op in walk(loop.body)):
        text += f", {numbers} fewer for one row behind its first steps"
    behind = runs_of(plan.body[at + 1 :], plan)
    text += f", {runs_of(plan.body[:at], plan)} before the first"
    return f"{text}, {behind} behind the last" if behind.most or behind.more else text


def runs_of(ops: Iterable[Op], plan: Plan) -> Runs:
    """Of some ops, one after the other."""
    found = [_runs(op, plan) for op in ops]
    return Runs(sum(each.least for each in found), sum(each.most for each in found), any(each.more for each in found))


def _runs(op: Op, plan: Plan) -> Runs:
    match op:
        case Invoke():
            return _invoked(op, plan)
        case Fused():
            return _runs(op.run, plan)
        case Decode() | SpeculativeBlock():
            facts = plan.decoder
            runs = op.component if isinstance(op, Decode) else op.decode.component
            number = len(plan.component(runs).sessions) + (facts is not None and facts.front is not None)
            return Runs(number, number, isinstance(op, Decode) and op.phase == "prompt" and _in_parts(op, plan))
        case Branch():
            cases = [runs_of(ops, plan) for ops in (*(ops for _, ops in op.cases), op.default or ())]
            least, most = min(each.least for each in cases), max(each.most for each in cases)
            return Runs(least, most, any(each.more for each in cases))
        case Loop():
            inner = runs_of((*op.body, *op.advance), plan)
            return Runs(0, 0, inner != Runs())
        case _:
            return Runs()


def _in_parts(prompt: Decode, plan: Plan) -> bool:
    """Whether a prompt goes in by several runs: by windows, by chunks that the package asks for, or token by token."""
    facts = plan.decoder
    if facts is None:
        return False
    asked = {each.name for each in plan.inputs if each.role == "prompt_tokens"}
    return facts.window is not None or bool(facts.chunk) or (facts.one_token and prompt.tokens in asked)


def _invoked(op: Invoke, plan: Plan) -> Runs:
    """The runs of a graph; none where numpy or an adapter's code does it; an adapter may run graphs itself."""
    component = plan.component(op.component)
    if component.adapter is not None:
        return Runs(0, 0, isinstance(component.adapter.program, GraphProgram))
    ran = len(component.sessions) if component.host is None else 0
    return Runs(ran, ran)
