"""Write every package under fixtures/ anew: `python -m tools.make_fixtures [FOLDER]`.

The same bytes on every run: weights come from fixed seeds, documents and configs from code.
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tools.fixtures.control_flow import branch_joins, nested_loops
from tools.fixtures.denoising import tiny_denoiser
from tools.fixtures.encoder_decoder import tiny_encoder_decoder_v1
from tools.fixtures.genai_v1 import tiny_concat_v1, tiny_gqa_v1
from tools.fixtures.genai_v2 import (
    tiny_embedder_v2,
    tiny_encoder_v2,
    tiny_media_v2,
    tiny_minimal_v2,
    tiny_vision_v2,
)
from tools.fixtures.held_decoder import tiny_held_state
from tools.fixtures.pictures import negatives
from tools.fixtures.policy_decoder import tiny_decoder
from tools.fixtures.processors import (
    tiny_budget_v1,
    tiny_even_bands_v2,
    tiny_fields_v2,
    tiny_own_tokens_v1,
    tiny_tiles_v2,
)
from tools.fixtures.recurrent import tiny_ssru_v1
from tools.fixtures.runtime_decoder import tiny_runtime_policy
from tools.fixtures.searching import wide_search
from tools.fixtures.shifted import tiny_shifted_v1
from tools.fixtures.speculative import tiny_block_drafts, tiny_chained_drafts
from tools.fixtures.stages import tiny_stages_v1
from tools.fixtures.state import bounded_growing, ragged_emit, session_counter
from tools.fixtures.tied import tiny_tied_v1
from tools.fixtures.turning import tiny_turns
from tools.fixtures.vision_stages import tiny_vision_stages_v1

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
MAKERS: dict[str, Callable[[Path], None]] = {
    "bounded-growing": bounded_growing,
    "branch-joins": branch_joins,
    "negatives": negatives,
    "nested-loops": nested_loops,
    "ragged-emit": ragged_emit,
    "session-counter": session_counter,
    "tiny-block-drafts": tiny_block_drafts,
    "tiny-budget-v1": tiny_budget_v1,
    "tiny-chained-drafts": tiny_chained_drafts,
    "tiny-concat-v1": tiny_concat_v1,
    "tiny-decoder": tiny_decoder,
    "tiny-denoiser": tiny_denoiser,
    "tiny-embedder-v2": tiny_embedder_v2,
    "tiny-encoder-v2": tiny_encoder_v2,
    "tiny-encoder-decoder-v1": tiny_encoder_decoder_v1,
    "tiny-even-bands-v2": tiny_even_bands_v2,
    "tiny-fields-v2": tiny_fields_v2,
    "tiny-gqa-v1": tiny_gqa_v1,
    "tiny-held-state": tiny_held_state,
    "tiny-media-v2": tiny_media_v2,
    "tiny-minimal-v2": tiny_minimal_v2,
    "tiny-own-tokens-v1": tiny_own_tokens_v1,
    "tiny-runtime-policy": tiny_runtime_policy,
    "tiny-shifted-v1": tiny_shifted_v1,
    "tiny-ssru-v1": tiny_ssru_v1,
    "tiny-stages-v1": tiny_stages_v1,
    "tiny-tied-v1": tiny_tied_v1,
    "tiny-tiles-v2": tiny_tiles_v2,
    "tiny-turns": tiny_turns,
    "tiny-vision-stages-v1": tiny_vision_stages_v1,
    "tiny-vision-v2": tiny_vision_v2,
    "wide-search": wide_search,
}


def make_fixtures(root: Path) -> None:
    """Replace the package folders under `root`; anything else there is left alone."""
    for name, make in MAKERS.items():
        folder = root / name
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        make(folder)


if __name__ == "__main__":
    make_fixtures(Path(sys.argv[1]) if len(sys.argv) > 1 else FIXTURES)
