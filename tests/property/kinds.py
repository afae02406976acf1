"""What a value of a made workflow is: its element type, extents and request axis, and the contract that says so.

Extents are numbers, the package's symbols (`batch`, `length`), or FREE where nothing is known of them.
"""

from dataclasses import dataclass, replace
from typing import Any

FREE = "?"
"""An extent that changes while the workflow runs, or that nobody declares."""

Dim = int | str
Document = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A tensor type. rows: the request axis and how many consecutive entries a request takes on it, None for shared."""

    dtype: str
    dims: tuple[Dim, ...] = ()
    rows: tuple[int, int] | None = None

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)

    @property
    def free(self) -> bool:
        """Whether some extent is unknown."""
        return FREE in self.dims

    @property
    def single(self) -> bool:
        """Whether it is one element whatever the request: a control, a predicate."""
        return self.dims in ((), (1,)) and self.rows is None

    def of(self, dtype: str) -> "Kind":
        """The same extents of another element type."""
        return replace(self, dtype=dtype)


def scalar(dtype: str) -> Kind:
    """Rank 0."""
    return Kind(dtype)


def one(dtype: str) -> Kind:
    """Extents [1]."""
    return Kind(dtype, (1,))


def row(dtype: str) -> Kind:
    """One entry a request row."""
    return Kind(dtype, ("batch",), (0, 1))


def mat(dtype: str, width: Dim) -> Kind:
    """`width` entries a request row."""
    return Kind(dtype, ("batch", width), (0, 1))


def expanded(kind: Kind, factor: int) -> Kind:
    """`factor` rows a request instead of one."""
    return replace(kind, rows=(0, factor))


def layout(kind: Kind) -> Document | None:
    """The `batch_layout` of a contract; None for shared."""
    if kind.rows is None:
        return None
    axis, factor = kind.rows
    if factor == 1:
        return {"kind": "request_aligned", "axis": axis}
    return {"kind": "request_expanded", "axis": axis, "factor": factor}


def contract(kind: Kind, free: str | None = None) -> Document:
    """The contract of a value in the package's symbols. free: the symbol of unknown extents; None: no shape then."""
    made: Document = {"dtype": kind.dtype, "rank": kind.rank}
    if not kind.free or free is not None:
        made["shape"] = [free if dim == FREE else dim for dim in kind.dims]
    if (rows := layout(kind)) is not None:
        made["batch_layout"] = rows
    return made
