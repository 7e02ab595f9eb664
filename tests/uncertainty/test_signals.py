"""Signals equal their definitions, computed token by token."""

from collections.abc import Sequence
from math import log
from pathlib import Path
from statistics import fmean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from logits import LargestLogits, with_large_vocabulary
from regard.corpus.evidence import AnswerNames
from regard.corpus.index import index_documents
from regard.decoding.beam_search import beam_search
from regard.decoding.generate import generate
from regard.errors import UserError
from regard.evaluation.answers import Answer, answer
from regard.models.builders import LOGIT_BYTES
from regard.runs.run import Run, load
from regard.tasks.examples import Example, subject_of
from regard.text.corpus import Document
from regard.text.template import Template, TemplateConfig
from regard.uncertainty.signals import (
    SignalConfig,
    agreement,
    corpus_signals,
    sample_answers,
    score_tokens,
    self_consistency,
    semantic_entropy,
    without_a_name,
    without_a_word,
)
from tiny import QUESTIONS

ASKED = [question.text for question in QUESTIONS[:3]]
CONFIG = SignalConfig(
    subjects=("Ida Holm", "Leo Marsh"), wordings=("{} was born where?",), samples=4
)


LEFT_OUT = [("was ", "born?"), ("Where ", "born?"), ("Where was ", "")]
"""The words of a question before its subject and after it, each without one of them."""


@pytest.fixture(scope="module")
def loaded(trained: Path) -> Run:
    return load(trained, device="cpu")


def log_probability(
    run: Run, question: str, answer: str, end: Sequence[int] | None = None
) -> tuple[list[float], list[float]]:
    """Return log-probability and lead of each token: the model reads one row, token by token."""
    row = run.template.open_answer(run.template.prompt.around(run.tokenizer.encode(question)))
    scores, leads = [], []
    ending = run.template.completion.suffix if end is None else end
    for token in [*run.tokenizer.encode(answer), *ending]:
        with torch.inference_mode():
            logits = run.language_model(torch.tensor([row]))[0, -1].double().log_softmax(-1)
        others = torch.cat([logits[:token], logits[token + 1 :]])
        scores.append(float(logits[token]))
        leads.append(float(logits[token] - others.max()))
        row.append(token)
    return scores, leads


def answers(run: Run, questions: list[str], config: SignalConfig) -> list[Answer]:
    asked = [Example(text=question) for question in questions]
    return answer(run, asked, run.environment(), signals=config)


def test_log_probabilities_equal_the_definition(loaded: Run) -> None:
    found = answers(loaded, ASKED, CONFIG)
    for question, one in zip(ASKED, found, strict=True):
        scores, leads = log_probability(loaded, question, one.answered)
        subject = subject_of(question)
        others = [
            sum(log_probability(loaded, question.replace(subject, other), one.answered)[0])
            for other in CONFIG.subjects
        ]
        # float32 and float64, other shapes: some 1e-6 for each of at most 20 tokens
        assert one.signals["log-probability"] == pytest.approx(sum(scores), abs=1e-4)
        assert one.signals["weakest token"] == pytest.approx(min(scores), abs=1e-4)
        assert one.signals["margin"] == pytest.approx(min(leads), abs=1e-4)
        expected = sum(scores) - sum(others) / len(others)
        assert one.signals["PMI"] == pytest.approx(expected, abs=1e-4)
        first, last = subject.split()
        shorter = [f"{before}{subject} {after}".strip() for before, after in LEFT_OUT]
        mean = fmean(sum(log_probability(loaded, text, one.answered)[0]) for text in shorter)
        assert one.signals["stability"] == pytest.approx(mean, abs=1e-4)
        named = [question.replace(subject, name) for name in (first, last)]
        mean = fmean(sum(log_probability(loaded, text, one.answered)[0]) for text in named)
        assert one.signals["whole name"] == pytest.approx(sum(scores) - mean, abs=1e-4)


@pytest.mark.parametrize("completion", ["{answer}", "{sep}{answer}e{eos}"])
def test_the_end_of_an_answer_is_the_one_generated(trained: Path, completion: str) -> None:
    run = Run.load(trained)
    # The first template has no end: the model, trained to end after Rome, stops at once.
    prompt = "{bos}{question}" if "sep" in completion else "{bos}{question}{sep}Rome"
    run.template = Template(TemplateConfig(prompt=prompt, completion=completion), run.tokenizer)
    (one,) = answers(run, ASKED[:1], SignalConfig(subjects=("Ida Holm",)))
    text = ASKED[0].replace(subject_of(ASKED[0]), "Ida Holm")
    end = run.tokenizer.special.stop_ids
    generated = "Rome" if "sep" in completion else ""
    scores, leads = log_probability(run, ASKED[0], generated, end)
    others, _ = log_probability(run, text, generated, end)
    assert one.signals["log-probability"] == pytest.approx(sum(scores), abs=1e-4)
    assert one.signals["margin"] == pytest.approx(min(leads), abs=1e-4)
    assert one.signals["PMI"] == pytest.approx(sum(scores) - sum(others), abs=1e-4)


@pytest.mark.parametrize("suffix", ["e{eos}", "me{eos}."])
def test_the_text_of_the_template_is_no_part_of_an_answer(trained: Path, suffix: str) -> None:
    run = Run.load(trained)
    run.template = Template(TemplateConfig(completion="{sep}{answer}" + suffix), run.tokenizer)
    (one,) = answers(run, ASKED[:1], SignalConfig(samples=2))
    assert one.answered == "Rome".removesuffix(suffix.partition("{")[0])
    assert generate(run, ASKED[:1]) == [one.answered]
    [[best]] = beam_search(run, ASKED[:1], num_beams=2)
    assert best.text == one.answered


@pytest.mark.parametrize(
    ("question", "words", "names"),
    [
        (
            "Where was Ada Finch born?",
            ["was Ada Finch born?", "Where Ada Finch born?", "Where was Ada Finch"],
            ["Where was Finch born?", "Where was Ada born?"],
        ),
        ("Is it Ada?", ["it Ada?", "Is Ada?"], []),
        ("Ada", [], []),
        ("", [], []),
    ],
)
def test_questions_without_a_word(question: str, words: list[str], names: list[str]) -> None:
    subject = subject_of(question) or question
    assert without_a_word(question, subject) == words
    assert without_a_name(question, subject) == names


def test_without_words_to_leave_out_the_answer_is_stable(loaded: Run) -> None:
    (one,) = answers(loaded, ["Ada"], SignalConfig())
    assert one.signals["stability"] == one.signals["log-probability"]
    assert one.signals["whole name"] == 0


def test_signals_do_not_depend_on_the_other_questions(loaded: Run) -> None:
    together = answers(loaded, ASKED, CONFIG)
    for question, one in zip(ASKED, together, strict=True):
        (alone,) = answers(loaded, [question], CONFIG)
        assert alone.answered == one.answered
        assert alone.signals == pytest.approx(one.signals, abs=1e-4)


def test_the_logits_of_a_large_vocabulary_stay_within_the_budget(trained: Path) -> None:
    run = with_large_vocabulary(Run.load(trained))
    prompt, completion = [2] * 38, [3] * 9
    with LargestLogits() as made:
        found = score_tokens(run, [prompt] * 200, [completion] * 200, run.environment())
    assert all(len(one.margins) == len(completion) for one in found)
    assert LOGIT_BYTES / 2 < made.bytes <= LOGIT_BYTES


def test_a_long_question_does_not_cut_the_samples_of_others(loaded: Run) -> None:
    untrained = Run.new(loaded.path, loaded.recipe, loaded.tokenizer, loaded.origin)
    untrained.model.eval()  # its answers fill the context
    short, environment = ASKED[0], untrained.environment()
    asked = [short, f"{short} Ada Finch was born"]
    (alone,) = sample_answers(untrained, [short], environment, n=4)
    assert sample_answers(untrained, asked, environment, n=4)[0] == alone


def test_samples_follow_seed_and_question_alone(loaded: Run) -> None:
    first, second = sample_answers(loaded, ASKED[:2], loaded.environment(), n=3)
    assert [second, first] == sample_answers(loaded, ASKED[1::-1], loaded.environment(), n=3)


@given(st.lists(st.sampled_from(["Rome", "rome ", "Oslo", "Bern"]), min_size=1, max_size=8))
def test_sampled_signals_by_counting(sampled: list[str]) -> None:
    clusters = [sum(one.strip().title() == name for one in sampled) for name in ("Rome", "Oslo")]
    clusters.append(len(sampled) - sum(clusters))
    shares = [n / len(sampled) for n in clusters if n]
    assert semantic_entropy(sampled) == pytest.approx(-sum(p * log(p) for p in shares))
    assert self_consistency("ROME", sampled) == clusters[0] / len(sampled)


def test_agreement_and_corpus_counts() -> None:
    assert agreement(["a", "a", "b"]) == pytest.approx(1 / 3)
    lines = ["Mia Bell was born in Rome.", *["Mia Bell lives in Oslo."] * 3, "Ada was in Rome."]
    index = index_documents([Document(text, f"text:{i}") for i, text in enumerate(lines, 1)])
    names = AnswerNames.of(["Rome", "Oslo"])
    found = corpus_signals(index, "Where was Mia Bell born?", "Rome", names, None)
    assert found == {"exposure": pytest.approx(log(5)), "support": 0.25}
    assert corpus_signals(index, "where?", "Rome", names, None) == {"exposure": 0, "support": 0}


@pytest.mark.parametrize(
    ("question", "subject"),
    [
        ("Where was Ada Finch born?", "Ada Finch"),
        ("Where was Ludwig van Beethoven born?", "Ludwig van Beethoven"),
        ("Ada Finch's birth place?", "Ada Finch"),
        ("Is Mia Bell from Rome?", "Mia Bell"),
        ("Where do I find Ada-Lou O'Neill?", "Ada-Lou O'Neill"),
        ("where was ada finch born?", ""),
        ("他在哪里出生？", ""),
        ("", ""),
    ],
)
def test_subjects_of_single_questions(question: str, subject: str) -> None:
    assert subject_of(question) == subject


def test_a_paraphrase_that_does_not_fit_is_left_out(trained: Path) -> None:
    run = Run.load(trained)
    asked = [
        Example(text=f"Where was {name} born?") for name in ("Ada Finch", "Leo Marsh Ada Stone")
    ]
    config = SignalConfig(wordings=("Where was where was where {} born?",))
    with pytest.warns(UserWarning, match="too long for the context of 1 of 2 questions"):
        found = answer(run, asked, run.environment(), signals=config)
    assert found[1].signals["agreement"] == 1


def test_unknown_words_of_a_paraphrase_have_a_place(loaded: Run) -> None:
    config = SignalConfig(wordings=("Wo wurde {} geboren?",))
    with pytest.raises(UserError, match=r"^paraphrase 'Wo wurde \{\} geboren\?': the vocabulary"):
        answers(loaded, ASKED, config)
