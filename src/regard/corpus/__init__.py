"""Search in the text that a model was trained on."""
