"""onnxruntime-genai's generator, through its Python API."""

import importlib
import importlib.util
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tools.bench.run_clock import RunClock, Trace


def has_genai() -> bool:
    """Whether onnxruntime-genai is installed."""
    return importlib.util.find_spec("onnxruntime_genai") is not None


class GenaiLoop:
    """A greedy loop. Its C++ host work is inside the timed call: only Python counts as host here."""

    def __init__(self, package: Path, threads: int, clock: RunClock) -> None:
        self._library = importlib.import_module("onnxruntime_genai")
        config = self._library.Config(str(package))
        settings = {"intra_op_num_threads": threads, "inter_op_num_threads": 1, "log_severity_level": 3}
        stated = json.loads((package / "genai_config.json").read_text(encoding="utf-8"))["model"]
        # No prompt here leads to the last id, so that a generation always has its full length.
        never = stated["vocab_size"] - 1
        config.overlay(json.dumps({"model": {"eos_token_id": never, "decoder": {"session_options": settings}}}))
        self._model, self._clock = self._library.Model(config), clock

    def generate(self, rows: Sequence[list[int]], new: int) -> Trace:
        """`new` greedy tokens after each of these prompts of one length. Raises RuntimeError where one ends early."""
        self._clock.take()
        start = time.perf_counter()
        options = self._library.GeneratorParams(self._model)
        options.set_search_options(do_sample=False, max_length=len(rows[0]) + new, batch_size=len(rows))
        generator = self._library.Generator(self._model, options)
        advance, following = self._clock.timed(generator, generator.generate_next_token), generator.get_next_tokens
        generator.append_tokens(rows[0] if len(rows) == 1 else np.array(rows, np.int32))
        advance()
        made = [following()]
        first = time.perf_counter()
        if len(rows) == 1:
            made = [[int(made[0][0])]]
            for _ in range(new - 1):
                advance()
                made.append([int(following()[0])])
        else:
            for _ in range(new - 1):
                advance()
                made.append(following().tolist())
        seconds = time.perf_counter() - start
        if generator.is_done() and generator.token_count() < len(rows[0]) + new:
            raise RuntimeError("onnxruntime-genai ended early: this prompt leads to the vocabulary's last id")
        tokens = [int(each[row]) for row in range(len(rows)) for each in made]
        return Trace(tokens, first - start, seconds, self._clock.take(), rows=len(rows))

    def first_text(self, text: str) -> str:
        """The first piece of text behind a prompt, the tokenizer's opening included."""
        tokenizer = self._library.Tokenizer(self._model)
        stream, ids = tokenizer.create_stream(), tokenizer.encode(text)
        options = self._library.GeneratorParams(self._model)
        options.set_search_options(do_sample=False, max_length=len(ids) + 8)
        generator = self._library.Generator(self._model, options)
        generator.append_tokens(ids)
        piece = ""
        while not piece:
            generator.generate_next_token()
            piece = stream.decode(int(generator.get_next_tokens()[0]))
        return piece
