"""Made packages: whatever well-formed workflow is compiled, the executor does what the interpreter of documents does.

Every example is one package and several requests, valid and odd. The feature counts are printed with
`--hypothesis-show-statistics`; the long run asserts that no feature of the table in FEATURES has gone missing.
"""

import random
from collections import Counter

import pytest
from genai_compiler import Options, compile_package
from genai_compiler.plan.ir import Form
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.property.components import Library
from tests.property.judge import Bench, Subject
from tests.property.packages import Maker, Package
from tests.property.patterns import SETTLING, Pattern
from tests.property.regions import make_package
from tests.property.requests import odd_request, valid_request
from tests.property.rows import row_differences, rows_given, solo
from tests.property.settling import TAKEN, count_settled

SETTLED_ROWS = "one row that has settled"
DICE = st.randoms(use_true_random=False)
SMOKE = settings(max_examples=40, derandomize=True, database=None, deadline=None,
                 suppress_health_check=list(HealthCheck))  # fmt: skip
LONG = settings(SMOKE, max_examples=1500)
FORMS: tuple[Form | None, ...] = (None, None, "fused", "own", "host")
FEATURES = (
    "loop nested 0", "loop nested 1", "loop nested 2", "setup", "induction rank 0", "induction rank 1",
    "termination generation_eos", "rows end one by one", "branch bool", "branch integer", "branch default", "join",
    "present_as", "emit replace", "emit append", "emit event", "emit replace by row", "emit append by row",
    "emit event by row", "emit when", "emit valid_length", "output of several emits", "cell invariant", "cell growing",
    "cell bounded", "session cell", "carry swap", "carry initial", "binding", "effects", "sequence", "request role",
    "op expand", "pattern override", "pattern optional port", "pattern telemetry", "pattern grammar",
    "pattern append group", "pattern replace group", "pattern indexed_scatter", "pattern session branch",
    "pattern settling", SETTLED_ROWS, "op pick", "search in a loop that may settle",
    *(f"literal {dtype}" for dtype in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                                       "float16", "float32", "bfloat16", "int64 list", "bfloat16 list")),
)  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, Library]:
    bench = Bench(tmp_path_factory.mktemp("made"))
    return bench, Library(bench.package)


def made(
    bench: tuple[Bench, Library], dice: random.Random, *, rowwise: bool = False, pattern: Pattern | None = None
) -> tuple[Package, Subject]:
    """A package, compiled and loaded."""
    package = make_package(Maker(dice, bench[1], rowwise), pattern)
    text, form = dice.choice(("json", "yaml")), dice.choice(FORMS)
    with count_settled():
        return package, bench[0].compiled(package.document, text, frozenset(package.timed), form)


def run_requests(package: Package, subject: Subject, dice: random.Random, rows: int | None = None) -> Counter[str]:
    """Valid requests in a row, so that sessions go on; then the same ones made odd in one way."""
    outcomes: Counter[str] = Counter()
    before = TAKEN[0]
    for _ in range(3):
        request = valid_request(package, dice, rows)
        fine = subject.judge(request, exact=False) is not None
        outcomes["valid request" if fine else "refused by both"] += 1
        odd = odd_request(package, dice, request)
        same = subject.judge(odd, exact=fine and request.session is None)
        outcomes[f"odd ({odd.odd}): {'refused by both' if same is None else 'same values'}"] += 1
    outcomes += Counter({SETTLED_ROWS: TAKEN[0] - before})
    return outcomes


def check(
    bench: tuple[Bench, Library],
    dice: random.Random,
    seen: Counter[str],
    pattern: Pattern | None = None,
    rows: int | None = None,
) -> None:
    """One example. pattern: a part that the package has; rows: of its requests; None for any."""
    package, subject = made(bench, dice, pattern=pattern)
    outcomes = run_requests(package, subject, random.Random(dice.getrandbits(32)), rows)
    subject.model.close()
    for each in (*package.features, *outcomes):
        event(each)
    seen.update(package.features.keys())
    seen.update(outcomes)


@given(DICE)
@SMOKE
def test_made_packages(bench: tuple[Bench, Library], dice: random.Random) -> None:
    check(bench, dice, Counter())


SETTLE = settings(SMOKE, max_examples=25)


def settle(bench: tuple[Bench, Library], amount: settings) -> Counter[str]:
    """Packages with a loop of 12 to 40 iterations that may settle, two thirds of their requests of one row."""
    seen: Counter[str] = Counter()

    @given(DICE)
    @amount
    def run(dice: random.Random) -> None:
        check(bench, dice, seen, SETTLING, dice.choice((1, 1, None)))

    run()
    return seen


def test_loops_that_settle(bench: tuple[Bench, Library]) -> None:
    assert settle(bench, SETTLE)[SETTLED_ROWS] > 15


@pytest.mark.long
def test_many_loops_that_settle(bench: tuple[Bench, Library]) -> None:
    seen = settle(bench, settings(LONG, max_examples=400))
    print(*(f"{count:6} {name}" for name, count in sorted(seen.items())), sep="\n")
    assert seen[SETTLED_ROWS] > 400


@pytest.mark.long
def test_many_made_packages(bench: tuple[Bench, Library]) -> None:
    seen: Counter[str] = Counter()

    @given(DICE)
    @LONG
    def run(dice: random.Random) -> None:
        check(bench, dice, seen)

    run()
    print(*(f"{count:6} {name}" for name, count in sorted(seen.items())), sep="\n")
    assert not [each for each in FEATURES if not seen[each]], "the generator no longer makes these"
    assert seen["valid request"] > 2 * seen["refused by both"], "most valid requests must get a result"


def check_rows(bench: tuple[Bench, Library], dice: random.Random) -> None:
    package, subject = made(bench, dice, rowwise=True)
    throws = random.Random(dice.getrandbits(32))
    for _ in range(2):
        request = valid_request(package, throws)
        batch = subject.judge(request, exact=False)
        for row in range(rows_given(package, request) if batch is not None else 0):
            alone = subject.judge(solo(package, request, row))
            assert batch is not None
            assert alone is not None, f"row {row} alone is refused\n{request}"
            faults = row_differences(package, batch, alone, row)
            assert not faults, "\n".join((str(request), *faults))
            event("row of a batch")
    subject.model.close()


@given(DICE)
@settings(SMOKE, max_examples=15)
def test_rows_stand_alone(bench: tuple[Bench, Library], dice: random.Random) -> None:
    check_rows(bench, dice)


@pytest.mark.long
@given(DICE)
@settings(LONG, max_examples=500)
def test_many_rows_stand_alone(bench: tuple[Bench, Library], dice: random.Random) -> None:
    check_rows(bench, dice)


@given(DICE)
@settings(SMOKE, max_examples=10)
def test_compiling_twice_gives_the_same_bytes(bench: tuple[Bench, Library], dice: random.Random) -> None:
    package = make_package(Maker(dice, bench[1], rowwise=False))
    bench[0].write(package.document)
    for out in ("compiled0", "compiled1"):
        compile_package(bench[0].package, out=bench[0].root / out, options=Options(force=True))
    folders = [bench[0].root / f"compiled{at}" for at in (0, 1)]
    texts = [
        {each.relative_to(folder).as_posix(): each.read_bytes() for each in folder.rglob("*") if each.is_file()}
        for folder in folders
    ]
    assert {"executor.py", "manifest.json", "plan.txt"} <= set(texts[0])
    assert texts[0] == texts[1]
