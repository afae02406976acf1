"""Loading for text: the tokenizer is opened beside the sessions, and one that does not open is told when it is needed."""

import hashlib
import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
import tokenizers
from genai_compiler import compile_package
from genai_runtime import LoadError, cli, opening, tokenizer
from genai_runtime.ahead import Ahead

from tests.conftest import FIXTURES
from tests.runtime.test_ahead import Compiled, stated


def test_for_text_the_tokenizer_is_opened_before_the_sessions_are_asked_for(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, opens, takes = list[str](), tokenizer.open_tokenizer, Ahead.take

    def noted_open(*given: Any) -> Any:
        order.append("tokenizer")
        return opens(*given)

    def noted_take(self: Ahead, name: str) -> Any:
        order.append(name)
        return takes(self, name)

    monkeypatch.setattr(tokenizer, "open_tokenizer", noted_open)
    monkeypatch.setattr(Ahead, "take", noted_take)
    with genai_runtime.load(compiled("tiny-gqa-v1")[0], threads=1, text=True) as model:
        assert order == ["tokenizer", "decoder"]
        wanted = tokenizers.Tokenizer.from_file(str(FIXTURES / "tiny-gqa-v1" / "tokenizer.json")).encode("the hat").ids
        assert model.tokenizer.encode("the hat") == wanted
    assert order == ["tokenizer", "decoder"]


def test_a_package_without_a_tokenizer_loads_for_text_too(compiled: Compiled) -> None:
    with genai_runtime.load(compiled("session-counter")[0], threads=1, text=True) as model:
        with pytest.raises(LoadError) as caught:
            _ = model.tokenizer
        assert caught.value.code == "no-tokenizer"


def test_a_tokenizer_that_does_not_open_is_told_when_text_is_asked_for(tmp_path: Path) -> None:
    package = shutil.copytree(FIXTURES / "tiny-gqa-v1", tmp_path / "package")
    compile_package(package, out=tmp_path / "compiled")
    text = json.dumps({"model": {"type": "no such model"}})
    (package / "tokenizer.json").write_text(text, "utf-8")
    data = stated(tmp_path / "compiled")
    entry = next(each for each in data["files"] if each["path"] == "tokenizer.json")
    entry.update(size=len(text), sha256=hashlib.sha256(text.encode()).hexdigest())
    (tmp_path / "compiled" / "manifest.json").write_text(json.dumps(data), "utf-8")
    with genai_runtime.load(tmp_path / "compiled", threads=1, text=True) as model:
        assert len(model.generate([1, 9], max_new_tokens=2).tokens) == 2
        with pytest.raises(LoadError) as caught:
            model.generate("the hat", max_new_tokens=2)
        assert caught.value.code == "bad-tokenizer"


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--tokens", "1,9"], False),
        (["--describe"], False),
        (["--prompt", "the hat"], True),
        (["--chat", "the hat"], True),
    ],
)
def test_the_command_says_whether_text_comes(
    compiled: Compiled, arguments: list[str], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, whole = list[object](), opening.load

    def noted(*given: Any) -> Any:
        found.append(dict(zip(inspect.signature(whole).parameters, given, strict=False))["text"])
        raise KeyboardInterrupt

    monkeypatch.setattr(opening, "load", noted)
    assert cli.main([str(compiled("tiny-gqa-v1")[0]), *arguments]) == 3
    assert found == [wanted]
