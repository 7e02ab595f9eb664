"""Clozes: what a document says, asked piece by piece in its own words.

Of «Ada Finch. Ada Finch was born in Leeds in 1901 .» the cloze of Leeds is «Ada Finch. was born in»
with the answer «Leeds». A model that only ever reads a document from its beginning can complete it,
but seldom tell a fact out of its order (Allen-Zhu & Li, 2023, "Physics of language models 3.1").
"""

import re
from typing import NamedTuple

_TITLE = re.compile(r"(.+?(?<!\b\w))\. ")
"""All before the first full stop that doesn't follow an initial."""
_PHRASE = re.compile(r"[A-Z][\w'’-]*(?:(?: of| the| de| von| van| la)* [A-Z][\w'’-]*)*")
"""Capitalised words, and the small ones between them."""
_WORDS = 4
"""Words on the left of a phrase that its cloze shows."""


class Cloze(NamedTuple):
    """A question in a document's own words, and its answer."""

    question: str
    answer: str


def clozes(text: str) -> list[Cloze]:
    """The clozes of a document that begins with its title and a full stop; none of another."""
    found = _TITLE.match(text)
    if found is None:
        return []
    title, body = found[1], text[found.end() :]
    return [
        Cloze(f"{title}. {' '.join(body[: phrase.start()].split()[-_WORDS:])}".rstrip(), phrase[0])
        for phrase in _PHRASE.finditer(body)
    ]
