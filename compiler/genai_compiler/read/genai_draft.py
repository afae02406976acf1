"""The draft model of a version 1 configuration: whether one counts, and how many tokens it drafts at once."""

from genai_compiler.read.config_keys import OTHER_CLASSES, SPECULATIVE
from genai_compiler.read.config_section import Section

_WIDTH, _USUAL, _MOST = "max_draft_tokens", 4, 16
"""The key, the format's default and its bound."""


def has_draft(model: Section) -> bool:
    """Whether a package has a draft model beside one decoder in one graph and nothing else."""
    alone = not any(model.members.get(name) for name in OTHER_CLASSES)
    return alone and bool(model.section("draft").members) and not model.section("decoder").members.get("pipeline")


def draft_width(root: Section) -> int:
    """Tokens that a draft model drafts at once. Reports bad-value, and what of `speculative` has no effect."""
    stated = root.section("speculative")
    stated.check_keys(SPECULATIVE)
    width = stated.integer(_WIDTH)
    if width is not None and not 1 <= width <= _MOST:
        stated.problem("bad-value", _WIDTH, f"{_WIDTH} is {width}; it lies between 1 and {_MOST}", f"write {_USUAL}")
    for key in SPECULATIVE:
        if key != _WIDTH and stated.members.get(key):
            what = f"{key!r} has no effect: the draft model drafts, as many tokens each time"
            stated.warn("ignored-key", key, what, "remove it")
    return _USUAL if width is None else width
