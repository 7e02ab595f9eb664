"""Studies: questions about attention, each run, drawn and answered.

Each is a function, `from regard.studies import averaging`; `regard study list` shows them all.
They are loaded when they are first used.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    from regard.studies.registry import all_studies

    for study in all_studies():
        if study.name.replace("-", "_") == name:
            return study
    raise AttributeError(f"module 'regard.studies' has no attribute {name!r}")
