"""What a plan's process will have in memory: weights, state, workspace, and how they add up over its phases.

Pure arithmetic on the plan and its graphs. A session keeps the workspace of its largest run (the arena of ONNX Runtime
never shrinks), so sessions' workspaces add up; state and the process are beside it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onnx import ModelProto

from genai_compiler.plan.ir import Plan, SpeculativeBlock
from genai_compiler.plan.memory_runs import Lengths, Run, runs_of
from genai_compiler.plan.memory_state import state_memory
from genai_compiler.plan.uses import walk
from genai_compiler.problem import counted
from genai_compiler.read.activations import Workspace
from genai_compiler.read.packing import WeightMemory, weight_memory
from genai_compiler.read.request_extents import lengths_vary

MEGABYTE = 1_000_000
SESSION = 3_000_000
"""What a process has beside weights once it has loaded a package: executor, manifest, allocators. Estimated."""
NODE = 2_000
"""What a session keeps for each node of its graph. Estimated."""


@dataclass(frozen=True)
class Term:
    """A part of the memory in bytes, where it comes from, and whether the number is an estimate."""

    name: str
    bytes: int
    source: str
    estimated: bool = False


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes. per_token: state that one more token of one row costs. terms: what is there at the peak of running.

    phases: (name, bytes) in order of time; peak: the largest. notes: what is left out, and what was assumed. sessions:
    components that run. generates: tokens come out, up to the context. tokens: a request has a prompt of them.
    """

    lengths: Lengths
    per_token: int
    terms: tuple[Term, ...]
    phases: tuple[tuple[str, int], ...]
    notes: tuple[str, ...] = field(default=())
    sessions: tuple[str, ...] = ()
    generates: bool = True
    tokens: bool = True

    @property
    def peak(self) -> int:
        """The most that the process has at any time."""
        return max(size for _, size in self.phases)


def memory_plan(plan: Plan, models: Mapping[str, ModelProto], lengths: Lengths, base: Term) -> MemoryPlan:
    """What running the plan takes on the CPU. models: the graph that each component's session runs. base: the process
    before it loads anything.
    """
    runs, values = runs_of(plan, models, lengths)
    used = {each.component: models[each.component] for each in runs}
    weights = {name: weight_memory(model) for name, model in used.items()}
    state = state_memory(plan, lengths, values)
    nodes = sum(len(model.graph.node) for model in used.values())
    own = Term("sessions", SESSION + NODE * nodes, f"{counted(len(used), 'session')}, {counted(nodes, 'node')}", True)
    loaded = base.bytes + own.bytes + sum(each.loaded for each in weights.values())
    first, all_runs = _largest(runs, "before"), _largest(runs, "")
    read = _read(weights, lengths)
    before = loaded + read + sum(each.peak for each in first.values())
    after = loaded + read + sum(each.peak for each in all_runs.values())
    phases = [("while loading", loaded + max((each.source for each in weights.values()), default=0))]
    phases += [("loaded", loaded)]
    stepped = bool(state.steps) or any(each.phase == "step" for each in runs)
    tokens = any(each.role == "prompt_tokens" for each in plan.inputs)
    generates = stepped and any(each.role == "tokens" for each in plan.outputs)
    if stepped:
        first_steps, later = ("prompt", "steps up to the context") if generates else ("before the loop", "the loop")
        phases += [(first_steps, before + state.prompt), (later, after + state.steps)]
    else:
        phases += [("one run", before + state.prompt)]
    terms = (
        base,
        own,
        *_weight_terms(weights, lengths, tokens),
        *_run_terms(all_runs),
        *(Term(*each) for each in state.parts),
    )
    again = sum(each.peak for name, each in all_runs.items() if not lengths_vary(used[name]))
    notes = tuple(_notes(plan, runs, again))
    return MemoryPlan(lengths, state.per_token, terms, tuple(phases), notes, tuple(used), generates, tokens)


def _largest(runs: tuple[Run, ...], phase: str) -> dict[str, Workspace]:
    """Per component its largest run; phase "" for those of all phases."""
    found = dict[str, Workspace]()
    for each in runs:
        if phase in ("", each.phase):
            known = found.get(each.component)
            found[each.component] = each.workspace if known is None or each.workspace.peak > known.peak else known
    return found


def _read(weights: Mapping[str, WeightMemory], lengths: Lengths) -> int:
    """Mapped weights that running reads, beyond those that loading has read."""
    tokens = lengths.batch * lengths.prompt
    return sum(each.mapped - each.early + each.gathered(tokens, lengths.context) for each in weights.values())


def _weight_terms(weights: Mapping[str, WeightMemory], lengths: Lengths, prompted: bool) -> tuple[Term, ...]:
    def total(part: Callable[[WeightMemory], int]) -> int:
        return sum(part(each) for each in weights.values())

    tokens = lengths.batch * lengths.prompt
    rows = f"rows of {tokens} different tokens" if prompted else f"{tokens} different rows"
    terms = (
        Term("weights, rearranged", total(lambda each: each.packed), "copies that the kernels of matrices make", True),
        Term("weights, in place", total(lambda each: each.inside + each.mapped), "the graphs' other weights"),
        Term(
            "tables",
            total(lambda each: each.gathered(tokens, lengths.context)),
            f"{rows}, as pages of a file",
            True,
        ),
    )
    return tuple(each for each in terms if each.bytes)


def _run_terms(runs: Mapping[str, Workspace]) -> tuple[Term, ...]:
    return tuple(
        Term(f"workspace of {name}", each.peak, f"fullest at {each.at}, {each.scratch} bytes its kernel's own", True)
        for name, each in sorted(runs.items())
        if each.peak
    )


def _notes(plan: Plan, found: tuple[Run, ...], again: int) -> list[str]:
    """again: bytes of workspace of the sessions that lay their values out as one block in the second run."""
    notes = list[str]()
    unknown = {name: each.unknown for name, each in sorted(_largest(found, "").items()) if each.unknown}
    for name, count in unknown.items():
        notes.append(f"{count} values of {name} have a size that nothing tells, and are left out")
    if any(isinstance(op, SpeculativeBlock) for op in walk(plan.body)):
        notes.append("drafting is left out: the proposer's session opens when a request asks for drafts")
    if plan.placements:
        notes.append("sessions that run elsewhere than on the CPU have their memory there")
    if again >= MEGABYTE:
        what = "ONNX Runtime then lays a run's values out as one block"
        notes.append(f"a second request takes up to {again / MEGABYTE:.0f} MB more, once: {what}")
    return notes
