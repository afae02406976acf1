"""genai_runtime: loads and runs compiled packages."""
