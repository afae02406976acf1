"""A compiled package in a few lines: inputs, outputs, components, state, session runs a token, files."""

from collections.abc import Iterator
from pathlib import Path

from genai_compiler.driver import Compiled
from genai_compiler.plan.edits import Linked
from genai_compiler.plan.ir import Component
from genai_compiler.plan.speculation import Speculation
from genai_compiler.plan.state import StateGroup
from genai_compiler.problem import counted, printable
from genai_compiler.session_runs import runs_text

RUNTIME = "the runtime"


def summary(compiled: Compiled, package: Path) -> Iterator[str]:
    """Lines for a person; nothing but the notes when compilation stopped before there was a plan."""
    return map(printable, _lines(compiled, package))


def _lines(compiled: Compiled, package: Path) -> Iterator[str]:
    plan = compiled.plan
    if plan is not None:
        yield f"{package.resolve().name}: {plan.dialect}"
        asked = (f"{each.name} {each.type}" for each in plan.inputs if each.required and each.source != "literal")
        yield f"  inputs      {', '.join(asked) or 'none required'}"
        yield f"  outputs     {', '.join(f'{each.name} {each.type}' for each in plan.outputs)}"
        made = ", ".join(f"{each.name} ({each.artifact or _made(each)})" for each in plan.components)
        yield f"  components  {made}"
        for group in plan.groups:
            yield f"  state       {group.name}: {_kept(group)}"
        yield f"  runs        {runs_text(plan)}"
        yield from (f"  weights     {each}" for each in compiled.weights)
        if plan.decoder is not None and plan.decoder.chunk:
            yield f"  prompt      by runs of {counted(plan.decoder.chunk, 'token')}, of one row"
        for each in plan.placements:
            if each.device not in ("", "cpu"):
                yield f"  placed      {each.component} on {each.device}, where the ONNX Runtime that runs it has one"
        hosted = [each.name for each in plan.components if each.host is not None]
        if hosted:
            yield f"  host        {', '.join(hosted)} (numpy)"
        if plan.speculation is not None:
            yield f"  drafts      {_drafts(plan.speculation)}"
    for note in compiled.notes:
        yield f"  note        {note}"
    if compiled.out is not None:
        files = sorted(each.relative_to(compiled.out).as_posix() for each in compiled.out.rglob("*") if each.is_file())
        shown = ", ".join(files[:8]) + (f" and {len(files) - 8} more" if len(files) > 8 else "")
        yield f"  written     {compiled.out} ({shown})"


def _kept(group: StateGroup) -> str:
    return f"{group.storage}, {group.size}{' and row' * group.size.endswith('token')}"


def _made(component: Component) -> str:
    return "linked" if isinstance(component.edit, Linked) else RUNTIME


def _drafts(found: Speculation) -> str:
    """Who drafts tokens, and when; or why nobody does."""
    if found.drafting is None:
        return f"none by {found.proposer}: {found.reason}"
    return f"{found.proposer}, up to {found.width} a block, {'by itself' if found.by_itself else 'on request'}"
