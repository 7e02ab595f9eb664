"""Studies: questions about attention models, run and answered."""
