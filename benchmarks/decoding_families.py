"""Generation by beams, by an encoder–decoder and by a recurrent network, beside others.

Beams: 16 prompts are continued with 4 beams by a decoder of 4 layers, 8 heads and width 256, and by
Hugging Face's GPT-2 with the same weights, whose logits and greedy tokens are checked to be the
same, and of beams the numbers of tokens; the longer the prompt, the more it costs to move caches
along with beams.

Encoder–decoder: 16 sources of 128 tokens, 64 new tokens, greedily and with 4 beams, by 4 + 4
layers of width 256, and by Hugging Face's BART of the same sizes. BART's layers can't take our
weights (it normalizes its embeddings), so both are drawn at random and do the same work: neither
stops early.

Recurrent: 64 rows, 64 new tokens, by a GRU of 2 layers of width 256, and by torch.nn.GRU with the
same weights, called token by token, and over the whole text for each token, as tutorials do. Their
tokens are checked to be the same.

    python benchmarks/decoding_families.py [--lengths 32 128 …] [--rounds 5] [--device cpu]
                                           [--out DIR]

Prints a table, and writes decoding-families.json into docs/figures.
"""

import statistics
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from typing import Any

import measure
import msgspec
import torch
from measure import MASK
from peers import HUGGING_FACE, SIZE, VOCABULARY, scatter
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from decoding import NEW, OURS, continued, generated_by_peer, generation
from regard.decoding import generate_ids, search_ids
from regard.models.builders import LanguageModel, SequenceToSequence, make_model
from regard.models.config import (
    EncoderDecoderConfig,
    RecurrentConfig,
    TargetConfig,
    TransformerConfig,
)
from regard.models.head_config import LMHeadConfig

PROMPTS = (32, 128, 512)
BEAMS, BEAM_ROWS = 4, 16
BEAM_GOALS, BART_GOAL, GRU_GOAL = {32: 1.5, 128: 3.0, 512: 3.0}, 1.3, 1.0
"""Speed over the first peer's: beams by prompt, an encoder–decoder (greedy), and a GRU."""
SOURCE = 128
RNN_ROWS = 64
BART = "Hugging Face BART, same sizes"
STEPS, WHOLE = "torch.nn.GRU, token by token", "torch.nn.GRU, all again for each token"
SIZES: dict[str, Any] = {
    "context_length": SOURCE,
    "n_layers": 4,
    "n_heads": 8,
    "d_model": 256,
    "dropout": 0.0,
}
RECURRENT = RecurrentConfig(cell="gru", n_layers=2, d_model=256, dropout=0.0, context_length=128)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What generated what, and how long it took."""

    name: str
    rows: int
    times: dict[str, list[float]]
    """Seconds for 64 new tokens a row, by who did it."""
    goal: float | None = None
    """Speed over the first peer's."""

    def gain(self, peer: str) -> measure.Ratio:
        """Our speed over a peer's."""
        return measure.Ratio.of(self.times[peer], self.times[OURS])

    @property
    def peers(self) -> list[str]:
        return [name for name in self.times if name != OURS]


def beams_after(prompt: int, rounds: int, device: torch.device) -> Compared:
    """Ours and GPT-2's, with the same weights."""
    size = msgspec.structs.replace(SIZE, context_length=max(SIZE.context_length, prompt + NEW))
    measured = generation(size, BEAM_ROWS, rounds, device, BEAMS, prompt)
    name = f"decoder, {BEAMS} beams after {prompt} tokens"
    goal = BEAM_GOALS.get(prompt)
    return Compared(name=name, rows=BEAM_ROWS, times=measured.times, goal=goal)


def pair(beams: int, rounds: int, device: torch.device) -> Compared:
    """Ours and BART's."""
    config = EncoderDecoderConfig(encoder=TransformerConfig(**SIZES), decoder=TargetConfig(**SIZES))
    model = make_model(config, LMHeadConfig(), VOCABULARY)
    assert isinstance(model, SequenceToSequence)
    model.to(device).eval()
    sources = torch.randint(MASK + 1, VOCABULARY, (BEAM_ROWS, SOURCE), device=device)
    calls: dict[str, measure.Call] = {OURS: partial(written, model, sources, beams)}
    if HUGGING_FACE.installed:
        calls[BART] = partial(written_by_bart, bart().to(device).eval(), sources, beams)
    name = f"encoder–decoder, {SOURCE} tokens read, " + (
        f"{beams} beams" if beams > 1 else "greedy"
    )
    times = measure.interleaved(calls, rounds, device)
    goal = BART_GOAL if beams == 1 else None
    return Compared(name=name, rows=BEAM_ROWS, times=times, goal=goal)


@torch.inference_mode()
def written(model: SequenceToSequence, sources: Tensor, beams: int) -> list[list[int]]:
    """What our encoder–decoder writes about each source; it reads them each time."""
    lengths = torch.full((len(sources),), sources.shape[1], device=sources.device)
    ready, starts = model.condition(sources, lengths), [[MASK]] * len(sources)
    if beams == 1:
        rows = generate_ids(ready, starts, max_new_tokens=NEW, device=sources.device)
        return [row.ids for row in rows]
    found = search_ids(ready, starts, beams=beams, max_new_tokens=NEW, device=sources.device)
    return [best.ids for best, *_ in found]


def bart() -> Any:
    """A BART of the sizes of ours."""
    transformers = import_module("transformers")
    sizes: dict[str, int] = {}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": SIZES["n_layers"], f"{side}_attention_heads": SIZES["n_heads"]}
        sizes |= {f"{side}_ffn_dim": 4 * SIZES["d_model"]}
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            vocab_size=VOCABULARY,
            d_model=SIZES["d_model"],
            max_position_embeddings=SIZES["context_length"],
            dropout=0.0,
            decoder_start_token_id=MASK,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=None,
            forced_eos_token_id=None,
            attn_implementation="sdpa",
            **sizes,
        )
    )


def written_by_bart(model: Any, sources: Tensor, beams: int) -> Tensor:
    """What BART writes."""
    new = generated_by_peer(model, sources, beams)
    assert new.shape[1] == NEW + 1
    return new


def recurrent(rounds: int, device: torch.device) -> Compared:
    """Ours and torch.nn.GRU, with the same weights."""
    model = LanguageModel(RECURRENT, VOCABULARY)
    scatter(model)
    model.to(device).eval()
    gru = as_gru(model)
    prompts = torch.randint(MASK + 1, VOCABULARY, (RNN_ROWS, PROMPTS[0]), device=device)
    calls: dict[str, measure.Call] = {
        OURS: partial(generate_ids, model, prompts.tolist(), max_new_tokens=NEW, device=device),
        STEPS: partial(token_by_token, model, gru, prompts),
        WHOLE: partial(all_again, model, gru, prompts),
    }
    tokens = continued(model, prompts)
    assert tokens == token_by_token(model, gru, prompts) == all_again(model, gru, prompts)
    times = measure.interleaved(calls, rounds, device)
    return Compared(name="GRU, greedy", rows=RNN_ROWS, times=times, goal=GRU_GOAL)


def as_gru(model: LanguageModel) -> nn.GRU:
    """The same layers as one module of torch's."""
    gru = nn.GRU(RECURRENT.d_model, RECURRENT.d_model, RECURRENT.n_layers, batch_first=True)
    layers = model.get_submodule("body.recurrence.layers").children()
    own = {
        f"{name.removesuffix('0')}{number}": weight
        for number, layer in enumerate(layers)
        for name, weight in layer.get_submodule("rnn").state_dict().items()
    }
    gru.load_state_dict(own)
    return gru.to(model.head.weight.device).eval()


@torch.inference_mode()
def token_by_token(model: LanguageModel, gru: nn.GRU, prompts: Tensor) -> list[list[int]]:
    """With the state carried along."""
    embedding = model.get_submodule("body.embedding")
    hidden, state = gru(embedding(prompts))
    new = [model.head(hidden[:, -1]).argmax(-1)]
    while len(new) < NEW:
        hidden, state = gru(embedding(new[-1][:, None]), state)
        new.append(model.head(hidden[:, -1]).argmax(-1))
    rows: list[list[int]] = torch.stack(new, 1).tolist()
    return rows


@torch.inference_mode()
def all_again(model: LanguageModel, gru: nn.GRU, prompts: Tensor) -> list[list[int]]:
    """A pass over the growing text for each token."""
    embedding, ids = model.get_submodule("body.embedding"), prompts
    for _ in range(NEW):
        hidden, _ = gru(embedding(ids))
        ids = torch.cat([ids, model.head(hidden[:, -1]).argmax(-1, keepdim=True)], 1)
    rows: list[list[int]] = ids[:, prompts.shape[1] :].tolist()
    return rows


def table(found: list[Compared]) -> Table:
    """A row for each and its peers."""
    columns = "what", "rows", "new tokens/s", "beside", "Regard's speed / its", "quartiles"
    made = Table(*columns, title=f"{NEW} new tokens a row, float32")
    for one in found:
        speed = f"{one.rows * NEW / statistics.median(one.times[OURS]):.0f}"
        for peer in one.peers:
            gain = one.gain(peer)
            quartiles = f"{gain.low:.2f}–{gain.high:.2f}"
            made.add_row(one.name, str(one.rows), speed, peer, f"{gain.median:.2f}", quartiles)
    return made


def document(found: list[Compared], device: torch.device) -> dict[str, Any]:
    """All numbers, for decoding-families.json."""
    compared = [
        asdict(one) | {"gains": {peer: asdict(one.gain(peer)) for peer in one.peers}}
        for one in found
    ]
    return {"machine": measure.describe(device), "compared": compared}


def main() -> None:
    """Measure, print, write."""
    arguments = measure.parse(measure.options(__doc__, lengths=PROMPTS, rounds=5))
    device, rounds, console = torch.device(arguments.device), arguments.rounds, Console(width=140)
    found = [
        *(beams_after(prompt, rounds, device) for prompt in arguments.lengths),
        *(pair(beams, rounds, device) for beams in (1, BEAMS)),
        recurrent(rounds, device),
    ]
    console.print(table(found))
    for one in found:
        if one.goal and one.peers:
            gain = one.gain(one.peers[0]).median
            console.print(f"{one.name}: {measure.verdict(gain, one.goal)}")
    measure.save(arguments.out, "decoding-families", document(found, device))


if __name__ == "__main__":
    main()
