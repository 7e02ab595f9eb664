"""Sources: what a run is trained on, a module each."""
