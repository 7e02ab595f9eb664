"""Training: plans, sources of data, optimizers, the loop, checkpoints and logs."""
