"""Many pictures of one request: a loop over them ends behind the last one, and no number of them is dropped unsaid.

Expected tokens come from the stages' graphs in bare ONNX Runtime sessions and a plain loop over pictures and tokens.
"""

from pathlib import Path
from typing import Any

import genai_runtime
import numpy as np
import pytest
from genai_compiler import compile_package

from tests.conftest import FIXTURES
from tests.images.processors import picture
from tests.test_stages_beside import decoded
from tests.test_vision_stages import IMAGE, Array, behind, features, pictures, written_over
from tools.fixtures.vision_stages import tiny_vision_stages_v1

NEW, ROWS, EACH = 4, 22, 47
"""Of each of 22 texts 47 entries, one a picture: 1034 pictures, and more entries than one text has room for (64)."""


def test_more_pictures_than_a_thousand_give_the_tokens_of_a_plain_loop(tmp_path: Path) -> None:
    package, grids = tmp_path / "p", [(2, 2)] * ROWS * EACH
    tiny_vision_stages_v1(package)
    compile_package(package, out=tmp_path / "out")
    given, prompt = pictures(grids), [1, 5, *[IMAGE] * EACH, 9, 14]
    entries, whole = features(package, given["pixel_values"], grids), behind(tmp_path / "w")

    def tokens(of_row: Array) -> list[int]:
        return decoded(whole, written_over(package / "embeddings.onnx", of_row), prompt, NEW)

    wanted = [tokens(each) for each in np.split(entries, ROWS)]
    assert wanted[-1] != tokens(entries[-EACH:1024])  # it would be no test if the last pictures did not count
    with genai_runtime.load(tmp_path / "out", threads=1) as model:
        inputs: dict[str, Any] = {"request.input_ids": [prompt] * ROWS, "request.max_iterations": [NEW], **given}
        made = model.run(inputs, stop_on_eos=False)
        assert [[int(each) for each in np.ravel(row)] for row in made.rows("tokens")] == wanted
        fewer = [[*prompt[:-12], *[9] * 12]] + [prompt] * (ROWS - 1)  # 1024 entries in all
        with pytest.raises(genai_runtime.RequestError, match="image-tokens") as caught:
            model.run({**inputs, "request.input_ids": fewer})
        assert "1024 tokens" in str(caught.value)
        assert f"{ROWS * EACH} entries" in str(caught.value)


def test_more_files_than_a_thousand_are_refused_with_the_number(tmp_path: Path) -> None:
    compile_package(FIXTURES / "tiny-budget-v1", out=tmp_path / "out")
    files = [picture(8, 8)[1]] * 1025
    with genai_runtime.load(tmp_path / "out", threads=1, timings=True) as model:
        assert model.timings is not None
        for call in (model.count_tokens, model.generate):
            with pytest.raises(genai_runtime.RequestError, match="image-limit: 1025 pictures"):
                call([1, 5], images=files)
        with pytest.raises(genai_runtime.RequestError, match="image-limit: 1025 pictures"):
            model.run({"request.input_ids": [[1, 5]], "request.image": files})
        assert not model.timings.spans
