"""Apply edits to a run in a with block; the model is restored afterwards.

Shapes: b rows, n tokens, d channels, q queries, k keys.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.differential import MapDifference
from regard.attention.gated import RecurrentAttention
from regard.attention.kernel import KernelAttention
from regard.attention.softmax import ScoreAttention
from regard.edits.activations import activations, text_inputs
from regard.edits.edit import (
    EACH_NEW,
    At,
    Cut,
    Edit,
    Edits,
    Mean,
    Patch,
    Steer,
    as_edits,
)
from regard.edits.places import attention_layers, in_turn, intercept_places
from regard.edits.sites import PAIRS, Site, find_site, sites
from regard.edits.tokens import Hook, Prompt, Tokens, chosen_positions
from regard.errors import UnsupportedError, UserError
from regard.runs.run import Run

Values: TypeAlias = Float[Tensor, "b n d"]
Selected: TypeAlias = Bool[Tensor, "b n"]


@contextmanager
def edited(
    run: Run, edit: Edit | Edits | None, *, prompt_tokens: int | None = None
) -> Iterator[None]:
    """Apply edits to the model of a run in the with block.

    Words and positions refer to each row's prompt: the tokens that the model reads first, or only
    the first `prompt_tokens` of them, as for a prompt with its generated continuation.

    Raises:
        UserError: a site or word doesn't exist, lengths differ, or an edit changed nothing.
        UnsupportedError: a mechanism has no such edit.

    >>> from regard.edits import zero
    >>> ids = torch.tensor([run.tokenizer.encode("Ada was born in")])
    >>> with torch.inference_mode(), regard.edited(run, zero("decoder.0.heads.1")):
    ...     logits = run.model(ids)
    >>> logits.shape  # rows, tokens, vocabulary
    torch.Size([1, 4, 15])
    """
    edits = as_edits(edit).edits
    if not edits:
        yield
        return
    known = {site.name: site for site in sites(run)}
    applied = [Applied(run, one, known) for one in edits]
    hooks = in_turn({one.place: one.hook} for one in applied)
    with intercept_places(run.model, hooks, prompt_tokens):
        yield
    for one in applied:
        if not one.met:
            raise UserError(f"{one.edit}: changed nothing: it selects no token of the text")


class Applied:
    """An edit of a run: its place and its hook, and whether it has applied to any token."""

    def __init__(self, run: Run, edit: Edit, known: Mapping[str, Site]) -> None:
        """Find the site and compute the edit's values from other texts.

        Raises:
            UserError: the site doesn't exist, or doesn't fit the edit.
        """
        self.run, self.edit, self.met = run, edit, False
        self.site = find_site(known, edit.site)
        self._chosen: dict[str, tuple[Prompt, Tensor]] = {}
        self.place, self.hook = self.site.place, self._changed(self._change())
        if isinstance(edit, Cut):
            self.place, self.hook = self._cut(edit)

    def _selected(self, at: At, tokens: Tokens, rows: int, name: str) -> Selected:
        """Return a mask of the tokens that the edit applies to; cached for each prompt."""
        if at == EACH_NEW:
            return tokens.beyond(rows)
        if at is None and not isinstance(self.edit, Patch):
            shape = rows, tokens.n
            return torch.ones(shape, dtype=torch.bool, device=tokens.positions.device)
        prompt, chosen = self._chosen.get(name, (None, None))
        if prompt is not tokens.prompt or chosen is None:
            chosen = chosen_positions(at, tokens.prompt, self.run.tokenizer, self.edit.site)
            self._chosen[name] = tokens.prompt, chosen
        return tokens.at(chosen, rows)

    def _changed(self, change: Callable[[Tensor, Selected, Tokens, Tokens], Tensor]) -> Hook:
        """Return the hook that changes the selected tokens of the site."""
        head, at = self.site.head, getattr(self.edit, "at", None)

        def hook(x: Tensor, tokens: Tokens, keys: Tokens) -> Tensor:
            selected = self._selected(at, tokens, len(x), "at")
            if not selected.any():
                return x
            self.met = True
            if head is None:
                return change(x, selected, tokens, keys)
            new = change(x[:, head], selected, tokens, keys)
            return torch.cat([x[:, :head], new[:, None], x[:, head + 1 :]], 1)

        return hook

    def _change(self) -> Callable[[Tensor, Selected, Tokens, Tokens], Tensor]:
        edit, site = self.edit, self.site
        match edit:
            case Patch():
                return self._patch(edit)
            case Mean():
                self._require_vectors()
                mean = self._mean(edit)
                return lambda x, chosen, *_: torch.where(chosen[..., None], mean.to(x), x)
            case Steer(vector=vector, scale=scale):
                self._require_vectors()
                if len(vector) != site.width:
                    raise UserError(
                        f"steer {site.name}: the vector has {len(vector)} numbers, and the site "
                        f"{site.width} channels"
                    )
                added = scale * torch.tensor(vector, dtype=torch.float64)
                if not added.isfinite().all():
                    raise UserError(f"steer {site.name}: vector and scale must be finite")
                return lambda x, chosen, *_: x + chosen[..., None] * added.to(x)
        return lambda x, chosen, *_: x.masked_fill(chosen[..., None], 0)

    def _require_vectors(self) -> None:
        if self.site.width is None:
            kind = self.edit.__struct_config__.tag
            raise UserError(f"{kind} {self.site.name}: has numbers per query and key, no vectors")

    def _mean(self, edit: Mean) -> Float[Tensor, " d"]:
        if not edit.texts:
            raise UserError(f"mean {self.site.name}: texts is empty; give at least one text")
        rows = [
            activations(self.run, text_inputs(self.run, text)[0], [self.site])[self.site.name][0]
            for text in edit.texts
        ]
        return torch.cat(rows).mean(0)

    def _patch(self, edit: Patch) -> Callable[[Tensor, Selected, Tokens, Tokens], Tensor]:
        if edit.at == EACH_NEW:
            raise UserError(
                f"patch {self.site.name}: the source has no tokens after the prompt; choose "
                "positions of the prompt, or steer new tokens"
            )
        sources: dict[int, Tensor] = {}
        for inputs in text_inputs(self.run, edit.source, edit.second):
            found = activations(self.run, inputs, [self.site])[self.site.name][0]
            sources.setdefault(len(found), found)

        def change(x: Tensor, chosen: Selected, tokens: Tokens, keys: Tokens) -> Tensor:
            source = self._source(sources, tokens)
            if self.site.part in PAIRS:
                self._require_length(source.shape[1], keys)
            places = tokens.positions.clamp(max=len(source) - 1)
            new = source.to(x)[places]
            if self.site.part in PAIRS:
                of_keys = keys.positions.clamp(max=source.shape[1] - 1)
                new = new.gather(2, of_keys[:, None].expand(-1, new.shape[1], -1))
                later = keys.positions >= source.shape[1]
                return torch.where(chosen[..., None] & ~later[:, None], new, x)
            return torch.where(chosen[..., None], new, x)

        return change

    def _source(self, sources: Mapping[int, Tensor], tokens: Tokens) -> Tensor:
        first = int(tokens.prompt.lengths[0])
        length = first if first in sources else next(iter(sources))
        self._require_length(length, tokens)
        return sources[length]

    def _require_length(self, length: int, tokens: Tokens) -> None:
        """Raise unless all prompts have this length."""
        unit = tokens.prompt.unit
        for other in tokens.prompt.lengths.tolist():
            if other != length:
                raise UserError(
                    f"patch {self.site.name}: the source has {length} {unit}s, and the text "
                    f"{other}; patch from a text of the same length"
                )

    # Cuts

    def _cut(self, edit: Cut) -> tuple[str, Hook]:
        """Return the place and hook of a cut, which removes query–key pairs."""
        site, how = self.site, self._how(edit)
        head = site.head
        assert head is not None
        if how == "write":
            return f"{site.layer}.unwritten", self._unwritten(edit, head)

        def hook(x: Tensor, queries: Tokens, keys: Tokens) -> Tensor:
            of_queries = self._selected(edit.query, queries, len(x), "query")
            of_keys = self._selected(edit.key, keys, len(x), "key")
            pairs = of_queries[:, :, None] & of_keys[:, None] & (x[:, head] != 0)
            self.met = self.met or bool(pairs.any())
            cut = torch.zeros_like(x, dtype=torch.bool)
            cut[:, head] = pairs
            return x.masked_fill(cut, 0)

        part = "allowed" if how == "before-normalization" else "weights"
        return f"{site.layer}.{part}", hook

    def _unwritten(self, edit: Cut, head: int) -> Hook:
        if edit.query is not None:
            raise UserError(
                f"cut {edit.site}: a write cut concerns all later queries; leave query out"
            )

        def hook(x: Tensor, keys: Tokens, _: Tokens) -> Tensor:
            chosen = self._selected(edit.key, keys, len(x), "key")
            self.met = self.met or bool(chosen.any())
            cut = x.clone()
            cut[:, head] |= chosen
            return cut

        return hook

    def _how(self, edit: Cut) -> str:
        """Return the kind of a cut.

        Raises:
            UnsupportedError: the mechanism has no such cut.
            UserError: the kind is missing, or the site is no head.
        """
        site = self.site
        layers = {parts.place: parts.mechanism for parts in attention_layers(self.run.model)}
        mechanism = layers.get(site.layer)
        match mechanism:
            case ScoreAttention() | MapDifference() | KernelAttention():
                kinds = ["before-normalization", "after-normalization"]
            case RecurrentAttention():
                kinds = ["edge", "write"]
            case _:
                kinds = ["edge"]
        how = edit.how
        if how is None and isinstance(mechanism, ScoreAttention | MapDifference):
            how = "before-normalization"
        name = mechanism.name if mechanism is not None else "this"
        if how is None:
            raise UserError(
                f"cut {site.name}: {name} attention has several cuts; set how to "
                f"{' or '.join(kinds)}"
            )
        if how not in kinds:
            raise UnsupportedError(
                f"cut {site.name}: {name} attention has no {how} cut; it has {' and '.join(kinds)}"
            )
        expected = "values" if how == "write" else "heads"
        if site.part != expected or site.head is None:
            raise UserError(
                f"cut {site.name}: a {how} cut is of {expected}: decoder.0.{expected}.0"
            )
        return how
