"""Kernels: attention in linear time, and its error."""

# ruff: noqa: F401, I001 (the order is that of the book)
from regard.studies.kernels.gaussian_kernel import gaussian_identity, fourier_features
from regard.studies.kernels.causal_sums import causal_sums
from regard.studies.kernels.favor import favor
from regard.studies.kernels.performer import performer
