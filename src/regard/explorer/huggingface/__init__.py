"""Hugging Face models in the explorer. Importing the package doesn't import transformers."""
