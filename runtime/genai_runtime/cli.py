"""genai-run: run a compiled package.

Exit codes: 0 done; 1 our fault; 2 the input's fault (bad folder, bad request); 3 interrupted. Text goes to stdout as it
is made, everything else to stderr.
"""

import argparse
import io
import json
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genai_runtime.ahead import OPENING
from genai_runtime.chat_messages import with_media
from genai_runtime.command_line import (
    parse,
    refuse_generation_options,
    refuse_picture_options,
    refuse_text_options,
)
from genai_runtime.command_options import FLOATS, WHOLE
from genai_runtime.file_forms import NPY, WAV, hold_ending
from genai_runtime.problem import GenaiError, LoadError, RequestError, printable

if TYPE_CHECKING:
    from genai_runtime.generation import Generation
    from genai_runtime.model import Model

EXIT_DONE, EXIT_FAULT, EXIT_INPUT, EXIT_INTERRUPTED = 0, 1, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code. Heavy modules are imported inside, where an interrupt has an answer."""
    _open_closed_streams()
    try:
        arguments = parse(argv)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to stop
        _hold_files(arguments)
        from genai_runtime.opening import load

        timed = arguments.profile is not None
        where = arguments.folder, arguments.provider, arguments.threads, arguments.verify
        text = arguments.tokens is None and not (arguments.input or arguments.describe)
        files = bool(arguments.image or arguments.audio)
        chosen = arguments.prefill_chunk, arguments.policy, arguments.length_switch, text, files
        with load(*where, timed, *chosen) as model:
            if arguments.stats:
                told = model.describe()
                print(f"threads inside an operator: {told['threads']} ({told['threads_from']})", file=sys.stderr)
            code = _timed(model, arguments) if timed else _serve(model, arguments)
            sys.stdout.flush()
            return code
    except GenaiError as refused:
        _say_refused(refused)
        return EXIT_INPUT if isinstance(refused, LoadError | ValueError) else EXIT_FAULT
    except ModuleNotFoundError as missing:
        name = (missing.name or "").partition(".")[0]
        if name in ("", "genai_runtime") or name in sys.stdlib_module_names:  # a bug of ours, with all that shows it
            raise
        print(f"genai-run needs {name}, which is not installed: pip install genai-compile", file=sys.stderr)
        return EXIT_INPUT
    except KeyboardInterrupt:
        return _interrupted()
    except RuntimeError as failure:
        if not isinstance(failure.__cause__, KeyboardInterrupt):  # CPython 3.11: an interrupt while a class is made
            raise
        return _interrupted()
    except BrokenPipeError:  # who read our output has gone
        _silence()
        return EXIT_INTERRUPTED
    except MemoryError:
        what = "this process's memory does not suffice"
        print(f"genai-run: {what}; give it more, or ask for fewer rows or tokens", file=sys.stderr)
        return EXIT_INPUT
    except OSError as failure:
        _silence()
        with suppress(OSError):  # stderr itself may be what takes no more
            print(printable(f"genai-run: can't read or write: {failure}"), file=sys.stderr)
        return EXIT_INPUT


def _hold_files(arguments: argparse.Namespace) -> None:
    """What is to be written has a place, and what is to be read is there: said before anything is loaded.

    Raises RequestError: those of writable.py; `no-file`, `file-ending` for speech.
    """
    from genai_runtime.writable import hold_readable, hold_writable

    if arguments.save is not None:
        hold_writable(arguments.save, arguments.typed["save"])
        if arguments.speech is not None:
            hold_ending(arguments.save, WAV)  # the only form of speech
    if arguments.profile:
        hold_writable(arguments.profile, "--profile")
    for medium in ("image", "audio"):
        for each in getattr(arguments, medium):
            hold_readable(each, f"--{medium}")
    for name, _, value in (each.partition("=") for each in arguments.input):
        if value.endswith(NPY):
            hold_readable(value, f"--input {name}")
    if arguments.speech is not None and arguments.save is None:
        raise RequestError("no-file", "--speech makes a sound, and nothing says where to", help="add --save FILE.wav")


def _say_refused(refused: GenaiError) -> None:
    more = "" if refused.help else f"\n  help: genai-compile --explain {refused.code} says what it means"
    print(f"genai-run: {refused}{more}", file=sys.stderr)


def _interrupted() -> int:
    print("\ninterrupted", file=sys.stderr)
    _leave_openings()
    return EXIT_INTERRUPTED


def _leave_openings() -> None:
    """End at once where threads are still opening sessions: a second interrupt came while the first waited for them.

    Nothing can stop them, and Python's own end would wait for them too, for as long as reading the weights takes.
    """
    if not any(each.name == OPENING for each in threading.enumerate()):
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(EXIT_INTERRUPTED)


def _silence() -> None:
    """Python flushes once more when it ends: let that find something to write to, when stdout takes nothing more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Give a closed standard stream (`<&-`) the null device: Python then has None there, and print goes elsewhere."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _timed(model: "Model", arguments: argparse.Namespace) -> int:
    """Serve, then say where the time went."""
    timings = model.timings
    assert timings is not None
    with timings.request("genai-run"):
        code = _serve(model, arguments)
    sys.stdout.flush()
    print(timings.table(), file=sys.stderr)
    if arguments.profile:
        print(f"trace: {timings.write(arguments.profile)}", file=sys.stderr)
    return code


def _serve(model: "Model", arguments: argparse.Namespace) -> int:
    if arguments.describe:
        print(json.dumps(model.describe(), indent=2))
        return EXIT_DONE
    if arguments.speech is not None:
        return _say(model, arguments)
    if arguments.task is not None:
        return _task(model, arguments)
    if model.draws:
        return _draw(model, arguments)
    if not model.writes:
        refuse_generation_options(arguments)
        return _task(model, arguments)
    refuse_picture_options(arguments)
    if arguments.prompt is None and arguments.chat is None and arguments.tokens is None and not arguments.audio:
        if sys.stdin.isatty():
            return _conversation(model, arguments)
        arguments.prompt = _standard_input()
    if arguments.chat == "":
        return _conversation(model, arguments)
    _show(_start(model, arguments), arguments)
    return EXIT_DONE


def _say(model: "Model", arguments: argparse.Namespace) -> int:
    """Speech to a file, which _hold_files has looked at."""
    audio = model.speech(arguments.speech, arguments.instructions)
    print(f"{audio.save(arguments.save)}: {audio.content_type}, {audio.channels} x {audio.sample_rate} Hz")
    return EXIT_DONE


def _task(model: "Model", arguments: argparse.Namespace) -> int:
    from genai_runtime.task_command import show_task

    def encode() -> list[int] | None:
        """The prompt's ids; standard input is the prompt where nothing at all is given."""
        if arguments.tokens is not None:
            return _ids(arguments.tokens)
        text = arguments.prompt
        if text is None and not (arguments.input or arguments.image or arguments.audio or sys.stdin.isatty()):
            text = _standard_input()
        return None if text is None else model.tokenizer.encode(text)

    show_task(model, arguments, encode)
    return EXIT_DONE


def _draw(model: "Model", arguments: argparse.Namespace) -> int:
    from genai_runtime.drawing_command import show_drawing

    ids = _ids(arguments.tokens) if arguments.tokens is not None else None
    refuse_text_options(arguments)
    if arguments.prompt is None and ids is None:
        arguments.prompt = _standard_input()
    show_drawing(model, arguments, ids)
    return EXIT_DONE


def _standard_input() -> str:
    """The whole of standard input but for one line end behind it, as `echo` writes. Raises RequestError `bad-text`."""
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as fault:
        raise RequestError("bad-text", f"standard input is not UTF-8: {fault}") from fault
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _start(model: "Model", arguments: argparse.Namespace) -> "Generation":
    options = _options(arguments)
    if arguments.tokens is not None:
        return model.generate(_ids(arguments.tokens), **options)
    if arguments.chat is not None:
        return model.chat(_messages(model, arguments, [arguments.chat]), **options)
    return model.generate(arguments.prompt, **options)


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    chosen = {name: getattr(arguments, name) for name in (*FLOATS, *WHOLE) if getattr(arguments, name) is not None}
    return chosen | {
        "images": arguments.image,
        "audio": arguments.audio,
        "max_new_tokens": arguments.max_new_tokens,
        "stop": arguments.stop or None,
        "adapters": _adapters(arguments.adapter),
        "stop_on_eos": not arguments.ignore_eos,
        "skip_special_tokens": not arguments.keep_special,
        "speculate": arguments.speculate,
    }


def _adapters(given: Sequence[str]) -> dict[str, float] | None:
    """Alias -> scale of each `--adapter`, None without any. Raises RequestError `bad-adapters`."""
    chosen: dict[str, float] = {}
    for each in given:
        alias, _, scale = each.rpartition("=") if "=" in each else (each, "", "1")
        try:
            number = float(scale)
        except ValueError as fault:
            raise RequestError("bad-adapters", f"--adapter wants NAME or NAME=SCALE, got {each!r}") from fault
        if alias in chosen:
            raise RequestError("bad-adapters", f"--adapter names '{alias}' twice")
        chosen[alias] = number
    return chosen or None


def _ids(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError as fault:
        raise RequestError("bad-token", f"--tokens wants whole numbers with commas between, got {text!r}") from fault


def _messages(model: "Model", arguments: argparse.Namespace, said: Sequence[str]) -> list[dict[str, Any]]:
    """A conversation; files belong to its first turn, in a form that the template has a word for."""
    roles = ("user", "assistant")
    system = [{"role": "system", "content": arguments.system}] if arguments.system else []
    turns: list[dict[str, Any]] = [{"role": roles[at % 2], "content": each} for at, each in enumerate(said)]
    given = {"image": len(arguments.image), "audio": len(arguments.audio)}
    known = {medium: count for medium, count in given.items() if count and model.chat_template.knows(medium)}
    turns[0]["content"] = with_media(said[0], known)
    return [*system, *turns]


def _show(generation: "Generation", arguments: argparse.Namespace) -> str:
    if arguments.json:
        print(json.dumps(_as_data(generation, with_text=arguments.tokens is None)))
    elif arguments.tokens is not None:
        print(",".join(map(str, generation.tokens)))
    else:
        for piece in generation:
            print(piece, end="", flush=True)
        print()
    if generation.finish_reason == "context":
        print(f"the context is full after {generation.stats.new_tokens} new tokens", file=sys.stderr)
    if arguments.stats:
        for line in _stat_lines(generation):
            print(line, file=sys.stderr)
    return generation.text if arguments.tokens is None else ""


def _as_data(generation: "Generation", with_text: bool) -> dict[str, Any]:
    stats = generation.stats
    return {
        **({"text": generation.text} if with_text else {}),
        "tokens": generation.tokens,
        "finish_reason": generation.finish_reason,
        "prompt_tokens": stats.prompt_tokens,
        "new_tokens": stats.new_tokens,
        "ttft_s": round(stats.ttft, 6),
        "tokens_per_s": round(stats.rate, 3) if stats.rate else None,
    }


def _stat_lines(generation: "Generation") -> list[str]:
    stats = generation.stats
    drafts = [f"{stats.drafted} tokens drafted, {stats.accepted} accepted"] if stats.drafted else []
    then = f", then {stats.rate:.1f} tokens/s" if stats.rate else ""
    return [
        *drafts,
        f"prompt {stats.prompt_tokens} tokens, new {stats.new_tokens} tokens, finish reason {generation.finish_reason}",
        f"first token after {stats.ttft * 1e3:.0f} ms{then}; peak resident memory {_peak_memory()}",
    ]


def _peak_memory() -> str:
    """Of the process, pages of files included that others may share; MB as elsewhere, 10^6 bytes."""
    if sys.platform == "win32":
        return "unknown on this system"
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return f"{peak * (1 if sys.platform == 'darwin' else 1024) / 1e6:.0f} MB"


def _conversation(model: "Model", arguments: argparse.Namespace) -> int:
    """Read a line, answer it, remember both; ends at end of input."""
    said: list[str] = []
    print("One line a turn; end of input (Ctrl-D) leaves.", file=sys.stderr)
    while True:
        try:
            line = input("> ")
        except EOFError:
            print(file=sys.stderr)
            return EXIT_DONE
        if not line.strip():
            continue
        said.append(line)
        try:
            said.append(_show(model.chat(_messages(model, arguments, said), **_options(arguments)), arguments))
        except GenaiError as refused:
            said.pop()
            _say_refused(refused)
