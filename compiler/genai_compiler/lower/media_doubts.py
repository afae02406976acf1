"""What a package says of its media in a second place, held against the graphs, which count: a false word is told."""

from collections.abc import Iterator

from genai_compiler.lower.media_notes import AREA, IMAGE, MERGE, PATCH, Said
from genai_compiler.lower.stages import Medium
from genai_compiler.problem import Problem, Severity
from genai_compiler.read.special_tokens import SpecialTokens

_FALSE, _UNKNOWN = "config-contradicts-graph", "bad-token-id"


def media_doubts(kind: str, said: Said, medium: Medium, tokens: SpecialTokens) -> Iterator[Problem]:
    """Warnings: a token that is not the graph's, or none of the tokenizer's; sizes that are not the graph's."""
    key = said.token_spot[1].rpartition(".")[2]
    if said.token is not None and medium.entry is not None and said.token != medium.entry:
        what = f"{key} is {said.token}, but the graph puts what it makes of {kind} where token {medium.entry} stands"
        yield Problem(_FALSE, *said.token_spot, what, f"set it to {medium.entry}", Severity.WARNING)
    token = medium.entry if medium.entry is not None else said.token
    if token is not None and tokens.count and token >= tokens.count:
        what = f"token {token} stands for {kind} in a prompt, and the tokenizer has {tokens.count} ids: no text has it"
        help = "give prompts as token ids, or add the token to the tokenizer"
        yield Problem(_UNKNOWN, *said.token_spot, what, help, Severity.WARNING)
    facts = {PATCH: medium.patch, MERGE: medium.merge, AREA: medium.merge**2} if kind == IMAGE else {}
    for each in said.numbers:
        known = facts.get(each.of, 0)
        if known > 1 and each.value != known:
            what = f"{each.key} is {each.value}, but the graph has {known}, which counts"
            yield Problem(_FALSE, *each.spot, what, f"set it to {known}", Severity.WARNING)
