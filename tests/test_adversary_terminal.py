"""Names of a hostile package in what the commands print: no terminal obeys them, and no line of theirs is ours."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import genai_runtime
import pytest
import yaml
from genai_compiler.cli import main
from genai_compiler.read.suggest import did_you_mean
from genai_runtime import RequestError

from tests.conftest import FIXTURES

NAME = "\x1b[2J\x9b1A\u202ex\n1 problem; nothing was written\rgone"
SHOWN = "\\x1b[2J\\x9b1A\\u202ex"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package whose outputs and inputs have such names."""
    folder = shutil.copytree(FIXTURES / "branch-joins", tmp_path / "package")
    text = (folder / "inference_metadata.yaml").read_text(encoding="utf-8")
    (folder / "inference_metadata.yaml").unlink()
    document = json.dumps(yaml.safe_load(text))
    for name in ("label", "selector"):
        document = document.replace(f'"{name}"', json.dumps(f"{name}{NAME}"))
    (folder / "inference_metadata.json").write_text(document)
    return folder


def obeyed(text: str) -> list[str]:
    return sorted({each for each in text if not each.isprintable() and each != "\n"})


def test_the_summary(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(package)]) == 0
    out = capsys.readouterr().out
    assert SHOWN in out
    assert obeyed(out) == []
    assert "\n1 problem" not in out


def broken(text: str) -> str:
    return text.replace('"emit", "value": "', f'"emit", "value": "{json.dumps(NAME)[1:-1]}')


def cyclic(text: str) -> str:
    return text.replace('"component": "', f'"component": "{json.dumps(NAME)[1:-1]}')


@pytest.mark.parametrize("damage", [broken, cyclic])
def test_problems(package: Path, capsys: pytest.CaptureFixture[str], damage: Callable[[str], str]) -> None:
    file = package / "inference_metadata.json"
    file.write_text(damage(file.read_text()))
    assert main([str(package)]) == 2
    err = capsys.readouterr().err
    assert SHOWN in err
    assert obeyed(err) == []
    heads = [line for line in err.splitlines() if not line.startswith(" ")]
    assert [line for line in heads if "nothing was written" in line] == heads[-1:], "theirs is indented, ours is not"
    assert main([str(package), "--format", "json"]) == 2
    assert any(NAME in each["what"] for each in json.loads(capsys.readouterr().out)["problems"]), "data keeps the name"


def test_failures_of_a_request(package: Path) -> None:
    assert main([str(package), "-q"]) == 0
    with (
        genai_runtime.load(package.parent / "package.compiled") as model,
        pytest.raises(RequestError) as refused,
    ):
        model.run({f"nope{NAME}": [1]})
    assert SHOWN in str(refused.value)
    assert obeyed(str(refused.value)) == []
    assert NAME in refused.value.what or repr(NAME)[1:-1] in refused.value.what


def test_a_list_of_long_names_helps_nobody() -> None:
    """Every fault of a document repeats it: sixteen names of a megabyte each were gigabytes."""
    assert did_you_mean("zzz", [letter * 100 for letter in "abcdefgh"]).startswith("known here: aaa")
    assert did_you_mean("zzz", [letter * 1000 for letter in "abcdefgh"]) == ""
