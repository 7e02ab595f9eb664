"""Relations learned from the documents of training questions."""

import os
from pathlib import Path

import numpy as np
import pytest

from regard.corpus.evidence import AnswerNames, Verdict, find_evidence, learn_relation
from regard.corpus.index import CorpusIndex, index_documents, index_files, split_sentences, tokenize
from regard.corpus.relations import Relation, fit_relation, mention_features
from regard.tasks.examples import read_answered, subject_of
from regard.text.corpus import Document

PLACES = [f"Town{i}" for i in range(12)]
PEOPLE = [f"Ada Finch{i}" for i in range(40)]


def world() -> tuple[CorpusIndex, dict[str, str]]:
    """Documents that name two places each, the birth place in either order."""
    rng = np.random.default_rng(0)
    texts, homes = list[str](), dict[str, str]()
    for i, person in enumerate(PEOPLE):
        home, other = rng.permutation(PLACES)[:2].tolist()
        homes[person] = home
        parts = [f"She was born in {home}.", f"She died in {other}."]
        texts.append(f"{person}. " + " ".join(parts[:: 1 if i % 2 else -1]))
    return index_documents([Document(t, f"wiki.txt:{i}") for i, t in enumerate(texts, 1)]), homes


@pytest.fixture(scope="module")
def learned() -> tuple[CorpusIndex, dict[str, str], Relation]:
    index, homes = world()
    trained = [(person, homes[person]) for person in PEOPLE[:30]]
    relation = learn_relation(index, trained, AnswerNames.of(PLACES))
    assert relation is not None
    return index, homes, relation


def test_what_a_document_states_is_read(
    learned: tuple[CorpusIndex, dict[str, str], Relation],
) -> None:
    index, homes, relation = learned
    names = AnswerNames.of(PLACES)
    for person in PEOPLE[30:]:
        home = homes[person]
        right = find_evidence(index, person, home, names=names, relation=relation)
        (other,) = right.others
        wrong = find_evidence(index, person, other, names=names, relation=relation)
        assert (right.verdict, wrong.verdict) == ("supported", "unsupported")
        assert right.lead == pytest.approx(-wrong.lead)
        assert right.lead > 0.5
        assert right.contradiction is None
        assert wrong.contradiction is not None
        assert wrong.contradiction.answer == home
        (said,) = wrong.contradiction.passages
        assert said.text == f"She was born in {home}."
        assert said.text[said.start : said.end] == home


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [("home", "home", "recalled"), ("other", "other", "lucky"), ("other", "home", "confused")],
)
def test_verdicts_by_what_is_stated(
    learned: tuple[CorpusIndex, dict[str, str], Relation], answer: str, gold: str, expected: Verdict
) -> None:
    index, homes, relation = learned
    names, person = AnswerNames.of(PLACES), PEOPLE[-1]
    (other,) = find_evidence(index, person, homes[person], names=names).others
    place = {"home": homes[person], "other": other}
    found = find_evidence(
        index, person, place[answer], names=names, gold=[place[gold]], relation=relation
    )
    assert found.verdict == expected


def test_without_a_relation_each_mention_states_its_answer() -> None:
    index, homes = world()
    found = find_evidence(index, PEOPLE[0], homes[PEOPLE[0]], names=AnswerNames.of(PLACES))
    assert found.lead == 0
    absent = find_evidence(index, PEOPLE[0], "Paris", names=AnswerNames.of(PLACES))
    assert absent.contradiction is None  # no mention is known to answer the question
    assert find_evidence(index, "Nobody", "Town1", names=AnswerNames.of(PLACES)).lead == 0


def test_nothing_is_learned_from_answers_that_are_nowhere() -> None:
    index, homes = world()
    names = AnswerNames.of(["Town1"])
    assert learn_relation(index, [("Nobody Known", "Town1")], names) is None
    assert learn_relation(index, [], names) is None
    elsewhere = next(place for place in PLACES if place != homes[PEOPLE[0]])
    assert learn_relation(index, [(PEOPLE[0], "Paris")], AnswerNames.of([elsewhere])) is None


def test_where_every_mention_is_right_another_is_too() -> None:
    """As in biographies that name no place but the birth place; the odds are those of Laplace."""
    relation = fit_relation([(frozenset(["a"]), True)] * 3)
    assert relation.probability(["a"]) == relation.probability(["b"]) == pytest.approx(4 / 5)


def test_features_are_the_words_around_and_digits_are_alike() -> None:
    tokens = tokenize(split_sentences("Born 1920 in Rome, he"))
    assert mention_features(tokens, 3, 4, 5) == {
        "before: born",
        "before: 0000",
        "before: in",
        "-1: in",
        "-2: 0000",
        "-3: born",
        "-2…: 0000 in",
        "-3…: born 0000 in",
        "+1: ,",
        "+2: he",
        "rank: 3",
    }
    assert mention_features(tokens[:1], 0, 1, 0) == {"rank: 0"}


def test_rare_words_have_no_weight() -> None:
    common, rare = frozenset(["a"]), frozenset(["a", "b"])
    relation = fit_relation([(common, True), (common, True), (rare, False)])
    assert set(relation.weights) == {"a"}
    assert relation.probability(rare) == relation.probability(common)
    assert 0 <= relation.probability(["unknown"]) <= 1


def test_real_birth_places_are_told_from_other_places() -> None:
    place = os.environ.get("REGARD_BIRTHPLACES")
    if not place:
        pytest.skip("REGARD_BIRTHPLACES doesn't name the folder of the real corpus")
    folder = Path(place)
    index = index_files([folder / "wiki.txt"])
    trained, asked = (
        read_answered(folder / name) for name in ("birth_places_train.tsv", "birth_dev.tsv")
    )
    names = AnswerNames.of(one.answer or "" for one in trained)
    pairs = [(subject_of(one.text), one.answer or "") for one in trained]
    relation = learn_relation(index, pairs, names)
    assert relation is not None
    found = [
        find_evidence(index, subject_of(one.text), one.answer or "", names=names, relation=relation)
        for one in asked
    ]
    held = [one for one in found if one.passages]
    assert len(held) == 478

    assert sum(one.lead > 0 for one in held) >= 470
