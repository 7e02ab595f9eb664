"""Explorer: attention of models as pages and pictures, scores of heads, gradients."""
