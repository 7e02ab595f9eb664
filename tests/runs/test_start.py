"""Runs with the weights of another: what is kept, what is drawn, and what is refused."""

import shutil
from pathlib import Path

import pytest
import torch

from killed import require_repeatable
from plans import plan_task
from regard.attention.config import BUILT_IN
from regard.errors import RegardError, UserError
from regard.files import read_table
from regard.models.tensors import saved_tensors
from regard.runs.run import Run, ancestors
from regard.runs.start import ancestry, convert, shown_names
from regard.training.sources.text import TextSource
from tiny_tasks import sharp_run, task_recipe


def parent_run(task: str = "casing", family: str = "decoder", *settings: str) -> Run:
    return sharp_run(task_recipe(task, family, *settings))


@pytest.fixture(scope="module")
def parent() -> Run:
    """A decoder with softmax and rotary positions."""
    return parent_run()


def logits(run: Run) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = run.language_model(torch.arange(12)[None])
    return found


def assert_kept(start: Run, made: Run, *, apart_from: tuple[str, ...] = ()) -> None:
    """All tensors but those are bit for bit the same."""
    ours, theirs = saved_tensors(made.model), start.model.state_dict()
    new = {name for name in ours if name not in theirs or name in apart_from}
    assert set(made.origin.get("new_tensors", ())) == new
    assert all(torch.equal(ours[name], theirs[name]) for name in ours.keys() - new)


@pytest.mark.parametrize("kind", sorted(BUILT_IN.keys() - {"linformer", "synthesizer"}))
def test_any_mechanism_of_decoders_takes_the_weights(kind: str, tmp_path: Path) -> None:
    # Untrained, so that scores are near 0, where random features have no normalizers below 0.
    parent = plan_task(tmp_path, task_recipe("casing", "decoder")).run
    parent.model.eval()
    same = kind == "softmax"
    setting = "model.attention.scaled=false" if same else f"model.attention.kind={kind}"
    version = ["model.attention.version=1"] * (kind == "differential")
    made = convert(parent, tmp_path / "run", [setting, *version])
    assert_kept(parent, made)
    assert logits(made).isfinite().all()
    loaded = Run.load(tmp_path / "run")
    assert torch.equal(logits(loaded), logits(made))
    assert loaded.origin["parent"] == str(parent.path)
    assert loaded.tokenizer.fingerprint == parent.tokenizer.fingerprint


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("synthesizer", "has shape 48×16, and would have 32×16"),  # no keys
        ("differential", r"qkv_proj\.weight has shape .*; leave out the setting"),  # two queries
    ],
)
def test_other_numbers_of_queries_or_keys_do_not_fit(kind: str, says: str, tmp_path: Path) -> None:
    parent = plan_task(tmp_path, task_recipe("casing", "decoder")).run
    with pytest.raises(UserError, match=says):
        convert(parent, tmp_path / "run", [f"model.attention.kind={kind}"])
    assert not (tmp_path / "run").exists()


KIND, CROSS = "model.attention.kind", "model.decoder.cross_attention.kind"
OWN, DRAWS = "body.layers.*.self_attention", "attention.features.directions"
GATES = f"{OWN}.gating.proj.weight"
STEPS = (f"{OWN}.gating.steps.log_a", f"{OWN}.gating.steps.bias")
CHANGES: dict[str, tuple[str, list[str], list[str], tuple[str, ...]]] = {
    "draws from another distribution": (
        *("decoder", [f"{KIND}=fourier"], [f"{KIND}=favor-positive"]),
        (f"{OWN}.{DRAWS}",),
    ),
    "draws beside other positions": (
        *("decoder", [f"{KIND}=fourier"], ["model.positions.kind=none"]),
        (),
    ),
    "draws of another cross-attention": (
        *("encoder-decoder", [f"{CROSS}=fourier"], [f"{CROSS}=favor-positive"]),
        (f"body.decoder.layers.*.cross_attention.{DRAWS}",),
    ),
    "draws of the encoder alone": (
        "encoder-decoder",
        [f"model.{side}.attention.kind=favor-positive" for side in ("encoder", "decoder")],
        ["model.encoder.attention.kind=fourier"],
        (f"body.encoder.layers.*.self_attention.{DRAWS}",),
    ),
    "no gates of self-attention beside another cross-attention": (
        *("encoder-decoder", ["model.decoder.attention.kind=gated-softmax"], [f"{CROSS}=softmax"]),
        (),
    ),
    "no gates of cross-attention beside another self-attention": (
        "encoder-decoder",
        [f"{CROSS}=gated-softmax"],
        ["model.decoder.attention.kind=sliding-window"],
        (),
    ),
    "a gate of outputs": (
        *("decoder", [f"{KIND}=forgetting"], [f"{KIND}=gated-softmax"]),
        (GATES,),
    ),
    "gates of a recurrence": (
        *("decoder", [f"{KIND}=forgetting"], [f"{KIND}=gated-deltanet"]),
        (*STEPS, GATES, f"{OWN}.gating.out_norm.weight"),
    ),
    "a convolution with a residual connection": (
        *("decoder", ["model.short_conv=4"], ["model.short_conv=0", "model.canon=AB"]),
        (f"{OWN}.short_conv.weight", "body.layers.*.canon_a.weight"),
    ),
    "a convolution less": (*("decoder", ["model.canon=AB"], ["model.canon=B"]), ()),
    "tables of other n-grams of equal shape": (
        "decoder",
        ["model.ngrams.longest=3", "model.ngrams.slots=8"],
        ["model.ngrams.longest=2", "model.ngrams.slots=16"],
        ("body.ngrams.tables.weight",),
    ),
}
"""Families, settings before and after, and the new tensors; many have the names of those before."""


@pytest.mark.parametrize("change", CHANGES)
def test_tensors_of_another_meaning_are_new(change: str, tmp_path: Path) -> None:
    family, before, after, new = CHANGES[change]
    parent = parent_run("casing", family, *before)
    made = convert(parent, tmp_path / "run", after)
    assert shown_names(made.origin.get("new_tensors", ())) == ", ".join(new)
    assert_kept(parent, made, apart_from=tuple(made.origin.get("new_tensors", ())))
    assert made.n_hashed_parameters == parent.n_hashed_parameters
    assert bool(made.n_hashed_parameters) == ("n-grams" in change)


def test_one_layer_gets_another_mechanism(tmp_path: Path) -> None:
    parent = parent_run("casing", "decoder", "model.n_layers=3")
    setting = "model.layers.1.attention.kind=gated-deltanet"
    made = convert(parent, tmp_path / "run", [setting])
    assert_kept(parent, made)
    new = {name.split(".self_attention")[0] for name in made.origin["new_tensors"]}
    assert new == {"body.layers.1"}
    again = convert(made, tmp_path / "again", ["model.layers.1.attention.kind=softmax"])
    assert torch.equal(logits(again), logits(parent))


KINDS = ["learned", "sinusoidal", "relative-bias", "shaw-vectors", "t5-bias", "alibi", "none"]


@pytest.mark.parametrize("kind", KINDS)
def test_any_positions_take_the_weights_and_back(parent: Run, kind: str, tmp_path: Path) -> None:
    made = convert(parent, tmp_path / "there", [f"model.positions.kind={kind}"])
    assert_kept(parent, made)
    back = convert(made, tmp_path / "back", ["model.positions.kind=rotary"])
    assert torch.equal(logits(back), logits(parent))
    dropped = set(saved_tensors(made.model)) - set(saved_tensors(parent.model))
    assert set(back.origin.get("dropped_tensors", ())) == dropped


def test_draws_depend_on_the_seed(parent: Run, tmp_path: Path) -> None:
    def drawn(name: str, *settings: str) -> torch.Tensor:
        made = convert(parent, tmp_path / name, ["model.positions.kind=shaw-vectors", *settings])
        return saved_tensors(made.model)["body.bias.keys"]

    assert torch.equal(drawn("one"), drawn("again"))
    assert not torch.equal(drawn("two"), drawn("other", "seed=1"))


def test_zero_centered_norms_keep_their_factors(tmp_path: Path) -> None:
    settings = ("model.norm_type=rms-norm", "model.qk_norm=true")
    parent = parent_run("casing", "decoder", *settings)
    made = convert(parent, tmp_path / "run", ["model.norm_type=zero-centered-rms-norm"])
    torch.testing.assert_close(logits(made), logits(parent), atol=1e-4, rtol=1e-4)
    back = convert(made, tmp_path / "back", ["model.norm_type=rms-norm"])
    torch.testing.assert_close(logits(back), logits(parent), atol=1e-4, rtol=1e-4)


def test_more_training_holds_out_the_same_data() -> None:
    start = parent_run("casing", "decoder", "seed=3")
    assert TextSource("letters.txt").choose_recipe(None, [], start).seed == 3
    assert TextSource("letters.txt").choose_recipe(None, ["seed=4"], start).seed == 4


def test_a_head_is_untied_as_it_was(tmp_path: Path) -> None:
    parent = parent_run("casing", "decoder", "model.tie_head=true")
    made = convert(parent, tmp_path / "run", ["model.tie_head=false"])
    assert torch.equal(logits(made), logits(parent))
    tied = convert(made, tmp_path / "tied", ["model.tie_head=true"])
    assert tied.origin["dropped_tensors"] == ["head.weight"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["model.d_model=32"], "has shape .* would have"),
        (["model.d_ff=8"], r"layers\.0\.feed_forward.* has shape 64×16, and would have 8×16"),
        (["tokenizer.kind=words"], r"leave tokenizer\.\* out"),
        (["training.steps=9"], r"leave training\.\* out"),
        ([], "nothing is changed"),
        (["seed=3"], "nothing is changed"),
        (["model.attention.kind=linformer"], "linformer attention does not support causal masks"),
        (["model.attention.kind=nothing"], "nothing"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    parent: Run, settings: list[str], says: str, tmp_path: Path
) -> None:
    with pytest.raises(RegardError, match=says) as refusal:
        convert(parent, tmp_path / "run", settings)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_nothing_is_overwritten(parent: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exists"):
        convert(parent, str(tmp_path), ["model.attention.kind=elu"])


def test_a_killed_conversion_is_repeated(
    parent: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(out: Path) -> Run:
        return convert(parent, out, ["model.attention.kind=elu"])

    require_repeatable(write, "config.toml", tmp_path, monkeypatch)


def test_ancestors_are_found_from_any_folder(
    parent: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(parent, tmp_path / "first", ["model.attention.kind=elu"])
    monkeypatch.chdir(tmp_path)
    second = convert(Run.load(Path("first")), Path("second"), ["model.attention.kind=polynomial"])
    assert second.origin["ancestors"][0]["run"] == str(tmp_path / "first")


def test_ancestors_of_a_moved_project_are_found(parent: Run, tmp_path: Path) -> None:
    first = convert(parent, tmp_path / "old/first", ["model.attention.kind=elu"])
    convert(first, tmp_path / "old/runs/second", ["model.attention.kind=polynomial"])
    (tmp_path / "old").rename(tmp_path / "new")
    second = Run.load(tmp_path / "new/runs/second")
    assert ancestors(second.path, second.origin)[0]["run"] == str(tmp_path / "new/first")
    assert str(tmp_path / "new/first") in ancestry(second.path, second.origin)[1]
    third = convert(second, tmp_path / "third", ["model.attention.kind=elu"])
    places = [str(second.path), str(tmp_path / "new/first"), str(parent.path.absolute())]
    assert [one["run"] for one in third.origin["ancestors"]] == places
    shutil.rmtree(tmp_path / "new/first")
    assert ancestors(second.path, second.origin)[0]["run"] == str(tmp_path / "old/first"), (
        "as it was"
    )


def test_a_run_keeps_the_chain_of_its_ancestors(parent: Run, tmp_path: Path) -> None:
    first = convert(parent, tmp_path / "first", ["model.attention.kind=elu"])
    second = convert(first, tmp_path / "second", ["model.attention.kind=softmax"])
    origin = second.origin
    assert (origin["stage"], origin["parent"]) == ("conversion", str(first.path))
    assert origin["fingerprint"] == parent.origin["fingerprint"]  # of the data
    assert origin["parent_weights"] != first.origin["parent_weights"]
    assert torch.equal(logits(second), logits(parent))
    ancestors = origin["ancestors"]
    assert [one["run"] for one in ancestors] == [str(first.path), str(parent.path.absolute())]
    assert [one["stage"] for one in ancestors] == ["conversion", parent.origin["stage"]]
    assert ancestors[0]["parent_weights"] == first.origin["parent_weights"]
    assert read_table(second.path / "origin.json") == origin
    runs = (second, first, parent)
    lines = ancestry(second.path, origin)
    starts = [line.index(str(run.path.absolute())) for line, run in zip(lines, runs, strict=True)]
    assert starts == [0, 3, 6]
    assert ancestry(parent.path, parent.origin)[1:] == []
