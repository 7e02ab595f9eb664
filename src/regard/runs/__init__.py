"""Runs on disk: recipes, weights with their tokenizer, checkpoints."""
