"""The five steps of a workflow (section 2.8 of the metadata standard)."""

from typing import Annotated, Literal

from pydantic import Field

from genai_compiler.read.contracts import TensorContract
from genai_compiler.read.fields import Closed, Count, Items, Tagged


class SequenceStep(Tagged):
    """Steps one after the other, in the enclosing scope."""

    kind: Literal["sequence"] = "sequence"
    steps: "Items[Step]"


class InvokeStep(Tagged):
    """Run a component: `inputs` maps port -> value, `outputs` maps port -> new value."""

    kind: Literal["invoke"] = "invoke"
    component: str
    inputs: dict[str, str] = Field(default_factory=dict)
    outputs: dict[str, str] = Field(default_factory=dict)


class Iteration(Closed):
    """The induction value of a loop, from 0."""

    value: str
    contract: TensorContract


class Carry(Closed):
    """A cell a loop carries: from `initial` (or the cell's initializer), then the value `next` of each iteration."""

    cell: str
    initial: str | None = None
    next: str


class LoopStep(Tagged):
    """A pre-tested loop: `continue_when` is read before each iteration, `max_iterations` once after `setup`."""

    kind: Literal["loop"] = "loop"
    setup: "Items[Step]" = ()
    steps: "Items[Step]"
    continue_when: str
    max_iterations: str
    termination: Literal["predicate", "generation_eos"] = "predicate"
    iteration: Iteration | None = None
    carried: Items[Carry] = ()


class BranchOutput(Closed):
    """A merged value: its source in each case."""

    cases: dict[str, str]
    default: str | None = None


class BranchStep(Tagged):
    """One case by the value of `predicate`: "true"/"false" for a bool, the decimal number for an integer."""

    kind: Literal["branch"] = "branch"
    predicate: str
    cases: "dict[str, Step]"
    default: "Step | None" = None
    outputs: dict[str, BranchOutput] = Field(default_factory=dict)


class EmitStep(Tagged):
    """Publish `value` into `output`; `axis` is the growth axis (default: the last)."""

    kind: Literal["emit"] = "emit"
    value: str
    output: str
    mode: Literal["replace", "append", "event"]
    when: str | None = None
    valid_length: str | None = None
    axis: Count | None = None


Step = Annotated[SequenceStep | InvokeStep | LoopStep | BranchStep | EmitStep, Field(discriminator="kind")]

for _each in (SequenceStep, LoopStep, BranchStep):
    _each.model_rebuild()
