"""What the page of exercises is made of: modules beside a script of the docs."""

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

sentences = import_module("explorer_pages.sentences")
pairs = import_module("explorer_pages.pairs")
models = import_module("explorer_pages.models")
measures = import_module("explorer_pages.measures")
exercise = import_module("explorer_pages.exercise")
trainings = import_module("explorer_pages.trainings")
page = import_module("explorer_pages.page")
another = import_module("explorer_pages.another")
