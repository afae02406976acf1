"""Every name of a workflow document replaced by another: what the names are must not matter."""

from collections.abc import Callable

import numpy as np

from tests.reference.values import Array, Document

HOSTILE = [
    '"', "'", '"""', "'''", "\\", '\\\\"', "\n", "\r\n", "a\nimport os\nos.abort()", '"); raise SystemExit(("', "#",
    "{{ 7 }}", "{% raw %}", "{{ self.__init__ }}", "%s", "{0}", "\t", "\u2028", "\u202e", "\ufeffx", "\xe9",
    "\u65e5\u672c\u8a9e", "\U0001d552", "\U0001f600", "x" * 300, "a" * 59 + "b", "a" * 59 + "c", "lambda", "None",
    "True", "def", "match", "_", "type", "print", "range", "len", "__import__", "__class__", "__init__", "self",
    "request", "inputs", "out", "decoding", "policy", "tokens", "choose", "advance", "last", "row", "run", "decoder",
    "sessions", "step", "limit", "live", "Event", "Result", "INPUTS", "OUTPUTS", "Executor", "agree", "enter",
    "keep_rows", "live_rows", "branch_key", "x_cell", "X_CELL", "x.1", "x_1", "x-1", "1x", "0", "-1", "x'2", "x'",
    "x'2'2", "true", "false", "genai_runtime", "yield from ()", " ", "a b", "%x",
]  # fmt: skip
"""Strings that would break out of a quote, a comment, a docstring or a scope, or collide with what is there already."""

REQUESTS: dict[str, dict[str, Array]] = {
    "nested-loops": {
        "start": np.array([2]), "outer_limit": np.array([3]), "inner_limit": np.array([3]), "ceiling": np.array([900]),
    },
    "branch-joins": {
        "x": np.array([[1.0, -2.0]], np.float32), "flag": np.array(True), "selector": np.array(7),
    },
    "ragged-emit": {"x": np.array([[7], [4]]), "live": np.array([True, True])},
    "session-counter": {"step": np.array([2]), "times": np.array([3]), "start": np.array([1])},
    "wide-search": {"word": np.array([30011, 5]), "bound": np.array([400])},
    "bounded-growing": {
        "x": np.array([[1.0], [3.0]], np.float32), "budget": np.array([3, 1]), "turns": np.array([4]),
    },
}  # fmt: skip
"""A request for each package that is renamed, by application name."""


def renamed(document: Document, new: Callable[[str, str], str]) -> Document:
    """The document with every name of its own replaced: new(kind, name)."""
    workflow = document["pipeline"]["workflow"]

    def value(name: str) -> str:
        return new("value", name)

    def contract(spec: Document) -> Document:
        shape = [new("symbol", dim) if isinstance(dim, str) else dim for dim in spec.get("shape") or []]
        return {**spec, "shape": shape}

    def step(spec: Document) -> Document:
        made = dict(spec)
        for key in ("value", "when", "valid_length", "predicate", "continue_when", "max_iterations"):
            if key in made:
                made[key] = value(made[key])
        if "component" in made:
            made["component"] = new("component", made["component"])
            made["inputs"] = {port: value(name) for port, name in spec["inputs"].items()}
            made["outputs"] = {port: value(name) for port, name in spec["outputs"].items()}
        if "output" in made:
            made["output"] = new("output", made["output"])
        for key in ("steps", "setup"):
            if key in made:
                made[key] = [step(each) for each in made[key]]
        if "cases" in made:
            made["cases"] = {key: step(each) for key, each in made["cases"].items()}
        if "default" in made:
            made["default"] = step(made["default"])
        if spec["kind"] == "branch" and "outputs" in spec:
            made["outputs"] = {value(name): join(each) for name, each in spec["outputs"].items()}
        if "iteration" in made:
            made["iteration"] = {
                "value": value(spec["iteration"]["value"]),
                "contract": contract(spec["iteration"]["contract"]),
            }
        if "carried" in made:
            made["carried"] = [{key: value(name) for key, name in each.items()} for each in spec["carried"]]
        return made

    def join(spec: Document) -> Document:
        cases = {key: value(name) for key, name in spec["cases"].items()}
        return {"cases": cases, **({"default": value(spec["default"])} if "default" in spec else {})}

    def source(spec: Document) -> Document:
        named = spec["source"]
        return {**named, "name": new("application", named["name"])} if named["kind"] == "application" else named

    def law(spec: Document) -> Document:
        return {key: value(each) if key in ("max", "increment") else each for key, each in spec.items()}

    made = {
        **workflow,
        "inputs": {value(name): {**each, "contract": contract(each["contract"]), "source": source(each)}
                   for name, each in workflow["inputs"].items()},
        "outputs": {new("output", name): {**each, "contract": contract(each["contract"])}
                    for name, each in workflow["outputs"].items()},
        "components": {new("component", name): each for name, each in workflow["components"].items()},
        "steps": [step(each) for each in workflow["steps"]],
    }  # fmt: skip
    if "state" in workflow:
        made["state"] = {
            value(name): {**each, "initializer": value(each["initializer"]), "recurrence": law(each["recurrence"]),
                          "contract": contract(each["contract"])}
            for name, each in workflow["state"].items()
        }  # fmt: skip
    return {**document, "pipeline": {"workflow": made}}


def names_of(strings: list[str], only: str = "") -> Callable[[str, str], str]:
    """Renames by drawing from `strings` in order, each once a kind of name. only: the other kinds keep their names."""
    drawn: dict[tuple[str, str], str] = {}
    used: dict[str, set[str]] = {}

    def new(kind: str, name: str) -> str:
        if only not in ("", kind):
            return name
        if (kind, name) not in drawn:
            taken = used.setdefault(kind, set())
            legal = (each for each in strings if kind != "component" or (each.strip() and "." not in each))
            free = next((each for each in legal if each not in taken), f"{kind}~{len(taken)}")
            taken.add(free)
            drawn[kind, name] = free
        return drawn[kind, name]

    return new
