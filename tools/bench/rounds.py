"""Contestants take turns, each in a process of its own.

Only ratios taken side by side mean something on a shared machine, so every contestant generates once a round, in an
order that rotates and turns around, and every figure is later compared within its round. A process may be a few percent
faster or slower than another of the same program for as long as it lives, so all are started anew after some rounds.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.bench.contestant_process import ContestantProcess, command_of
from tools.bench.contestants import Contestant, Generate
from tools.bench.run_clock import Trace

SETTLE = 0.03
"""Seconds before a turn: idle worker threads of the last contestant spin for a while."""
AGED = 2.5
"""Seconds between opening and the first turn: a served model is older than that, and what a runtime does behind the
opening (ours gathers weights into huge pages a second after it) must not fall into somebody's turn."""
TEXTS = Path(__file__).parent.parent / "smollm2" / "texts"
WARM = 64, 8
"""Prompt and new tokens of the generation before the first round, where nothing is checked in it."""


@dataclass(frozen=True)
class Scenario:
    """A request that contestants are timed on: prompt tokens, new tokens, rows, and who takes part.

    check: new tokens of the generation before the first round, whose tokens are compared; 0 for a short one. renew:
    rounds after which every process is started anew.
    """

    prompt: int
    new: int
    names: tuple[str, ...]
    rounds: int
    rows: int = 1
    check: int = 0
    renew: int = 5


def prompt_ids(tokenizer: Path, length: int, rows: int = 1) -> list[list[int]]:
    """Rows of `length` ids of this repository's English texts, each beginning a little later than the last."""
    import tokenizers

    text = "\n".join(each.read_text(encoding="utf-8") for each in sorted(TEXTS.glob("*.txt")))
    ids: list[int] = tokenizers.Tokenizer.from_file(str(tokenizer)).encode(text).ids
    long = ids * ((length + 37 * rows) // len(ids) + 1)
    return [long[37 * row : 37 * row + length] for row in range(rows)]


def turns(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The order of a round: every other one is the last one backwards, then it rotates by one."""
    at = number // 2 % len(names)
    order = names[at:] + names[:at]
    return order[::-1] if number % 2 else order


def take_round(
    contestants: Mapping[str, Generate], order: Sequence[str], ids: Sequence[list[int]], new: int
) -> dict[str, Trace]:
    """One generation of everyone."""
    traces: dict[str, Trace] = {}
    for name in order:
        time.sleep(SETTLE)
        traces[name] = contestants[name](ids, new)
    return traces


def equal_tokens(tokens: Sequence[int], wanted: Sequence[int]) -> int:
    """How many leading tokens are the same."""
    pairs = zip(tokens, wanted, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(tokens), len(wanted)))


Opening = Callable[[Sequence[str]], AbstractContextManager[Mapping[str, Generate]]]
"""Contestants by name, opened anew, until the context ends."""


@contextmanager
def opened_apart(
    contestants: Mapping[str, Contestant], threads: int, environment: Mapping[str, str], names: Sequence[str]
) -> Iterator[Mapping[str, Generate]]:
    """Every contestant of these names in a new process, opened one after the other and left alone for a while.

    Raises RuntimeError with the last words of one that ends.
    """
    with ExitStack() as stack:
        made = {
            name: stack.enter_context(ContestantProcess(command_of(contestants[name], threads), environment)).generate
            for name in names
        }
        time.sleep(AGED)
        yield made


def run_scenario(opening: Opening, scenario: Scenario, ids: Sequence[list[int]]) -> dict[str, Any]:
    """A warm-up round of each set of processes and the rounds that count. Returns plain data: by round and name the
    medians of a generation.

    same: by name and name, how many leading tokens were the same in every round; compared: out of how many.
    """
    checked = max(scenario.check, scenario.new)
    same = {one: dict.fromkeys(scenario.names, checked * scenario.rows) for one in scenario.names}
    measured: list[dict[str, dict[str, float]]] = []
    for begin in range(0, scenario.rounds, scenario.renew):
        with opening(scenario.names) as contestants:
            warm_up(contestants, scenario, ids, same if scenario.check and not begin else None)
            for number in range(begin, min(begin + scenario.renew, scenario.rounds)):
                traces = take_round(contestants, turns(scenario.names, number), ids, scenario.new)
                if not scenario.check:
                    compare(traces, same)
                measured.append({name: trace.measured() for name, trace in traces.items()})
                title = f"prompt {scenario.prompt}, {scenario.new} new, {scenario.rows} row(s)"
                print(f"  {title}: round {number + 1} of {scenario.rounds}", file=sys.stderr, flush=True)
    return {**asdict(scenario), "same": same, "compared": checked * scenario.rows, "rounds": measured}


def warm_up(
    contestants: Mapping[str, Generate],
    scenario: Scenario,
    ids: Sequence[list[int]],
    same: dict[str, dict[str, int]] | None,
) -> None:
    """A generation of everyone that is not timed. same: where the tokens of a longer one are compared."""
    if same is None:
        short = [each[: WARM[0]] for each in ids]
        take_round(contestants, scenario.names, short, min(scenario.new, WARM[1]))
    else:
        compare(take_round(contestants, scenario.names, ids, scenario.check), same)


def compare(traces: dict[str, Trace], same: dict[str, dict[str, int]]) -> None:
    """Lower what was the same so far to what is the same in this round."""
    for one, row in same.items():
        for other in row:
            row[other] = min(row[other], equal_tokens(traces[one].tokens, traces[other].tokens))
