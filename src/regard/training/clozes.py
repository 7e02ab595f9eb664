"""Clozes of documents: a phrase is predicted from the words before it."""

from collections.abc import Sequence

from regard.data.causal import Clozes
from regard.errors import UserError
from regard.runs.run import Run
from regard.text.clozes import clozes as find_clozes
from regard.text.corpus import Document
from regard.text.tokenizer import OutOfVocabularyError


def cloze_dataset(run: Run, corpus: Sequence[Document]) -> Clozes:
    """All prompts of each cloze, with its completion.

    Left out is what doesn't fit the context, and what words as tokens can't write: «(Leeds» may be
    one where «Leeds» is none.

    Raises:
        UserError: there are no clozes.
    """
    fewest, most = run.recipe.objective.cloze_words
    encode, template, encoded = run.tokenizer.encode, run.template, []
    context_length = run.recipe.model.context_length
    for cloze in (cloze for document in corpus for cloze in find_clozes(document.text, most)):
        shown = range(min(fewest, len(cloze.left)), len(cloze.left) + 1)
        try:
            completion = template.completion.around(encode(cloze.answer))
            prompts = [template.prompt.around(encode(cloze.question(words))) for words in shown]
        except OutOfVocabularyError:
            continue
        fitting = [p for p in prompts if len(p) + len(completion) <= context_length + 1]
        if fitting:
            encoded.append((fitting, completion))
    if not encoded:
        raise UserError(
            f"objective.clozes is above 0, but no document, as {corpus[0].where}, yields one: each "
            "must begin with its title and a full stop, as in «Ada Finch. Born in Leeds», and fit "
            f"model.context_length={context_length}; or set objective.clozes=0"
        )
    return Clozes(encoded, run.row_format.whole_rows)
