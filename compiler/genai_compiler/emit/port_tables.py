"""The tables of an executor that hold its interface: inputs, outputs and cells, as calls of the runtime's classes."""

from genai_compiler.emit.names import literal
from genai_compiler.plan.belonging import Needs, needs
from genai_compiler.plan.ir import Cell, Input, Output, Plan, Type


def interface_tables(plan: Plan) -> tuple[str, ...]:
    """The constants INPUTS and OUTPUTS."""
    needed = needs(plan)
    return (
        *_lines("INPUTS", "Input", [_input(each, needed.get(each.name, ())) for each in plan.inputs]),
        *_lines("OUTPUTS", "Output", [_output(each) for each in plan.outputs]),
    )


def _lines(name: str, kind: str, items: list[str]) -> tuple[str, ...]:
    """Lines of a module-level tuple, one item a line."""
    if not items:
        return (f"{name}: tuple[{kind}, ...] = ()",)
    if len(items) == 1:
        return (f"{name} = ({items[0]},)",)
    return (f"{name} = (", *(f"    {item}," for item in items), ")")


def _input(each: Input, needed: Needs) -> str:
    args = [literal(each.name), literal(each.type.dtype), literal(tuple(each.type.dims))]
    args += _rows(each.type)
    args += [f"role={literal(each.role)}"] if each.role else []
    args += [f"source={literal(each.source)}"] if each.source != "request" else []
    args += [f"application={literal(each.application_name)}"] if each.application_name else []
    args += [] if each.required else ["required=False"]
    args += [f"default={literal(each.default)}"] if each.default is not None else []
    args += [f"present_as={literal(each.present_as)}"] if each.present_as else []
    args += [f"needs={literal(needed)}"] if needed else []
    args += [f"limits={literal(each.limits)}"] if each.limits else []
    args += [f"patches={literal(each.patches)}"] if each.patches is not None else []
    args += [f"entries={each.entries}"] if each.entries else []
    return f"Input({', '.join(args)})"


def _output(each: Output) -> str:
    args = [literal(each.name), literal(each.type.dtype), literal(tuple(each.type.dims))]
    args += ["rowwise=True"] if each.rowwise else []
    args += _rows(each.type)
    args += [f"value_range={literal(each.value_range)}"] if each.value_range else []
    return f"Output({', '.join(args)})"


def _rows(type: Type) -> list[str]:
    if type.row_axis is None:
        return []
    factor = [f"row_factor={type.row_factor}"] if type.row_factor != 1 else []
    return [f"row_axis={type.row_axis}", *factor]


def cell_table(name: str, cell: Cell) -> str:
    """The constant of a cell that a check or a merge names."""
    args = [literal(cell.name), literal(cell.type.dtype), literal(tuple(cell.type.dims)), *_rows(cell.type)]
    return f"{name} = Cell({', '.join(args)})"
