"""Planted circuits: patching finds exactly the heads whose weights were set by hand."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from regard import edits
from regard.attention.config import SoftmaxConfig
from regard.edits.effects import effects
from regard.edits.found import Effects
from regard.models.config import DecoderConfig
from regard.models.head_config import LMHeadConfig
from regard.models.layers import Layer
from regard.models.transformer import Decoder
from regard.positions.config import OneHotConfig
from regard.runs.recipe import Recipe
from regard.runs.run import Run
from regard.text.tokenizer import number_tokenizer
