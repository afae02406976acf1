"""A chat template that can't be read is said when the package is compiled, as a chat would say it."""

import json
import shutil
from pathlib import Path

import genai_runtime
import pytest
from genai_compiler import compile_package
from genai_runtime.problem import LoadError

from tests.data import ROOT

PACKAGE = ROOT / "fixtures" / "tiny-concat-v1"
BROKEN = "a\n{{ foo( }}"
SOUND = "{% for each in messages %}{{ each.content }}{% endfor %}"


def told(folder: Path) -> list[tuple[str, str, str]]:
    problems = compile_package(folder, out=folder.with_name(f"{folder.name}.out")).problems
    return [(each.severity.value, each.where.file, each.what) for each in problems if "template" in each.code]


def package(folder: Path, **templates: str) -> Path:
    """One template as chat_template.jinja, several in tokenizer_config.json."""
    shutil.copytree(PACKAGE, folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    config = folder / "tokenizer_config.json"
    stated = json.loads(config.read_text()) if config.exists() else {}
    stated.pop("chat_template", None)
    if len(templates) > 1:
        stated["chat_template"] = [{"name": name, "template": text} for name, text in templates.items()]
    else:
        (folder / "chat_template.jinja").write_text(*templates.values())
    config.write_text(json.dumps(stated))
    return folder


def test_a_broken_template_is_said_in_the_words_of_a_chat(tmp_path: Path) -> None:
    ((severity, file, what),) = told(package(tmp_path / "p", default=BROKEN))
    assert (severity, file) == ("warning", "chat_template.jinja")
    assert "at line 2" in what
    with (
        genai_runtime.load(tmp_path / "p.out", threads=1) as model,
        pytest.raises(LoadError, match="chat-template-broken") as caught,
    ):
        _ = model.chat([{"role": "user", "content": "a"}]).tokens
    assert caught.value.what == what


def test_one_of_several_is_named(tmp_path: Path) -> None:
    ((_, file, what),) = told(package(tmp_path / "p", default=SOUND, tool_use=BROKEN))
    assert file == "tokenizer_config.json"
    assert "'tool_use'" in what


def test_a_template_that_only_a_run_refuses_is_not_said(tmp_path: Path) -> None:
    assert told(package(tmp_path / "p", default="{{ raise_exception('no') }}")) == []
    assert told(package(tmp_path / "q", default=SOUND, tool_use=SOUND)) == []


def test_no_more_is_read_than_one_template_may_have(tmp_path: Path) -> None:
    long = "x" * 200_000
    assert told(package(tmp_path / "p", a=long, b=long + BROKEN)) == []
    assert "over" in told(package(tmp_path / "q", default="x" * 300_000, other=SOUND))[0][2]
