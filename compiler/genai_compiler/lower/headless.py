"""Whether what is taken for logits, where no file names them, is what comes before the head that gives logits."""

from collections.abc import Collection

from onnx import ModelProto

from genai_compiler.lower.match_ports import MatchedPorts
from genai_compiler.lower.matching import listed, spell_port
from genai_compiler.problem import Problem
from genai_compiler.read.places import DocPath, Places, format_path
from genai_compiler.read.signature import Port
from genai_compiler.read.value_flow import Edges

KEY = "logits_output"


def headless(
    decoder: MatchedPorts, model: ModelProto, streams: Collection[Port], path: DocPath, places: Places
) -> tuple[Problem, ...]:
    """Problem no-logits, where the only output left has another form than scores of the tokens that go in.

    decoder: its logits are not named by a file. streams: inputs that take what another graph makes of each token.
    Logits are as wide as the table of embeddings has rows; what is as wide as embeddings are comes before a head.
    """
    port = decoder.logits
    if port is None or not port.shape or not isinstance(port.shape[-1], int) or "logits" in port.name.lower():
        return ()
    tokens = decoder.own_tokens or decoder.token_ids
    rows = Edges(model.graph).table_rows(tokens.name) if tokens is not None else frozenset[int]()
    alike = [each for each in streams if each.shape and each.shape[-1] == port.shape[-1]]
    if rows and port.shape[-1] not in rows:
        why = f"the table of embeddings has {' or '.join(map(str, sorted(rows)))} rows"
    elif not rows and alike:
        why = f"that is as wide as the embeddings that {listed(each.name for each in alike)} takes"
    else:
        return ()
    where = (*path, KEY)
    what = f"no stage produces logits: beside state the decoder gives {port.name!r}, {spell_port(port)}, and {why}"
    help = f"export the decoder with its head; where these are logits, name them in {format_path(where)}"
    return (Problem("no-logits", places.find(where), format_path(where), what, help),)
