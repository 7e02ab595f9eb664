"""The models of a page, by name."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.serve.available_models import AvailableModel, find_runs, model_info
from regard.serve.errors import public_message
from tiny_explored import tiny_folder
from tiny_served import available, save_run

parts = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)


def test_each_model_has_a_name_of_its_own(tmp_path: Path) -> None:
    paths = [tmp_path / place / "run" for place in "abc"]
    for path in paths:
        path.mkdir(parents=True)
        (path / "config.toml").touch()
    paths.append(tiny_folder(tmp_path / "d" / "run", "gpt2"))
    models = available(*paths[:3], f"hf:{paths[3]}")
    assert [one.name for one in models] == ["run", "run (2)", "run (3)", "run (4)"]
    assert [one.path for one in models] == [path.resolve() for path in paths]


def test_runs_are_found_where_they_lie(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no trained run"):
        find_runs(tmp_path / "nowhere")
    for place in ("b", "a/deep", "cells/.copy.partial", "weights only", "untrained"):
        (tmp_path / place).mkdir(parents=True)
        if place != "weights only":
            (tmp_path / place / "config.toml").touch()
        if place != "untrained":
            (tmp_path / place / "model.safetensors").touch()
    assert find_runs(tmp_path) == [str(tmp_path / "a/deep"), str(tmp_path / "b")]


@pytest.mark.parametrize(
    ("family", "writes", "pair"),
    [("decoder", True, False), ("encoder", False, False), ("encoder-decoder", True, True)],
)
def test_a_run_is_described_before_it_is_loaded(
    family: str, writes: bool, pair: bool, tmp_path: Path
) -> None:
    (one,) = available(save_run(tmp_path / "run", family))
    info = model_info(one)
    assert info["description"].startswith(f"{family}, ")
    assert (info["generates"], info["seq2seq"]) == (writes, pair)


def test_a_damaged_run_is_described_without_its_path(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("model = 3", encoding="utf-8")
    info = model_info(available(tmp_path / "run")[0])
    assert info["description"].startswith("run/config.toml: ")
    assert str(tmp_path) not in str(info)
    assert not info["generates"]


@given(
    run=st.lists(parts, min_size=2, max_size=5),
    other=st.lists(parts, min_size=2, max_size=5),
    kind=st.sampled_from([UserError, RuntimeError]),
    around=st.sampled_from(["{}", "'{}'", "no such file: {}", "{}: damaged", "({}), and\nmore"]),
)
def test_no_message_shows_where_anything_lies(
    run: list[str], other: list[str], kind: type[Exception], around: str
) -> None:
    one = AvailableModel("name", Path("/", *run))
    for path in (one.path, one.path / "config.toml", Path("/", *other)):
        told = public_message(kind(around.format(path)), one)
        assert str(path.parent) not in told
        assert "\n" not in told
        assert path.name in told or path == one.path
