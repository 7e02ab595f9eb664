"""Record activations of a run on texts, without edits.

Shapes: n tokens, d channels, h heads.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from regard.edits.places import intercept_places
from regard.edits.sites import Site
from regard.edits.tokens import Hook, Tokens
from regard.errors import UserError
from regard.models.builders import LanguageModel, SequenceToSequence
from regard.runs.run import Run


def text_inputs(run: Run, text: str, second: str | None = None) -> list[list[Tensor]]:
    """Return the inputs of the model's body for each reading of a text: as is, and as a question.

    `second` is the target of an encoder–decoder, or the second text of a pair.

    Raises:
        UserError: a text is empty, too long, or can't be encoded.
    """
    if "" in (text, second):
        raise UserError("a text is empty; a model needs at least one token")
    if isinstance(run.model, SequenceToSequence):
        target = run.template.open_target(() if second is None else run.tokenizer.encode(second))
        source = run.encode(text)[0]
        return [[*_row(run, source, run.recipe.max_source_tokens), _row(run, target)[0]]]
    ids, types = run.encode(text, second)
    plain = _row(run, ids)
    if second is not None and run.recipe.uses_token_types:
        plain.append(_row(run, types)[0])
    found = [plain]
    answers = run.recipe.task is None and run.answers_questions
    if second is None and isinstance(run.model, LanguageModel) and answers:
        prompt = run.template.prompt.around(run.tokenizer.encode(text))
        found.append(_row(run, run.template.open_answer(prompt)))
    return found


def ids_read(run: Run, inputs: Sequence[Tensor]) -> list[int]:
    """Return the input ids of the last stack: an encoder–decoder's target, or the text."""
    ids: list[int] = inputs[-1 if isinstance(run.model, SequenceToSequence) else 0][0].tolist()
    return ids


def _row(run: Run, ids: Sequence[int], limit: int | None = None) -> list[Tensor]:
    """Return one row and its length, of at most `limit` tokens (default: the context length)."""
    limit = run.recipe.model.context_length if limit is None else limit
    if len(ids) > limit:
        raise UserError(f"a text has {len(ids)} tokens, and the model reads {limit}; shorten it")
    length = torch.tensor([len(ids)], device=run.device)
    return [torch.tensor([list(ids)], device=run.device), length]


@torch.no_grad()
def activations(run: Run, inputs: Sequence[Tensor], sites: Iterable[Site]) -> dict[str, Tensor]:
    """Run the model's body and return the tensors of sites by name, a row for each input."""
    chosen = list(sites)
    found = Recorder(chosen)
    with intercept_places(run.model, found.hooks):
        run.model.body(*inputs)
    tensors = found.tensors
    return {site.name: of_site(tensors[site.place], site) for site in chosen}


STATES = (".hidden", ".cell", ".states")
"""Suffixes of places whose hooks are called token by token."""


class Recorder:
    """Hooks that record the tensors of places and change nothing.

    `steps` maps place and first position to the recorded tensor, not to a copy.
    """

    def __init__(self, sites: Iterable[Site]) -> None:
        self.steps: dict[str, dict[int, Tensor]] = {}
        self.hooks: dict[str, Hook] = {site.place: self._hook(site.place) for site in sites}

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensor of each place; states of single tokens are concatenated."""
        return {
            place: torch.cat([steps[first] for first in sorted(steps)], -2)
            for place, steps in self.steps.items()
        }

    def _hook(self, place: str) -> Hook:
        def keep(x: Tensor, tokens: Tokens, _: Tokens) -> Tensor:
            by_token = place.endswith(STATES)
            first = int(tokens.positions[0, 0]) if by_token else 0
            if torch.is_grad_enabled() and not x.requires_grad:  # after frozen parameters
                x.requires_grad_()
            self.steps.setdefault(place, {})[first] = x
            return x

        return keep


def of_site(x: Tensor, site: Site) -> Tensor:
    """Return the tensor of a site: one head of its place, or the whole place."""
    return x if site.head is None else x[:, site.head]
