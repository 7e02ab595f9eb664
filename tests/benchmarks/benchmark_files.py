"""The benchmarks as modules. They are scripts, found by the folder that they lie in."""

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

measure = import_module("measure")
contestants = import_module("contestants")
attention = import_module("attention")
decoding_step = import_module("decoding_step")
gpu_attention = import_module("gpu_attention")
gpu = import_module("gpu")
peers = import_module("peers")
training = import_module("training")
choices = import_module("choices")
computer = import_module("computer")
decoding = import_module("decoding")
decoding_families = import_module("decoding_families")
decoding_mechanisms = import_module("decoding_mechanisms")
hybrids = import_module("hybrids")
birthplaces = import_module("birthplaces")
course_epochs = import_module("course_epochs")
look = import_module("look")
corpus_index = import_module("corpus_index")
effects = import_module("effects")
probe_runs = import_module("probe_runs")
relu_attention = import_module("relu_attention")
trigger_sinks = import_module("trigger_sinks")
induction = import_module("induction")
indirect_object = import_module("indirect_object")
prune_translation = import_module("prune_translation")
recall = import_module("recall")
