"""A decoder over packed rows whose caches are kept in pages: the ports that say which tokens and pages are whose."""

from collections.abc import Mapping, Sequence

from genai_compiler.lower.packed_rows import per_token
from genai_compiler.plan.report import WORKFLOW, Report
from genai_compiler.plan.state import PAGES, Pages, StateGroup
from genai_compiler.read.document import RequestExpanded, Workflow
from genai_compiler.read.signature import Port, Signature

_NEEDED = ("cumulative_sequence_lengths", "past_sequence_lengths", "block_table")
_BOUNDS = 3
"""How many bounds attention takes where its input does not say."""


def page_dims(
    workflow: Workflow, cell: str, roles: Mapping[str, str], dims: Sequence[int | str | None]
) -> list[int | None]:
    """The extents of a cache in pages, [pages, positions a page, ...]; [] for any other cell. dims: the graph's own.

    Such a cell has several entries a row, its pages, beside a port that takes the table of them.
    """
    declared = workflow.state.get(cell)
    layout = declared.contract.batch_layout if declared is not None else None
    if declared is None or "block_table" not in roles.values() or not isinstance(layout, RequestExpanded):
        return []
    stated = declared.contract.shape or (None,) * len(dims)
    pairs = zip(dims, stated, strict=False)
    known = [next((each for each in pair if isinstance(each, int)), None) for pair in pairs]
    return [PAGES, *known[1:]]


def pages_of(
    report: Report, component: str, ports: Mapping[str, str], signature: Signature, groups: tuple[StateGroup, ...]
) -> Pages | None:
    """The facts that drive such a decoder. ports: role -> port. Reports decoder-roles."""
    inputs = {each.name: each for each in signature.inputs}
    outputs = {each.name: each for each in signature.outputs}
    place = (*WORKFLOW, "components", component, "contract", "bindings")
    missing = [role for role in _NEEDED if ports.get(role) not in inputs]
    if missing:
        what = f"component '{component}' takes packed tokens, and its contract binds no {' and no '.join(missing)}"
        report.error("decoder-roles", place, what, "bind the ports that tell rows and pages apart")
        return None
    blocks = {slot.dims[1] for group in groups for slot in group.slots if PAGES in slot.dims}
    if len(blocks) > 1:
        sizes = " and ".join(map(str, sorted(blocks)))
        report.error("decoder-roles", place, f"the caches have pages of {sizes} positions, and there is one table")
        return None
    cumulative, past, table = (inputs[ports[role]] for role in _NEEDED)
    bounds = inputs.get(ports.get("attention_metadata", ""))
    return Pages(
        cumulative=(cumulative.name, cumulative.dtype),
        past=(past.name, past.dtype),
        table=(table.name, table.dtype),
        bounds=None if bounds is None else (bounds.name, bounds.dtype, _count(bounds)),
        block=next(iter(blocks), 1),
        per_token=per_token(outputs[ports["logits"]], inputs[ports["token_ids"]]),
    )


def _count(bounds: Port) -> int:
    extent = bounds.shape[0] if bounds.shape else None
    return extent if isinstance(extent, int) else _BOUNDS


def positions_rank(port: Port, packs: bool) -> int:
    """2 for one number a token, 3 for three copies of that. packs: tokens have one axis, not two."""
    return (len(port.shape) if port.shape is not None else 2 - packs) + packs
