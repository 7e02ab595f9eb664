"""That one GPU is measured as the benchmark says, every part on a CPU; no times are asserted."""

import json
from pathlib import Path

import pytest
import torch
from benchmark_files import gpu, measure

CPU = torch.device("cpu")

pytestmark = pytest.mark.filterwarnings("ignore")  # what torch's compiler warns of isn't ours


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["gpu.py", *arguments])
    monkeypatch.setattr(measure, "warn_of_company", lambda: None)
    monkeypatch.setattr(measure, "repeats_for", lambda *_: 1)
    threads = torch.get_num_threads()
    code: int = gpu.main()
    torch.set_num_threads(threads)
    return code


@pytest.mark.slow
def test_every_part_runs_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--device", "cpu", "--tiny", "--rounds", "1", "--threads", "1"]
    assert call(monkeypatch, *options, "--out", str(tmp_path)) == 0
    written = json.loads((tmp_path / "gpu-tiny.json").read_text(encoding="utf-8"))
    assert written["failed"] == written["claims"] == {}
    assert set(written["course"]["seconds"]) == {"plain", "with --compile"}
    (gpt,) = written["gpt"]
    assert gpt["tokens"] == 2 * 32
    assert gpt["mfu"] is None
    assert gpt["of_products"] > 0
    assert {"softmax full", "softmax causal"} <= {row["name"] for row in written["attention"]}
    assert {row["pass"] for row in written["recurrences"]} == {"forward", "with backward"}
    assert {row["name"] for row in written["decoding"]} == {"plain", "compiled step"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "gpu.py: needs an NVIDIA GPU; --device cpu --tiny runs its parts\n"),
        (["--device", "cpu"], "gpu.py: --device cpu takes days; add --tiny\n"),
    ],
)
def test_where_nothing_can_be_measured_a_line_says_so(
    options: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(monkeypatch, *options, "--out", str(tmp_path)) == 2
    assert capsys.readouterr() == ("", line)
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("no memory\nand more")

    monkeypatch.setattr(gpu, "PARTS", {"bad": fail, "good": lambda _: [{"figure": 1.5}]})
    *_, (found, failed) = gpu.run(None, ["bad", "good"])
    assert found == {"good": [{"figure": 1.5}]}
    assert failed == {"bad": "RuntimeError: no memory"}


def test_claims_are_about_what_was_measured() -> None:
    assert gpu.claims({}) == gpu.claims({"gpt": [{"mfu": None}]}) == {}
    row = {"name": "softmax full", "forward": 0.9, "backward": 0.6}
    parts = {
        "course": {"seconds": {"plain": 61.0, "with --compile": 59.0}},
        "gpt": [{"mfu": 0.4}, {"mfu": 0.5}],
        "attention": [row, row | {"name": "SDPA full, flash", "backward": 0.8}],
    }
    holds = {name: claim["holds"] for name, claim in gpu.claims(parts).items()}
    assert holds == {
        "course: seconds": True,
        "gpt: MFU": True,
        "attention: forward, of products": True,
        "attention: backward, of products": False,
    }


def test_the_gpt_has_124_million_weights() -> None:
    sizes = gpu.Sizes()
    with torch.device("meta"):
        model = gpu.LanguageModel(sizes.gpt, sizes.vocabulary)
    assert round(sum(weight.numel() for weight in model.parameters()) / 1e6) == 124


def test_ways_to_decode_give_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.decoding, "NEW", 8)
    with torch.compiler.set_stance("force_eager"):
        plain, compiled = gpu.decoders(gpu.TINY.decoder, 2, CPU).values()
        tokens = plain()
        assert tokens.shape == (2, 8)
        assert torch.equal(compiled(), tokens)
