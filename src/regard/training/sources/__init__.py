"""Sources of training data, one module each."""
