"""`python -m genai_compiler` is `genai-compile`."""

from genai_compiler.cli import main

raise SystemExit(main())
