"""What a run answers is what `look` shows and `generate` writes."""

from base64 import b64decode
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard import api
from regard.edits.edit import zero
from regard.models.builders import LanguageModel
from regard.runs.run import Run
from regard.serve import handlers
from regard.serve.schemas import DetailRequest, GenerateRequest, LookRequest
from tiny_served import BLOCK, TEXT, new_run

WRITERS = ("decoder", "favor", "encoder-decoder")


def written(run: Run, **wishes: Any) -> list[dict[str, Any]]:
    return list(
        handlers.generate_lines(run, run.path, GenerateRequest(model=0, text=TEXT, **wishes))
    )


def viewed(run: Run, **wishes: Any) -> dict[str, Any]:
    wish = LookRequest(**{"model": 0, "text": TEXT, **wishes})
    return handlers.look_data([handlers.capture_view(run, wish)], wish)


@pytest.mark.parametrize("family", WRITERS)
@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_the_tokens_are_those_that_generate_writes(family: str, temperature: float) -> None:
    run = new_run(family)
    *tokens, end = written(run, max_new_tokens=6, temperature=temperature, seed=3)
    (text,) = api.generate(run, [TEXT], max_new_tokens=6, temperature=temperature, seed=3)
    assert (tokens[-1]["text"] if tokens else "") == text
    assert [len(line["text"]) for line in tokens] == [
        len(text) - len(tokens) + i for i in range(1, len(tokens) + 1)
    ], "a character a token"
    assert end["end"] in ("Token limit reached.", "End of text.")
    for line in tokens:
        probabilities = [p for _, p in line["candidates"]]
        assert probabilities == sorted(probabilities, reverse=True)
        if temperature == 0:
            assert line["candidates"][0][0] == line["name"], "greedy decoding takes the best"


@pytest.mark.parametrize("family", WRITERS)
def test_what_is_written_is_looked_at_as_it_was_written(family: str) -> None:
    run = new_run(family)
    *tokens, _ = written(run, max_new_tokens=5, temperature=2.0)
    assert tokens
    ids = tuple(line["token"] for line in tokens)
    (side,) = viewed(run, generated=ids)["panels"]
    shown = side["maps"][-1]["queries"]
    assert shown[-len(ids) :] == tuple(run.tokenizer.decode([i]) for i in ids)
    if family == "encoder-decoder":
        assert side["maps"][-1]["keys"] == tuple(TEXT)
    else:
        assert shown[: -len(ids)] == tuple(run.tokenizer.decode([i]) for i in run.encode(TEXT)[0])


def test_a_view_of_generated_tokens_has_no_positions_that_an_edit_replaced() -> None:
    run, edit = new_run("decoder"), zero("decoder.positions").to_toml()
    for given, drawn in ((None, True), (edit, False)):
        (side,) = viewed(run, edit=given, generated=(3,))["panels"]
        assert bool(side["maps"][0]["positions"]) is drawn


def test_a_run_of_questions_continues_a_text_as_it_stands() -> None:
    run = new_run("decoder")
    asked = replace(run, origin={"questions": "pairs.tsv"})
    answered, *_ = written(asked, max_new_tokens=3)
    continued, *_ = written(asked, max_new_tokens=3, raw=True)
    assert continued == written(run, max_new_tokens=3)[0]
    assert continued["text"].startswith(TEXT)
    assert not answered["text"].startswith(TEXT)
    keys = [
        viewed(asked, generated=(), raw=raw)["panels"][0]["maps"][0]["keys"]
        for raw in (False, True)
    ]
    assert keys == [("<sep>", *TEXT, "<sep>"), tuple(TEXT)]


def test_a_full_block_is_looked_at_to_its_end() -> None:
    run = new_run("decoder")
    *tokens, end = written(run, max_new_tokens=1000)
    assert end == {"end": "The context is full."}
    ids = tuple(line["token"] for line in tokens)
    (side,) = viewed(run, generated=ids)["panels"]
    assert len(side["maps"][0]["queries"]) == BLOCK


@pytest.mark.parametrize(
    ("family", "second"), [("decoder", None), ("favor", None), ("encoder-decoder", "god")]
)
def test_steps_end_with_the_weights_that_the_view_shows(family: str, second: str | None) -> None:
    run = new_run(family)
    data = viewed(run, second=second)
    for place, one in enumerate(data["panels"][0]["maps"]):
        wish = DetailRequest(model=0, text=TEXT, second=second, map=place, layer=1, head=1)
        found = handlers.detail_data(run, wish)
        assert (found["map"], found["layer"], found["head"]) == (place, 1, 1)
        shown, step = unpack(one["layers"][1]["heads"][1])
        exact = floats(found["steps"][-1]["values"]).reshape(shown.shape)
        assert (abs(shown - exact) <= step / 2 + 4 * np.finfo(np.float32).eps).all()


def unpack(head: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
    """The weights that a page shows, and the steps between those that it can show."""
    low, high = floats(head["scales"]).reshape(-1, 2).T[..., None]
    values = np.frombuffer(b64decode(head["values"]), np.uint8).reshape(len(low), -1)
    step = (high - low) / 255
    return low + values * step, step


def floats(text: str) -> np.ndarray:
    return np.frombuffer(b64decode(text), "<f4")


def test_packages_are_found_by_the_weights_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []

    def find(run: Run) -> LanguageModel:
        seen.append(run.path)
        return run.language_model

    monkeypatch.setattr(import_module("regard.decoding.generate"), "with_package", find)
    request = GenerateRequest(model=0, text=TEXT, max_new_tokens=1)
    named = replace(new_run("decoder"), path=Path("name"))
    assert list(handlers.generate_lines(named, tmp_path, request))
    assert seen == [tmp_path]
