"""A study: a question about attention, and a function that answers it by measuring."""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Generic, ParamSpec, get_type_hints

import msgspec

from regard.config import Config, convert, override
from regard.errors import UserError
from regard.explorer.page import page
from regard.files import write_file
from regard.studies.finding import Drawing, Evidence, Measurement, Table, Verdict

P = ParamSpec("P")

Seed = Annotated[int, msgspec.Meta(ge=0, lt=2**32, description="seed of the draw")]
"""A parameter of studies that draw at random."""

COURSES = {
    "jhu-hw5": "Johns Hopkins CS 601.471/671, Self-supervised Models, Homework 5 (spring 2023)",
    "practical-4": "Deep Natural Language Processing, Practical 4 (2023), "
    "after Stanford CS224N, assignment 5",
    "eecs182-transformers": "UC Berkeley EECS 182, Transformers and Pretraining (spring 2023)",
    "eecs182-hw8": "UC Berkeley EECS 182, Homework 8 (fall 2022)",
    "eecs182-disc8": "UC Berkeley EECS 182, Discussion 8 (spring 2023)",
}
"""Titles of the courses that ask the questions."""


@dataclass(frozen=True, kw_only=True)
class Correction:
    """An error in a course."""

    course: str
    """A key of `COURSES`."""
    says: str
    right: str
    """The correct statement, and the reason."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a study."""

    name: str
    default: Any
    description: str
    range: str
    """Type and bounds, in words."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A finding without its figure, as JSON."""

    study: str
    parameters: dict[str, Any]
    seconds: float
    condition: str
    numbers: tuple[Measurement, ...]
    outside_condition: tuple[Measurement, ...]
    table: Table | None
    alt: str
    explorer_view: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Study(Generic[P]):
    """A question, the claim that answers it, and the function that tests the claim.

    A study is called like its function and returns a `Finding`.
    """

    name: str
    asked: tuple[str, ...]
    """Courses and parts that ask the question, such as "practical-4 2.b"; see `COURSES`."""
    question: str
    claim: str
    formula: str
    """In TeX, without dollar signs."""
    corrections: tuple[Correction, ...]
    trains: bool
    """Whether the study trains models, which takes minutes the first time."""
    function: Callable[P, Evidence]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> "Finding":
        """Run the study with custom parameters.

        Raises:
            UserError: a parameter is out of range.
        """
        given = inspect.signature(self.function).bind(*args, **kwargs).arguments
        return self._measure(convert(dict(given), self._settings, where=self.name))

    def with_texts(self, assignments: Sequence[str]) -> "Finding":
        """Run the study with parameters given as `name=value`, as on a command line.

        Raises:
            UserError: a parameter is unknown, or out of range.
        """
        return self._measure(override(self._settings(), assignments, where=self.name))

    def stored_result(self, folder: Traversable | None = None) -> "Finding":
        """Load a saved finding; by default the one with default parameters in the package.

        Raises:
            UserError: the folder has none.
        """
        folder = folder or files("regard.studies") / "findings"
        place = folder / f"{self.name}.json"
        if not place.is_file():
            raise UserError(f"{place}: no such file; make it with `regard study run {self.name}`")
        stored = msgspec.json.decode(place.read_bytes(), type=_Stored)
        svg = (folder / f"{self.name}.svg").read_text(encoding="utf-8")
        png = (folder / f"{self.name}.png").read_bytes()
        evidence = Evidence(
            numbers=stored.numbers,
            figure=Drawing(svg=svg[svg.index("<svg") :], png=png, alt=stored.alt),
            table=stored.table,
            condition=stored.condition,
            outside_condition=stored.outside_condition,
            explorer_view=stored.explorer_view,
        )
        return Finding(
            study=self, parameters=stored.parameters, evidence=evidence, seconds=stored.seconds
        )

    @property
    def asked_in(self) -> str:
        """The courses that ask the question, by title and part."""
        parts: dict[str, list[str]] = {}
        for place in self.asked:
            course, part = place.split()
            parts.setdefault(COURSES[course], []).append(part)
        return "; ".join(f"{title}: {', '.join(found)}" for title, found in parts.items())

    @property
    def defaults(self) -> dict[str, Any]:
        """Default values of the parameters."""
        return _plain(self._settings())

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Parameters with their defaults and bounds."""
        schema = msgspec.json.schema(self._settings)["$defs"][self.name]["properties"]
        return tuple(
            Parameter(
                name=name,
                default=self.defaults[name],
                description=described.get("description", ""),
                range=_range(described),
            )
            for name, described in schema.items()
        )

    @property
    def explanation(self) -> str:
        """The function's docstring, one paragraph per line."""
        paragraphs = inspect.cleandoc(self.function.__doc__ or "").split("\n\n")
        return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

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

    def _measure(self, settings: Config) -> "Finding":
        values = msgspec.structs.asdict(settings)
        started = time.perf_counter()
        evidence = self.function(**values)  # type: ignore[call-arg]
        seconds = time.perf_counter() - started
        return Finding(
            study=self,
            parameters=_plain(settings),
            evidence=evidence,
            seconds=seconds,
        )


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Result of a study with given parameters. Displays itself in a notebook."""

    study: Study[Any]
    parameters: Mapping[str, Any]
    evidence: Evidence
    seconds: float

    @property
    def claim(self) -> str:
        """The claim that was tested."""
        return self.study.claim

    @property
    def formula(self) -> str:
        """The claim's formula, in TeX."""
        return self.study.formula

    @property
    def numbers(self) -> tuple[Measurement, ...]:
        """Measurements that the claim depends on."""
        return self.evidence.numbers

    @property
    def figure(self) -> Drawing:
        """The figure as SVG and PNG, with a text alternative."""
        return self.evidence.figure

    @property
    def table(self) -> Table | None:
        """Table of results, if any."""
        return self.evidence.table

    @property
    def explorer_view(self) -> dict[str, Any] | None:
        """Data of the explorer's page, if the study has heads to show."""
        return self.evidence.explorer_view

    @property
    def verdict(self) -> Verdict:
        """Verdict on the claim."""
        return self.evidence.verdict

    @property
    def explanation(self) -> str:
        """Explanation in plain words."""
        return self.study.explanation

    def save(self, folder: Path) -> list[Path]:
        """Write NAME.json, .csv, .svg and .png, and NAME.html if there are heads to show.

        Returns the paths.
        """
        found = self.evidence
        stored = _Stored(
            study=self.study.name,
            parameters=dict(self.parameters),
            seconds=round(self.seconds, 1),
            condition=found.condition,
            numbers=found.numbers,
            outside_condition=found.outside_condition,
            table=found.table,
            alt=found.figure.alt,
            explorer_view=found.explorer_view,
        )
        contents = {
            "json": msgspec.json.format(msgspec.json.encode(stored), indent=1) + b"\n",
            "csv": found.csv().encode(),
            "svg": _standalone(found.figure.svg).encode(),
            "png": found.figure.png,
        }
        if found.explorer_view:
            contents["html"] = page(found.explorer_view).encode()
        folder.mkdir(parents=True, exist_ok=True)
        places = [folder / f"{self.study.name}.{ending}" for ending in contents]
        for place, content in zip(places, contents.values(), strict=True):
            write_file(place, content)
        return places

    def _repr_html_(self) -> str:
        from regard.studies.pages import finding_html

        return finding_html(self)


def study(
    *,
    question: str,
    claim: str,
    formula: str,
    asked: Sequence[str] = (),
    corrections: Sequence[Correction] = (),
    trains: bool = False,
) -> Callable[[Callable[P, Evidence]], Study[P]]:
    """Decorator that makes a study of a function.

    The function's parameters have defaults and bounds, `n: Annotated[int, Meta(ge=2,
    description="keys")] = 10`; its docstring explains the result in plain words.
    """

    def made(function: Callable[P, Evidence]) -> Study[P]:
        return Study(
            name=function.__name__.replace("_", "-"),
            asked=tuple(asked),
            question=question,
            claim=claim,
            formula=formula,
            corrections=tuple(corrections),
            trains=trains,
            function=function,
        )

    return made


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


def _standalone(svg: str) -> str:
    """An SVG element as a file whose text color follows the light or dark theme."""
    dark = "@media(prefers-color-scheme:dark){svg:root{color:#e4e8ec}}"
    style = f"<style>svg:root{{color:#1c2530}}{dark}</style>"
    end = svg.index(">") + 1
    return '<?xml version="1.0" encoding="utf-8"?>\n' + svg[:end] + style + svg[end:]
