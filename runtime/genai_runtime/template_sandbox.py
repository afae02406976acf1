"""A Jinja sandbox in which a template can't run for ever, nor eat the memory: whoever wrote the package's template.

jinja2's own sandbox keeps a template from Python's internals, but `'a' * 10**10`, nested loops and doubled lists are
legal in it. Here every loop turn, call, filter, test, operator, comparison and output is charged to one budget a
rendering, by the size of what it touches, and what could be much larger than its operands is foreseen and refused. Two
places see all of that: the environment's own hooks, and a rewriting of the syntax tree for what has none.

Imports jinja2, so import this module only where a template is rendered.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_SIZE = 16 << 20  # characters and items in one value
WORK = 2_000_000  # units of one rendering; a unit takes 0.1 to 1 us
CALL = 8  # units of one call
MAX_BITS = 10_000  # of one integer
CHARS_A_UNIT = 8
CHARS_COPIED_A_UNIT = 1024
BIG_ARGUMENT = 100_000  # no filter or string method of a chat template needs a larger number
DROPPED = ("lipsum", "random", "urlize", "pprint", "xmlattr", "striptags")  # not deterministic, or slow on crafted text
BLOCKED_METHODS = frozenset({"translate", "expandtabs", "encode", "maketrans"})
FROM_THE_END = ("rfind", "rindex", "rsplit", "rpartition", "strip", "lstrip", "rstrip", "trim")
"""Where Python's search looks at each character of the text with the whole of what is sought: the product of both."""
WIDE_FIELD = re.compile(
    r"%(\([^)]*\))?[-#0 +]*(\d*\.)?(\d{4,}|\*)"  # %-formatting: a width or precision of four digits, or given apart
    r"|\{[^{}]*:[^{}]*\d{4}|\{[^{}]*\{"  # str.format: the same, the second as a nested field
)


class OverBudget(SecurityError):
    """The template did more work, or made a larger value, than a chat template may."""


class Budget:
    """The work that one rendering may still do."""

    def __init__(self, inputs: object) -> None:
        self.left = 1 << 62
        self._largest = 0
        self.left = WORK + 64 * self.charge(inputs)

    def charge(self, *values: object) -> int:
        """Charge the deep size of `values`, containers seen twice counted twice. Returns it, in units."""
        before, stack = self.left, list(values)
        while stack:
            value = stack.pop()
            self.spend(1)
            if isinstance(value, str | bytes):
                self._largest = max(self._largest, len(value))
                self.spend(len(value) // CHARS_A_UNIT)
            elif isinstance(value, int):
                self.spend(value.bit_length() // 64)
            elif isinstance(value, range):
                self.spend(len(value))
            else:
                stack += _parts(value)
                self.spend(len(stack) // 1024)
        return before - self.left

    def turn(self) -> None:
        """One turn of a loop; dearer once there are large strings, for slices of them are not seen one by one."""
        self.spend(1 + self._largest // 4096)

    def spend(self, units: int) -> None:
        self.left -= units
        if self.left < 0:
            raise OverBudget("the template does more work than a chat template may: too many or too long loops")


_BUDGET: ContextVar[Budget] = ContextVar("budget")


def render_bounded(template: Any, variables: Mapping[str, Any]) -> str:
    """Render a template of `BoundedEnvironment` within one budget; larger inputs are given more work."""
    token = _BUDGET.set(Budget(dict(variables)))
    try:
        pieces: list[str] = []
        size = 0
        for piece in template.generate(variables):
            size += len(piece)
            _refuse_over(size)
            pieces.append(piece)
        return "".join(pieces)
    finally:
        _BUDGET.reset(token)


def _parts(value: Any) -> Sequence[Any]:
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return [*value]
    if isinstance(value, Namespace):
        return [*value._Namespace__attrs.values()]
    if type(value).__name__ in ("dict_items", "dict_keys", "dict_values"):
        return [*value]
    return ()


def _refuse_over(size: int) -> None:
    if size > MAX_SIZE:
        raise OverBudget(f"the template makes a value of more than {MAX_SIZE} characters")


def _foresee(name: str, subject: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse what filter or string method `name` would blow up."""
    if name in ("default", "d"):
        return
    given = [*args, *kwargs.values()]
    numbers = [each for each in given if isinstance(each, int | float)]
    if any(abs(each) > BIG_ARGUMENT for each in numbers):
        raise OverBudget(f"{name} is given a number over {BIG_ARGUMENT}")
    if name == "sum" and any(isinstance(each, list | tuple) for each in given):
        raise OverBudget("sum adds numbers here, not lists")
    if isinstance(subject, str):
        _charge_product(name, subject, given, numbers)
    width = max([1, *map(int, map(abs, numbers)), *(len(each) for each in given if isinstance(each, str))])
    if name == "replace" and isinstance(subject, str) and len(args) >= 2:
        _refuse_over(len(subject) + subject.count(str(args[0])) * len(str(args[1])))
    elif name == "join" and isinstance(subject, str):
        _refuse_over(len(subject) * len(args[0]) if args and hasattr(args[0], "__len__") else 0)
    elif name in ("indent", "wordwrap") and isinstance(subject, str):
        _refuse_over((subject.count("\n") + 1) * width + len(subject))
    elif name in ("join", "tojson", "batch", "slice"):
        _refuse_over((_BUDGET.get().charge(subject) + 1) * width)
    elif name in ("format", "format_map") and isinstance(subject, str):
        _foresee_format(subject, given)


def _charge_product(name: str, subject: str, given: Sequence[object], numbers: Sequence[float]) -> None:
    """Charge what takes the product of two lengths: some searches, and wrapping, which copies a long word's rest."""
    times = 0
    if name in FROM_THE_END:
        times = max((len(each) for each in given if isinstance(each, str)), default=0)
    elif name == "wordwrap":
        times = len(subject) // max(1, int(min(map(abs, numbers), default=79)))
    _BUDGET.get().spend(len(subject) * times // CHARS_COPIED_A_UNIT)


def _foresee_format(pattern: str, given: Sequence[object]) -> None:
    """For `%`, `|format` and str.format: no wide fields, no computed ones, no product of many fields and much text."""
    if WIDE_FIELD.search(pattern):
        raise OverBudget("a format pattern asks for a wide or computed field")
    fields = pattern.count("%") + pattern.count("{")
    _refuse_over(len(pattern) + fields * _BUDGET.get().charge(*given) * CHARS_A_UNIT)


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that is charged for what it is given and what it gives."""
    own = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        budget = _BUDGET.get()
        budget.charge(*args[own:], *kwargs.values())
        _foresee(name, args[own] if len(args) > own else None, args[own + 1 :], kwargs)
        result = function(*args, **kwargs)
        if isinstance(result, str):
            _refuse_over(len(result))
        budget.charge(result)
        return _metered(result) if isinstance(result, Iterator) else result

    return guarded


def _metered(values: Any, static: int = 0) -> Iterator[Any]:
    """static: characters of literal text in the loop's body, which would come out without being seen."""
    budget = _BUDGET.get()
    for value in values:
        budget.turn()
        budget.spend(static // CHARS_A_UNIT)
        yield value


def _measured(value: Any) -> Any:
    _BUDGET.get().charge(value)
    return value


def _joined(values: Sequence[Any]) -> str:
    """The operator `~`."""
    _BUDGET.get().charge(*values)
    text = "".join(map(str, values))
    _refuse_over(len(text))
    return text


@pass_context  # jinja2 then leaves constants alone at compile time
def _output(context: Context, value: Any) -> Any:
    _BUDGET.get().charge(value)
    return value


class GenerationTag(Extension):
    """`{% generation %}`: transformers marks the assistant's tokens with it; the text is what stands inside."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The immutable sandbox of jinja2 with transformers' settings for chat templates, and a budget. No loader."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=_output,
            extensions=[GenerationTag, "jinja2.ext.loopcontrols"],
            cache_size=0,
        )
        for table in (self.globals, self.filters, self.tests):
            for name in DROPPED:
                table.pop(name, None)

    def guard(self) -> None:
        """Put the filters and tests under the budget. Call it once, when all are there."""
        tables: tuple[dict[str, Any], ...] = (self.filters, self.tests)
        for table in tables:
            table |= {name: _guarded(name, function) for name, function in table.items()}
        self.filters |= {"_metered": _metered, "_measured": _measured, "_joined": _joined}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str) and attr in BLOCKED_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if not isinstance(argument, str | int):
            _BUDGET.get().charge(argument)
        return super().getitem(obj, argument)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        pattern: str = value.__self__

        def bounded(*args: Any, **kwargs: Any) -> str:
            _foresee_format(pattern, [*args, *kwargs.values()])
            return wrapped(*args, **kwargs)

        return bounded

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = _BUDGET.get()
        budget.spend(CALL)
        budget.charge(*args, *kwargs.values())
        subject = getattr(__obj, "__self__", None)
        if isinstance(subject, str):
            budget.charge(subject)
            _foresee(getattr(__obj, "__name__", ""), subject, args, kwargs)
        result = super().call(__context, __obj, *args, **kwargs)
        budget.charge(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = _BUDGET.get()
        if operator == "%" and isinstance(left, str):
            _foresee_format(left, [right])
        elif operator in ("*", "**"):
            _foresee_product(operator, left, right)
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, str):
            _refuse_over(len(result))
        budget.charge(left, right, result)
        return result

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        _rewrite(source, self)
        return super()._generate(source, *args, **kwargs)


def _foresee_product(operator: str, left: Any, right: Any) -> None:
    if not (isinstance(left, int) and isinstance(right, int)):
        _refuse_over(_length(left) * _length(right))
        return
    bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
    if bits > MAX_BITS:
        raise OverBudget(f"the template computes an integer of more than {MAX_BITS} bits")


def _length(value: Any) -> int:
    if isinstance(value, int):
        return abs(value)
    sized: Any = value
    return len(sized) if isinstance(value, str | list | tuple | bytes) else 1


def _rewrite(tree: nodes.Node, environment: BoundedEnvironment) -> None:
    """Route what has no hook of its own (loops, comparisons, slices, keys, `~`) through a filter that charges it."""

    def through(name: str, node: Any, *args: nodes.Expr) -> nodes.Expr:
        made = nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)
        made.set_environment(environment)
        return made

    def replaced(node: Any) -> Any:
        if isinstance(node, nodes.Concat):
            return through("_joined", nodes.List(node.nodes, lineno=node.lineno))
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            return through("_measured", node)
        return node

    for node in list(tree.find_all(nodes.Node)):
        for field, value in list(node.iter_fields()):
            if isinstance(value, list):
                value[:] = map(replaced, value)
            else:
                setattr(node, field, replaced(value))
        if isinstance(node, nodes.For):
            text = sum(len(each.data) for each in node.find_all(nodes.TemplateData))
            node.iter = through("_metered", node.iter, nodes.Const(text, lineno=node.lineno))
        elif isinstance(node, nodes.Compare | nodes.Operand):
            node.expr = through("_measured", node.expr)
        elif isinstance(node, nodes.Pair) and not isinstance(node.key, nodes.Const):
            node.key = through("_measured", node.key)
