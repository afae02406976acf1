"""A stage of a vision model, and the step behind it that puts its rows in the order of windows, or back again."""

from collections.abc import Mapping

from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.own_adapters import adapter
from genai_compiler.lower.stages import Stage, invoke_stage

WINDOW_ROWS = "genai-compile.window-rows"
GRIDS: Data = {"dtype": "int64", "rank": 2, "shape": ["grids", 3]}


def run_stage(stage: Stage, workflow: Data, fed: Mapping[str, str] | None = None) -> list[Data]:
    """Declare a stage; the steps that run it. fed: input -> the value to take in place of the caller's."""
    invoke = invoke_stage(stage, workflow, fed)
    order = stage.windows
    if order is None:
        return [invoke]
    port = next(each for each in stage.signature.outputs if each.name == order.output)
    asked = next(each.value for each in stage.inputs if each.port.name == order.grid)
    ordered = invoke["outputs"][port.name]
    made = f"{ordered}.{'by_windows' if order.back else 'by_grid'}"
    invoke["outputs"][port.name] = made
    rows = stage.contract(port)
    parameters = {"edge": order.edge, "merge": order.merge, "back": order.back}
    name = adapter(workflow, WINDOW_ROWS, {"rows": rows, "grids": GRIDS}, {"rows": rows}, parameters)
    inputs = {"rows": made, "grids": (fed or {}).get(order.grid, asked)}
    return [invoke, {"kind": "invoke", "component": name, "inputs": inputs, "outputs": {"rows": ordered}}]
