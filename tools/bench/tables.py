"""Markdown tables and the one way in which intervals are written."""

from collections.abc import Sequence

from tools.bench.ratios import Interval


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are figures. Ends with a line break."""
    marks = ["---", *("---:" for _ in heads[1:])]
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, marks, *rows)]
    return "\n".join(lines) + "\n"


def with_bounds(found: Interval, digits: int = 3) -> str:
    """`median [low, high]`."""
    return f"{found.median:.{digits}f} [{found.low:.{digits}f}, {found.high:.{digits}f}]"
