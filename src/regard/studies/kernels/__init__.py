"""Kernels: attention in linear time, and its error."""

from typing import Any

from regard.studies.kernels.causal_sums import causal_sums
from regard.studies.kernels.favor import favor
from regard.studies.kernels.fourier_features import fourier_features
from regard.studies.kernels.gaussian_identity import gaussian_identity
from regard.studies.kernels.performer import performer
from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = (
    gaussian_identity,
    fourier_features,
    causal_sums,
    favor,
    performer,
)
