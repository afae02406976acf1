"""`python -m genai_runtime` is `genai-run`."""

from genai_runtime.cli import main

raise SystemExit(main())
