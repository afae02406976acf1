"""Questions about tensor contracts (standard, 2.1)."""

from genai_compiler.plan.dtypes import INTEGERS, canonical, stored
from genai_compiler.read.document import RequestAligned, RequestExpanded, Shared, TensorContract
from genai_compiler.read.signature import UNDEFINED


class GraphContract(TensorContract):
    """The contract of a port that a graph gives: it has types, and no spelling of them."""


def mismatch(source: TensorContract, target: TensorContract, exempt: int | None = None) -> str:
    """Why a value of one contract can't feed another, in words; "" when it can. `exempt`: an axis free to differ."""
    if UNDEFINED in (source.dtype, target.dtype):
        return ""
    of_graph = isinstance(source, GraphContract) or isinstance(target, GraphContract)
    spelled = stored if of_graph else canonical  # two documents' spellings of FP8 stay apart (standard, 1.4)
    if spelled(source.dtype) != spelled(target.dtype):
        return f"{source.dtype} where {target.dtype} is wanted"
    if source.rank != target.rank:
        return f"rank {source.rank} where rank {target.rank} is wanted"
    for axis, (mine, theirs) in enumerate(zip(source.shape or (), target.shape or (), strict=False)):
        if axis != exempt and isinstance(mine, int) and isinstance(theirs, int) and mine != theirs:
            return f"extent {mine} on axis {axis} where {theirs} is wanted"
    return ""


def both(one: TensorContract, other: TensorContract) -> TensorContract:
    """What two contracts that fit one another say together: a third may contradict it, and neither by itself."""
    if UNDEFINED in (one.dtype, other.dtype):
        return other if one.dtype == UNDEFINED else one
    if one.rank != other.rank or one.shape is None or other.shape is None:
        return one if one.shape is not None else other
    shape = tuple(a if isinstance(a, int) else b for a, b in zip(one.shape, other.shape, strict=False))
    spelled = other if isinstance(one, GraphContract) else one
    return spelled.model_copy(update={"shape": shape})


def request_axis(contract: TensorContract) -> int | None:
    """The axis with one entry (or a fixed number of them) a request row."""
    layout = contract.batch_layout
    return layout.axis if isinstance(layout, RequestAligned | RequestExpanded) else None


def is_integer(contract: TensorContract) -> bool:
    """Whether its elements are whole numbers."""
    return canonical(contract.dtype) in INTEGERS


def is_single(contract: TensorContract) -> bool:
    """Whether it holds exactly one element whatever the request: rank 0, or the static shape [1]."""
    return contract.rank == 0 or (contract.rank == 1 and contract.shape == (1,))


def is_control(contract: TensorContract) -> bool:
    """Whether it can be a bound or an increment: one integer."""
    return is_integer(contract) and is_single(contract)


def is_flag(contract: TensorContract) -> bool:
    """Whether it can be a liveness or a guard: bool, for the batch or a row."""
    return contract.dtype == "bool" and contract.rank <= 1


def is_shared(contract: TensorContract) -> bool:
    """Whether every request row reads the same value."""
    return isinstance(contract.batch_layout, Shared)


def described(contract: TensorContract) -> str:
    """A contract in a message: `float32[batch, 4]`."""
    shape = ", ".join(str(each) for each in contract.shape) if contract.shape is not None else f"rank {contract.rank}"
    return f"{contract.dtype}[{shape}]"
