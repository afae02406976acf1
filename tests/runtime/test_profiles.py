"""Task profiles: pooling against plain loops over numbers, CTC against transcriptions made by hand (standard, 1.9)."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import onnx
import pytest
import yaml
from genai_compiler import CompileError, compile_package
from genai_runtime import ExecutionError, LoadError, RequestError
from genai_runtime.cli import main
from genai_runtime.pooling import pool
from genai_runtime.sequence_text import decode
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tests.conftest import FIXTURES
from tests.data import DATA, needs_data
from tests.runtime.profile_packages import HIDDEN, LENGTHS, LOGITS, MASK, profile, profiled, write_profiled
from tools.fixtures.document import tensor

Floats = NDArray[np.float32]
RNG = np.random.RandomState(7)
ARRAY = RNG.standard_normal((3, 5, 4)).astype(np.float32)
COUNTS = [5, 1, 3]


def by_hand(kind: str, rows: list[list[list[float]]], normalize: bool) -> list[list[float]]:
    """Pooling of the valid positions of each row, number by number."""
    pooled: list[list[float]] = []
    for row in rows:
        columns = list(zip(*row, strict=True))
        made = {
            "mean": [math.fsum(each) / len(each) for each in columns],
            "max": [max(each) for each in columns],
            "cls": list(row[0]),
            "last_token": list(row[-1]),
        }[kind]
        norm = math.sqrt(math.fsum(each * each for each in made)) if normalize else 1.0
        pooled.append([each / norm for each in made])
    return pooled


def valid_rows(counts: list[int]) -> list[list[list[float]]]:
    return [ARRAY[row, :count].tolist() for row, count in enumerate(counts)]


@pytest.mark.parametrize("kind", ["mean", "max", "cls", "last_token"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("marks", ["none", "lengths", "mask"])
def test_pooling_through_a_package(tmp_path: Path, kind: str, normalize: bool, marks: str) -> None:
    types = {"hidden": HIDDEN} | {"lengths": {"n": LENGTHS}, "mask": {"m": MASK}, "none": {}}[marks]
    roles = {f"role of {name}": name for name in types}
    how = {"kind": kind, "axis": 1, "normalize": normalize}
    mask = (np.arange(5) < np.array(COUNTS).reshape(-1, 1)).astype(np.int64)
    with profiled(tmp_path / "p", types, {"vectors": profile("embedding", roles, pooling=how)}) as model:
        given = {"hidden": ARRAY, "n": np.array(COUNTS), "m": mask}
        made = model.run({name: given[name] for name in types}).profile("vectors")
    assert isinstance(made, np.ndarray)
    assert made.dtype == np.float32
    wanted = by_hand(kind, valid_rows(COUNTS if marks != "none" else [5, 5, 5]), normalize)
    np.testing.assert_allclose(made, wanted, rtol=2e-6, atol=1e-6)
    if normalize:
        np.testing.assert_allclose(np.linalg.norm(made.astype(np.float64), axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("kind", ["mean", "max"])
def test_padding_changes_nothing(kind: str) -> None:
    """What stands in invalid positions, NaN and infinity too, is not looked at."""
    padded = ARRAY.copy()
    for row, count in enumerate(COUNTS):
        padded[row, count:] = np.nan if row else np.inf
    lengths = np.array(COUNTS)
    assert np.array_equal(pool(padded, kind, 1, 0, False, lengths), pool(ARRAY, kind, 1, 0, False, lengths))


def test_a_mask_may_have_its_padding_on_the_left() -> None:
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])
    assert np.array_equal(pool(ARRAY, "cls", 1, 0, False, mask), ARRAY[[0, 1, 2], [2, 0, 4]])
    assert np.array_equal(pool(ARRAY, "last_token", 1, 0, False, mask), ARRAY[:, 4])


def test_other_axes_and_outputs_without_rows() -> None:
    assert np.array_equal(pool(ARRAY, "max", 0, -1, False, None), ARRAY.max(axis=0))
    swapped = ARRAY.transpose(1, 2, 0)  # positions, hidden, rows
    assert np.array_equal(
        pool(swapped, "max", 0, 2, False, np.array(COUNTS)).T, pool(ARRAY, "max", 1, 0, False, np.array(COUNTS))
    )
    assert pool(np.zeros((1, 2, 3), np.float32), "mean", 1, 0, True, None).tolist() == [[0, 0, 0]], (
        "no division by zero"
    )


@pytest.mark.parametrize(
    ("marks", "code"),
    [
        ([5, 0, 3], "profile-lengths"),
        ([6, 1, 1], "profile-lengths"),
        ([-1, 1, 1], "profile-lengths"),
        ([5, 5], "profile-lengths"),
    ],
)
def test_lengths_that_do_not_fit(marks: list[int], code: str) -> None:
    with pytest.raises(ExecutionError) as refused:
        pool(ARRAY, "mean", 1, 0, False, np.array(marks))
    assert refused.value.code == code


def test_half_precision_is_computed_in_float32(tmp_path: Path) -> None:
    """60000 + 60000 is no float16; their mean is one."""
    type = tensor("float16", "batch", "tokens", "hidden", rows=True)
    with profiled(
        tmp_path / "p", {"h": type}, {"v": profile("embedding", {"x": "h"}, pooling={"kind": "mean", "axis": 1})}
    ) as model:
        made = model.run({"h": np.full((1, 2, 1), 60000, np.float16)}).profile("v")
    assert isinstance(made, np.ndarray)
    assert made.tolist() == [[np.float32(np.float16(60000))]]


# ---- decoding --------------------------------------------------------------------------------------------------------

TOKENS = ["<blank>", "A", "B", "|"]
CTC: dict[str, Any] = {"kind": "ctc", "blank_id": 0, "collapse_repeats": True, "time_axis": 1, "class_axis": 2}
WORDS = {"source": "inline", "size": 4, "tokens": TOKENS, "word_delimiter": "|", "ignored_tokens": ["<blank>"]}


def scores(*rows: str) -> Floats:
    """Frames whose best class is written: `_` is the blank."""
    width = max(map(len, rows))
    made = np.zeros((len(rows), width, 4), np.float32)
    for row, text in enumerate(rows):
        for frame, each in enumerate(text):
            made[row, frame, "_AB|".index(each)] = 1
    return made


BY_HAND = {
    "AA_A": "AA",  # a blank keeps two equal letters apart
    "AAAA": "A",
    "_A_B_": "AB",
    "A|B": "A B",
    "||A||_|B|": "A B",  # empty words go
    "A||": "A",
    "____": "",
    "A_|_|_B": "A B",
    "ABBA": "ABA",
}


@pytest.mark.parametrize(("frames", "text"), BY_HAND.items())
def test_ctc_by_hand(tmp_path: Path, frames: str, text: str) -> None:
    with profiled(
        tmp_path / "p",
        {"l": LOGITS},
        {"t": profile("transcription", {"x": "l"}, decoding={**CTC, "vocabulary": WORDS})},
    ) as model:
        assert model.run({"l": scores(frames)}).profile("t") == [text]


def test_rows_have_their_own_lengths(tmp_path: Path) -> None:
    """What lies behind a row's length is not read, in any batch."""
    roles = {"x": "l", "n": "n"}
    how = {**CTC, "lengths": "n", "vocabulary": WORDS}
    views = {"t": profile("transcription", roles, decoding=how, batch_invariance="padding_sensitive")}
    with profiled(tmp_path / "p", {"l": LOGITS, "n": LENGTHS}, views) as model:
        batch = {"l": scores("AABB", "B|AA", "BBBB"), "n": np.array([2, 4, 0])}
        assert model.run(batch).profile("t") == ["A", "B A", ""]
        assert model.profiles["t"].batch_invariance == "padding_sensitive"
        with pytest.raises(RequestError, match="profile-lengths") as refused:  # `n` is the request's own input
            model.run({**batch, "n": np.array([2, 5, 0])}).profile("t")
        assert "'n'" in refused.value.help


@pytest.mark.parametrize("form", ["lengths", "mask"])
def test_a_row_without_a_position_is_the_callers_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    types = {"hidden": HIDDEN, "n": LENGTHS if form == "lengths" else MASK}
    how = {"kind": "mean", "axis": 1}
    write_profiled(tmp_path / "p", types, {"v": profile("embedding", {"x": "hidden", "n": "n"}, pooling=how)})
    compile_package(tmp_path / "p", out=tmp_path / "out")
    marks = np.array([2, 0]) if form == "lengths" else np.array([[1, 1], [0, 0]])
    with genai_runtime.load(tmp_path / "out") as model, pytest.raises(RequestError) as refused:
        model.run({"hidden": np.ones((2, 2, 3), np.float32), "n": marks}).profile("v")
    assert (refused.value.code, "'n'" in refused.value.help) == ("profile-lengths", True)
    given = ["--input", f"n={marks.tolist()}", "--input", f"hidden={np.ones((2, 2, 3)).tolist()}"]
    assert main([str(tmp_path / "out"), "--task", "v", *given]) == 2
    assert "profile-lengths" in capsys.readouterr().err


def test_without_a_vocabulary_ids_and_other_axes() -> None:
    frames = scores("AA_B").transpose(2, 0, 1)  # classes, rows, time
    assert decode(frames, 2, 0, None, True, 0) == [[1, 2]]
    assert decode(scores("AA_B")[0], 0, 1, None, False, None) == [[1, 1, 0, 2]]
    assert decode(np.zeros((1, 2, 3), np.float32), 1, 2, None, True, None) == [[0]], "the lowest of equal classes"


def test_greedy_argmax_without_delimiter_and_blank(tmp_path: Path) -> None:
    how = {"kind": "greedy_argmax", "time_axis": 1, "class_axis": 2,
           "vocabulary": {"source": "inline", "tokens": ["-", "a", "b", " "], "ignored_tokens": ["-"]}}  # fmt: skip
    with profiled(tmp_path / "p", {"l": LOGITS}, {"t": profile("classification", {"x": "l"}, decoding=how)}) as model:
        assert model.run({"l": scores("AA_|B", "_____")}).profile("t") == ["aa b", ""]


def test_scores_that_are_no_numbers(tmp_path: Path) -> None:
    with profiled(
        tmp_path / "p",
        {"l": LOGITS},
        {"t": profile("transcription", {"x": "l"}, decoding={**CTC, "vocabulary": WORDS})},
    ) as model:
        result = model.run({"l": np.full((1, 2, 4), np.nan, np.float32)})
        with pytest.raises(ExecutionError) as refused:
            result.profile("t")
        assert (refused.value.code, refused.value.origin) == ("logits-not-finite", "profiles.t")
        with pytest.raises(ExecutionError, match="profile-vocabulary"):
            model.run({"l": np.eye(6, dtype=np.float32)[None, 5:]}).profile("t")
        with pytest.raises(RequestError, match="no-profile"):
            result.profile("x")


def test_a_tokenizer_as_vocabulary(tmp_path: Path) -> None:
    """Class ids are the tokenizer's: its decoder makes the text, as `tokenizers` itself does."""
    import tokenizers

    file = FIXTURES / "tiny-gqa-v1" / "tokenizer.json"
    ids = [7, 7, 9, 0, 12]
    logits = np.zeros((1, 5, 64), np.float32)
    logits[0, range(5), ids] = 1
    how = {**CTC, "vocabulary": {"source": "tokenizer"}}
    folder = write_profiled(tmp_path / "p", {"l": LOGITS}, {"t": profile("transcription", {"x": "l"}, decoding=how)})
    with pytest.raises(CompileError) as refused:
        compile_package(folder, out=tmp_path / "c")
    assert [each.code for each in refused.value.problems] == ["unsupported-profile"]
    shutil.copy(file, folder)
    compile_package(folder, out=tmp_path / "c")
    with genai_runtime.load(tmp_path / "c") as model:
        text = tokenizers.Tokenizer.from_file(str(file)).decode([7, 9, 12], skip_special_tokens=False)
        assert model.run({"l": logits}).profile("t") == [text]


@needs_data
def test_the_catalogues_ctc_document(tmp_path: Path) -> None:
    """The document as it stands; its graph gives the samples, four by four, as frames."""
    document = (DATA / "conformance" / "catalogue" / "05-wav2vec2-ctc.yaml").read_text("utf-8")
    folder = tmp_path / "p"
    (folder / "wav2vec2").mkdir(parents=True)
    (folder / "inference_metadata.yaml").write_text(document.replace(".onnx.textproto", ".onnx"), "utf-8")
    float32, int64 = TensorProto.FLOAT, TensorProto.INT64
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["input_values", "by_four"], ["logits"]),
            helper.make_node("ReduceSum", ["attention_mask", "last"], ["valid"], keepdims=0),
            helper.make_node("Div", ["valid", "four"], ["frame_lengths"]),
        ],
        "encoder",
        [helper.make_tensor_value_info("input_values", float32, ["batch", "samples"]),
         helper.make_tensor_value_info("attention_mask", int64, ["batch", "samples"])],
        [helper.make_tensor_value_info("logits", float32, ["batch", "frames", "vocab"]),
         helper.make_tensor_value_info("frame_lengths", int64, ["batch"])],
        [helper.make_tensor("by_four", int64, [3], [0, -1, 4]), helper.make_tensor("last", int64, [1], [1]),
         helper.make_tensor("four", int64, [], [4])],
    )  # fmt: skip
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10),
        folder / "wav2vec2" / "encoder_ctc.onnx",
    )
    compile_package(folder, out=tmp_path / "c")
    with genai_runtime.load(tmp_path / "c") as model:
        samples = scores("AA_A|BB", "BAAA").reshape(2, -1)
        mask = (np.arange(28) < np.array([[28], [16]])).astype(np.int64)
        result = model.run({"request.input_values": samples, "request.attention_mask": mask})
        assert result.profile("transcription") == ["AA B", "BA"]
        assert yaml.safe_load(document)["profiles"]["transcription"]["decoding"]["vocabulary"]["tokens"] == TOKENS


# ---- what is said when compiling -------------------------------------------------------------------------------------


def problems(folder: Path, types: dict[str, Any], **profiles: Any) -> tuple[list[str], list[str]]:
    """(codes of errors and warnings, notes)."""
    try:
        made = compile_package(write_profiled(folder, types, profiles), out=folder.with_suffix(".c"))
    except CompileError as refused:
        return [each.code for each in refused.problems], []
    return [each.code for each in made.problems], list(made.notes)


def test_profiles_that_cannot_be_computed(tmp_path: Path) -> None:
    types = {"a": HIDDEN, "b": HIDDEN, "n": LENGTHS, "m": MASK}
    pooling = {"kind": "mean", "axis": 1}
    for at, (roles, wanted) in enumerate([
        ({"x": "a", "y": "b"}, ["profile-outputs"]),
        ({"y": "n"}, ["profile-outputs"]),
        ({"x": "a", "n": "n", "m": "m"}, ["profile-outputs"]),
        ({"x": "a", "n": "n"}, []),
    ]):  # fmt: skip
        assert problems(tmp_path / f"o{at}", types, p=profile("embedding", roles, pooling=pooling))[0] == wanted
    beams = {**CTC, "kind": "beam_search", "vocabulary": WORDS}
    assert problems(tmp_path / "d", types, p=profile("transcription", {"x": "a"}, decoding=beams))[0] == [
        "unsupported-profile"
    ]
    codes, notes = problems(
        tmp_path / "i", types, p=profile("transcription", {"x": "a"}, decoding=beams, requirement="ignorable")
    )
    assert codes == []
    assert len(notes) == 1
    assert "beam_search" in notes[0]
    codes, notes = problems(tmp_path / "u", types, p=profile("hovering", {"x": "nothing"}, requirement="ignorable"))
    assert codes == []
    assert "hovering" in notes[0]


def test_axes_that_the_output_does_not_have_are_warned_of(tmp_path: Path) -> None:
    types = {"l": tensor("float32", "batch", "frames", 5, rows=True)}
    few = {**CTC, "vocabulary": WORDS}
    assert problems(tmp_path / "v", types, t=profile("transcription", {"x": "l"}, decoding=few))[0] == ["profile-axis"]
    off = {**CTC, "class_axis": 3}
    assert problems(tmp_path / "c", types, t=profile("transcription", {"x": "l"}, decoding=off))[0] == ["profile-axis"]
    rows = profile("embedding", {"x": "l"}, pooling={"kind": "mean", "axis": 0})
    assert problems(tmp_path / "r", types, t=rows)[0] == ["profile-axis"]


def test_profiles_without_pooling_or_decoding(tmp_path: Path) -> None:
    scored = tensor("float16", "batch", 2, rows=True)
    views = {"one": profile("reranking", {"score": "s"}), "two": profile("classification", {"s": "s", "n": "n"})}
    with profiled(tmp_path / "p", {"s": scored, "n": LENGTHS}, views) as model:
        result = model.run({"s": np.ones((1, 2), np.float16), "n": np.array([3])})
        one, two = result.profile("one"), result.profile("two")
        assert isinstance(one, np.ndarray)
        assert isinstance(two, dict)
        assert (one.dtype, one.tolist()) == (np.dtype(np.float32), [[1, 1]])
        assert (sorted(two), two["n"].tolist()) == (["n", "s"], [3])
        assert [each["name"] for each in model.describe()["profiles"]] == ["one", "two"]


def test_damaged_profiles_have_a_name(tmp_path: Path) -> None:
    profiled(tmp_path / "p", {"s": HIDDEN}, {"one": profile("reranking", {"score": "s"})}).close()
    file = tmp_path / "p.compiled" / "manifest.json"
    data = json.loads(file.read_text("utf-8"))
    del data["profiles"][0]["kind"]
    file.write_text(json.dumps(data), "utf-8")
    with pytest.raises(LoadError, match="damaged-folder"):
        genai_runtime.load(tmp_path / "p.compiled")


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_shows_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    views = {
        "v": profile("embedding", {"x": "h", "n": "n"}, pooling={"kind": "max", "axis": 1}),
        "t": profile("transcription", {"x": "h"}, decoding={**CTC, "vocabulary": WORDS}),
    }
    profiled(tmp_path / "p", {"h": HIDDEN, "n": LENGTHS}, views).close()
    folder, given = str(tmp_path / "p.compiled"), ["--input", "h=[[[0,5,1,0],[0,0,9,0]]]", "--input", "n=[1]"]
    assert main([folder, "--task", "v", *given]) == 0
    assert json.loads(capsys.readouterr().out) == [[0, 5, 1, 0]]
    assert main([folder, "--task", "v", "--json", *given]) == 0
    assert json.loads(capsys.readouterr().out) == {"profile": "v", "kind": "embedding", "value": [[0, 5, 1, 0]]}
    assert main([folder, "--task", "t", *given]) == 0
    assert capsys.readouterr().out == "AB\n"
    np.save(tmp_path / "h.npy", np.ones((1, 2, 4), np.float32))
    out = tmp_path / "o.npy"
    assert (
        main([folder, "--task", "v", "--input", f"h={tmp_path / 'h.npy'}", "--input", "n=[2]", "--save", str(out)]) == 0
    )
    assert np.load(out).tolist() == [[1, 1, 1, 1]]
    capsys.readouterr()
    refused = [
        (["--input", "h"], "bad-inputs"),
        (["--input", "x=1"], "unknown-input"),
        (["--input", "h={}"], "bad-value"),
        (["--input", f"h={tmp_path / 'none.npy'}"], "no-such-file"),
        (["--tokens", "1"], "no-prompt-input"),
        (["--input", "n=[1.5]"], "bad-value"),
    ]
    for wrong, code in refused:
        assert main([folder, "--task", "v", *wrong]) == 2
        assert code in capsys.readouterr().err
    for inputs in (given, []):  # a text is no array: said before inputs are asked for
        assert main([folder, "--task", "t", *inputs, "--save", str(tmp_path / "text.npy")]) == 2
        assert "bad-value: this profile gives no array" in capsys.readouterr().err
    assert not (tmp_path / "text.npy").exists()
    for inputs in (given, []):  # a profile that is not there is said before anything is asked for or run
        assert main([folder, "--task", "nothing", *inputs]) == 2
        assert "no-profile" in capsys.readouterr().err
