"""Names and words of the fictional world, from names.toml. All places are invented."""

import tomllib
from importlib.resources import files

_WORDS: dict[str, list[str]] = tomllib.loads(
    (files("regard.tasks") / "names.toml").read_text(encoding="utf-8")
)
FIRST_NAMES = _WORDS["first_names"]
LAST_NAMES = _WORDS["last_names"]
PLACES = [stem + ending for ending in _WORDS["place_endings"] for stem in _WORDS["place_stems"]]
PROFESSIONS = _WORDS["professions"]
SUBJECTS = _WORDS["subjects"]
HOBBIES = _WORDS["hobbies"]
