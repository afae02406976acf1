"""What the reference runtime feeds a decoder that takes one token of each row a run, and to which types of packages.

Its only class of that kind makes the state itself, of as many layers as the table of types says and as wide as the
encoder is said to be; all other types get token ids [batch, sequence].
"""

from collections.abc import Iterator

from genai_compiler.lower.matching import rank_of, spell_port
from genai_compiler.read.config_json import Json
from genai_compiler.read.genai_config import GenaiConfig
from genai_compiler.read.signature import Signature
from genai_compiler.reference_classes import Reason, class_of, reference_table

_INPUTS = ("model", "decoder", "inputs")


def state_layers(kind: str) -> int:
    """The layers of the state that it makes for a type, 0 where it makes none in one tensor."""
    return int(reference_table()["classes"].get(class_of(kind), {}).get("state_layers", 0))


def row_reasons(config: GenaiConfig, text: Json, kind: str, signature: Signature) -> Iterator[Reason]:
    """Why the first run fails. text: the whole configuration; signature: of the decoder."""
    ports, layers = {each.name: each for each in signature.inputs}, state_layers(kind)
    ids = ports.get(config.decoder.inputs["input_ids"])
    if not layers:
        if ids is not None and rank_of(ids) == 1:
            why = f"for model.type {kind!r} it feeds token ids of two axes, and the graph takes {spell_port(ids)}"
            types = [
                each for one in reference_table()["classes"].values() if "state_layers" in one for each in one["types"]
            ]
            yield (*_INPUTS, "input_ids"), why, f"a type that takes a token of each row is one of {', '.join(types)}"
        return
    state = ports.get(config.decoder.inputs["rnn_states_prev"])
    wanted = (layers, _width(text))
    if state is not None and rank_of(state) == len(wanted) + 1:
        own = tuple(each for at, each in enumerate(state.shape or ()) if at != 1)
        if any(isinstance(mine, int) and mine != theirs for mine, theirs in zip(own, wanted, strict=True)):
            made = f"[{layers}, batch, {wanted[1]}], the last of encoder.hidden_size"
            why = f"it makes the state {made}, and {state.name!r} is {spell_port(state)}: an error at the first run"
            yield (*_INPUTS, "rnn_states_prev"), why, f"state encoder.hidden_size, and export {layers} layers"


def _width(text: Json) -> int:
    for key in ("model", "encoder", "hidden_size"):
        text = text.get(key) if isinstance(text, dict) else None
    return text if isinstance(text, int) else 0
