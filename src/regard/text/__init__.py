"""Text on its way to the model and back: corpora, tokenizers, objectives, batches."""
