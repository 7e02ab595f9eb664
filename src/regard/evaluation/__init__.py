"""Evaluation: what a run answers, how sure it is, and a report of it."""
