"""What a program hands in as `Options`, held against what each field takes: a slip is told by the field's name.

The command line reads words (`--costs user`, `--form own`); in Python the same fields take the values those stand for.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

from genai_compiler.costs import Costs
from genai_compiler.memory import MemoryAsk
from genai_compiler.passes.asked_forms import FORM_OF
from genai_compiler.problem import CompileError, Place, Problem
from genai_compiler.read.hints import ExecutionHints
from genai_compiler.read.suggest import did_you_mean

MOST = 1 << 31
"""Rows and tokens that a question for memory takes at most."""
_LONGEST = 80


class Takes(NamedTuple):
    """Whether a field takes a value, what it takes in words, and an example of it."""

    fits: Callable[[Any], bool]
    what: str
    help: str


def _is_texts(value: Any) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping) and all(map(_is_text, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_forms(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_text, value)) and all(map(_is_text, value.values()))


_FLAG = Takes(lambda value: isinstance(value, bool), "True or False", "write True or False")
_COSTS = (
    "from genai_compiler.costs.files import chosen_costs, and give chosen_costs(WORD_OR_FILE, os.environ): "
    "it takes the words of --costs"
)
FIELDS: Mapping[str, Takes] = {
    **dict.fromkeys(("bundle", "force", "artifacts", "strict", "write", "store_sessions"), _FLAG),
    "stop_after": Takes(_is_text, "the name of a stage", 'write stop_after="read"'),
    "hints": Takes(
        lambda value: value is None or isinstance(value, ExecutionHints | Mapping),
        "a mapping or ExecutionHints",
        "give what the file would hold; hints_file takes its path",
    ),
    "hints_file": Takes(lambda value: value is None or isinstance(value, str | Path), "a path", "hints takes the data"),
    "without": Takes(_is_texts, "a tuple of passes' names", 'write without=("fuse_islands",)'),
    "graph": Takes(
        lambda value: value is None or _is_text(value) or _is_texts(value),
        "a file's name in the package, or a tuple of names",
        'write graph="model.onnx"',
    ),
    "memory": Takes(
        lambda value: value is None or isinstance(value, MemoryAsk),
        "a MemoryAsk",
        "from genai_compiler.memory import MemoryAsk, and write memory=MemoryAsk(batch=1)",
    ),
    "forms": Takes(_is_forms, "a mapping, component to form", 'write forms={"greedy": "own"}; "" is all others'),
    "costs": Takes(lambda value: value is None or isinstance(value, Costs), "a table, Costs", _COSTS),
}
"""Every field of `Options`."""


def check_options(options: Any, kind: type, stages: Collection[str]) -> None:
    """Raises CompileError `bad-option` (`unknown-form` for a form) with every fault. kind: the class, Options."""
    if not isinstance(options, kind):
        help = "from genai_compiler import Options, and write options=Options(strict=True)"
        raise CompileError([_bad("options", "Options", options, help)])
    problems = [
        _bad(f"Options.{name}", takes.what, getattr(options, name), takes.help)
        for name, takes in FIELDS.items()
        if not takes.fits(getattr(options, name))
    ]
    if problems := problems or list(_values(options, stages)):
        raise CompileError(problems)


def _values(options: Any, stages: Collection[str]) -> Iterator[Problem]:
    """Faults of values whose types are right."""
    if options.stop_after not in stages:
        help = did_you_mean(options.stop_after, stages)
        yield _bad("Options.stop_after", "the name of a stage", options.stop_after, help)
    for form in dict.fromkeys(options.forms.values()):
        if form not in FORM_OF:
            yield Problem(
                "unknown-form", Place("Options.forms"), "", f"{form!r} is no form", did_you_mean(form, FORM_OF)
            )
    ask = options.memory
    given = {} if ask is None else {each: getattr(ask, each) for each in ("batch", "prompt", "context", "chunk")}
    known = {name: value for name, value in given.items() if value is not None}
    least = {name: 0 if name == "chunk" else 1 for name in known}  # no chunks: a prompt as a whole
    wrong = [name for name, value in known.items() if not _is_count(value, least[name])]
    for name in wrong:
        what = f"a whole number from {least[name]} to {MOST}"
        yield _bad(f"MemoryAsk.{name}", what, known[name], "leave it out for the default")
    if not wrong and known.get("prompt", 0) > known.get("context", MOST):
        help = "context counts the prompt as well: it can't be below prompt"
        yield _bad("MemoryAsk.context", f"at least the {known['prompt']} tokens of prompt", known["context"], help)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= MOST


def _bad(name: str, what: str, value: object, help: str) -> Problem:
    text = repr(value)
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return Problem("bad-option", Place(name), "", f"{name} takes {what}, got {shown}", help)
