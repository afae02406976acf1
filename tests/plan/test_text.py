"""The plan's text: each kind of line, as docs/ir.md describes it."""

from dataclasses import replace

import pytest
from genai_compiler.plan.ir import CapacityCheck, Copy, ExtentCheck, Op, Release, SymbolCheck, Type
from genai_compiler.plan.state import GROWTH, ROWS, Slot
from genai_compiler.plan.text import plan_text

from tests.data import ROOT
from tests.plan.small_plans import GROUP, branch, carry, decoder_plan, emit, invoke, join, keep, loop, plan


def run_lines(*body: Op) -> list[str]:
    """The lines between `run {` and its end, without origins and indentation."""
    lines = plan_text(plan(*body)).splitlines()
    inside = lines[lines.index("run {") + 1 : lines.index("}")]
    return [line.partition("  #")[0].rstrip().removeprefix("  ") for line in inside]


def test_ops() -> None:
    assert run_lines(
        invoke("g", "a b", "c"),
        invoke("effect", "a", ""),
        Copy("link", (("a", "d"), ("b", "e")), "steps[4]"),
        emit("c", when="go"),
        keep("s", "c"),
        Release(("a", "c")),
    ) == [
        "%c = invoke g(x=%a, y=%b)",
        "invoke effect(x=%a)",
        "copy %d = %a, %e = %b",
        "emit replace %c to out axis 0, when %go",
        "keep s = %c",
        "release %a, %c",
    ]


def test_regions() -> None:
    inner = branch((invoke("f", "s", "c"),), (emit("s"),), join("d", "c", "s"))
    assert run_lines(loop((inner,), (carry("s", "a", "d"),))) == [
        "loop while %go, at most %n, predicate {",
        "  carry %s: int64[1] from %a, then %d",
        "  branch on %go {",
        "    case true {",
        "      %c = invoke f(x=%s)",
        "    }",
        "    case false {",
        "      emit replace %s to out axis 0",
        "    }",
        "    join %d: int64[1] = true: %c, false: %s",
        "  }",
        "}",
    ]


def test_checks_stand_under_their_invoke() -> None:
    checks = (
        SymbolCheck("batch", (("a", 0, 1), ("b", 1, 2))),
        ExtentCheck("a", 0, 4),
        CapacityCheck("kv", "a", "n", "b", (("a", 2),)),
        CapacityCheck("kv", "a", "n", "", ()),
    )
    assert run_lines(replace(invoke("f", "a", "c"), before=checks))[1:] == [
        "  check batch: %a[0] = %b[1]/2",
        "  check %a[0] is 4",
        "  check %a and %b within %n, the extent of %a[2]",
        "  check %a within %n, the extent of nothing",
    ]


def test_every_op_keeps_its_origin() -> None:
    lines = plan_text(plan(invoke("f", "a", "c", "steps[7]"), emit("c"))).splitlines()
    assert [line.partition("  # ")[2] for line in lines if "invoke" in line or line.startswith("  emit")] == [
        "steps[7]",
        "steps[9]",
    ]


def test_head_and_decoder() -> None:
    text = plan_text(replace(decoder_plan((("scale", "b"),)), decisions=("first", "second")))
    assert text.startswith(
        "plan small from workflow\nrequires typed_emit, workflow_ssa\n\ninput %a: int64[1]  application 'a', required\n"
    )
    assert "output out: int64[1]  tensor\n" in text
    assert "component effect = effect.onnx, effects\n  in  x: int64[1]\n  out y: int64[1]\n" in text
    assert "group kv of decoder: growing, 32 bytes a token\n  past -> present: float16[rows, 2, tokens, 8]\n" in text
    assert "decoder decoder: tokens tokens (int64), logits logits (float32)\n" in text
    assert "  mask mask (int64): lengths, constant width\n  positions positions (int64)\n" in text
    assert "%logits = autoregressive-decode decoder(%sequence, scale=%b) step" in text
    assert "%active.0, %done.0, %accepted.0 = start token-policy" in text
    assert text.endswith("}\n\ndecision first\ndecision second\n")


@pytest.mark.parametrize(
    ("dims", "once", "size"),
    [
        ((ROWS, 2, GROWTH, 8), False, "32 bytes a token"),
        ((ROWS, 2, 5, 8), False, "160 bytes a row"),
        ((ROWS, 2, GROWTH, 8), True, "as large as the first run makes it"),
    ],
)
def test_a_group_says_what_its_size_goes_by(dims: tuple[int, ...], once: bool, size: str) -> None:
    group = replace(GROUP, slots=(Slot("past", "present", "float16", dims, once),))
    assert f"group kv of decoder: growing, {size}\n" in plan_text(replace(decoder_plan(), groups=(group,)))


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (Type("int64", 0, ()), "int64[]"),
        (Type("float32", 2), "float32[?, ?]"),
        (Type("float32", 2, ("batch", None), 0), "float32[batch, ?] rows@0"),
        (Type("bool", 1, ("batch",), 0, 3), "bool[batch] rows@0*3"),
    ],
)
def test_types(type: Type, text: str) -> None:
    assert str(type) == text


@pytest.mark.parametrize(
    ("name", "shown"), [("a\nb", r"a\nb"), ("\u202ex", r"\u202ex"), ("\x00", r"\x00"), ("日本", "日本")]
)
def test_a_name_stays_on_its_line(name: str, shown: str) -> None:
    text = plan_text(replace(plan(), name=name))
    assert text.splitlines()[0] == f"plan {shown} from workflow"


def test_the_syntax_page_has_every_keyword() -> None:
    page = (ROOT / "docs" / "ir.md").read_text("utf-8")
    words = """plan requires input output component cell group decoder run decision
        invoke check copy decode start select emit loop carry branch case default join keep release"""
    assert [each for each in words.split() if f"`{each}" not in page] == []
