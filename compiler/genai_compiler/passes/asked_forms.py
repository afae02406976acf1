"""Forms that the caller asks for (`--form`): read from words, and held against the plan that came out."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from genai_compiler.plan.ir import Form, Plan
from genai_compiler.problem import CompileError, Place, Problem, Severity
from genai_compiler.read.suggest import did_you_mean, listed

FORM_OF: Mapping[str, Form] = {"fused": "fused", "own": "own", "host": "host"}
ASKED = Place("--form")


def asked_forms(words: Sequence[str]) -> Mapping[str, Form]:
    """`COMPONENT=FORM`, or `FORM` for all others (key ""); the last word for a component counts.

    Raises CompileError `unknown-form`.
    """
    found, problems = dict[str, Form](), list[Problem]()
    for word in words:
        component, _, form = word.rpartition("=")
        if form not in FORM_OF:
            help = did_you_mean(form, FORM_OF) or listed(FORM_OF, "the forms")
            problems.append(Problem("unknown-form", ASKED, "", f"{form!r} is no form", help))
        else:
            found[component] = FORM_OF[form]
    if problems:
        raise CompileError(problems)
    return found


def check_asked_forms(
    plan: Plan, forms: Mapping[str, Form], possible: Mapping[str, tuple[Form, ...]], bars: Callable[[str], str]
) -> tuple[Problem, ...]:
    """Raises CompileError for what the plan's components did not become (unknown-component, impossible-form).

    possible: the forms that each component with several can have; bars: why another one has one only. What is asked of
    all is asked of those that can: the result is a warning where there are none (idle-form).
    """
    problems = tuple(_problems(plan, forms, possible, bars))
    if problems:
        raise CompileError(problems)
    every = forms.get("")
    if every is None or any(every in can for name, can in possible.items() if name not in forms):
        return ()
    what = f"--form {every} changes nothing: no{' other' if len(forms) > 1 else ''} component can choose that form"
    help = "; ".join(f"'{name}' can: {', '.join(can)}" for name, can in possible.items()) or "leave it out"
    return (Problem("idle-form", ASKED, "", what, help, Severity.WARNING),)


def _problems(
    plan: Plan, forms: Mapping[str, Form], possible: Mapping[str, tuple[Form, ...]], bars: Callable[[str], str]
) -> Iterator[Problem]:
    names = [each.name for each in plan.components]
    for name, form in forms.items():
        if name and name not in names:
            yield Problem("unknown-component", ASKED, "", f"no component is called {name!r}", did_you_mean(name, names))
        elif name and plan.component(name).form != form:
            what = f"{name!r} can't run in the form {form!r}"
            can = possible.get(name, ())
            help = listed(can, "its forms") if can else f"it has one form: {bars(name)}"
            yield Problem("impossible-form", ASKED, "", what, help)
