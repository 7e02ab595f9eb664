"""Evaluation: answers of a run, their confidence, and reports."""
