"""Models put together from attention, positions and feed-forward layers."""
