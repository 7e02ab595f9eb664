"""Names and words of the fictional world, from names.toml. All places are invented."""

import tomllib

from regard.files import packaged_text

_WORDS: dict[str, list[str]] = tomllib.loads(packaged_text("tasks/names.toml"))
FIRST_NAMES = _WORDS["first_names"]
LAST_NAMES = _WORDS["last_names"]
PLACES = [stem + ending for ending in _WORDS["place_endings"] for stem in _WORDS["place_stems"]]
PROFESSIONS = _WORDS["professions"]
SUBJECTS = _WORDS["subjects"]
HOBBIES = _WORDS["hobbies"]
FACTS = {"place": PLACES, "profession": PROFESSIONS, "subject": SUBJECTS, "hobby": HOBBIES}
"""Kind of fact about a person → possible values."""
