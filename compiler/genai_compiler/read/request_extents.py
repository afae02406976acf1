"""Whether the shapes of a graph's inputs change from one request to the next.

ONNX Runtime can lay all values of a run out as one block (`enable_mem_pattern`). It keeps such a layout for every
combination of input shapes that it has seen, for as long as the session lives, and allocates the block beside what it
already has. That is a gain where shapes come again, and a leak where every prompt has a length of its own.
"""

from onnx import ModelProto, TypeProto


def lengths_vary(model: ModelProto) -> bool:
    """Whether an input has an extent that a request's lengths decide: any that is no number, but for the graph's rows.

    Rows are the one symbol of all inputs, where it stands on axis 0 only: there are few numbers of rows. A graph whose
    inputs leave a shape or an extent unsaid varies. Initializers that are listed among the inputs have their own shape.
    """
    held = {each.name for each in model.graph.initializer}
    types = [each.type for each in model.graph.input if each.name not in held]
    rows = {_symbol(each, 0) for each in types} - {""}
    return len(rows) > 1 or any(not _said(each, rows) for each in types)


def _said(kind: TypeProto, rows: set[str]) -> bool:
    """Whether all extents are numbers, or rows on axis 0."""
    tensor = kind.tensor_type
    if kind.WhichOneof("value") != "tensor_type" or not tensor.HasField("shape"):
        return False
    return all(
        each.WhichOneof("value") == "dim_value" or (at == 0 and each.dim_param in rows)
        for at, each in enumerate(tensor.shape.dim)
    )


def _symbol(kind: TypeProto, axis: int) -> str:
    dims = kind.tensor_type.shape.dim
    return dims[axis].dim_param if len(dims) > axis else ""
