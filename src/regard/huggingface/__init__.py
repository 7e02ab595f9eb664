"""Hugging Face models as runs: their configuration, tokenizer and weights."""
