"""Attention patterns of the heads of a small decoder and a small encoder, by layer."""

from collections.abc import Mapping, Sequence

from regard.explorer.head_scores import Head, head_scores, mean_entropy
from regard.explorer.look import adapter_of
from regard.runs.run import Run
from regard.studies.figure import figure, heat_map
from regard.studies.finding import Measurements, at_least, equal, informational
from regard.studies.model_cache import cached_run
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.trained_models import reading
from regard.studies.trained_models.heads import by_layer
from regard.studies.trained_models.sentences import labeled_texts

MEASURED = 60
"""Number of new texts on which heads are scored."""
PATTERNS = ("previous", "next", "self", "first", "punctuation", "same token")
BY_LAYER = ("first", "entropy", "distance")


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
        "encoder": score(cached_run(reading.plan_reader(steps, seed)), texts),
    }
    before = {
        "decoder": score(reading.plan_decoder(1, seed).run, texts),
        "encoder": score(reading.plan_reader(1, seed).run, texts),
    }
    yield from _judged(before, after)
    yield figure(
        *(
            heat_map(
                [[head.scores[pattern] for pattern in PATTERNS] for head in heads],
                title=name,
                rows=[f"{head.layer}.{head.head}" for head in heads],
                columns=[pattern.removesuffix(" token") for pattern in PATTERNS],
                y="layer.head",
                unit="share of the weight",
                written=True,
            )
            for name, heads in after.items()
        ),
        columns=1,
    )


def score(run: Run, texts: Sequence[str]) -> list[Head]:
    """Score all heads of a run on texts."""
    run.model.eval()
    adapter = adapter_of(run)
    return head_scores([adapter.attention_maps(text)[0] for text in texts])


def _judged(
    before: Mapping[str, Sequence[Head]], after: Mapping[str, Sequence[Head]]
) -> Measurements:
    """Yield the measurements that the claim depends on."""
    later = {name: 1 - by_layer(heads, "causal").mean() for name, heads in after.items()}
    yield equal("decoder: weight on later tokens", later["decoder"], 0, within=1e-6)
    yield at_least("encoder: weight on later tokens", later["encoder"], 1 / 3)
    earlier = 1 - later["encoder"] - by_layer(after["encoder"], "self").mean()
    yield informational("encoder: weight on earlier tokens", earlier)
    for name, heads in after.items():
        fall = mean_entropy(before[name]) - mean_entropy(heads)
        yield at_least(f"{name}: mean entropy, before minus after training", fall, 0.05)
    best = by_layer(after["encoder"], "next").max()
    yield at_least("encoder: next token, best head", best, 0.3)
    means = {name: by_layer(after["decoder"], name).mean(1) for name in BY_LAYER}
    for layer in range(reading.LAYERS):
        for name, of_layer in means.items():
            yield informational(f"decoder, layer {layer}: {name}", of_layer[layer])
