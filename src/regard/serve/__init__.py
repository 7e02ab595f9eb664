"""A local page on which models are looked at while they read and write."""
