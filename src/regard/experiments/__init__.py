"""Experiments of `regard demo` and `regard birthplaces`: compared trainings, and their reports."""
