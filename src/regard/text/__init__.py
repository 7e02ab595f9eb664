"""Text: files, corpora, tokenizers, templates, packed corpora and clozes."""
