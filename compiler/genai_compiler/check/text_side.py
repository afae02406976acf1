"""The text side of a package: can its tokenizer be opened, its template be read, and do the two fit together.

The runtime's own code is asked, so that what is said here is what will happen there.
"""

from genai_runtime.chat_template import doubles_start_token, read_chat_template
from genai_runtime.problem import GenaiError, LoadError
from genai_runtime.text_files import TextFiles
from genai_runtime.tokenizer import open_tokenizer

from genai_compiler.problem import Place, Problem, Severity
from genai_compiler.read.package import Package


def check_text_side(package: Package) -> tuple[Problem, ...]:
    """Warnings only: a package without text still runs on token ids.

    Codes: those of the runtime's LoadError (bad-tokenizer, chat-template-broken, ...) and doubled-start-token.
    """
    text = package.text
    if text.tokenizer is None:
        return ()
    files = TextFiles(text.tokenizer, text.tokenizer_config, text.chat_template, text.special_tokens_map)
    try:
        tokenizer = open_tokenizer(package.root, files)
    except LoadError as fault:
        return (_warning(text.tokenizer, fault),)
    holder = text.chat_template or text.tokenizer_config or text.tokenizer
    try:
        template = read_chat_template(package.root, files, tokenizer)
        doubled = bool(template.templates) and doubles_start_token(tokenizer, template)
    except GenaiError as fault:
        return (_warning(holder, fault),)
    if not doubled:
        return ()
    what = "the chat template writes a start token, and the tokenizer would add another: two start tokens"
    help = "nothing to do for chat, whose text is encoded without added tokens; do the same when you render it yourself"
    return (Problem("doubled-start-token", Place(holder), "", what, help, Severity.WARNING),)


def _warning(file: str, fault: GenaiError) -> Problem:
    return Problem(fault.code, Place(file), "", fault.what, fault.help, Severity.WARNING)
