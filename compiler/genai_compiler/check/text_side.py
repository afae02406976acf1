"""The text side of a package: can its tokenizer be opened, its template be read, and do the two fit together.

The runtime's own code is asked, so that what is said here is what will happen there.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from genai_runtime.chat_template import doubles_start_token, read_chat_template
from genai_runtime.problem import GenaiError, LoadError
from genai_runtime.text_files import TextFiles
from genai_runtime.tokenizer import Tokenizer, open_tokenizer, read_json

from genai_compiler.problem import Place, Problem, Severity
from genai_compiler.read.package import Package

_SHOWN = 4


ADDED = "added_tokens.json"
"""Text -> id, as older tools write the tokens that were added to a vocabulary."""


def check_text_side(package: Package) -> tuple[Problem, ...]:
    """Warnings only: a package without text still runs on token ids.

    Codes: those of the runtime's LoadError (bad-tokenizer, chat-template-broken, ...), token-not-added and
    doubled-start-token.
    """
    text = package.text
    if text.tokenizer is None:
        return ()
    files = TextFiles(text.tokenizer, text.tokenizer_config, text.chat_template, text.special_tokens_map)
    try:
        tokenizer = open_tokenizer(package.root, files)
        told = [*_not_added(package, tokenizer)]
    except LoadError as fault:
        return (_warning(text.tokenizer, fault),)
    holder = text.chat_template or text.tokenizer_config or text.tokenizer
    try:
        template = read_chat_template(package.root, files, tokenizer)
        template.parse()
        doubled = bool(template.templates) and doubles_start_token(tokenizer, template)
    except GenaiError as fault:
        return (*told, _warning(holder, fault))
    if doubled:
        what = "the chat template writes a start token, and the tokenizer would add another: two start tokens"
        help = "nothing to do for chat, whose text is encoded without added tokens; do the same when you render it"
        told.append(Problem("doubled-start-token", Place(holder), "", what, f"{help} yourself", Severity.WARNING))
    return tuple(told)


def _not_added(package: Package, tokenizer: Tokenizer) -> Iterator[Problem]:
    """Tokens that a side file states and the tokenizer does not have: a text with them is cut into other ids."""
    text = package.text
    assert text.tokenizer is not None
    found = [(text.tokenizer_config or "", number, content) for number, content in tokenizer.not_added]
    beside = str(PurePosixPath(text.tokenizer).with_name(ADDED))
    if (package.root / beside).is_file():
        stated = read_json(package.root, beside)
        found += [(beside, number, each) for each, number in stated.items() if tokenizer.token_id(each) is None]
    for file in dict.fromkeys(file for file, _, _ in found):
        tokens = [f"{content!r} ({number})" for each, number, content in found if each == file]
        more = f" and {len(tokens) - _SHOWN} more" if len(tokens) > _SHOWN else ""
        what = (
            f"{text.tokenizer} has no such tokens as {', '.join(tokens[:_SHOWN])}{more}: their text becomes other ids"
        )
        help = "save the tokenizer again in the fast form, with all of its tokens in tokenizer.json"
        yield Problem("token-not-added", Place(file), "", what, help, Severity.WARNING)


def _warning(file: str, fault: GenaiError) -> Problem:
    return Problem(fault.code, Place(file), "", fault.what, fault.help, Severity.WARNING)
