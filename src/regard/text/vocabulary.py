"""The special tokens that every vocabulary begins with."""

PAD, MASK = 0, 1
SPECIAL = ("□", "⁇")
"""Padding, and the mask, which also begins and ends texts and parts a question from its answer."""
