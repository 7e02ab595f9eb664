"""Hugging Face models in the explorer. The package imports no transformers by itself."""
