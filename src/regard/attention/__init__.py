"""What attention computes: masks, mechanisms, and the contract that they keep."""

from regard.attention.base import Attention, Bias, State, Support
from regard.attention.exact import Softmax
from regard.attention.mask import Mask

__all__ = ["Attention", "Bias", "Mask", "Softmax", "State", "Support"]
