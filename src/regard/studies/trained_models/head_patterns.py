"""Attention patterns of the heads of a small decoder and a small encoder, by layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.explorer.head_scores import Head, head_scores, mean_entropy
from regard.explorer.look import adapter_of
from regard.runs.run import Run
from regard.studies.figure import figure, heat_map
from regard.studies.finding import Measurements, at_least, equal, informational, table
from regard.studies.model_cache import cached_run
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.trained_models import reading
from regard.studies.trained_models.sentences import labeled_texts

MEASURED = 60
"""Number of new texts on which heads are scored."""
PATTERNS = ("previous", "next", "self", "first", "punctuation", "same token")
BY_LAYER = ("first", "entropy", "distance")


@dataclass(frozen=True)
class Scored:
    """Scores of the heads of a model, layer by layer."""

    heads: Sequence[Head]

    def mean(self, score: str) -> float:
        """Return the mean of a score over all heads."""
        return sum(head.scores[score] for head in self.heads) / len(self.heads)

    def layer(self, index: int) -> "Scored":
        """Return the heads of a layer."""
        return Scored(self.heads[index * reading.HEADS : (index + 1) * reading.HEADS])


@study(trains=True)
def head_patterns(steps: reading.Steps = 2000, seed: Seed = 0) -> EvidenceParts:
    r"""What do the heads of a decoder and of an encoder attend to, layer by layer?

    A decoder gives no weight to later tokens, an encoder at least a third. Training makes the heads
    of both less uniform. One head of the encoder gives the next token at least 0.3 of its weight,
    with four of five seeds.

    $$ \mathrm{forward} = \frac{1}{n} \sum_i \sum_{j > i} A_{ij} $$

    Both models are small and our own, trained on generated texts. On new texts, each head is scored
    by the share of its weight on the previous token, the next token, the token itself, the first
    token, punctuation, and other occurrences of the same token. Entropy is relative to that of
    uniform weights over the keys that a query sees; distance is in tokens.

    Figure. Share of each head's weight by pattern, of a trained decoder and a trained encoder,
    averaged over the queries of new texts. Rows are heads, by layer and head.
    """
    texts = [text.text for text in labeled_texts(seed, "test", MEASURED)]
    after = {
        "decoder": score(cached_run(reading.plan_decoder(max(steps // 4, 1), seed)), texts),
        "encoder": score(reading.trained_reader(steps, seed), texts),
    }
    before = {
        "decoder": score(reading.plan_decoder(1, seed).run, texts),
        "encoder": score(reading.plan_reader(1, seed).run, texts),
    }
    yield from _judged(before, after)
    columns = (*PATTERNS, "entropy", "distance")
    rows = [
        (name, f"{head.layer}.{head.head}", *(head.scores[score] for score in columns))
        for name, scored in after.items()
        for head in scored.heads
    ]
    yield table(["model", "head", *columns], rows)
    yield figure(
        *(
            heat_map(
                [[head.scores[pattern] for pattern in PATTERNS] for head in scored.heads],
                title=name,
                rows=[f"{head.layer}.{head.head}" for head in scored.heads],
                columns=[pattern.removesuffix(" token") for pattern in PATTERNS],
                y="layer.head",
                unit="share of the weight",
                written=True,
            )
            for name, scored in after.items()
        ),
        columns=1,
    )


def score(run: Run, texts: Sequence[str]) -> Scored:
    """Score all heads of a run on texts."""
    run.model.eval()
    adapter = adapter_of(run)
    return Scored(head_scores([adapter.attention_maps(text)[0] for text in texts]))


def _judged(before: Mapping[str, Scored], after: Mapping[str, Scored]) -> Measurements:
    """Yield the measurements that the claim depends on."""
    forward = {name: 1 - scored.mean("causal") for name, scored in after.items()}
    yield equal("decoder: weight on later tokens", forward["decoder"], 0, within=1e-6)
    yield at_least("encoder: weight on later tokens", forward["encoder"], 1 / 3)
    backward = 1 - forward["encoder"] - after["encoder"].mean("self")
    yield informational("encoder: weight on earlier tokens", backward)
    for name in after:
        fall = mean_entropy(before[name].heads) - mean_entropy(after[name].heads)
        yield at_least(f"{name}: mean entropy, before minus after training", fall, 0.05)
    best = max(head.scores["next"] for head in after["encoder"].heads)
    yield at_least("encoder: next token, best head", best, 0.3)
    for name, scored in after.items():
        for layer in range(reading.LAYERS):
            for score in BY_LAYER:
                mean = scored.layer(layer).mean(score)
                yield informational(f"{name}, layer {layer}: {score}", mean)
