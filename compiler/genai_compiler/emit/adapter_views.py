"""Adapters in generated code: how a run asks for them, and what its steps are told."""

from collections.abc import Iterator

from genai_compiler.emit.names import Names, literal
from genai_compiler.plan.adapted import SelectAdapters
from genai_compiler.plan.ir import Decode, Invoke, Plan


def selection_call(op: SelectAdapters, selector: str, names: Names) -> str:
    """The statement that selects. selector: the executor's attribute that does it.

    The call gives the rows' adapters first and then what each component takes; a run without overlays needs only these.
    """
    targets, first = [names.of(each) for each in op.made], 0 if op.selected else 1
    call = f"self.{selector}({', '.join(map(names.of, op.inputs))})"
    part = f"[{first}]" if len(targets) == 1 else f"[{first}:]" if first else ""
    return f"{', '.join(targets)} = {call}{part}" if targets else call


def selector_of(op: SelectAdapters, selector: str) -> str:
    """The statement that makes the selector."""
    given = (literal(tuple(component for component, _ in op.factors)), literal(op.overlays))
    return f"self.{selector} = sessions.lora.selector({', '.join(given)})"


def adapted_argument(op: Invoke, plan: Plan, names: Names) -> Iterator[str]:
    """The argument that says which adapters change a run; a held group has it already."""
    if op.adapted and not op.held:
        key = "" if plan.component(op.component).adapter is not None else "adapted="
        yield key + names.of(op.adapted)


def extras_argument(op: Decode, names: Names) -> Iterator[str]:
    """Ports that a decoder's runs find bound: the document's own, and those that take factors."""
    extras = [f"{literal(port)}: {names.of(value)}" for port, value in op.extras]
    if op.adapted and not extras:
        yield f"extras={names.of(op.adapted)}"
    elif extras:
        yield f"extras={{{', '.join(extras + ([f'**{names.of(op.adapted)}'] if op.adapted else []))}}}"
