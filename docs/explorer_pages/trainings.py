"""The exercises' numbers after trainings from other seeds and on other processors."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import torch

from regard.environment import ExecutionEnvironment
from regard.studies.finding import Measurement


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """What both models gave after one training."""

    seed: int
    processor: str
    instructions: str
    """The set that torch chose; fewer than the processor has where a variable says so."""
    numbers: dict[str, dict[str, float]]
    """By exercise and name."""


def training_of(seed: int, numbers: Mapping[str, Sequence[Measurement]]) -> Training:
    """The numbers of each exercise, after training with a seed on this machine."""
    return Training(
        seed=seed,
        processor=str(ExecutionEnvironment.choose("cpu").describe()["processor"]),
        instructions=torch.backends.cpu.get_cpu_capability(),
        numbers={name: {n.name: n.measured for n in of} for name, of in numbers.items()},
    )


def add_training(path: Path, training: Training) -> None:
    """Append a training to a file of JSON lines."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(training) + b"\n")


def load_trainings(path: Path) -> list[Training]:
    """Return the trainings of a file; none if it doesn't exist."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Training) for line in path.read_bytes().splitlines()]


def other_values(trainings: Sequence[Training], exercise: str, number: str) -> list[float]:
    """One number after each training that has it."""
    found = (one.numbers.get(exercise, {}) for one in trainings)
    return [numbers[number] for numbers in found if number in numbers]


def holds_always(number: Measurement, values: Sequence[float]) -> bool:
    """Whether a number's bounds held after every other training."""
    return all(msgspec.structs.replace(number, measured=value).holds for value in values)
