"""K2: what an encoder-decoder says does not depend on how far its source is padded."""

from pathlib import Path

import genai_runtime
import numpy as np
import onnxruntime
import pytest
from genai_compiler import compile_package

from tests.reference.values import Array
from tests.traps.encoder_decoder import HIDDEN, encoder_decoder_package

SOURCES = [[3, 17, 5, 22, 9], [30, 4], [8, 8, 31, 2, 19, 11, 25]]
PADDING = 17
STEPS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encoder_decoder_package(tmp_path_factory.mktemp("encoder-decoder") / "package")


@pytest.fixture(scope="module")
def model(folder: Path) -> genai_runtime.Model:
    compile_package(folder, out=folder.with_name("compiled"))
    return genai_runtime.load(folder.with_name("compiled"), threads=1)


def translated(model: genai_runtime.Model, sources: list[list[int]], width: int, blind: bool = False) -> Array:
    """Tokens [rows, 12] of sources padded on the right to `width`; blind: the mask hides nothing."""
    ids = np.array([each + [PADDING] * (width - len(each)) for each in sources])
    mask = np.array([[1] * len(each) + [int(blind)] * (width - len(each)) for each in sources])
    start = np.full((len(sources), 1), 1)
    return model.run({"source": ids, "mask": mask, "start": start, "steps": np.array([STEPS])})["tokens"]


def plain(folder: Path, source: list[int]) -> list[int]:
    """The unpadded source through the bare graphs."""
    encoder, decoder = (onnxruntime.InferenceSession(str(folder / f"{name}.onnx")) for name in ("encoder", "decoder"))
    mask = np.ones((1, len(source)), np.int64)
    (hidden,) = encoder.run(["hidden"], {"source": np.array([source]), "mask": mask})
    token, memory, tokens = np.array([[1]]), np.zeros((1, HIDDEN), np.float32), []
    for _ in range(STEPS):
        feeds = {"token": token, "memory": memory, "hidden": hidden, "mask": mask}
        token, memory = decoder.run(["next", "next_memory"], feeds)
        tokens.append(int(token[0, 0]))
    return tokens


@pytest.mark.parametrize("source", SOURCES, ids=len)
def test_k2_padding_changes_nothing(folder: Path, model: genai_runtime.Model, source: list[int]) -> None:
    wanted = plain(folder, source)
    for width in (len(source), 8, 64):
        assert translated(model, [source], width).tolist() == [wanted]


def test_k2_the_mask_is_what_makes_it_so(model: genai_runtime.Model) -> None:
    seeing, blind = (translated(model, SOURCES, 64, blind=each) for each in (False, True))
    assert (seeing != blind).any(axis=1).sum() >= 2


def test_k2_rows_of_a_batch_equal_their_solo_runs(folder: Path, model: genai_runtime.Model) -> None:
    assert translated(model, SOURCES, 9).tolist() == [plain(folder, each) for each in SOURCES]
