"""The spread of the exercises' numbers over trainings."""

from pathlib import Path

from exercise_files import trainings

from regard.studies.finding import at_least, informational


def test_values_over_trainings_come_back_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "trainings.jsonl"
    assert trainings.load_trainings(path) == []
    made = [
        trainings.training_of(seed, {"layers": [at_least("share", share, 0.5)]})
        for seed, share in enumerate((0.7, 0.6))
    ]
    for one in made:
        trainings.add_training(path, one)
    assert trainings.load_trainings(path) == made
    assert all(one.processor and one.instructions for one in made)
    assert trainings.other_values(made, "layers", "share") == [0.7, 0.6]
    assert trainings.other_values(made, "layers", "another") == []
    assert trainings.other_values(made, "another", "share") == []


def test_a_bound_holds_always_only_if_it_holds_after_each_training() -> None:
    number = at_least("share", 0.9, 0.5)
    assert trainings.holds_always(number, [0.7, 0.5])
    assert not trainings.holds_always(number, [0.7, 0.49])
    assert not trainings.holds_always(number, [0.7, float("nan")])
    assert trainings.holds_always(number, []), "no other training contradicts it"
    assert trainings.holds_always(informational("entropy", 1.0), [-3.0])
