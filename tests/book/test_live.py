"""The live model of the book: what the page computes is what the library computes."""

import json
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest
import torch

from regard.book.live import live_data, live_run, page_model
from regard.files import pack_tensors
from regard.models.config import DecoderConfig
from tiny_models import tiny_model

SENTENCES = ("The query reads the keys.", "Where was Ada born?", "naïve 北 <sep>", "e")
READ = """
const { model, texts } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const loaded = loadModel(model);
console.log(JSON.stringify(texts.map((text) => {
  const ids = encode(loaded, text), { layers, logits } = forward(loaded, ids);
  return { ids, logits, weights: layers.map((heads) => heads.map((head) => head.weights)) };
})));
"""


def computed(model: dict[str, Any], texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """Ids, logits and attention weights of texts by the page's script, in Node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js on this machine")
    script = (files("regard.book") / "static" / "live_model.js").read_text("utf-8") + READ
    done = subprocess.run(
        [node, "--eval", script],
        input=json.dumps({"model": model, "texts": texts}),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_the_page_computes_the_logits_of_the_library() -> None:
    run = live_run()
    for text, found in zip(SENTENCES, computed(live_data(), SENTENCES), strict=True):
        assert found["ids"] == run.tokenizer.encode(text)
        with torch.no_grad():
            logits = run.language_model(torch.tensor([found["ids"]]))[0]
        torch.testing.assert_close(torch.tensor(found["logits"]), logits, rtol=0, atol=1e-3)


def test_the_page_computes_a_model_in_which_every_part_matters() -> None:
    """Weights of a trained model are small; with these, an error in any part is large."""
    sizes: dict[str, Any] = {"activation": "gelu-tanh", "tie_head": True, "norm_eps": 0.1}
    model = tiny_model(dtype=torch.float32, vocabulary=11, **sizes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    weights = pack_tensors({name: p.half() for name, p in model.named_parameters()})
    config = DecoderConfig(
        context_length=16, n_layers=2, n_heads=4, d_model=16, dropout=0.0, **sizes
    )
    vocabulary = {letter: i for i, letter in enumerate("abcdefghijk")}
    (found,) = computed(page_model(config, vocabulary, weights), ("badcafe",))
    ids = torch.tensor([found["ids"]])
    with torch.no_grad():
        logits = model(ids)[0].double()
    torch.testing.assert_close(torch.tensor(found["logits"]).double(), logits, rtol=0, atol=1e-4)
    first = torch.tensor(found["weights"][0])
    assert first.shape == (4, 7, 7)
    assert torch.equal(first, first.tril())
    torch.testing.assert_close(first.sum(-1), torch.ones(4, 7))


@pytest.mark.parametrize("change", [{"activation": "relu"}, {"gated": True}, {"tie_head": False}])
def test_a_model_that_the_page_does_not_compute_is_refused(change: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"activation": "gelu-tanh", "tie_head": True}
    config = DecoderConfig(**usual | change)
    with pytest.raises(ValueError, match="a decoder with gelu-tanh and a tied head alone"):
        page_model(config, {}, b"")


def test_the_model_is_small() -> None:
    assert sum(p.numel() for p in live_run().model.parameters()) <= 1_000_000
    assert len(live_data()["weights"]) <= 2_700_000
