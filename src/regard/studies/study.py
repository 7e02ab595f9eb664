"""Studies: questions about attention, each with a function that answers it by measurements."""

import inspect
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Annotated, Any, Generic, NamedTuple, ParamSpec, TypeAlias, get_type_hints

import msgspec

from regard.config import Config, convert, override
from regard.courses import COURSES, Correction, all_corrections, all_parts
from regard.errors import UserError
from regard.studies.figure import Drawing, Named, Panel, figure
from regard.studies.finding import Evidence, Finding, Measurement, Outside, Replication, Table

P = ParamSpec("P")

Seed = Annotated[int, msgspec.Meta(ge=0, lt=2**32, description="seed of the draw")]
"""A parameter of studies that draw at random."""
MAX_SEEDS = 1000
"""Maximum number of seeds of one run."""
_FIGURE = "Figure. "
"""Start of the paragraph of a docstring that is the caption."""
_ARGS = "\n\nArgs:\n"
"""Start of the part of a docstring that describes parameters."""
STORED_SEEDS = range(5)
"""Seeds of the stored results of studies that train."""
EvidenceParts: TypeAlias = Iterator[
    Measurement | Outside | Table | Drawing | Panel | dict[str, Any] | None
]
"""Parts that a study yields: measurements and a figure (a panel, or `figure` of panels); at most
one table, one explorer page's data and one `Outside`. None is skipped."""


class Parameter(NamedTuple):
    """A parameter of a study."""

    name: str
    default: Any
    description: str
    range: str
    """Type and bounds, in words."""


@dataclass(frozen=True, kw_only=True)
class Study(Generic[P]):
    """A question, the claim that answers it, and the function that tests the claim.

    A study is called like its function and returns a `Finding`. The paragraphs of the function's
    docstring are question, claim, formula (TeX between `$$`), an explanation in plain words, and
    the caption of the figure; below "Args:" it describes the parameters.
    """

    name: str
    trains: bool
    """Whether it works on trained models: its own, which takes minutes the first time, or one that
    has to be installed. The book shows its stored result."""
    function: Callable[P, EvidenceParts]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Finding:
        """Run the study with custom parameters.

        Raises:
            UserError: a parameter is out of range.
        """
        return self._measure(inspect.signature(self.function).bind(*args, **kwargs).arguments)

    def over_seeds(self, seeds: Iterable[int], **parameters: Any) -> Finding:
        """Run the study once per seed; the figure is that of the first.

        Trained models are cached, so that an interrupted call resumes where it stopped.

        Raises:
            UserError: the study has no parameter `seed`, there are no seeds, or a parameter is out
                of range.
        """
        self._require_seed()
        runs = [self._measure({**parameters, "seed": seed}) for seed in seeds]
        if not runs:
            raise UserError(f"{self.name}: seeds: none are given; give at least one")
        replications = tuple(
            Replication(
                seed=run.parameters["seed"],
                numbers=run.numbers,
                outside_condition=run.outside_condition,
            )
            for run in runs
        )
        seconds = sum(run.seconds for run in runs)
        return msgspec.structs.replace(runs[0], replications=replications, seconds=seconds)

    def with_texts(self, assignments: Sequence[str]) -> Finding:
        """Run the study with parameters given as `name=value`, as on a command line.

        `seeds=5` runs it with five seeds from `seed` on.

        Raises:
            UserError: a parameter is unknown, or out of range.
        """
        counts = [text for text in assignments if text.startswith("seeds=")]
        others = [text for text in assignments if not text.startswith("seeds=")]
        values = msgspec.structs.asdict(override(self._settings(), others, where=self.name))
        if not counts:
            return self._measure(values)
        self._require_seed()
        first, count = values.pop("seed"), self._count(counts[-1])
        return self.over_seeds(range(first, first + count), **values)

    def _count(self, assignment: str) -> int:
        """Number of seeds in `seeds=5`."""
        text = assignment.removeprefix("seeds=")
        if not text.isdecimal() or not 1 <= int(text) <= MAX_SEEDS:
            raise UserError(
                f"{self.name}: seeds: expected a number from 1 to {MAX_SEEDS}, not {text!r}"
            )
        return int(text)

    def _require_seed(self) -> None:
        if "seed" not in self.defaults:
            raise UserError(
                f"{self.name}: seeds: this study draws nothing at random; run it without seeds"
            )

    def stored_result(self, folder: Traversable | None = None) -> Finding:
        """Load a saved finding; by default the one with default parameters in the package.

        Raises:
            UserError: the folder has none.
        """
        return Finding.load(self, folder or files("regard.studies") / "findings")

    @property
    def asked(self) -> tuple[str, ...]:
        """Courses and parts that the study answers, such as "practical-4 2.b"."""
        return tuple(part.place for part in all_parts() if self.name in part.studies)

    @property
    def asked_in(self) -> str:
        """The courses that ask the question, with titles and parts."""
        parts: dict[str, list[str]] = {}
        for course, part in map(str.split, self.asked):
            parts.setdefault(COURSES[course], []).append(part)
        return "; ".join(f"{title}: {', '.join(found)}" for title, found in parts.items())

    @property
    def defaults(self) -> dict[str, Any]:
        """Default values of the parameters."""
        return _plain(self._settings())

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters with their defaults and bounds."""
        described = inspect.cleandoc(self.function.__doc__ or "").partition(_ARGS)[2]
        found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", described, re.MULTILINE)
        texts: dict[str, str] = dict(found)
        schema = msgspec.json.schema(self._settings)["$defs"][self.name]["properties"]
        parameters = []
        for name, field in schema.items():
            text = " ".join(texts.get(name, field.get("description", "")).split())
            parameters.append(Parameter(name, self.defaults[name], text, _range(field)))
        return tuple(parameters)

    @property
    def question(self) -> str:
        """The question, in a sentence."""
        return self._paragraphs[0]

    @property
    def claim(self) -> str:
        """The claim that answers it."""
        return self._paragraphs[1]

    @property
    def formula(self) -> str:
        """The formula in TeX, without dollar signs."""
        return self._paragraphs[2].strip("$ ")

    @property
    def explanation(self) -> str:
        """The result in plain words, one paragraph per line."""
        return "\n".join(one for one in self._paragraphs[3:] if not one.startswith(_FIGURE))

    @property
    def caption(self) -> str:
        """The caption of the figure, with names of parameters and other values in braces."""
        captions = [one for one in self._paragraphs if one.startswith(_FIGURE)]
        return "".join(captions).removeprefix(_FIGURE)

    @property
    def corrections(self) -> tuple[Correction, ...]:
        """Errors in courses that the study shows."""
        return tuple(one for one in all_corrections() if one.study == self.name)

    @cached_property
    def _paragraphs(self) -> list[str]:
        return paragraphs(self.function)

    @cached_property
    def _settings(self) -> type[Config]:
        """The parameters as a configuration, validated by msgspec."""
        hints = get_type_hints(self.function, include_extras=True)
        fields = [
            (name, hints[name], parameter.default)
            for name, parameter in inspect.signature(self.function).parameters.items()
        ]
        made = msgspec.defstruct(self.name, fields, bases=(Config,), frozen=True, kw_only=True)
        assert issubclass(made, Config)
        return made

    def _measure(self, parameters: Mapping[str, Any]) -> Finding:
        settings = convert(dict(parameters), self._settings, where=self.name)
        values = msgspec.structs.asdict(settings)
        started = time.perf_counter()
        parts = self.function(**values)  # type: ignore[call-arg]
        evidence = msgspec.structs.asdict(evidence_of(parts, self.caption, values))
        seconds = time.perf_counter() - started
        return Finding(study=self, parameters=_plain(settings), seconds=seconds, **evidence)


def study(*, trains: bool = False) -> Callable[[Callable[P, EvidenceParts]], Study[P]]:
    """Return a decorator that makes a study of a function.

    The function's parameters have defaults and bounds, `n: Annotated[int, Meta(ge=2)] = 10`; its
    docstring is the text of the study. It yields its evidence.
    """

    def made(function: Callable[P, EvidenceParts]) -> Study[P]:
        return Study(name=function.__name__.replace("_", "-"), trains=trains, function=function)

    return made


def evidence_of(parts: EvidenceParts, caption: str, parameters: Named) -> Evidence:
    """Gather the parts that a study yields; `caption` names parameters and values in braces."""
    found = list(parts)
    (drawn,) = (one for one in found if isinstance(one, Drawing | Panel))
    drawing = drawn if isinstance(drawn, Drawing) else figure(drawn)
    outside = next((one for one in found if isinstance(one, Outside)), Outside("", ()))
    return Evidence(
        numbers=tuple(one for one in found if isinstance(one, Measurement)),
        outside_condition=tuple(outside.numbers),
        condition=outside.condition,
        table=next((one for one in found if isinstance(one, Table)), None),
        figure=drawing.with_caption(caption, parameters),
        explorer_view=next((one for one in found if isinstance(one, dict)), None),
    )


def paragraphs(function: Callable[..., Any]) -> list[str]:
    """Return the paragraphs of a docstring before "Args:", each in one line."""
    texts = inspect.cleandoc(function.__doc__ or "").partition(_ARGS)[0].split("\n\n")
    return [" ".join(text.split()) for text in texts]


def _plain(settings: Config) -> dict[str, Any]:
    """The values as plain JSON types."""
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
    return values


def _range(described: Mapping[str, Any]) -> str:
    """Type and bounds of a field's JSON schema, in words."""
    if choices := described.get("enum"):
        return " or ".join(str(choice) for choice in choices)
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    said = [f"{sign} {described[key]}" for key, sign in bounds.items() if key in described]
    return " and ".join([described.get("type", "any"), *said])
