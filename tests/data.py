"""Where the shared test data lies: `GENAI_COMPILE_DATA`, else a folder `shared` beside the checkout."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("GENAI_COMPILE_DATA", ROOT.parent / "shared"))
needs_data = pytest.mark.skipif(
    not (DATA / "conformance").is_dir(),
    reason="shared test data is absent (set GENAI_COMPILE_DATA to its folder)",
)
