"""Why something optional can't be done."""


class Unfit(Exception):
    """The reason, in words that follow a colon."""
