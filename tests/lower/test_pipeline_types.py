"""Every key of version 2 with a value of another type: the message names the key, what was found, and a right way out.

Keys are those of the format's field table (reference, genai-config 3.2), written out; a last test sees that none is
missing here. Ways out are tried: where one says what to write, that is read.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import CompileError
from genai_compiler.problem import Problem, errors
from genai_compiler.read.pipeline_config import PipelineDocument
from genai_compiler.read.pipeline_text import read_pipeline

from tests.lower.pipelines import MINIMAL, Document, package

SESSION, STEP, WIRE = "pipeline.sessions.decoder", "pipeline.flow[0]", "pipeline.dataflow[0]"
STATE, MEDIA = "pipeline.state", "pipeline.preprocessing.image"
CACHE, PLACES, CROSS = f"{STATE}.kv_cache", f"{STATE}.position_ids", f"{STATE}.cross_cache"
SAMPLING = "generation.sampling"
ROLES, STRATEGY, LOGITS = "pipeline.roles", "pipeline.strategy", "generation.logits[0]"
DRAFT, NGRAM, TREE = f"{STRATEGY}.draft", f"{STRATEGY}.draft.ngram", f"{STRATEGY}.tree"

TEXTS = [
    "pipeline.extends", f"{SESSION}.file", f"{SESSION}.execution_provider", f"{SESSION}.role", f"{STEP}.run",
    f"{STEP}.loop_over", f"{STEP}.cross_attention_from", f"{STEP}.dynamic_shape.source", f"{WIRE}.from", f"{WIRE}.to",
    f"{WIRE}.from_session", f"{WIRE}.from_output", f"{WIRE}.to_session", f"{WIRE}.to_input",
    f"{CACHE}.past_key_pattern", f"{CACHE}.present_key_pattern", f"{CACHE}.past_value_pattern",
    f"{CACHE}.present_value_pattern", f"{PLACES}.input_name", f"{PLACES}.grid_source", f"{CROSS}.source",
    f"{MEDIA}.config", f"{MEDIA}.expected_outputs.pixel_values.dtype", "pipeline.plugin.library",
    "pipeline.plugin.entry_point", "pipeline.controller.library", "pipeline.controller.entry_point",
    "pipeline.controller.config", f"{ROLES}.target", f"{ROLES}.draft", f"{ROLES}.amateur", f"{ROLES}.expert",
    f"{ROLES}.unconditional", f"{DRAFT}.session", f"{STRATEGY}.verify.session", f"{TREE}.topology", f"{LOGITS}.backend",
    f"{LOGITS}.mode", f"{LOGITS}.expert", f"{LOGITS}.amateur",
]  # fmt: skip
WORDS = {
    f"{STEP}.when": "init, once, prompt, step, always, final",
    f"{STEP}.loop": "batched, per_image",
    f"{CACHE}.format": "auto, default, separate, combined, cross, windowed",
    f"{PLACES}.strategy": "auto, default, mrope_3d, windowed",
    f"{STATE}.type": "recurrent",
    f"{MEDIA}.format": "ort-extensions",
    "pipeline.generation_loop": "autoregressive, single_pass, denoising",
    f"{STRATEGY}.kind": "speculative",
    f"{DRAFT}.producer": "draft_model, self_speculative, ngram, extra_heads",
    f"{STRATEGY}.acceptance": "greedy, rejection_sampling, typical",
    f"{LOGITS}.op": "repetition_penalty, min_length, logit_bias, grammar, combine, temperature, top_k, top_p, sample",
}
INTEGERS = [
    "version", f"{CACHE}.sliding_window.window_size", f"{MEDIA}.expected_outputs.pixel_values.rank", "tokens.pad",
    "tokens.bos", "tokens.decoder_start", "tokens.sep", "tokens.image_token", "tokens.audio_token",
    "tokens.video_token", "generation.max_length", "generation.min_length", "generation.num_beams",
    f"{SAMPLING}.top_k", f"{DRAFT}.depth", f"{DRAFT}.heads", f"{NGRAM}.min_match", f"{NGRAM}.max_draft",
    f"{NGRAM}.window", f"{STRATEGY}.num_speculative_tokens", f"{TREE}.max_nodes", f"{TREE}.max_depth",
]  # fmt: skip
NUMBERS = [f"{SAMPLING}.temperature", f"{SAMPLING}.top_p", f"{SAMPLING}.repetition_penalty",
           f"{STRATEGY}.typical_threshold", f"{LOGITS}.value", f"{LOGITS}.alpha", f"{LOGITS}.map.a"]  # fmt: skip
FLAGS = [f"{CROSS}.frozen", f"{SAMPLING}.do_sample", f"{LOGITS}.stateful"]
LISTS_OF_INTEGERS = [f"{STEP}.dynamic_shape.apply_to_dims", f"{CACHE}.sliding_window.layers"]
STRUCTS = {
    "pipeline": "its fields: extends, sessions, flow, dataflow, state, preprocessing, plugin, generation_loop, roles, "
    "strategy, controller",
    SESSION: "its fields: file, execution_provider, role, session_options",
    STEP: "its fields: run, when, loop, loop_over, dynamic_shape, cross_attention_from",
    f"{STEP}.dynamic_shape": "its fields: source, apply_to_dims",
    WIRE: "its fields: from, to, from_session, from_output, to_session, to_input",
    STATE: "its fields: kv_cache, position_ids, cross_cache, type",
    CACHE: "its fields: format, past_key_pattern, present_key_pattern, past_value_pattern, present_value_pattern, "
    "sliding_window",
    f"{CACHE}.sliding_window": "its fields: window_size, layers",
    PLACES: "its fields: strategy, input_name, grid_source",
    CROSS: "its fields: source, frozen",
    "pipeline.preprocessing": "its fields: image, audio",
    MEDIA: "its fields: config, format, expected_outputs",
    "pipeline.preprocessing.audio": "its fields: config, format, expected_outputs",
    f"{MEDIA}.expected_outputs.pixel_values": "its fields: rank, dtype",
    "pipeline.plugin": "its fields: library, entry_point",
    ROLES: "its fields: target, draft, amateur, expert, unconditional",
    STRATEGY: "its fields: kind, draft, verify, num_speculative_tokens, acceptance, typical_threshold, tree",
    DRAFT: "its fields: producer, session, depth, heads, ngram",
    NGRAM: "its fields: min_match, max_draft, window",
    f"{STRATEGY}.verify": "its fields: session",
    TREE: "its fields: topology, max_nodes, max_depth, medusa_choices",
    "pipeline.controller": "its fields: library, entry_point, config",
    LOGITS: "its fields: op, value, map, backend, mode, alpha, expert, amateur, grammar, stateful",
    "tokens": "its fields: eos, pad, bos, decoder_start, sep, image_token, audio_token, video_token",
    "generation": "its fields: max_length, min_length, num_beams, sampling, stop, logits",
    SAMPLING: "its fields: temperature, top_k, top_p, do_sample, repetition_penalty",
}
MAPS = {
    "pipeline.sessions": 'write {"NAME": {...}}; fields of each: file, execution_provider, role, session_options',
    f"{MEDIA}.expected_outputs": 'write {"NAME": {...}}; fields of each: rank, dtype',
    f"{SESSION}.session_options": "write a mapping, or leave session_options out",
    f"{LOGITS}.map": "write a mapping, or leave map out",
    "metadata": "write a mapping, or leave metadata out",
}
LISTS = {
    "pipeline.flow": "fields of each entry: run, when, loop, loop_over, dynamic_shape, cross_attention_from",
    "pipeline.dataflow": "fields of each entry: from, to, from_session, from_output, to_session, to_input",
    "generation.logits": "fields of each entry: op, value, map, backend, mode, alpha, expert, amateur, grammar, "
    "stateful",
}
IDS = "a token id or a list of token ids"

Row = tuple[str, Any, str, str]
"""(key, wrong value, what is said of it, the help)."""


def rows() -> Iterator[Row]:
    for key in TEXTS:
        yield key, 7, "a text expected, 7 found", "put it in quotes"
        yield key, ["x"], "a text expected, a list found", 'write "x" without brackets'
    for key, words in WORDS.items():
        yield key, 1, "a text expected, 1 found", f"one of: {words}"
        yield key, [words.split(", ")[0]], "a text expected, a list found", f"one of: {words}"
    for key in INTEGERS:
        yield key, "2", 'an integer expected, "2" found', "write 2 without quotes"
        yield key, [2], "an integer expected, a list found", "write 2 without brackets"
        yield key, 2.5, "an integer expected, 2.5 found", "write 2 or 3"
        own = key.rpartition(".")[2]
        help = "write an integer" if own == "window_size" else f"write an integer, or leave {own} out"
        yield key, True, "an integer expected, true found", help
    for key in NUMBERS:
        yield key, "0.75", 'a number expected, "0.75" found', "write 0.75 without quotes"
        yield key, [0.75], "a number expected, a list found", "write 0.75 without brackets"
    for key in FLAGS:
        yield key, "true", 'true or false expected, "true" found', "write true without quotes"
        yield key, 0, "true or false expected, 0 found", "write false"
    for key in LISTS_OF_INTEGERS:
        yield key, 3, "a list expected, 3 found", "write [3]"
        yield key, "3", 'a list expected, "3" found', "write [3]"
        yield f"{key}[0]", "3", 'an integer expected, "3" found', "write 3 without quotes"
    yield f"{TREE}.medusa_choices", 3, "a list expected, 3 found", "write a list, or leave medusa_choices out"
    yield f"{TREE}.medusa_choices[0]", 3, "a list expected, 3 found", "write [3]"
    yield f"{TREE}.medusa_choices[0][0]", "3", 'an integer expected, "3" found', "write 3 without quotes"
    for key, help in STRUCTS.items():
        yield key, "x", 'a mapping expected, "x" found', help
        yield key, [1], "a mapping expected, a list found", help
    for key, help in MAPS.items():
        yield key, ["x"], "a mapping expected, a list found", help
    for key, help in LISTS.items():
        yield key, "decoder", 'a list expected, "decoder" found', help
        yield key, {}, "a list expected, a mapping found", "put it in brackets: [{...}]"
    yield "tokens.eos", "2", f'{IDS} expected, "2" found', "write 2 without quotes"
    yield "tokens.eos", 2.5, f"{IDS} expected, 2.5 found", f"write {IDS}, or leave eos out"
    yield "tokens.eos[1]", "2", 'an integer expected, "2" found', "write 2 without quotes"


UNKNOWN: list[Row] = [
    ("tokens.eos_token_id", 2, 'tokens has no field "eos_token_id"', "version 2 calls it eos"),
    ("tokens.image_token_id", 2, 'tokens has no field "image_token_id"', "version 2 calls it image_token"),
    (f"{SESSION}.filename", "m", 'decoder has no field "filename"', "version 2 calls it file"),
    (f"{STEP}.session", "decoder", 'flow[0] has no field "session"', "version 2 calls it run"),
    (f"{CACHE}.past_key_names", "p", 'kv_cache has no field "past_key_names"', "version 2 calls it past_key_pattern"),
    ("generation.temperature", 1, 'generation has no field "temperature"', "it stands in generation.sampling"),
    ("generation.eos", 1, 'generation has no field "eos"', "it stands in tokens"),
    ("pipeline.kv_cache", {}, 'pipeline has no field "kv_cache"', "it stands in pipeline.state"),
    ("sessions", {}, 'the document has no field "sessions"', "it stands in pipeline"),
    ("generation.context_length", 9, 'generation has no field "context_length"', "it stands in model"),
    ("pipeline.session", {}, 'pipeline has no field "session"', "did you mean sessions?"),
    (f"{SESSION}.fiel", "m", 'decoder has no field "fiel"', "did you mean file?"),
    ("generation.max_lenght", 9, 'generation has no field "max_lenght"', "did you mean max_length?"),
]


def with_value(key: str, value: Any) -> Document:
    """The smallest document, with a value at a key and what the key needs around it."""
    document: Document = json.loads(MINIMAL)
    document["pipeline"]["flow"] = [{"run": "decoder"}]
    whole = {"dynamic_shape": {"source": "sizes"}, "sliding_window": {"window_size": 4}}
    whole |= {"strategy": {"kind": "speculative"}, "[0]": {"op": "sample"} if "logits" in key else {}}
    steps = key.replace("[", ".[").split(".")
    here: Any = document
    for at, step in enumerate(steps):
        last = at == len(steps) - 1
        after = None if last else ([] if steps[at + 1].startswith("[") else dict(whole.get(step, {})))
        if step.startswith("["):
            index = int(step[1:-1])
            here.extend([2] * (index - len(here)) if steps[at - 1] == "eos" else [])
            if index == len(here):
                here.append(value if last else after)
            elif last:
                here[index] = value
            here = here[index]
        elif last:
            here[step] = value
        else:
            here = here.setdefault(step, after)
    return document


def faults(folder: Path, document: Document) -> list[Problem]:
    """What reading says: no graph is needed for it."""
    try:
        read_pipeline(package(folder, document, {}))
    except CompileError as refused:
        return errors(refused.problems)
    return []


@pytest.mark.parametrize(("key", "value", "what", "help"), list(rows()), ids=str)
def test_a_value_of_another_type(key: str, value: Any, what: str, help: str, tmp_path: Path) -> None:
    found = {each.path: each for each in faults(tmp_path, with_value(key, value))}
    assert list(found) == [key], found
    told = found[key]
    assert (told.what, told.help) == (what, help)
    assert told.where.line > 0
    assert told.code in ("wrong-type", "fractional-number")


@pytest.mark.parametrize(("key", "value", "what", "help"), UNKNOWN, ids=str)
def test_a_key_that_is_none(key: str, value: Any, what: str, help: str, tmp_path: Path) -> None:
    (found,) = faults(tmp_path, with_value(key, value))
    assert (found.code, found.path, found.what, found.help) == ("unknown-field", key, what, help)


@pytest.mark.parametrize(("key", "value", "what", "help"), [each for each in rows() if " without " in each[3]], ids=str)
def test_the_way_out_is_one(key: str, value: Any, what: str, help: str, tmp_path: Path) -> None:
    """What the help says to write is read: no fault of that key is left."""
    written = json.loads(help.removeprefix("write ").partition(" without")[0])
    assert key not in [each.path for each in faults(tmp_path, with_value(key, written))]


def test_no_key_of_the_format_is_left_out() -> None:
    """Against the schema of what is read; `stop` and grammars have no defined form, blocks of version 1 are others."""
    of_version_1 = {"model", "search", "engine", "speculative", "runtime_profiles", "schema_version"}
    undefined = {"generation.stop", f"{LOGITS}.grammar"}
    whole = PipelineDocument.model_json_schema()
    tried = {each[0] for each in rows()}
    keys = {*_keys(whole, whole, "")}
    assert len(keys) > 60
    assert keys - of_version_1 - undefined - tried == set()


def _keys(schema: Any, whole: Any, path: str) -> Iterator[str]:
    """The keys of a schema's structs, as this table spells them; sound has the keys of pictures."""
    for name, member in schema.get("properties", {}).items():
        key = f"{path}.{name}".removeprefix(".")
        yield key
        for inner in (member, *member.get("anyOf", ())):
            for form, end in ((inner, ""), (inner.get("items", {}), "[0]"), (inner.get("additionalProperties"), "")):
                if isinstance(form, dict) and "$ref" in form and key != "pipeline.preprocessing.audio":
                    names = {"pipeline.sessions": ".decoder", f"{MEDIA}.expected_outputs": ".pixel_values"}
                    target = whole["$defs"][form["$ref"].rpartition("/")[2]]
                    yield from _keys(target, whole, key + end + names.get(key, ""))
