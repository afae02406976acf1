"""The end id behind each source of an encoder, where the reference puts it there itself (reference, 2.11).

end_source(tokens, mask) -> tokens with the end id behind each row's last, the mask with a 1 for it; before the encoder.
"""

from collections.abc import Iterable

from genai_compiler.lower.decoder_components import Data
from genai_compiler.lower.decoder_facts import PROMPT, DecoderFacts
from genai_compiler.lower.matching import rank_of, spell_port
from genai_compiler.lower.own_adapters import adapter
from genai_compiler.lower.stages import Stage, StageInput
from genai_compiler.problem import Problem
from genai_compiler.read.genai_config import GenaiConfig, named
from genai_compiler.read.signature import Port

END_SOURCE = "genai-compile.end-source"
TOKENS, MASK = "tokens", "mask"


def with_end(
    document: Data,
    stages: Iterable[Stage],
    facts: DecoderFacts,
    config: GenaiConfig,
    eos: tuple[int, ...],
    mask: str = "",
) -> tuple[Data, tuple[Problem, ...]]:
    """(the document with that step at its head, problems), where its decoder takes one token of each row a run.

    eos: end ids, the first of which counts. mask: what the encoder's mask is called, "" where its only other input is
    that. Reports missing-key, wrong-port.
    """
    stage = next((each for each in stages if any(given.tokens for given in each.inputs)), None)
    if not facts.flat or stage is None:
        return document, ()
    if not eos:
        what = "nothing names the end token, which stands behind each source of such a decoder's encoder"
        return document, (
            Problem("missing-key", *named(config, config.eos_path), what, f"state {config.eos_path[-1]}"),
        )
    tokens = next(each for each in stage.inputs if each.tokens)
    others = [each for each in stage.inputs if each.asked and each is not tokens]
    if (odd := next((each for each in others if not _masks(each.port, mask)), None)) is not None or others[1:]:
        odd = odd or others[1]
        what = (
            f"'{stage.name}' takes {odd.port.name!r}, {spell_port(odd.port)}, beside the source: it is no mask of it, "
        )
        what += "and nothing tells what it holds for the end id that is put behind the source"
        help = "export the encoder with token ids and at most one mask, [batch, source] as these"
        return document, (Problem("wrong-port", *named(config, ("model", "encoder", "inputs")), what, help),)
    pad = config.pad if config.pad is not None else eos[0]
    _put_end(document["pipeline"]["workflow"], tokens, others, {"end": eos[0], "pad": pad})
    return document, ()


def told_end(facts: DecoderFacts, eos: tuple[int, ...]) -> tuple[str, ...]:
    """A note on what is put behind the source, and what starts the output, where that is so."""
    if not facts.flat or facts.prompt == PROMPT or not eos:
        return ()
    start = facts.start if facts.start is not None else "what the caller gives"
    return (f"each source gets the end token {eos[0]} behind it; the output starts with {start}",)


def _masks(port: Port, name: str) -> bool:
    return port.dtype in ("int64", "int32") and rank_of(port) == 2 and name in ("", port.name)


def _put_end(workflow: Data, tokens: StageInput, others: list[StageInput], parameters: Data) -> None:
    given = dict(zip((TOKENS, MASK), (tokens, *others), strict=False))
    contracts = {role: workflow["inputs"][each.value]["contract"] for role, each in given.items()}
    for each in others:
        contract = {**contracts[MASK], "shape": contracts[TOKENS]["shape"]}
        workflow["inputs"][each.value] |= {"contract": contract, "required": False, "default": 1}
    taken, made = (
        {role: {**each, "shape": ["batch", symbol]} for role, each in contracts.items()}
        for symbol in ("source", "ended")
    )
    ended = {each.value: f"ended.{each.value.partition('.')[2]}" for each in given.values()}
    name = adapter(workflow, END_SOURCE, taken, made, parameters)
    _read_instead(workflow["steps"], ended)
    inputs = {role: each.value for role, each in given.items()}
    outputs = {role: ended[each.value] for role, each in given.items()}
    workflow["steps"].insert(0, {"kind": "invoke", "component": name, "inputs": inputs, "outputs": outputs})


def _read_instead(steps: list[Data], values: dict[str, str]) -> None:
    """Let the encoder, and the decoder in its loop, read other values."""
    for step in steps:
        if step["kind"] == "invoke":
            step["inputs"] = {port: values.get(value, value) for port, value in step["inputs"].items()}
        elif step["kind"] == "loop":
            _read_instead(step["steps"], values)
