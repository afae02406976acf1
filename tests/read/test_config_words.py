"""Values of a wrong type in genai_config.json are shown as JSON has them, and cut where they are long."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from genai_compiler import CompileError, compile_package

from tests.conftest import FIXTURES


@pytest.mark.parametrize(("value", "shown"), [(True, "not true"), ("x" * 5000, "not 'xxx"), ([1], "not a list")])
def test_a_wrong_value_is_shown_as_the_file_has_it(tmp_path: Path, value: Any, shown: str) -> None:
    package = shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")
    file = package / "genai_config.json"
    config = json.loads(file.read_text("utf-8"))
    config["search"]["temperature"] = value
    file.write_text(json.dumps(config), "utf-8")
    with pytest.raises(CompileError) as refused:
        compile_package(package, out=tmp_path / "out")
    (what,) = [each.what for each in refused.value.problems if each.code == "wrong-type"]
    assert shown in what
    assert len(what) < 400
