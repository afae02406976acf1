"""Slips on the command line of genai-run: each is told with what may have been meant."""

import pytest
from genai_runtime.command_line import parse

SLIPS = [
    (["hi"], 'unrecognized arguments: hi; a text goes in as --prompt "hi"'),
    (["what is", "this"], 'unrecognized arguments: what is this; a text goes in as --prompt "what is"'),
    (["--promt", "hi"], "unrecognized arguments: --promt hi; did you mean --prompt?"),
    (["--temprature=0.5"], "unrecognized arguments: --temprature=0.5; did you mean --temperature?"),
    (["--images", "a.png"], "did you mean --image?"),
    (["--task", "features", "--prompt", "hi", "-n", "4"],
     "-n can't go with --task: it has an effect on a prompt that is continued or drawn only"),
    (["--task", "features", "--prompt", "hi", "--system", "a"], "--system can't go with --task: "),
    (["--speech", "hi", "--top-k", "4"], "--top-k can't go with --speech: "),
    (["--describe", "--stats"], "--stats can't go with --describe: "),
    (["--prompt", "hi", "--system", "a"], "--system has an effect on a chat only"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), SLIPS, ids=str)
def test_a_slip_is_told_with_what_was_meant(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse(["folder", *words])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_what_is_like_no_option_has_no_guess(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["folder", "--zzzz"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: --zzzz\n")
