"""Looking at a generation while it runs (`partial`) changes nothing of what comes, whoever looks.

What the text has to be is known from the bytes of the tokens. Every token that is published has its text, also where
one thread runs a generation, another ends it, and somebody looks in between.
"""

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from genai_runtime.generation import Generation, TextSettings
from genai_runtime.request import Audience, Event, Shared, Tally
from genai_runtime.result import Result
from genai_runtime.running import Run
from genai_runtime.token_events import TokenEvent
from genai_runtime.tokenizer import Tokenizer

from tests.runtime.tiny_tokenizers import byte_level, opened

WORDS = "hello 😀 worlds ü"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return opened(tmp_path_factory.mktemp("tokenizer"), byte_level())


def generation(
    tokenizer: Tokenizer, stop: tuple[str, ...] = (), text: str = WORDS, replaces: bool = False
) -> Generation:
    """A run that publishes the tokens of a text, one a step."""
    ids = tokenizer.encode(text, add_special_tokens=False)

    def run() -> Run:
        for step, token in enumerate(ids):
            if replaces:
                yield Event("tokens", 0, np.array([[ids[-1 - step]] * (step + 1)]), step)
            else:
                yield TokenEvent("tokens", 0, token, step)
        return Result({}, {}, {}, {}, len(ids), {})

    settings = TextSettings("tokens", replaces, lambda: tokenizer, stop, frozenset(), True)
    return Generation([run], [[1]], settings, Shared(set(), Audience(), Tally(), False))


def steps(made: Generation) -> Iterator[None]:
    """After every token, also those that give no text."""
    while made._step() is not None:  # pyright: ignore[reportPrivateUsage]
        yield


def test_a_character_of_several_tokens_comes_out_whole(tokenizer: Tokenizer) -> None:
    made = generation(tokenizer)
    seen = list[str]()
    for _ in steps(made):
        seen.append(made.partial[0].text)
        assert made.partial[0].finish_reason in ("running", "length")
    assert all(WORDS.startswith(each) for each in seen)
    assert made.text == WORDS
    assert len(set(seen)) > 3


def test_a_stop_string_of_several_tokens_is_found(tokenizer: Tokenizer) -> None:
    made = generation(tokenizer, ("😀 wor",))
    for _ in steps(made):
        assert "hello ".startswith(made.partial[0].text)
    assert (made.text, made.finish_reason) == ("hello ", "stop_string")


def test_tokens_that_others_replace_are_no_text_yet(tokenizer: Tokenizer) -> None:
    made = generation(tokenizer, text="abc", replaces=True)
    for _ in steps(made):
        assert made.partial[0].text == ""
    assert made.text == "aaa"


def test_pieces_that_a_look_has_made_are_handed_out(tokenizer: Tokenizer) -> None:
    made, pieces = generation(tokenizer), list[str]()
    for piece in made:
        pieces.append(piece)
        assert made.partial[0].text == "".join(pieces)
    assert "".join(pieces) == WORDS


@pytest.mark.parametrize("stop", [(), ("😀 wor",)])
def test_another_thread_may_look(tokenizer: Tokenizer, stop: tuple[str, ...]) -> None:
    wanted = "hello " if stop else WORDS * 20
    for _ in range(3):
        made, done = generation(tokenizer, stop, WORDS * 20), threading.Event()
        seen = set[str]()

        def look(made: Generation = made, done: threading.Event = done, seen: set[str] = seen) -> None:
            while not done.wait(0.0005):
                seen.add(made.partial[0].text)

        lookers = [threading.Thread(target=look) for _ in range(2)]
        for each in lookers:
            each.start()
        try:
            text = "".join(made)
        finally:
            done.set()
            for each in lookers:
                each.join()
        assert text == made.text == wanted
        assert all(wanted.startswith(each) for each in seen)


def test_a_look_behind_a_close_leaves_no_token_without_its_text(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step that another thread is in publishes a token more, or several, after `close` has begun."""
    made, inside, go_on = generation(tokenizer), threading.Event(), threading.Event()
    publish, cancel = made._running.runs[0], Audience.cancel

    def gated() -> Run:
        run = publish()
        yield next(run)
        inside.set()
        assert go_on.wait(30)
        result = yield from run
        return result

    made._running.runs = [gated]
    reader = threading.Thread(target=lambda: list(made.pieces()))

    def late(audience: Audience) -> None:
        """The steps are done before the wish to end arrives, and somebody looks before that."""
        seen.append(made.partial[0].text)
        go_on.set()
        reader.join(30)
        cancel(audience)

    seen = list[str]()
    monkeypatch.setattr(Audience, "cancel", late)
    reader.start()
    assert inside.wait(30)
    made.close()
    row, first = made.partial[0], tokenizer.encode(WORDS, add_special_tokens=False)[:1]
    assert seen[0] == tokenizer.decode(first)
    assert (tokenizer.decode(row.tokens), row.text, row.finish_reason) == (WORDS, WORDS, "length")


def test_a_quiet_run_that_is_closed_has_text_for_its_tokens(tokenizer: Tokenizer) -> None:
    """Its tokens arrive all at once, when it has ended: long after the close, and after a look."""
    ids, audience = tokenizer.encode(WORDS, add_special_tokens=False), Audience()
    inside, go_on = threading.Event(), threading.Event()

    def run() -> Run:
        audience.tokens = {"tokens": [ids[:6]]}
        yield TokenEvent("tokens", 0, ids[0], 0)
        assert not audience.listens
        inside.set()
        assert go_on.wait(30)
        return Result({}, {}, {}, {}, 6, {0: "length"})

    settings = TextSettings("tokens", False, lambda: tokenizer, (), frozenset(), True)
    made = Generation([run], [[1]], settings, Shared(set(), audience, Tally(), False))
    reader = threading.Thread(target=lambda: made.tokens)
    reader.start()
    assert inside.wait(30)
    made.close()
    early = made.partial[0].text
    go_on.set()
    reader.join(30)
    row = made.partial[0]
    assert early == tokenizer.decode(ids[:1])
    assert (row.tokens, row.text, row.finish_reason) == (ids[:6], tokenizer.decode(ids[:6]), "cancelled")


def test_a_close_behind_the_last_look_of_a_step_ends_the_run(tokenizer: Tokenizer) -> None:
    """The thread whose turn it was ends the run where the other one found it busy."""
    made = generation(tokenizer)
    assert made._step() == 0
    made._busy.acquire()
    made.close()
    assert made.partial[0].finish_reason == "running"
    made._busy.release()
    assert made._step() is None
    assert made.partial[0].finish_reason == "cancelled"
    assert len(made.partial[0].tokens) == 1
