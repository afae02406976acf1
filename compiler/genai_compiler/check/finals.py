"""Which session cells a region updates, and the value that holds each afterwards (standard, 3.5 and 3.8)."""

Finals = dict[str, str | None]
"""Session cell -> the value that is its final reference; None when that value is not visible in the region."""


def hidden(finals: Finals) -> Finals:
    """The same updates seen from outside the region: their values are not visible there."""
    return dict.fromkeys(finals)
