"""Low rank: attention with fewer directions than tokens, and other ways to spare."""

from typing import Any

from regard.studies.study import Study

STUDIES: tuple[Study[Any], ...] = ()
