"""Values that a request's own inputs are, or decide alone: a fault that they show is the caller's."""

from collections.abc import Mapping

from genai_compiler.plan.audio_program import AudioProgram
from genai_compiler.plan.image_program import ImageProgram
from genai_compiler.plan.ir import Branch, Copy, Emit, Invoke, Plan
from genai_compiler.plan.uses import walk


def made_of_files(plan: Plan) -> Mapping[str, str]:
    """Value -> the input whose files it is made of, by a program of pictures or sounds alone.

    Where files may be absent and another arm takes a tensor of the request in their place, that is the request's, too.
    """
    inputs = {each.name for each in plan.inputs if each.source in ("request", "application")}
    found: dict[str, str] = {}
    for op in walk(plan.body):
        if isinstance(op, Invoke):
            adapter = plan.component(op.component).adapter
            program = adapter.program if adapter is not None else None
            files = dict(op.inputs).get("encoded", "")
            if isinstance(program, AudioProgram | ImageProgram) and files in inputs:
                found |= {value: files for _, value in op.outputs}
        elif isinstance(op, Copy):
            found |= {target: found[source] for source, target in op.pairs if source in found}
    for op in walk(plan.body):
        for join in op.joins if isinstance(op, Branch) else ():
            sources = [*(value for _, value in join.cases), *([join.default] if join.default else [])]
            files = next((found[each] for each in sources if each in found), "")
            if files and all(each in found or each in inputs for each in sources):
                found[join.name] = files
    return found


def published_input(plan: Plan, output: str) -> str:
    """The request's input that an output publishes as it is, "" where it is none."""
    names = {
        each.name: each.application_name or each.name
        for each in plan.inputs
        if each.source in ("request", "application")
    }
    values = [op.value for op in walk(plan.body) if isinstance(op, Emit) and op.output == output]
    copied = {target: source for op in walk(plan.body) if isinstance(op, Copy) for source, target in op.pairs}
    sources = {copied.get(each, each) for each in values}
    return names.get(sources.pop(), "") if len(sources) == 1 else ""
