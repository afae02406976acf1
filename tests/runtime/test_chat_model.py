"""Chat through a loaded model (known traps I): which prompt a conversation becomes, seen by what the model makes of it.

The model is tiny-gqa-v1, whose greedy tokens depend on every token of the prompt; the ids come from the tokenizers
library alone, the text is written out in each test.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import genai_runtime
import pytest
import tokenizers
from genai_compiler import check_package, compile_package
from genai_runtime import RequestError

from tests.conftest import FIXTURES

Make = Callable[..., genai_runtime.Model]
SOURCE = FIXTURES / "tiny-gqa-v1"
USER = [{"role": "user", "content": "hello"}]
TURNS = [*USER, {"role": "assistant", "content": "the inn"}, {"role": "user", "content": "what, then?"}]
SYSTEM = [{"role": "system", "content": "be terse"}, *USER]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """The fixture with another chat template: in tokenizer_config.json, or in files of their own, or nowhere."""

    def made(template: Any = None, tokenizer: Mapping[str, Any] | None = None, **files: str) -> genai_runtime.Model:
        package = tmp_path / "package"
        shutil.copytree(SOURCE, package)
        config = json.loads((package / "tokenizer_config.json").read_text("utf-8"))
        del config["chat_template"]
        if template is not None:
            config["chat_template"] = template
        (package / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        if tokenizer is not None:
            data = json.loads((package / "tokenizer.json").read_text("utf-8"))
            (package / "tokenizer.json").write_text(json.dumps({**data, **tokenizer}), encoding="utf-8")
        for name, text in files.items():
            (package / name.replace("__", ".")).write_text(text, encoding="utf-8")
        compile_package(package, out=tmp_path / "compiled")
        return genai_runtime.load(tmp_path / "compiled", threads=1)

    return made


def library_ids(text: str) -> list[int]:
    """The ids of a text whose special tokens are written out, nothing added."""
    return list(
        tokenizers.Tokenizer.from_file(str(SOURCE / "tokenizer.json")).encode(text, add_special_tokens=False).ids
    )


def assert_prompt(model: genai_runtime.Model, text: str, messages: Any = USER, **options: Any) -> None:
    """A chat is the continuation of exactly this prompt text."""
    wanted = model.generate(library_ids(text), max_new_tokens=12, temperature=0, stop_on_eos=False)
    chat = model.chat(messages, max_new_tokens=12, temperature=0, stop_on_eos=False, **options)
    assert chat.stats.prompt_tokens == len(library_ids(text))
    assert chat.tokens == wanted.tokens
    assert "".join(model.chat(messages, max_new_tokens=12, temperature=0, stop_on_eos=False, **options)) == wanted.text


def test_the_packages_own_template(tmp_path: Path) -> None:
    compile_package(SOURCE, out=tmp_path / "compiled")
    model = genai_runtime.load(tmp_path / "compiled", threads=1)
    assert_prompt(model, "<bos><|user|>hello<|end|><|assistant|>")
    assert_prompt(model, "<bos><|user|>hello<|end|>", add_generation_prompt=False)
    said = "<bos><|user|>hello<|end|><|assistant|>the inn<|end|><|user|>what, then?<|end|><|assistant|>"
    assert_prompt(model, said, TURNS)


def test_a_conversation_goes_on_with_what_the_model_said(tmp_path: Path) -> None:
    compile_package(SOURCE, out=tmp_path / "compiled")
    with genai_runtime.load(tmp_path / "compiled", threads=1) as model:
        first = model.chat(USER, max_new_tokens=6, temperature=0)
        said = first.text.strip()
        turns = [*USER, {"role": "assistant", "content": first.text}, {"role": "user", "content": "then"}]
        text = f"<bos><|user|>hello<|end|><|assistant|>{said}<|end|><|user|>then<|end|><|assistant|>"
        assert_prompt(model, text, turns)


# ---- I1, I2: what templates do ---------------------------------------------------------------------------------------

REAL = {
    "reverse slice": ("{% for m in messages[::-1] %}{{ m.content }} {% endfor %}", "what, then? the inn hello "),
    "slice with a bound": ("{% for m in messages[1:] %}{{ m.content }}{% endfor %}", "the innwhat, then?"),
    "namespace": (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
        "3",
    ),
    "startswith": ("{{ 'yes' if messages[0].content.startswith('he') else 'no' }}", "yes"),
    "replace": ("{{ messages[0].content.replace('l', 'n') }}", "henno"),
    "rstrip": ("{{ 'an hour   '.rstrip() }}.", "an hour."),
    "split": ("{{ messages[1].content.split(' ')[-1] }}", "inn"),
    "loop controls": ("{% for m in messages %}{% if loop.last %}{{ m.role }}{% endif %}{% endfor %}", "user"),
    "break": ("{% for m in messages %}{{ m.content }}{% break %}{% endfor %}", "hello"),
    "generation block": ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "hello"),
    "macro": ("{% macro say(m) %}{{ m.content }}{% endmacro %}{{ say(messages[1]) }}", "the inn"),
    "trim blocks": (
        "{% for m in messages %}\n  {% if m.role == 'assistant' %}\n{{ m.content }}\n{% endif %}{% endfor %}",
        "the inn\n",
    ),
    "special tokens": ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<bos>hello<eos>"),
}  # fmt: skip


@pytest.mark.parametrize("feature", REAL)
def test_i1_features_of_real_templates(make: Make, feature: str) -> None:
    template, text = REAL[feature]
    assert_prompt(make(template), text, TURNS)


def test_i2_a_date_helper(make: Make) -> None:
    model = make("{{ strftime_now('%d') | length }} {{ messages[0].content }}")
    assert_prompt(model, "2 hello")
    assert len(datetime.now().strftime("%d")) == 2


def test_i2_an_unknown_helper_is_never_passed_over(make: Make) -> None:
    model = make("{{ call_home('x') }}{{ messages[0].content }}")
    with pytest.raises(RequestError) as refused:
        model.chat(USER)
    assert refused.value.code == "chat-template-refused"
    assert "call_home" in refused.value.what


# ---- I4: where templates are -----------------------------------------------------------------------------------------


def test_i4_a_template_in_a_file_of_its_own(make: Make) -> None:
    assert_prompt(make(chat_template__jinja="a {{ messages[0].content }}"), "a hello")


def test_i4_the_file_is_before_the_config(make: Make) -> None:
    assert_prompt(make("b", chat_template__jinja="a {{ messages[0].content }}"), "a hello")


def test_i4_a_template_in_a_json_file(make: Make) -> None:
    text = json.dumps({"chat_template": "c {{ messages[0].content }}"})
    assert_prompt(make(chat_template__json=text), "c hello")


def test_i4_named_templates(make: Make) -> None:
    named = [{"name": "default", "template": "a {{ messages[0].content }}"},
             {"name": "tool_use", "template": "i {{ tools | length }} {{ messages[0].content }}"}]  # fmt: skip
    model = make(named)
    assert_prompt(model, "a hello")
    assert_prompt(model, "i 2 hello", tools=[{"name": "x"}, {"name": "y"}])


def test_i4_without_a_template_chat_is_refused_and_completion_works(make: Make) -> None:
    model = make()
    with pytest.raises(RequestError) as refused:
        model.chat(USER)
    assert refused.value.code == "no-chat-template"
    assert "chat_template.jinja" in refused.value.help
    assert len(model.generate("hello", max_new_tokens=3, stop_on_eos=False).tokens) == 3


# ---- I5, I6: system messages -----------------------------------------------------------------------------------------


def test_i5_a_refused_system_message_carries_the_templates_words(make: Make) -> None:
    model = make(chat_template__jinja=_own_template())
    with pytest.raises(RequestError) as refused:
        model.chat(SYSTEM)
    assert refused.value.code == "chat-template-refused"
    assert "only user and assistant can speak here" in refused.value.what
    assert "fold_system" in refused.value.help
    assert isinstance(refused.value, ValueError), "the request's fault, not the server's"
    assert_prompt(model, "<bos><|user|>be terse\n\nhello<|end|><|assistant|>", SYSTEM, fold_system=True)


def test_i6_a_system_message_after_the_first_place(make: Make) -> None:
    model = make(_own_template())
    late = [*TURNS[:2], {"role": "system", "content": "be terse"}, TURNS[2]]
    with pytest.raises(RequestError, match="only user and assistant"):
        model.chat(late)
    text = "<bos><|user|>hello<|end|><|assistant|>the inn<|end|><|user|>be terse\n\nwhat, then?<|end|><|assistant|>"
    assert_prompt(model, text, late, fold_system=True)


def _own_template() -> str:
    template = json.loads((SOURCE / "tokenizer_config.json").read_text("utf-8"))["chat_template"]
    assert isinstance(template, str)
    return template


# ---- I8, I10: which ids ----------------------------------------------------------------------------------------------

ADDS_BOS = {
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [1], "tokens": ["<bos>"]}},
    }
}


def test_i8_the_start_token_comes_once(make: Make) -> None:
    """The template writes it and the tokenizer would add it: chat has one, a plain prompt has the tokenizer's."""
    model = make(_own_template(), ADDS_BOS)
    assert_prompt(model, "<bos><|user|>hello<|end|><|assistant|>")
    assert model.tokenizer.encode("hello") == [1, *library_ids("hello")]
    bare = model.generate("hello", max_new_tokens=1, add_special_tokens=False)
    assert bare.stats.prompt_tokens == len(library_ids("hello"))
    assert model.generate("hello", max_new_tokens=1).stats.prompt_tokens == len(library_ids("hello")) + 1


def test_i8_a_real_double_prefix_stays(make: Make) -> None:
    assert_prompt(make("{{ bos_token }}{{ bos_token }}{{ messages[0].content }}", ADDS_BOS), "<bos><bos>hello")


def test_i10_strip_flags_are_heeded(make: Make) -> None:
    """A special token with rstrip swallows the spaces after it, as in the reference library."""
    data = json.loads((SOURCE / "tokenizer.json").read_text("utf-8"))
    added = [{**each, "rstrip": each["content"] == "<|user|>"} for each in data["added_tokens"]]
    model = make("{{ bos_token }}<|user|>  hello", {"added_tokens": added})
    reference = tokenizers.Tokenizer.from_str(json.dumps({**data, "added_tokens": added}))
    ids = reference.encode("<bos><|user|>  hello", add_special_tokens=False).ids
    assert ids == library_ids("<bos><|user|>hello") != library_ids("<bos><|user|>  hello")
    assert_prompt(model, "<bos><|user|>hello")


def test_i10_ids_without_specials(make: Make) -> None:
    model = make(None, ADDS_BOS)
    assert model.tokenizer.encode("then", add_special_tokens=False) == library_ids("then")


def test_i8_checking_a_package_warns_of_two_start_tokens(make: Make, tmp_path: Path) -> None:
    make(_own_template(), ADDS_BOS)
    assert any("start token" in each.what for each in check_package(tmp_path / "package"))
