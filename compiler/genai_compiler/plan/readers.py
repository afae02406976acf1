"""Who reads the values of a plan; found once, so that asking it of each value of each loop stays linear."""

from collections.abc import Iterator

from genai_compiler.plan.ir import Branch, Invoke, Loop, Op, Plan, Release
from genai_compiler.plan.uses import checked_values, own_reads, walk


class Readers:
    """The readers of each value: ops, for what they take and for what they check, and the ops that release it."""

    def __init__(self, plan: Plan) -> None:
        self._readers = dict[str, set[int]]()
        self._outermost = {id(op) for op in plan.body}
        self.released = frozenset(value for op in walk(plan.body) if isinstance(op, Release) for value in op.values)
        for op in _placed(plan.body):
            for value in own_reads(op):
                self._readers.setdefault(value, set()).add(id(op))
        for op in walk(plan.body):
            checks = (*op.before, *op.after) if isinstance(op, Invoke) else ()
            for value in frozenset[str]().union(*map(checked_values, checks)):
                self._readers.setdefault(value, set()).add(id(op))

    def beside(self, value: str, loop: Loop) -> bool:
        """Whether anything reads a value but the head and the end of this loop; of a nested one, these count too."""
        own = {id(loop)} if id(loop) in self._outermost else set[int]()
        return not self._readers.get(value, set()) <= own


def _placed(ops: tuple[Op, ...]) -> Iterator[Op]:
    """Every op of every region; what a fused run stands for is not asked apart."""
    for op in ops:
        yield op
        if isinstance(op, Loop):
            yield from _placed((*op.body, *op.advance))
        elif isinstance(op, Branch):
            for inner in (*(each for _, each in op.cases), op.default or ()):
                yield from _placed(inner)
