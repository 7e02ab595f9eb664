"""Clozes: phrases of a document, to be predicted from its title and the words before them.

Of «Ada Finch. Ada Finch was born in Leeds in 1901 .» the cloze of Leeds is «Ada Finch. was born in»
with the answer «Leeds»; or «Ada Finch. born in», or «Ada Finch.» alone. A model trained only on
whole documents can complete them, but rarely recalls a fact without the text before it
(Allen-Zhu & Li, 2023, "Physics of language models 3.1").
"""

import re
from typing import NamedTuple

_TITLE = re.compile(r"(.+?(?<!\b\w))\. ")
"""Everything before the first full stop that doesn't follow an initial."""
_CAPITALS = "".join(filter(str.isupper, map(chr, range(0x2000))))
"""Capital letters of nearly all alphabets that have them."""
_WORD = rf"[{_CAPITALS}]\w*(?:['’-]\w+)*"
_PHRASE = re.compile(rf"(?<!\w)(?<!\w['’-]){_WORD}(?:(?: of| the| de| von| van| la)* {_WORD})*")
"""Capitalised words, and the small ones between them."""


class Cloze(NamedTuple):
    """A phrase of a document, the words before it, and the title of the document."""

    title: str
    left: tuple[str, ...]
    answer: str

    def question(self, words: int) -> str:
        """Return the title and up to `words` words before the phrase."""
        return " ".join([f"{self.title}.", *self.left[max(len(self.left) - words, 0) :]])


def clozes(text: str, most: int) -> list[Cloze]:
    """Return the clozes of a document that begins with its title and a full stop; else none.

    Up to `most` words before a phrase are kept. Phrases that are part of the title, or contain it,
    are left out.
    """
    found = _TITLE.match(text)
    if found is None:
        return []
    title, body = found[1], text[found.end() :]
    return [
        Cloze(title, _last_words(body[: phrase.start()], most), phrase[0])
        for phrase in _PHRASE.finditer(body)
        if phrase[0] not in title and title not in phrase[0]
    ]


def _last_words(text: str, most: int) -> tuple[str, ...]:
    return tuple(text.rsplit(None, most)[-most:]) if most else ()
