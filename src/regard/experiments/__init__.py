"""Experiments of `regard demo` and `regard birthplaces`: training, comparison and reports."""
