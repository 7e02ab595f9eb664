"""Position encodings: on the input, on the scores, on keys and values, or by rotation."""

from regard.positions.absolute import Learned as Learned
from regard.positions.absolute import OneHot as OneHot
from regard.positions.absolute import Sinusoidal as Sinusoidal
from regard.positions.absolute import shift_matrix as shift_matrix
from regard.positions.bias import Alibi as Alibi
from regard.positions.bias import RelativeBias as RelativeBias
from regard.positions.bias import T5Bias as T5Bias
from regard.positions.rotary import DynamicRotary as DynamicRotary
from regard.positions.rotary import Rotary as Rotary
from regard.positions.rotary import frequencies as frequencies
from regard.positions.rotary import llama3_frequencies as llama3_frequencies
from regard.positions.rotary import rotate as rotate
from regard.positions.vectors import ShawVectors as ShawVectors
