"""Metrics of confidence in answers, and abstention."""
