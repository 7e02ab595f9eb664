"""Attention by hand: what one head computes."""
