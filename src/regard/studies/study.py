"""A study: a question about attention that a function answers by measuring."""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Generic, ParamSpec, get_type_hints

import msgspec

from regard.config import Config, convert, override
from regard.studies.finding import Drawing, Evidence, Measurement, Table, Verdict

P = ParamSpec("P")

Seed = Annotated[int, msgspec.Meta(ge=0, lt=2**32, description="seed of the draw")]
"""A parameter of studies that draw at random."""


@dataclass(frozen=True, kw_only=True)
class Correction:
    """Where a course document is wrong."""

    seed: str
    """Of which document."""
    says: str
    right: str
    """What is true, and why."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A parameter of a study."""

    name: str
    default: Any
    description: str
    range: str
    """The values that it may take, in words."""


@dataclass(frozen=True, kw_only=True)
class Study(Generic[P]):
    """A question, the claim that answers it, and the function that tests the claim.

    Called like that function, it gives a `Finding`.
    """

    name: str
    rows: tuple[str, ...]
    """The rows of the specification that it covers: S1, …"""
    asked: tuple[str, ...]
    """Where the courses ask it: document and question."""
    question: str
    claim: str
    formula: str
    """In TeX, without dollar signs."""
    corrections: tuple[Correction, ...]
    trains: bool
    """Whether it trains models, which takes minutes the first time."""
    function: Callable[P, Evidence]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> "Finding":
        """Measure, with parameters of one's own.

        Raises:
            UserError: a parameter is out of range.
        """
        given = inspect.signature(self.function).bind(*args, **kwargs).arguments
        return self._measure(convert(dict(given), self._settings, where=self.name))

    def with_texts(self, assignments: Sequence[str]) -> "Finding":
        """The same from `name=value` texts, as on a command line.

        Raises:
            UserError: a parameter is unknown, or out of range.
        """
        return self._measure(override(self._settings(), assignments, where=self.name))

    def stored_result(self) -> "Finding":
        """What was found with the usual parameters when Regard was made: nothing is measured."""
        from regard.studies.stored_results import load_finding

        return load_finding(self)

    @property
    def defaults(self) -> dict[str, Any]:
        """What the parameters are by default."""
        return _plain(self._settings())

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What may be chosen."""
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
        """In plain words: the function's docstring, a paragraph a line."""
        paragraphs = inspect.cleandoc(self.function.__doc__ or "").split("\n\n")
        return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

    @cached_property
    def _settings(self) -> type[Config]:
        """The parameters as a configuration, whose ranges msgspec checks."""
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
    """What a study found with some parameters. Shows itself in a notebook."""

    study: Study[Any]
    parameters: Mapping[str, Any]
    evidence: Evidence
    seconds: float

    @property
    def claim(self) -> str:
        """What was tested."""
        return self.study.claim

    @property
    def formula(self) -> str:
        """In TeX."""
        return self.study.formula

    @property
    def numbers(self) -> tuple[Measurement, ...]:
        """On which the claim depends, measured and expected."""
        return self.evidence.numbers

    @property
    def figure(self) -> Drawing:
        """As SVG and PNG, with a text that says what is to be seen."""
        return self.evidence.figure

    @property
    def table(self) -> Table | None:
        """Where a table tells more."""
        return self.evidence.table

    @property
    def explorer_view(self) -> dict[str, Any] | None:
        """Where heads can be looked at: what the explorer shows of them."""
        return self.evidence.explorer_view

    @property
    def verdict(self) -> Verdict:
        """From the numbers."""
        return self.evidence.verdict

    @property
    def explanation(self) -> str:
        """In plain words."""
        return self.study.explanation

    def _repr_html_(self) -> str:
        from regard.studies.pages import finding_html

        return finding_html(self)


def study(
    *,
    rows: Sequence[str],
    asked: Sequence[str],
    question: str,
    claim: str,
    formula: str,
    corrections: Sequence[Correction] = (),
    trains: bool = False,
) -> Callable[[Callable[P, Evidence]], Study[P]]:
    """Make a study of a function that measures.

    Its parameters have defaults and ranges, `n: Annotated[int, Meta(ge=2, description="keys")] =
    10`; its docstring explains the finding in plain words.
    """

    def made(function: Callable[P, Evidence]) -> Study[P]:
        return Study(
            name=function.__name__.replace("_", "-"),
            rows=tuple(rows),
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
    """The values as JSON has them."""
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
    return values


def _range(described: Mapping[str, Any]) -> str:
    """The values that a field's JSON schema admits, in words."""
    if choices := described.get("enum"):
        return " or ".join(str(choice) for choice in choices)
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    said = [f"{sign} {described[key]}" for key, sign in bounds.items() if key in described]
    return " and ".join([described.get("type", "any"), *said])
