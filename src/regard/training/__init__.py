"""Training: what a step sees, the optimiser, the loop, and the stages made of them."""
