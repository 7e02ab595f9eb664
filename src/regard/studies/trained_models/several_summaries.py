"""Several summaries of each article by beam search and sampling."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Annotated, NamedTuple

from msgspec import Meta

from regard import api
from regard.metrics import exact_match, rouge
from regard.runs.run import Run
from regard.studies.figure import bar_chart
from regard.studies.finding import Measurements, at_least, equal, informational, table
from regard.studies.model_cache import trained
from regard.studies.study import EvidenceParts, Seed, study
from regard.studies.trained_models.task_models import PAIR, Steps, Width, recipe_for
from regard.tasks.examples import Example
from regard.tasks.summaries import SummariesConfig

GREEDY, BEAMS = "greedy", "beam search"
LOW, HIGH, TOP_K, TOP_P = "sampling, low temperature", "sampling", "top-k", "top-p"
LONGEST = 20
"""Maximum number of tokens of a summary."""


class Score(NamedTuple):
    """Scores of the summaries by one method."""

    rouge: float
    """Mean ROUGE-L of all summaries."""
    best: float
    """Share of articles with at least one summary equal to the reference."""
    different: float
    """Mean number of distinct summaries per article."""
    alike: float
    """Mean ROUGE-L of two summaries of the same article."""


@study(trains=True)
def several_summaries(
    n: Annotated[int, Meta(ge=2, le=10)] = 5,
    temperature: Annotated[float, Meta(gt=0, le=2)] = 0.5,
    k: Annotated[int, Meta(ge=1, le=50)] = 2,
    p: Annotated[float, Meta(gt=0, le=1)] = 0.8,
    articles: Annotated[int, Meta(ge=10, le=200)] = 60,
    steps: Steps = 300,
    width: Width = 64,
    seed: Seed = 0,
) -> EvidenceParts:
    r"""How can a model generate several summaries of an article, and how do they differ?

    Beam search returns n different summaries; greedy decoding always returns the same one. Samples
    differ more the higher the temperature, and are worse on average. Top-k and top-p restore
    quality and reduce the differences. Summaries by beam search are more similar to each other than
    samples of temperature 1.

    $$ P_\tau(y_t) \propto P(y_t \mid y_{<t}, x)^{1/\tau}, \quad \text{top-}k,\ \text{top-}p:
    \text{the most probable tokens only} $$

    An encoder–decoder trained to summarize generates n summaries of each new article by each
    method. Quality is the mean ROUGE-L of all n, and whether one of them is right; diversity is
    their number of distinct ones, and the mean ROUGE-L of two of them.

    Figure. {n} summaries of each article by each method. Bars: mean ROUGE-L; share of articles with
    one of the {n} equal to the reference; share of distinct summaries; mean ROUGE-L of two
    summaries of the same article.

    Args:
        n: summaries per article
        temperature: low temperature
        k: number of tokens of top-k
        p: probability mass of top-p
        articles: number of new articles
    """
    run = trained(recipe_for("summaries", PAIR, steps, width, seed))
    questions = new_articles(run)[:articles]
    texts = [question.text for question in questions]
    found = {BEAMS: beams(run, texts, n)}
    for name, sampling in samplings(temperature, k, p).items():
        found[name] = samples(run, texts, n, seed, **sampling)
    scores = {name: scored(summaries, questions) for name, summaries in found.items()}
    yield from judged(scores, n)
    columns = (
        *("mean ROUGE-L", "one is right", f"different of {n}", "ROUGE-L of two"),
        "of the first article",
    )
    rows = [
        (name, s.rouge, s.best, s.different, s.alike, " / ".join(dict.fromkeys(found[name][0])))
        for name, s in scores.items()
    ]
    yield table(["method", *columns], rows)
    bars = {
        "mean ROUGE-L": {name: score.rouge for name, score in scores.items()},
        f"one of {n} is right": {name: score.best for name, score in scores.items()},
        f"different, of {n}": {name: s.different / n for name, s in scores.items()},
        "ROUGE-L of two": {name: score.alike for name, score in scores.items()},
    }
    yield bar_chart(bars, y="share", y_limits=(0, 1.08))


def samplings(temperature: float, k: int, p: float) -> dict[str, dict[str, float]]:
    """Return the sampling options of each method."""
    return {
        GREEDY: {"temperature": 0.0},
        LOW: {"temperature": temperature},
        HIGH: {"temperature": 1.0},
        TOP_K: {"temperature": 1.0, "top_k": k},
        TOP_P: {"temperature": 1.0, "top_p": p},
    }


def judged(scores: Mapping[str, Score], n: int) -> Measurements:
    """Yield the measurements that the claim depends on."""
    different = {name: score.different for name, score in scores.items()}
    quality = {name: score.rouge for name, score in scores.items()}
    yield equal("different summaries, beam search", different[BEAMS], n)
    yield equal("different summaries, greedy", different[GREEDY], 1)
    for a, b in ((LOW, GREEDY), (HIGH, LOW), (HIGH, TOP_K), (HIGH, TOP_P)):
        yield at_least(f"different summaries: {a} minus {b}", different[a] - different[b], 0)
    for a, b in ((BEAMS, HIGH), (LOW, HIGH), (TOP_K, HIGH), (TOP_P, HIGH)):
        yield at_least(f"mean ROUGE-L: {a} minus {b}", quality[a] - quality[b], 0)
    yield at_least("mean ROUGE-L, greedy", quality[GREEDY], 0.5)
    alike = {name: score.alike for name, score in scores.items()}
    for name in (BEAMS, LOW, HIGH, TOP_K, TOP_P):
        yield informational(f"ROUGE-L of two summaries, {name}", alike[name])
    name = f"ROUGE-L of two summaries: {BEAMS} minus {HIGH}"
    yield at_least(name, alike[BEAMS] - alike[HIGH], 0)


def new_articles(run: Run) -> list[Example]:
    """Return the task's test articles with reference summaries."""
    assert isinstance(run.recipe.task, SummariesConfig)
    return list(run.recipe.task.make(run.recipe.seed).test)


def beams(run: Run, texts: Sequence[str], n: int) -> list[list[str]]:
    """Return the n best summaries of each text by beam search with n beams."""
    found = api.beam_search(run, texts, num_beams=n, num_return_sequences=n, max_new_tokens=LONGEST)
    return [[beam.text for beam in best] for best in found]


def samples(
    run: Run, texts: Sequence[str], n: int, seed: int, **sampling: float
) -> list[list[str]]:
    """Return n samples for each text."""
    prompts = [text for text in texts for _ in range(n)]
    drawn = api.generate(run, prompts, max_new_tokens=LONGEST, seed=seed, **sampling)  # type: ignore[arg-type]
    return [drawn[start : start + n] for start in range(0, len(drawn), n)]


def scored(summaries: Sequence[Sequence[str]], questions: Sequence[Example]) -> Score:
    """Return the scores of several summaries per question."""
    right = [question.answer or "" for question in questions]
    given = list(zip(summaries, right, strict=True))
    pairs = [(one, answer) for several, answer in given for one in several]
    predicted, references = zip(*pairs, strict=True)
    couples = [two for several in summaries for two in combinations(several, 2)]
    one, other = zip(*couples, strict=True)
    hits = [any(exact_match(one, answer) for one in several) for several, answer in given]
    return Score(
        rouge=rouge(predicted, references)["ROUGE-L"].value,
        best=sum(hits) / len(hits),
        different=sum(len({*several}) for several in summaries) / len(summaries),
        alike=rouge(one, other)["ROUGE-L"].value,
    )
