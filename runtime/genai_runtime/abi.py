"""What a generated executor stands on: everything it may import, under one version number.

A change that an existing executor would notice raises ABI_VERSION; `load` refuses an executor of another version.
"""

from typing import TYPE_CHECKING

from genai_runtime.on_demand import on_demand

if TYPE_CHECKING:
    from genai_runtime.adapters import open_adapter
    from genai_runtime.adapters.audio.program import AudioProgram
    from genai_runtime.adapters.audio.stated_features import AudioFeatures
    from genai_runtime.adapters.image.program import (
        ImageOutput,
        ImagePatches,
        ImageProgram,
        ImageResize,
        ImageTiles,
        ImageViews,
    )
    from genai_runtime.binding import RUN_FAILURES
    from genai_runtime.blocks import SpeculativeDecoder
    from genai_runtime.budget import BudgetSpec
    from genai_runtime.cells import (
        Cell,
        agree,
        bounded,
        enter,
        growing,
        has_extent,
        has_form,
        invariant,
        within_capacity,
    )
    from genai_runtime.decoding import Decoder, DecoderSpec, Lengths, Mask
    from genai_runtime.drafting import DraftSpec
    from genai_runtime.held import HeldSpec, Holder
    from genai_runtime.host_program import HostConstant, HostInput, HostProgram, HostStep
    from genai_runtime.inputs import Input, bind_inputs
    from genai_runtime.packing import Pages
    from genai_runtime.policy import TokenPolicy
    from genai_runtime.publish import Output, Publisher
    from genai_runtime.request import Event, Request
    from genai_runtime.result import Result
    from genai_runtime.rows import branch_key, iteration_limit, iteration_value, keep_rows, live_rows, unmatched_case
    from genai_runtime.sessions import Sessions
    from genai_runtime.settled import SETTLED, counter, entries, number, settled, summed
    from genai_runtime.state import Slot
    from genai_runtime.values import merge_axes

ABI_VERSION = 4

__all__ = [
    "ABI_VERSION",
    "RUN_FAILURES",
    "SETTLED",
    "AudioFeatures",
    "AudioProgram",
    "BudgetSpec",
    "Cell",
    "Decoder",
    "DecoderSpec",
    "DraftSpec",
    "Event",
    "HeldSpec",
    "Holder",
    "HostConstant",
    "HostInput",
    "HostProgram",
    "HostStep",
    "ImageOutput",
    "ImagePatches",
    "ImageProgram",
    "ImageResize",
    "ImageTiles",
    "ImageViews",
    "Input",
    "Lengths",
    "Mask",
    "Output",
    "Pages",
    "Publisher",
    "Request",
    "Result",
    "Sessions",
    "Slot",
    "SpeculativeDecoder",
    "TokenPolicy",
    "agree",
    "bind_inputs",
    "bounded",
    "branch_key",
    "counter",
    "enter",
    "entries",
    "growing",
    "has_extent",
    "has_form",
    "invariant",
    "iteration_limit",
    "iteration_value",
    "keep_rows",
    "live_rows",
    "merge_axes",
    "number",
    "open_adapter",
    "settled",
    "summed",
    "unmatched_case",
    "within_capacity",
]

_HOMES = {
    "AudioFeatures": "adapters.audio.stated_features",
    "AudioProgram": "adapters.audio.program",
    "BudgetSpec": "budget",
    "Cell": "cells",
    "Decoder": "decoding",
    "DecoderSpec": "decoding",
    "DraftSpec": "drafting",
    "Event": "request",
    "HeldSpec": "held",
    "Holder": "held",
    "HostConstant": "host_program",
    "HostInput": "host_program",
    "HostProgram": "host_program",
    "HostStep": "host_program",
    "ImageOutput": "adapters.image.program",
    "ImagePatches": "adapters.image.program",
    "ImageProgram": "adapters.image.program",
    "ImageResize": "adapters.image.program",
    "ImageTiles": "adapters.image.program",
    "ImageViews": "adapters.image.program",
    "Input": "inputs",
    "Lengths": "decoding",
    "Mask": "decoding",
    "Output": "publish",
    "Pages": "packing",
    "Publisher": "publish",
    "RUN_FAILURES": "binding",
    "Request": "request",
    "Result": "result",
    "SETTLED": "settled",
    "Sessions": "sessions",
    "Slot": "state",
    "SpeculativeDecoder": "blocks",
    "TokenPolicy": "policy",
    "agree": "cells",
    "bind_inputs": "inputs",
    "bounded": "cells",
    "branch_key": "rows",
    "counter": "settled",
    "enter": "cells",
    "entries": "settled",
    "growing": "cells",
    "has_extent": "cells",
    "has_form": "cells",
    "invariant": "cells",
    "iteration_limit": "rows",
    "iteration_value": "rows",
    "keep_rows": "rows",
    "live_rows": "rows",
    "merge_axes": "values",
    "number": "settled",
    "open_adapter": "adapters",
    "settled": "settled",
    "summed": "settled",
    "unmatched_case": "rows",
    "within_capacity": "cells",
}
"""Name -> the module that has it, imported when an executor first asks for the name."""

__getattr__ = on_demand(__name__, globals(), _HOMES)
