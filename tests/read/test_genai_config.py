"""The lenient reading of genai_config.json: what is understood, what is warned about, where a fault stands."""

import json
from typing import Any

import pytest
from genai_compiler.problem import CompileError, Problem, Severity
from genai_compiler.read.config_json import MAX_DEPTH, parse_config
from genai_compiler.read.genai_config import GenaiConfig, genai_config_of
from hypothesis import given
from hypothesis import strategies as st


def root(text: str | bytes) -> Any:
    return parse_config(text if isinstance(text, bytes) else text.encode(), "c.json").root


def config(text: str) -> tuple[GenaiConfig, dict[str, Problem]]:
    read, problems = genai_config_of(parse_config(text.encode(), "c.json"))
    return read, {each.code: each for each in problems}


def test_byte_order_mark_and_escapes() -> None:
    assert root(b'\xef\xbb\xbf{"a": "\\u00e9\\ud83d\\ude00\\n\\q\\/"}') == {"a": "é😀\nq/"}
    assert root('{"a": "\\ud83d x"}') == {"a": "\ufffd x"}  # half a pair is no character
    assert root('{"a": "line\tbreak\n"}') == {"a": "line\tbreak\n"}  # raw control characters pass


@pytest.mark.parametrize(
    ("text", "value"),
    [("064", 64), ("64.", 64.0), ("-0", 0), ("1E+0", 1.0), ("4.5e-1", 0.45), ("true", True), ("null", None)],
)
def test_scalars(text: str, value: object) -> None:
    assert root(f'{{"a": {text}}}') == {"a": value}


@pytest.mark.parametrize(
    ("text", "line", "column", "word"),
    [
        ('{"a": 1,\n }', 2, 2, "comma"),
        ("[1,\n2,]", 2, 3, "comma"),
        ('{"a":\n  // why\n 1}', 2, 3, "comments"),
        ('{"a": NaN}', 1, 7, "NaN"),
        ('{"a": +64}', 1, 7, "+64"),
        ('{"a": .5}', 1, 7, ".5"),
        ('{"a": 0x40}', 1, 7, "0x40"),
        ('{"a": 1e400}', 1, 7, "too large"),
        ('{"a": tru}', 1, 7, "tru"),
        ('{"a": "x\n\n}', 1, 7, "never ends"),
        ('{"a" 1}', 1, 6, "':'"),
        ('{"a": 1 "b": 2}', 1, 9, "','"),
        ("{'a': 1}", 1, 2, "quoted name"),
        ('{"a": "\\u12"}', 1, 8, "hexadecimal"),
        ("", 1, 1, "missing"),
        ("[" * (MAX_DEPTH + 2), 1, MAX_DEPTH + 2, "nested"),
    ],
)
def test_faults_stand_at_a_place(text: str, line: int, column: int, word: str) -> None:
    with pytest.raises(CompileError) as caught:
        root(text)
    problem = caught.value.problems[-1]
    assert (problem.code, problem.where.line, problem.where.column) == ("malformed-json", line, column)
    assert word in problem.what


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_proper_json_reads_as_the_library_reads_it(value: object) -> None:
    clean = json.loads(json.dumps(value).encode("utf-8", "replace"))
    assert root(json.dumps(value, ensure_ascii=True)) == clean
    assert root(json.dumps(value, indent=1)) == clean


@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\u0aeE+-.1tn \n').map(str.encode))
def test_any_bytes_give_a_value_or_a_problem(data: bytes) -> None:
    lines = [1]
    try:
        parse_config(data, "c.json")
    except CompileError as fault:
        lines = [each.where.line for each in fault.problems]
    assert min(lines) > 0


_BITS = "write one of 32 bits: 2147483647 at most"


@pytest.mark.parametrize(
    ("written", "help"),
    [("1000000000000", _BITS), ("4e12", _BITS), ("[5000000000]", _BITS), ('"3000000000"', ""), ("[[1]]", "")],
)
def test_no_number_beyond_32_bits_is_advised(written: str, help: str) -> None:
    """The reference reads 32 bits; what is too large stays so without quotes or brackets."""
    _, problems = config(f'{{"model": {{"vocab_size": {written}}}}}')
    assert problems["wrong-type"].help == help


def test_repeated_keys_merge_as_the_reference_does() -> None:
    text = """{
      "model": {"eos_token_id": [1], "vocab_size": 9, "decoder": {"filename": "a"}},
      "model": {"eos_token_id": [2], "vocab_size": 8, "decoder": {"head_size": 4}},
      "x": [1], "x": 2, "y": 1, "y": [2], "z": [1], "z": []
    }"""
    parsed = parse_config(text.encode(), "c.json")
    assert parsed.root == {
        "model": {"eos_token_id": [1, 2], "vocab_size": 8, "decoder": {"filename": "a", "head_size": 4}},
        "x": 2,
        "y": [2],
        "z": [1],
    }
    assert [(each.code, each.path, each.where.line) for each in parsed.problems] == [
        ("duplicate-key", "model", 3),
        ("duplicate-key", "x", 4),
        ("duplicate-key", "y", 4),
        ("duplicate-key", "z", 4),
    ]


def test_text_after_the_end_is_a_warning() -> None:
    (problem,) = parse_config(b"{} trailing", "c.json").problems
    assert (problem.code, problem.severity) == ("text-after-json", Severity.WARNING)


def test_null_is_absent() -> None:
    text = '{"model": {"pad_token_id": null, "bos_token_id": null, "decoder": null}, "search": {"top_k": null}}'
    read, problems = config(text)
    assert (read.pad, read.bos, dict(read.search)) == (None, None, {})
    assert problems == {}


def test_unknown_keys_are_warnings_with_the_nearest_name() -> None:
    text = '{"model": {\n"contxt_length": 4, "decoder": {"inputs": {"input_idz": "x"}}}, "serch": {}}'
    read, problems = genai_config_of(parse_config(text.encode(), "c.json"))
    assert read.context_length is None
    assert {each.path: (each.help, each.severity.value) for each in problems} == {
        "model.contxt_length": ("did you mean 'context_length'?", "warning"),
        "model.decoder.inputs.input_idz": ("did you mean 'input_ids'?", "warning"),
        "serch": ("did you mean 'search'?", "warning"),
    }
    assert problems[1].where.line == 2 or problems[0].where.line == 2


@pytest.mark.parametrize("value", ["4096", "4096.0", "4.096e3"])
def test_whole_numbers_may_be_written_as_fractions(value: str) -> None:
    assert config(f'{{"model": {{"context_length": {value}}}}}')[0].context_length == 4096


@pytest.mark.parametrize("value", ["4.5", '"4"', "true", "[4]", "{}", "3000000000"])
def test_wrong_types_are_errors_at_their_place(value: str) -> None:
    read, problems = config(f'{{"model": {{\n  "context_length": {value}}}}}')
    problem = problems["wrong-type"]
    assert (problem.path, problem.where.line, problem.where.column) == ("model.context_length", 2, 21)
    assert read.context_length is None


def test_a_version_number_is_harmless_and_other_sections_are_named() -> None:
    text = '{"version": 2, "model": {"vision": {"filename": "v.onnx"}, "encoder": {}, "ears": {"filename": "e.onnx"}}}'
    read, problems = config(text)
    assert read.other_classes == (("model", "ears"),)
    assert list(read.components) == ["vision"]
    assert list(problems) == ["unknown-key"]


@pytest.mark.parametrize("text", ["[]", "3", "{}", '{"model": 5}', '{"search": [1]}'])
def test_what_is_no_configuration(text: str) -> None:
    _, problems = config(text)
    assert problems.keys() & {"wrong-type", "missing-key"}


def test_session_options() -> None:
    text = json.dumps(
        {
            "model": {
                "decoder": {
                    "session_options": {
                        "intra_op_num_threads": 3,
                        "enable_mem_pattern": False,
                        "log_id": "me",
                        "graph_optimization_level": "ORT_ENABLE_BASIC",
                        "session.disable_prepacking": "1",
                        "session.dynamic_block_base": 2,
                        "config_entries": {"session.set_denormal_as_zero": True},
                        "provider_options": [{"cpu": {}}, {"QNN": {"vtcm_mb": "8"}, "mark": "True"}],
                    }
                }
            }
        }
    )
    read, problems = config(text)
    options = read.decoder.session
    assert (options.intra_op_num_threads, options.enable_mem_pattern, options.log_id) == (3, False, "me")
    assert options.graph_optimization_level == "ORT_ENABLE_BASIC"
    assert options.entries == (
        ("session.disable_prepacking", "1"), ("session.dynamic_block_base", "2"), ("session.set_denormal_as_zero", "1"),
    )  # fmt: skip
    assert [each.name for each in options.providers] == ["CPUExecutionProvider", "QNNExecutionProvider"]
    assert options.providers[1].options == (("vtcm_mb", "8"),)
    assert set(problems) == {"not-a-string", "ignored-key"}


@pytest.mark.parametrize("key", ["sep_token_id", "decoder_start_token_id"])
def test_ids_without_an_effect_are_named(key: str) -> None:
    _, problems = config(f'{{"model": {{"{key}": 1}}}}')
    assert problems["ignored-key"].path == f"model.{key}"
