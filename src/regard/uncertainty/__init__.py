"""Confidence in answers: how well it ranks right above wrong ones, and when to abstain."""
