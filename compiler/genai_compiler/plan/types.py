"""Contracts as types: what a document declares, what a graph gives, and whether one fits the other (standard, 2.1)."""

from dataclasses import replace

from genai_compiler.plan.dtypes import stored
from genai_compiler.plan.ir import Dim, Type
from genai_compiler.read.document import RequestAligned, RequestExpanded, TensorContract
from genai_compiler.read.signature import UNDEFINED, Port


def type_of(contract: TensorContract) -> Type:
    """The type a contract declares."""
    layout = contract.batch_layout
    axis = layout.axis if isinstance(layout, RequestAligned | RequestExpanded) else None
    factor = layout.factor if isinstance(layout, RequestExpanded) else 1
    shape = tuple(contract.shape) if contract.shape is not None else None
    return Type(stored(contract.dtype), contract.rank, shape, axis, factor)


def graph_type(port: Port, declared: TensorContract | None) -> Type:
    """The type of a graph's port: the graph's dtype and numbers; where it is symbolic, the contract's symbols and rows.

    A graph that leaves dtype or rank open takes the contract's; without a contract, symbols as section 2.4 infers them.
    """
    if declared is None:
        if port.shape is None:
            return Type(stored(port.dtype), 0, (), ranked=False)
        dims = port.shape
        return Type(stored(port.dtype), len(dims), tuple(_inferred(axis, dim) for axis, dim in enumerate(dims)))
    said = type_of(declared)
    dtype = said.dtype if port.dtype == UNDEFINED else stored(port.dtype)
    if port.shape is None or len(port.shape) != said.rank:
        return replace(said, dtype=dtype)
    dims = tuple(mine if isinstance(mine, int) else theirs for mine, theirs in zip(port.shape, said.dims, strict=True))
    return replace(said, dtype=dtype, shape=dims)


def mismatch(source: Type, target: Type) -> str:
    """Why a value of one type can't feed a port of another, in words; "" when it can (standard, 2.1).

    What a graph leaves open fits everything: the run finds out.
    """
    if source.dtype != target.dtype and UNDEFINED not in (source.dtype, target.dtype):
        return f"{source.dtype} where {target.dtype} is wanted"
    if not (source.ranked and target.ranked):
        return ""
    if source.rank != target.rank:
        return f"rank {source.rank} where rank {target.rank} is wanted"
    for axis, (mine, theirs) in enumerate(zip(source.dims, target.dims, strict=True)):
        if isinstance(mine, int) and isinstance(theirs, int) and mine != theirs:
            return f"extent {mine} on axis {axis} where {theirs} is wanted"
    return ""


def _inferred(axis: int, dim: Dim) -> Dim:
    if isinstance(dim, int):
        return dim
    return "batch" if axis == 0 else f"axis_{axis}"
