"""Sessions written out and taken up again: semantic cells, equal contracts, nothing executed (standard, 3.8, V344)."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package
from genai_runtime import Model, RequestError

from tests.conftest import FIXTURES
from tests.flow_packages import add, flow_package, session_cell
from tests.reference.plain_loop import greedy
from tests.runtime.conversations import conversation
from tools.fixtures.document import Document, emit, loop, tensor


def counted(model: Model, times: int, session: str, step: int = 2) -> list[int]:
    return model.run({"times": np.array([times]), "step": np.array([step])}, session=session)["count"].tolist()


def refused(call: Callable[[], object], code: str) -> RequestError:
    with pytest.raises(RequestError) as caught:
        call()
    assert caught.value.code == code
    return caught.value


def test_a_session_goes_on_in_another_process(model: Callable[[str], Model], compiled: Any) -> None:
    counter = model("session-counter")
    for name in ("x", "y"):
        counter.reset(name)
    assert counted(counter, 2, "x") == [4]
    data = counter.checkpoint("x")
    assert counted(counter, 1, "x") == [6]
    with genai_runtime.load(compiled("session-counter")[0]) as other:
        other.restore("x", data)
        assert counted(other, 1, "x") == [6], "as the first model went on"
        other.restore("x", data)
        assert counted(other, 1, "x", 5) == [9], "the state that was there is replaced"
    counter.restore("y", data)
    assert counted(counter, 2, "y") == [8]


def test_the_bytes_are_plain_arrays(model: Callable[[str], Model]) -> None:
    counter = model("session-counter")
    counter.reset("x")
    counted(counter, 3, "x")
    with np.load(io.BytesIO(counter.checkpoint("x")), allow_pickle=False) as archive:
        header = json.loads(archive["header"].tobytes())
        held = {each["name"]: archive[f"cell{at}"].tolist() for at, each in enumerate(header["cells"])}
    assert held == {"count": [6], "log": [2, 4, 6]}
    assert [(each["name"], each["dtype"], each["shape"]) for each in header["cells"]] == [
        ("count", "int64", [1]),
        ("log", "int64", [None]),
    ]


def test_a_conversation_goes_on(tmp_path: Path) -> None:
    case = "tiny-runtime-policy"
    with genai_runtime.load(conversation(tmp_path / case, case)) as talking:
        options: dict[str, Any] = {"max_new_tokens": 3, "stop_on_eos": False}
        first = talking.generate([1, 9, 14], session="a", **options).tokens
        talking.restore("b", talking.checkpoint("a"))
        wanted = greedy(FIXTURES / case / "model.onnx", [1, 9, 14, *first, 7], 3)
        assert talking.generate([7], session="b", **options).tokens == wanted
        assert talking.generate([7], session="a", **options).tokens == wanted
        data, named = talking.checkpoint("a"), tensor("int64", "rows", "n", rows=True)
        with genai_runtime.load(conversation(tmp_path / "other" / case, case, contract=named)) as differs:
            assert "rows" in refused(lambda: differs.restore("a", data), "bad-checkpoint").what


def archive(cells: list[dict[str, Any]], *arrays: Any, format: str = "genai-session-1", **more: Any) -> bytes:
    held = io.BytesIO()
    header = np.frombuffer(json.dumps({"format": format, "cells": cells}).encode(), np.uint8)
    np.savez(held, header=header, **{f"cell{at}": each for at, each in enumerate(arrays)}, **more)
    return held.getvalue()


COUNT = {"name": "count", "dtype": "int64", "shape": [1]}


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("executed"),))


def compressed() -> bytes:
    held = io.BytesIO()
    np.savez_compressed(held, header=np.frombuffer(b'{"format":"genai-session-1","cells":[]}', np.uint8))
    return held.getvalue()


def too_large() -> bytes:
    """A zip whose directory promises more than there is."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("cell0.npy", b"\0" * (1 << 24))
    return held.getvalue()


def overlapping() -> bytes:
    """A good checkpoint whose directory names its array a thousand times: each time it would be read anew."""
    held = io.BytesIO(archive([COUNT], np.array([1])))
    with zipfile.ZipFile(held, "a") as members:
        members.filelist += [members.getinfo("cell0.npy")] * 1000
        members._didModify = True  # type: ignore[attr-defined]
    return held.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a zip",
        pickle.dumps(_Trap()),
        archive([COUNT], np.array([_Trap()], dtype=object)),
        compressed(),
        too_large(),
        archive([COUNT], np.array([1]), format="other-1"),
        archive([{**COUNT, "name": "nothing"}], np.array([1])),
        archive([{**COUNT, "dtype": "float32"}], np.array([1.0], np.float32)),
        archive([{**COUNT, "shape": [2]}], np.array([1, 2])),
        archive([COUNT], np.array([1, 2])),
        archive([COUNT], np.array([[1]])),
        archive([COUNT], np.array([1.0])),
        archive([COUNT]),
        archive([], np.array([1])),
        archive([COUNT, COUNT], np.array([1]), np.array([1]))[:-30],
        overlapping(),
        archive(["count"], np.array([1])),  # type: ignore[list-item]
        "text",
        None,
    ],
    ids=range(20),
)
def test_bytes_that_are_no_checkpoint(
    model: Callable[[str], Model], data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    counter = model("session-counter")
    counter.reset("x")
    assert counted(counter, 2, "x") == [4]
    refused(lambda: counter.restore("x", data), "bad-checkpoint")
    assert counted(counter, 1, "x") == [6], "a refused checkpoint changes nothing"
    assert list(tmp_path.iterdir()) == []


def test_sessions_that_are_not_there_or_in_use(model: Callable[[str], Model]) -> None:
    counter = model("session-counter")
    counter.reset("x")
    refused(lambda: counter.checkpoint("x"), "no-session")
    counted(counter, 1, "x")
    data = counter.checkpoint("x")
    stream = counter.stream({"times": np.array([3]), "step": np.array([1])}, session="x")
    next(stream)
    refused(lambda: counter.checkpoint("x"), "session-busy")
    refused(lambda: counter.restore("x", data), "session-busy")
    stream.close()
    refused(lambda: counter.restore(7, data), "bad-session")  # type: ignore[arg-type]


def test_advisory_cells_are_left_out(tmp_path: Path) -> None:
    """`total` is semantic, `hint` is advisory: after a restore it starts anew."""
    state: Document = {"total": session_cell("a"), "hint": {**session_cell("a"), "class": "advisory"}}
    steps = [
        loop([add("total", "b", "total.next"), add("hint", "b", "hint.next")], "package.true", "n",
             {"total": "total.next", "hint": "hint.next"}),
        add("total", "hint", "both"), emit("both", "out"),
    ]  # fmt: skip
    folder = flow_package(tmp_path / "p", steps, state)
    file = folder / "inference_metadata.yaml"
    text = file.read_text("utf-8").replace("bounded_state_recurrence", "bounded_state_recurrence, advisory_state")
    file.write_text(text, "utf-8")
    compile_package(folder, out=tmp_path / "c")
    with genai_runtime.load(tmp_path / "c") as model:
        inputs = {"a": np.array([10]), "b": np.array([1]), "n": np.array([1]), "m": np.array([0])}
        assert model.run(inputs, session="s")["out"].tolist() == [11 + 11]
        model.restore("t", model.checkpoint("s"))
        assert model.run(inputs, session="t")["out"].tolist() == [12 + 11]
        assert model.run(inputs, session="s")["out"].tolist() == [12 + 12]
