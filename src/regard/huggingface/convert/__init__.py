"""Conversion of Hugging Face models to runs and back: configuration, tokenizer and weights."""
