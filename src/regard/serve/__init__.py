"""A local page on which runs are looked at while they read and write."""
