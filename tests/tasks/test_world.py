"""The fictional world: what it states is true, and nothing else is stated."""

import hashlib
import re
from collections import Counter, defaultdict
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from regard.config import override
from regard.errors import UserError
from regard.tasks import names
from regard.tasks.examples import read_questions
from regard.tasks.world import QUESTIONS, Person, World, WorldConfig, make_world, save_world
from regard.text.corpus import read_corpus

GOLDEN = "ab8a6d5249522d5ef42109e435dfcd96f14a3e8a66e0c938356e7c477e6ded26"
"""sha256 of the default world: the same on every platform and in every process, for ever."""

small_worlds = st.builds(
    WorldConfig,
    people=st.integers(len(names.LAST_NAMES), 150),
    absent=st.integers(0, 40),
    places=st.integers(1, len(names.PLACES)),
    skew=st.floats(0, 3),
    correlation=st.floats(0, 1),
    biographies=st.integers(1, 3),
    augment=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(WorldConfig())


def fingerprint(world: World) -> str:
    return hashlib.sha256(repr(world).encode()).hexdigest()


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def subject_of(document: str) -> str:
    """A biography begins with a full name."""
    return " ".join(re.findall(r"\w+", document)[:2])


def test_the_default_world_is_the_same_for_ever(world: World) -> None:
    assert fingerprint(world) == GOLDEN


@settings(max_examples=25)
@given(small_worlds)
def test_every_world_keeps_its_configuration(config: WorldConfig) -> None:
    world = make_world(config)
    assert len(world.group("qa_train")) + len(world.group("text_only")) == config.people
    assert len(world.group("qa_train")) - len(world.group("text_only")) in (0, 1)
    assert len(world.group("absent")) == config.absent
    assert len({person.name for person in world.people}) == len(world.people)
    assert len({person.place for person in world.people}) <= config.places
    per_person = config.biographies if config.augment else 1
    told_of = Counter(subject_of(document) for document in world.documents)
    assert told_of == {p.name: per_person for p in world.people if p.group != "absent"}
    assert make_world(config) == world


def test_unseen_people_are_new_pairs_of_known_names(world: World) -> None:
    mentioned = {p.name for p in world.people if p.group != "absent"}
    absent = {p.name for p in world.group("absent")}
    assert not mentioned & absent
    for part in (0, 1):
        assert {name.split()[part] for name in absent} <= {name.split()[part] for name in mentioned}
    text = set(world.documents)
    assert not any(name in document for name in list(absent)[:20] for document in text)


def test_the_text_states_each_place_of_birth_and_no_other(world: World) -> None:
    places, stated = set(names.PLACES), defaultdict[str, set[str]](set)
    for document in world.documents:
        stated[subject_of(document)] |= words_of(document) & places
    assert stated == {p.name: {p.place} for p in world.people if p.group != "absent"}


@pytest.mark.parametrize("augment", [True, False])
def test_statements_are_exactly_the_sentences_that_name_the_place(augment: bool) -> None:
    made = make_world(WorldConfig(people=100, absent=10, augment=augment))
    sentences = defaultdict[str, set[str]](set)
    for document in made.documents:
        for sentence in re.findall(r"[^.]+\.", document):
            sentences[subject_of(document)].add(sentence.strip())
    for person in made.people:
        naming = {s for s in sentences[person.name] if person.place in words_of(s)}
        assert set(person.statements) == naming
        assert len(set(person.statements)) == len(person.statements)
        assert all(person.name in statement for statement in person.statements)
        assert bool(naming) == (person.group != "absent")


@pytest.mark.parametrize("biographies", [1, 3, 4, 5, 9])
def test_a_wording_comes_again_only_after_all_others(biographies: int) -> None:
    made = make_world(WorldConfig(people=100, absent=0, biographies=biographies))
    assert {len(person.statements) for person in made.people} == {min(biographies, 4)}
    for person in made.people:
        told = sum(document.count(person.statements[0]) for document in made.documents)
        assert told in (biographies // 4, -(-biographies // 4))


def test_every_fact_stands_in_every_biography(world: World) -> None:
    facts = {person.name: person.facts for person in world.people}
    for document in world.documents:
        for value in facts[subject_of(document)].values():
            assert value.lower() in document.lower()


def test_the_text_says_a_and_an_as_english_does(world: World) -> None:
    wrong = [document for document in world.documents if re.search(r"\ba [aeiou]", document)]
    assert not wrong


def test_questions_are_answered_where_the_text_answers_them(world: World) -> None:
    for person in world.people:
        question = person.question()
        assert question.text == f"Where was {person.name} born?"
        assert question.answer == (None if person.group == "absent" else person.facts["place"])


def test_a_group_is_asked_in_every_wording_or_in_the_plain_one(world: World) -> None:
    asked = world.questions("qa_train", QUESTIONS)
    expected = [
        (wording.format(name=person.name), person.place)
        for person in world.group("qa_train")
        for wording in QUESTIONS
    ]
    assert [(question.text, question.answer) for question in asked] == expected
    for group in ("qa_train", "text_only", "absent"):
        assert world.questions(group) == [person.question() for person in world.group(group)]


def place_shares(config: WorldConfig) -> list[float]:
    """How common the places are, the commonest first."""
    people = make_world(config).people
    counts = Counter(person.place for person in people)
    return [n / len(people) for _, n in counts.most_common()]


def test_the_places_follow_the_law_of_zipf() -> None:
    weights = 1 / np.sqrt(np.arange(1, 51))
    expected = weights / weights.sum()
    assert expected[0] == pytest.approx(0.078, abs=0.001)
    many = [place_shares(WorldConfig(seed=seed)) for seed in range(10)]
    # 15 000 births; a share's deviation is about 0.002.
    assert np.mean([shares[0] for shares in many]) == pytest.approx(expected[0], abs=0.008)
    top_ten = np.mean([sum(shares[:10]) for shares in many])
    assert top_ten == pytest.approx(expected[:10].sum(), abs=0.03)


def test_without_skew_all_places_are_equally_common() -> None:
    people = make_world(WorldConfig(skew=0)).people
    counts = list(Counter(person.place for person in people).values())
    assert len(counts) == 50
    assert chisquare(counts).pvalue > 1e-3
    skewed = list(Counter(person.place for person in make_world(WorldConfig()).people).values())
    assert chisquare(skewed).pvalue < 1e-9


def places_by_last_name(correlation: float) -> list[Counter[str]]:
    places = defaultdict[str, Counter[str]](Counter)
    for person in make_world(WorldConfig(correlation=correlation)).people:
        places[person.name.split()[1]][person.place] += 1
    return list(places.values())


def test_full_correlation_makes_the_last_name_tell_the_place() -> None:
    assert all(len(places) == 1 for places in places_by_last_name(1))
    assert all(len(places) > 1 for places in places_by_last_name(0))


def test_half_correlation_lets_the_last_name_tell_every_second_place() -> None:
    at_home = [max(places.values()) / places.total() for places in places_by_last_name(0.5)]
    # Half, and those who were born at home by chance; 80 names of 19 people each have a standard
    # error of about 0.013, and four of these may be missing or, with the maximum's bias, too much.
    assert 0.46 < np.mean(at_home) < 0.6


def test_without_augmentation_each_person_has_one_plain_sentence() -> None:
    made = make_world(WorldConfig(augment=False, order="place-first"))
    assert len(made.documents) == 1000
    for document in made.documents:
        assert document.count(".") == 1
        assert document.startswith(f"{subject_of(document)} was born in ")


@pytest.mark.parametrize("augment", [True, False])
def test_the_order_of_facts_is_drawn_or_always_the_same(augment: bool) -> None:
    first, last, drawn = (
        _share_with_place_first(WorldConfig(augment=augment, order=order))
        for order in ("place-first", "place-last", "permuted")
    )
    assert (first, last) == (1, 0)
    assert 0.2 < drawn < 0.4  # of three or four facts


def _share_with_place_first(config: WorldConfig) -> float:
    made = make_world(config)
    place = {person.name: person.place for person in made.people}
    # Between the name, which may stand alone, and the first fact that isn't the place.
    starts = [text.removeprefix(f"{subject_of(text)}. ") for text in made.documents]
    ends = [re.split(r"[.,]", text, maxsplit=1)[0] for text in starts]
    said = zip(made.documents, ends, strict=True)
    return sum(place[subject_of(text)] in end for text, end in said) / len(starts)


@pytest.mark.parametrize(
    ("setting", "allowed"),
    [
        ("people=79", "80..5600"),
        ("people=5601", "80..5600"),
        ("absent=4601", "0..4600"),
        ("places=0", "1..100"),
        ("places=101", "1..100"),
        ("correlation=2", "0..1"),
        ("correlation=nan", "0..1"),
        ("skew=-1", "0..inf"),
        ("biographies=0", "1..inf"),
    ],
)
def test_a_bad_setting_is_named_with_what_is_allowed(setting: str, allowed: str) -> None:
    with pytest.raises(UserError) as refused:
        override(WorldConfig(), [setting])
    field = setting.partition("=")[0]
    assert field in str(refused.value)
    assert allowed in str(refused.value)


@pytest.mark.parametrize(
    "settings", [["people=80"], ["people=5600", "absent=0"], ["places=1"], ["places=100"]]
)
def test_settings_at_their_bounds_make_a_world(settings: list[str]) -> None:
    world = make_world(override(WorldConfig(biographies=1, absent=0), settings))
    assert world.documents


# Files


@pytest.fixture(scope="module")
def small() -> World:
    return make_world(WorldConfig(people=90, absent=20, biographies=2))


@pytest.fixture(scope="module")
def saved(small: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("world") / "deep" / "world"
    save_world(small, path)
    return path


def test_the_corpus_is_the_documents_a_line_each(small: World, saved: Path) -> None:
    read = read_corpus([saved / "wiki.txt"])
    assert [document.text for document in read] == list(small.documents)


def test_questions_are_those_of_each_group(small: World, saved: Path) -> None:
    groups = {
        "birth_places_train.tsv": small.questions("qa_train", QUESTIONS),
        "birth_dev.tsv": small.questions("text_only"),
        "birth_test_inputs.tsv": small.questions("absent"),
    }
    for name, expected in groups.items():
        read = [(one.text, one.answer) for one in read_questions(saved / name)]
        assert read == [(one.text, one.answer) for one in expected]


def test_the_truth_about_everyone_is_kept(small: World, saved: Path) -> None:
    lines = (saved / "people.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=Person) for line in lines] == list(small.people)


def test_saving_is_exact(small: World, saved: Path, tmp_path: Path) -> None:
    tmp_path.joinpath("empty").mkdir()
    save_world(small, tmp_path / "empty")
    for path in saved.iterdir():
        assert (tmp_path / "empty" / path.name).read_bytes() == path.read_bytes()


def test_a_place_that_holds_something_is_left_alone(small: World, tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("mine", encoding="utf-8")
    folder.mkdir()
    (folder / "wiki.txt").write_text("mine", encoding="utf-8")
    for out in (file, folder):
        with pytest.raises(UserError, match=r"choose another --out"):
            save_world(small, out)
    assert file.read_text(encoding="utf-8") == "mine"
    assert [path.name for path in folder.iterdir()] == ["wiki.txt"]
    assert (folder / "wiki.txt").read_text(encoding="utf-8") == "mine"
