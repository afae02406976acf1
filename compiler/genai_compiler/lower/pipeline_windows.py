"""Windows of a version 2 pipeline in the words of version 1: prompts that go in by windows, caches that keep a window.

`windowed` positions cut the prompt; then `sliding_window.window_size` is how many tokens go in at once, and whether the
caches move or keep every position is told by the graphs. Without that word it is what the caches of some layers hold.
"""

from collections.abc import Iterable
from dataclasses import replace

from genai_compiler.lower.matching import template_layers
from genai_compiler.lower.plain_state import appends
from genai_compiler.lower.stage_chain import Chain
from genai_compiler.read.genai_config import GenaiConfig, SlidingWindow
from genai_compiler.read.pipeline_form import PipelineForm, Resolving
from genai_compiler.read.pipeline_rules import STATE
from genai_compiler.read.places import DocPath
from genai_compiler.read.signature import Port
from genai_compiler.read.value_flow import Edges

CACHE: DocPath = (*STATE, "kv_cache")
WINDOW: DocPath = (*CACHE, "sliding_window")
_WINDOWED = "windowed"


def is_windowed(form: PipelineForm) -> bool:
    """Whether prompts go in by windows, in either of the two words for it."""
    return form.state.position_ids.strategy == _WINDOWED or form.state.kv_cache.format == _WINDOWED


def stated_window(form: PipelineForm, resolving: Resolving) -> SlidingWindow | None:
    """`sliding_window` as version 1 has it, None without one; a block of version 1 says what version 2 leaves open.

    The caches move (`slide_key_value_cache`) where `format` says so. Reports missing-key, config-read-as, ignored-key.
    """
    stated, block = form.state.kv_cache.sliding_window, form.text.base.decoder.sliding_window
    if stated is not None and block is not None and stated.window_size != block.window_size:
        what = f"window_size is {stated.window_size} here, but model.decoder.sliding_window says {block.window_size}; "
        resolving.report("config-read-as", (*WINDOW, "window_size"), what + "version 2 is taken", "say it once", True)
    size = stated.window_size if stated is not None else block.window_size if block is not None else 0
    if not is_windowed(form):
        slack = block.cache_slack if block is not None else 0
        return block if stated is None else SlidingWindow(size, False, False, stated.layers, slack)
    if stated is None and block is None:
        said = form.state.position_ids.strategy == _WINDOWED
        path: DocPath = (*STATE, "position_ids", "strategy") if said else (*CACHE, "format")
        what = "prompts go in by windows (windowed), and nothing says of how many tokens"
        help = 'add "sliding_window": {"window_size": N} to pipeline.state.kv_cache'
        resolving.report("missing-key", path, what, help)
    if stated is not None and stated.layers:
        what = "'layers' has no effect where prompts go in by windows: a window goes through all layers"
        resolving.report("ignored-key", (*WINDOW, "layers"), what, "remove it", True)
    moves = form.state.kv_cache.format == _WINDOWED
    pad, alignment = (block.pad_value, block.alignment) if block is not None else (0, "")
    return SlidingWindow(size, moves, True, (), 0, pad, alignment)


def with_caches(window: SlidingWindow, form: PipelineForm, step: Chain, config: GenaiConfig) -> SlidingWindow:
    """The window with whether caches move, as the graphs tell it.

    Padding stands before a prompt where caches move, behind it where they do not, unless a block of version 1 says it.
    """
    moves = window.slide_key_value_cache or (is_windowed(form) and _move(step, config))
    alignment = window.alignment or ("right" if moves else "left")
    return replace(window, slide_key_value_cache=moves, alignment=alignment)


def _move(step: Chain, config: GenaiConfig) -> bool:
    """Whether each cache is given back as the columns of new tokens alone, and no operator appends to it."""
    inputs = {each.name: each for each in step.signature.inputs}
    outputs = {each.name: each for each in step.signature.outputs}
    new: set[int | str | None] = {1}
    for key in ("input_ids", "position_ids"):
        port = inputs.get(config.decoder.inputs[key])
        new |= {port.shape[-1]} if port is not None and port.shape else set()
    found: list[bool] = []
    for part in ("key", "value"):
        pasts = template_layers(config.decoder.inputs[f"past_{part}_names"], inputs)
        presents = template_layers(config.decoder.outputs[f"present_{part}_names"], outputs)
        pairs = [(inputs[pasts[layer]], outputs[presents[layer]]) for layer in pasts if layer in presents]
        found += [_moves(step, past, present, new) for past, present in pairs]
    return bool(found) and all(found)


def _moves(step: Chain, past: Port, present: Port, new: set[int | str | None]) -> bool:
    if past.shape is None or present.shape is None or appends(Edges(step.model.graph), past.name, present.name):
        return False
    apart = [made for taken, made in zip(past.shape, present.shape, strict=False) if taken != made]
    ops = {name for op in step.signature.cache_ops for name in (op.past_key, op.past_value)}
    return past.name not in ops and len(apart) == 1 and {*apart} <= new - {None}


def check_layers(form: PipelineForm, layers: Iterable[int], resolving: Resolving) -> None:
    """Layers that are said to keep a window, and have no caches (config-contradicts-graph). layers: those that have."""
    window, known = form.state.kv_cache.sliding_window, {*layers}
    absent = sorted({*window.layers} - known) if window is not None and known else []
    if absent:
        what = f"layers lists {', '.join(map(str, absent))}, but the decoder keeps caches of layers "
        what += ", ".join(map(str, sorted(known)))
        resolving.report("config-contradicts-graph", (*WINDOW, "layers"), what, "correct the list", True)
