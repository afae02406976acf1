"""The LoRA service: which adapters each row uses, their files, and where their deltas go (standard, section 6)."""
