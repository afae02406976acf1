"""Chat templates: conventions, places, refusals, and what a hostile one may not do; expected texts by hand."""

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from genai_runtime.chat_template import ChatTemplate, doubles_start_token, encode_chat, read_chat_template
from genai_runtime.problem import LoadError, RequestError
from genai_runtime.text_files import TextFiles
from genai_runtime.tokenizer import open_tokenizer

from tests.data import DATA, needs_data
from tests.runtime.tiny_tokenizers import byte_level, opened

USER = [{"role": "user", "content": "hi"}]
TURNS = [*USER, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "bye"}]


def render(source: str, messages: Any = USER, **options: Any) -> str:
    return ChatTemplate({"default": source}, {"bos_token": "<s>", "eos_token": "</s>"}).render(messages, **options)


FEATURES = {
    "reverse slice": ("{% for m in messages[::-1] %}{{ m.content }},{% endfor %}", "bye,yo,hi,"),
    "slice": ("{% set rest = messages[1:] %}{{ rest|length }}{{ messages[-1]['content'] }}", "2bye"),
    "namespace": ("{% set n = namespace(i=0) %}{% for m in messages %}{% set n.i = n.i + 1 %}{% endfor %}{{ n.i }}",
                  "3"),
    "startswith": ("{{ messages[0].content.startswith('h') }}{{ 'ab'.endswith('b') }}", "TrueTrue"),
    "replace": ("{{ messages[0].content.replace('h', 'H') }}{{ 'aa'|replace('a', 'b') }}", "Hibb"),
    "strip": ("{{ ' a '.strip() }}{{ ' a '.rstrip() }}{{ '\\n a'.lstrip('\\n') }}{{ ' a '|trim }}", "a a aa"),
    "split": ("{{ 'a</think>b'.split('</think>')[-1] }}", "b"),
    "concat": ("{{ 'a' ~ 1 ~ messages[0].role }}{{ 'x' + 'y' }}", "a1userxy"),
    "loop": ("{% for m in messages %}{{ loop.index0 }}{{ '.' if loop.last else ',' }}{% endfor %}", "0,1,2."),
    "loop neighbours": ("{% for m in messages %}{{ loop.previtem.role if loop.previtem else '-' }}{% endfor %}",
                        "-userassistant"),
    "loop length": ("{% for m in messages %}{{ loop.revindex }}{{ loop.length }}{% endfor %}", "332313"),
    "loop filter": ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% else %}no{% endfor %}", "hibye"),
    "loop controls": ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.content }}{% break %}"
                      "{% endfor %}", "yo"),
    "macro": ("{% macro f(x, y='!') %}{{ x }}{{ y }}{% endmacro %}{{ f('a') }}{{ f('b', y='?') }}", "a!b?"),
    "recursive loop": ("{% for x in [[1, [2]], [3]] recursive %}{{ x if x is number else '(' ~ loop(x) ~ ')' }}"
                       "{% endfor %}", "(1(2))(3)"),
    "select": ("{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|join(';') }}", "hi;bye"),
    "tests": ("{{ tools is none }}{{ x is defined }}{{ 'a' is string }}{{ messages is iterable }}",
              "TrueFalseTrueTrue"),
    "dict items": ("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}{{ {'a': 3}.get('a') }}",
                   "a1b23"),
    "dictsort": ("{% for k, v in {'b': 2, 'a': 1}|dictsort %}{{ k }}{{ v }}{% endfor %}", "a1b2"),
    "in": ("{{ 'h' in messages[0].content }}{{ 'role' in messages[0] }}{{ 3 not in [1] }}", "TrueTrueTrue"),
    "tojson": ("{{ {'b': '<é>&\\'', 'a': [1, none]}|tojson }}", '{"b": "<é>&\'", "a": [1, null]}'),
    "tojson indent": ("{{ {'a': 1}|tojson(indent=2) }}", '{\n  "a": 1\n}'),
    "format": ("{{ '%s-%02d'|format('a', 3) }}{{ '{}:{:>3}'.format('a', 1) }}{{ '%.1f' % 2.25 }}", "a-03a:  12.2"),
    "trim blocks": ("  {% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb"),
    "white space control": ("a \n{%- if true -%}\n b \n{%- endif -%} c", "abc"),
    "generation tag": ("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
                       "hiyobye"),
    "set block": ("{% set x %}[{{ messages[0].content }}]{% endset %}{{ x }}{{ x|length }}", "[hi]4"),
    "call block": ("{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}a{% endcall %}", "<a>"),
    "filter block": ("{% filter upper %}a{{ messages[0].content }}{% endfilter %}", "AHI"),
    "start tokens": ("{{ bos_token }}{{ eos_token }}{{ pad_token }}", "<s></s>"),
    "generation prompt": ("{% if add_generation_prompt %}>{% endif %}", ">"),
    "conditional": ("{{ 'a' if messages|length > 5 else 'b' }}{{ x or 'd' }}{{ (messages|last).content }}", "bdbye"),
    "not escaped": ("{{ '<b>&' }}{{ '\\'' }}", "<b>&'"),
    "numbers": ("{{ 7 // 2 }}{{ 2 ** 3 }}{{ 7 % 4 }}{{ 3 * 'ab' }}{{ [1] + [2] }}", "383ababab[1, 2]"),
}  # fmt: skip


@pytest.mark.parametrize("feature", FEATURES)
def test_i1_template_features(feature: str) -> None:
    source, expected = FEATURES[feature]
    assert render(source, TURNS) == expected


def test_i2_strftime_now() -> None:
    template = ChatTemplate({"default": "{{ strftime_now('%d %b %Y') }}"}, clock=lambda: datetime(2024, 7, 26))
    assert template.render(USER) == "26 Jul 2024"


def test_tools_and_extra_variables_reach_the_template() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    source = "{% for t in tools %}{{ t.function.name }}{% endfor %}{{ enable_thinking }}{{ add_generation_prompt }}"
    assert render(source, tools=[tool], enable_thinking=False, add_generation_prompt=False) == "fFalseFalse"


def test_parts_pass_through_to_a_template_that_knows_them() -> None:
    parts = [{"type": "image"}, {"type": "text", "text": "a"}]
    source = "{% for p in messages[0].content %}{{ '<img>' if p.type == 'image' else p.text }}{% endfor %}"
    assert render(source, [{"role": "user", "content": parts}]) == "<img>a"


def test_parts_that_are_text_are_joined_for_a_template_that_knows_none() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render("{{ messages[0].content }}", [{"role": "user", "content": parts}]) == "ab"
    with pytest.raises(RequestError, match="bad-messages"):
        render("{{ messages[0].content }}", [{"role": "user", "content": [{"type": "image"}]}])


def test_i4_a_template_in_each_place(tmp_path: Path) -> None:
    places = {"tokenizer_config.json": json.dumps({"chat_template": "config"}),
              "chat_template.json": json.dumps({"chat_template": "json"}), "chat_template.jinja": "jinja"}  # fmt: skip
    for name, text in places.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def found(**files: str) -> str:
        return read_chat_template(tmp_path, TextFiles(**files)).render(USER)

    config = {"tokenizer_config": "tokenizer_config.json"}
    assert found(**config) == "config"
    assert found(chat_template="chat_template.json", **config) == "json"
    assert found(chat_template="chat_template.jinja", **config) == "jinja"
    assert found(chat_template="chat_template.jinja") == "jinja"


def test_i4_named_templates(tmp_path: Path) -> None:
    named = [
        {"name": "default", "template": "d"},
        {"name": "tool_use", "template": "t"},
        {"name": "rag", "template": "r"},
    ]
    (tmp_path / "c.json").write_text(json.dumps({"chat_template": named}), encoding="utf-8")
    template = read_chat_template(tmp_path, TextFiles(tokenizer_config="c.json"))
    tool = {"type": "function"}
    assert (template.render(USER), template.render(USER, [tool]), template.render(USER, template="rag")) == (
        "d",
        "t",
        "r",
    )
    with pytest.raises(RequestError, match=r"no chat template 'no'.*default.*rag"):
        template.render(USER, template="no")
    assert ChatTemplate({"only": "o"}).render(USER, [tool]) == "o"
    with pytest.raises(RequestError, match="no-chat-template"):
        ChatTemplate({"a": "a", "b": "b"}).render(USER)


def test_i4_without_a_template_chat_is_refused_and_completion_works(tmp_path: Path) -> None:
    tokenizer = opened(tmp_path, byte_level(), {})
    template = read_chat_template(tmp_path, TextFiles(), tokenizer)
    with pytest.raises(RequestError, match="no-chat-template"):
        encode_chat(tokenizer, template, USER)
    assert tokenizer.decode(tokenizer.encode("hi")) == "hi"


def test_a_broken_template_is_a_load_error_only_when_used(tmp_path: Path) -> None:
    template = ChatTemplate({"default": "a\n{% for %}"})
    with pytest.raises(LoadError, match=r"chat-template-broken.*line 2"):
        template.render(USER)
    with pytest.raises(LoadError, match="chat-template-broken"):
        render("x" * 300_000)
    (tmp_path / "c.json").write_text('{"chat_template": [1]}', encoding="utf-8")
    with pytest.raises(LoadError, match="chat-template-broken"):
        read_chat_template(tmp_path, TextFiles(tokenizer_config="c.json"))


REFUSES = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "[{{ m.role }}:{{ m.content }}]{% endfor %}"
)


def test_i5_a_refused_system_message_and_its_folding() -> None:
    messages = [{"role": "system", "content": "be brief"}, *USER]
    with pytest.raises(RequestError, match=r"chat-template-refused: System role not supported(?s:.*)fold_system"):
        render(REFUSES, messages)
    assert render(REFUSES, messages, fold_system=True) == "[user:be brief\n\nhi]"
    assert messages[1]["content"] == "hi"


def test_i6_a_system_message_after_the_first_place() -> None:
    messages = [*TURNS[:2], {"role": "system", "content": "S"}]
    assert render(REFUSES, messages, fold_system=True) == "[user:hi][assistant:yo][user:S]"
    assert render(REFUSES, [*messages, *USER], fold_system=True) == "[user:hi][assistant:yo][user:S\n\nhi]"
    assert render(REFUSES, [*USER, messages[2]], fold_system=True) == "[user:hi\n\nS]"


def test_i5_folding_into_parts() -> None:
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}]
    source = "{% for p in messages[0].content %}{{ p.text }};{% endfor %}"
    assert render(source, messages, fold_system=True) == "S;a;"


@pytest.mark.parametrize("source", ["{{ messages.nothing.at_all }}", "{{ 1 + 'a' }}", "{{ [][3].x }}", "{{ 1 // 0 }}",
                                    "{{ nothing() }}", "{% include 'a' %}"])  # fmt: skip
def test_any_failure_inside_a_template_is_a_refusal(source: str) -> None:
    with pytest.raises(RequestError, match="chat-template-refused"):
        render(source)


@pytest.mark.parametrize(
    "messages", [[], "hi", 5, {"role": "user"}, ["hi"], [{"content": "a"}], [{"role": "user", "content": 3}]]
)
def test_bad_messages_are_refused(messages: Any) -> None:
    with pytest.raises(RequestError, match="bad-messages"):
        render("x", messages)


def test_i8_the_start_token_comes_once(tmp_path: Path) -> None:
    tokenizer = opened(tmp_path, byte_level(), {"bos_token": "<s>"})
    with_start = ChatTemplate({"default": "{{ bos_token }}{{ messages[0].content }}"}, tokenizer.special)
    without = ChatTemplate({"default": "{{ messages[0].content }}"}, tokenizer.special)
    double = ChatTemplate({"default": "{{ bos_token }}{{ bos_token }}x"}, tokenizer.special)
    start = tokenizer.bos_id
    assert encode_chat(tokenizer, with_start, USER).count(start) == 1  # type: ignore[arg-type]
    assert encode_chat(tokenizer, without, USER).count(start) == 0  # type: ignore[arg-type]
    assert encode_chat(tokenizer, double, USER)[:2] == [start, start]
    assert doubles_start_token(tokenizer, with_start)
    assert not doubles_start_token(tokenizer, without)
    assert not doubles_start_token(tokenizer, ChatTemplate({}))


HOSTILE = [
    "{{ 'a' * 10**10 }}",
    "{{ ('a' * 1000000) * 1000000 }}",
    "{{ [[1] * 10000] * 10000 }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% set r = range(99999)|list %}{% for a in r %}{% for b in r if false %}{% endfor %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n }}",
    "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}"
    "{% endfor %}{{ n.x == n.y }}",
    "{% set n = namespace(x=(1,)) %}{% for i in range(60) %}{% set n.x = (n.x, n.x) %}{% endfor %}{{ {n.x: 1} }}",
    "{% set n = namespace(x=(1,)) %}{% for i in range(60) %}{% set n.x = (n.x, n.x) %}{% endfor %}{{ {}[n.x] }}",
    "{% set n = namespace(x=3) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{{ 9 ** (9 ** 9) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%.1000000000f' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{0:{1}{1}{1}{1}{1}{1}{1}{1}{1}}'.format('a', 9) }}",
    "{{ 'a'.ljust(10**10) }}",
    "{{ 'a'|center(10**10) }}",
    "{{ 'a\na'|indent(10**10) }}",
    "{{ ('a\n' * 100000)|indent(100000) }}",
    "{% set x = 'a' * 100000 %}{{ x.replace('a', x) }}",
    "{% set x = 'a' * 100000 %}{{ x|replace('a', x) }}",
    "{% set x = 'a' * 100000 %}{{ range(99999)|join(x) }}",
    "{% set x = 'a' * 100000 %}{{ x.join(range(99999)|map('string')|list) }}",
    "{{ [1]|batch(10**9, 1)|list }}",
    "{{ [1]|slice(10**9)|list }}",
    "{{ (range(99999)|batch(1)|list)|sum(start=[]) }}",
    "{{ 1.5|round(10**9) }}",
    "{{ [[[[1]]]]|tojson(indent=10**9) }}",
    "{% macro d(x) %}{{ x }}{{ x }}{% endmacro %}" + "{{ " + "d(" * 40 + "'ab'" + ")" * 40 + " }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% set x = 'a' * 4000000 %}{% for i in range(99999) %}{% if x[1:] == x[:3999999] %}{% endif %}{% endfor %}",
    "{% set y %}{% for i in range(99999) %}" + "x" * 100_000 + "{% endfor %}{% endset %}",
    "{% for i in range(99999) %}" + "x" * 100_000 + "{% endfor %}",
    *("{% set x = 'a' * 3000000 %}{% set y = 'a' * 500000 ~ 'b' ~ 'a' * 500000 %}{{ x." + name + "(y) }}"
      for name in ("rfind", "rindex", "rsplit", "rpartition")),
    *("{% set x = '\u1234' * 3000000 %}{{ x" + strip + "('\u2345' * 3000000 ~ '\u1234') }}"
      for strip in (".strip", ".lstrip", ".rstrip", "|trim")),
    "{{ ('a' * 4000000)|wordwrap(1) }}",
    "{{ ('a' * 4000000)|wordwrap }}",
]  # fmt: skip


@pytest.mark.parametrize("source", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_template_is_stopped(source: str) -> None:
    """Unbounded, each of these takes hours or more memory than there is: that this ends at all is the test."""
    with pytest.raises(RequestError, match="chat-template-limit"):
        render(source)


@pytest.mark.parametrize("source", [
    "{{ ().__class__.__bases__ }}", "{{ messages.append(1) }}", "{{ messages[0].update({}) }}", "{{ lipsum(10) }}",
    "{{ 'a'.translate({97: 'b'}) }}", "{{ range(10**9) }}", "{{ ''.__class__.mro() }}",
    "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
])  # fmt: skip
def test_the_sandbox_refuses(source: str) -> None:
    with pytest.raises(RequestError, match="chat-template-refused"):
        render(source)


def test_what_the_sandbox_hides_is_undefined() -> None:
    assert (
        render(
            "{{ ''.format.__self__ }}{{ '{0.__class__}'.format(1) }}{{ raise_exception.__globals__ }}{{ ().__class__ }}"
        )
        == ""
    )


def test_a_long_conversation_is_no_attack() -> None:
    source = (
        "{% for m in messages %}{% if loop.index0 % 2 == 0 and m.role != 'user' %}{{ raise_exception('order') }}"
        "{% endif %}{{ '<|' + m.role + '|>' + m['content'] | trim + '</s>' }}{% endfor %}"
    )
    messages = [{"role": ("user", "assistant")[i % 2], "content": "word " * 800} for i in range(1000)]
    start = time.process_time()
    assert len(render(source, messages)) > 4_000_000
    assert time.process_time() - start < 60  # a guard against the quadratic, not a measurement


@needs_data
def test_shipped_templates_render() -> None:
    for path in sorted(DATA.glob("realpkgs/*/chat_template.jinja")):
        files = TextFiles("tokenizer.json", None, path.name)
        template = read_chat_template(path.parent, files)
        assert template.render(USER) == "<|user|>hi<|end|>"
        tokenizer = open_tokenizer(path.parent, files)
        ids = encode_chat(tokenizer, template, USER)
        assert tokenizer.decode(ids, skip_special_tokens=False) == "<|user|>hi<|end|>"


def test_what_a_template_does_not_take_is_told_with_a_way_out() -> None:
    parts = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "hi"}]}]
    with pytest.raises(RequestError, match="takes text only") as refused:
        render("{% for m in messages %}{{ m.content }}{% endfor %}", parts)
    assert "write the place of a picture or a sound in the message's text" in refused.value.help
    with pytest.raises(RequestError, match="bad-messages") as no_list:
        render("{{ messages }}", "hello")
    assert no_list.value.help.startswith('write chat([{"role": "user", "content": "..."}])')
    with pytest.raises(RequestError, match="no-chat-template") as no_template:
        ChatTemplate({}, {}).render(USER)
    assert no_template.value.help.startswith("give the prompt as text (--prompt, generate)")
