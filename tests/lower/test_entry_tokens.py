"""Which token stands for an entry of what a graph of a hub's folder makes: the one of its medium."""

import pytest
from genai_compiler.lower.plain_candidate import Candidate
from genai_compiler.lower.plain_pipeline import _entry_token
from genai_compiler.read.signature import Port, Signature

from tests.lower.hub_layout import SEEN
from tools.fixtures.genai_v2 import HEARD


def port(name: str, dtype: str, *shape: int | str) -> Port:
    return Port(name, dtype, shape)


PICTURES = [port("pixel_values", "float32", "pictures", 3, 8, 8)]
PATCHES = [port("pixel_values", "float32", "patches", 48), port("image_grid_thw", "int64", "pictures", 3)]
SOUNDS = [port("input_features", "float32", "sounds", 80, "frames")]
UNCLEAR = [port("values", "float32", "rows", "n", 40)]
BOTH = {"image_token_id": SEEN, "audio_token_index": HEARD}


@pytest.mark.parametrize(
    ("inputs", "others", "config", "tokens"),
    [
        (PICTURES, [], BOTH, {"image_token": SEEN}),
        (PICTURES, [], {"audio_token_id": HEARD}, {}),
        (PATCHES, [], BOTH, {"image_token": SEEN}),
        (SOUNDS, [], BOTH, {"audio_token": HEARD}),
        (SOUNDS, [], {"image_token_id": SEEN}, {}),
        (UNCLEAR, [], BOTH, {"audio_token": HEARD}),  # of two, and that it is one of two is a doubt
        (UNCLEAR, [], {"audio_token_id": HEARD}, {"audio_token": HEARD}),
        (UNCLEAR, [PICTURES], BOTH, {"audio_token": HEARD}),
        (UNCLEAR, [SOUNDS], BOTH, {"image_token": SEEN}),
        (UNCLEAR, [PICTURES], {"image_token_id": SEEN}, {}),
    ],
)
def test_which_token_stands_for_what_a_graph_makes(
    inputs: list[Port], others: list[list[Port]], config: dict[str, int], tokens: dict[str, int]
) -> None:
    graphs = [Candidate("a.onnx", None, signature(each), None) for each in (inputs, *others)]  # type: ignore[arg-type]
    assert _entry_token(graphs[0], graphs, config) == tokens


def signature(inputs: list[Port]) -> Signature:
    return Signature(tuple(inputs), (), (), (), (), ())
