"""That training and decoding are measured as they say, at small sizes; no times are asserted."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from benchmark_files import (
    decoding,
    decoding_families,
    decoding_mechanisms,
    hybrids,
    measure,
    peers,
    training,
)

from regard.models.builders import LanguageModel
from regard.models.config import DecoderConfig
from regard.tasks.examples import Example

CPU = torch.device("cpu")
TINY = DecoderConfig(context_length=128, n_layers=1, n_heads=2, d_model=16, dropout=0.0)
QUESTIONS = [Example(text=f"Where was {name} born?") for name in ("Ada", "Otto", "Mina")]

pytestmark = pytest.mark.filterwarnings("ignore")  # what peers warn of when imported isn't ours


@pytest.fixture(autouse=True)
def _each_call_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "repeats_for", lambda *_: 1)


def measured(*, gain: float, share: float, **case: Any) -> Any:
    """A step of ours of one second, beside one peer and the products."""
    times = {
        training.OURS: [1.0],
        peers.HUGGING_FACE.name: [gain],
        peers.X_TRANSFORMERS.name: [gain + 1],
        training.PRODUCTS: [share],
    }
    made = training.Case(**{"precision": "float32", **case})
    return training.Measured(case=made, tokens=10, operations=10, times=times)


# Peers


@torch.no_grad()
def test_hugging_face_computes_the_same_with_our_weights() -> None:
    pytest.importorskip("transformers")
    config = msgspec.structs.replace(TINY, n_layers=2)
    ours = LanguageModel(config, 50)
    peers.scatter(ours)
    theirs = peers.hugging_face(config, 50)
    peers.load_ours(theirs, ours)
    ids = torch.randint(50, (2, 40))
    torch.testing.assert_close(peers.hugging_face_logits(theirs, ids), ours(ids))


def test_scattered_weights_are_nowhere_constant() -> None:
    model = LanguageModel(TINY, 50)
    peers.scatter(model)
    assert all(weight.std() > 0.01 for weight in model.parameters())


@pytest.mark.parametrize("peer", peers.PEERS, ids=lambda peer: peer.name)
def test_peers_have_our_sizes_and_dropout(peer: Any) -> None:
    if not peer.installed:
        pytest.skip(f"needs {peer.package}")
    config = msgspec.structs.replace(TINY, dropout=0.5)
    theirs, ids = peer.make(config, 50), torch.randint(50, (2, 40))
    sizes = [
        sum(weight.numel() for weight in model.parameters() if weight.ndim == 2)
        for model in (theirs, LanguageModel(config, 50))
    ]
    assert sizes[0] == sizes[1]
    assert peer.score(theirs, ids).shape == (2, 40, 50)
    assert not torch.equal(peer.score(theirs, ids), peer.score(theirs, ids))


# Training


def test_only_real_tokens_count() -> None:
    full = training.Case(precision="float32").batch(128, 64)
    padded = training.Case(precision="float32", padded=True).batch(128, 64)
    assert full.n_targets == full.input_ids.numel() == 64 * 128
    lengths = (padded.labels >= 0).sum(1)
    assert padded.n_targets < padded.input_ids.numel()
    assert training.SHORTEST <= lengths.min() < lengths.max() == padded.input_ids.shape[1] <= 128


def test_the_products_are_those_of_every_linear_layer() -> None:
    model, batch = LanguageModel(TINY, 50), training.Case(precision="float32").batch(32, 2)
    _, operations = training.products(model, batch, training.ExecutionEnvironment.choose("cpu"))
    matrices = 16 * (3 * 16 + 16 + 64 + 64 + 50)
    assert operations == 3 * 2 * 64 * matrices


def test_three_products_are_a_layer_and_its_gradients() -> None:
    layer = torch.nn.Linear(3, 5, bias=False)
    products = training.three_products(7, 3, 5, training.ExecutionEnvironment.choose("cpu"))
    (x, _, out), (gradient, weight, x_gradient), (_, _, weight_gradient) = products
    with torch.no_grad():
        layer.weight.copy_(weight)
    x.requires_grad_()
    layer(x).backward(gradient)
    torch.testing.assert_close(layer(x), out)
    torch.testing.assert_close(x.grad, x_gradient)
    torch.testing.assert_close(layer.weight.grad, weight_gradient)


@pytest.mark.parametrize(
    ("gain", "share", "holds"),
    [(1.4, 0.5, True), (1.1, 0.9, True), (1.2, 0.8, False)],
)
def test_the_lower_claim_suffices(gain: float, share: float, holds: bool) -> None:
    (claim,) = training.claims([measured(gain=gain, share=share)]).values()
    assert (claim.peer, claim.gain, claim.share) == (peers.HUGGING_FACE.name, gain, share)
    assert claim.holds is holds


def test_claims_are_about_plain_training_beside_a_peer() -> None:
    alone = measured(gain=1.0, share=1.0)
    for peer in peers.PEERS:
        del alone.times[peer.name]
    others = [
        measured(gain=1.0, share=1.0, **case) for case in ({"dropout": 0.1}, {"padded": True})
    ]
    assert training.claims([alone, *others]) == {}


def test_training_measures_draws_and_writes(tmp_path: Path) -> None:
    found = [training.measured(case, TINY, rows=2, rounds=1, device=CPU) for case in training.CASES]
    wanted = {training.OURS, training.PRODUCTS, *(p.name for p in peers.PEERS if p.installed)}
    assert all(set(m.times) == wanted for m in found)
    assert training.speed_table(found[0]).row_count == len(wanted)
    profiles = {
        case.name: training.profiled(case, TINY, rows=2, device=CPU, repeats=1)
        for case in training.CASES[:2]
    }
    plain, dropped = profiles.values()
    assert plain["matrix products"] > 0 < dropped["dropout, scaling"]
    assert training.profile_table(profiles).row_count == len(training.KINDS) + 2
    arguments = Namespace(device="cpu", rounds=1, batch=2)
    document = training.document(arguments, found, profiles)
    measure.save(tmp_path, "training", document, training.figure(found, profiles))
    written = json.loads((tmp_path / "training.json").read_text(encoding="utf-8"))
    assert len(written["cases"]) == len(training.CASES)
    assert (tmp_path / "training.png").stat().st_size > 0


# Decoding


def test_decoding_measures_and_writes(tmp_path: Path) -> None:
    generations = [decoding.generation(TINY, rows, 1, CPU) for rows in (1, 2)]
    evaluated = decoding.evaluation(TINY, QUESTIONS, 2, 1, CPU)
    assert decoding.generation_table(generations).row_count >= len(generations)
    assert decoding.evaluation_table(evaluated).row_count == 2
    document = decoding.document(Namespace(device="cpu", rounds=1), generations, evaluated)
    measure.save(tmp_path, "decoding", document)
    written = json.loads((tmp_path / "decoding.json").read_text(encoding="utf-8"))
    claimed = 1 + peers.HUGGING_FACE.installed  # two rows have no goal
    assert len(written["claims"]) == len(decoding.claims(generations, evaluated)) == claimed


def test_a_token_reads_all_weights_but_the_tables() -> None:
    model = LanguageModel(TINY, 50)
    tables = 50 * 16 + 128 * 16
    everything = sum(weight.numel() for weight in model.parameters())
    assert decoding.bytes_read(model) == 4 * (everything - tables)


def test_the_loop_is_scaled_to_all_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {decoding.OURS: [1.0], decoding.LOOP: [2.0]}
    monkeypatch.setattr(measure, "interleaved", lambda *_: times)
    evaluated = decoding.evaluation(TINY, QUESTIONS, 2, 1, CPU)
    assert evaluated.times[decoding.LOOP] == [3.0]
    assert evaluated.gain.median == 3.0


def test_answers_never_end_early() -> None:
    run = decoding.untrained(TINY, QUESTIONS, CPU)
    prompt = [*run.tokenizer.encode(QUESTIONS[0].text), decoding.MASK]
    (found,) = decoding.generate_ids(
        run.model, [prompt], max_new_tokens=decoding.CHARACTERS, stop_ids=(decoding.MASK,)
    )
    assert len(found.ids) == decoding.CHARACTERS


@pytest.mark.slow
def test_other_families_measure_and_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    families = decoding_families
    monkeypatch.setattr(families, "SIZE", TINY)
    monkeypatch.setattr(families, "SIZES", families.SIZES | {"d_model": 16})
    recurrent = msgspec.structs.replace(families.RECURRENT, d_model=16)
    monkeypatch.setattr(families, "RECURRENT", recurrent)
    found = [
        families.beams_after(40, 1, CPU),
        families.pair(1, 1, CPU),
        families.pair(2, 1, CPU),
        families.recurrent(1, CPU),
    ]
    assert families.table(found).row_count == sum(len(one.peers) for one in found)
    measure.save(tmp_path, "decoding-families", families.document(found, CPU))
    written = json.loads((tmp_path / "decoding-families.json").read_text())
    assert [one["rows"] for one in written["compared"]] == [one.rows for one in found]


def test_a_token_of_each_mechanism_that_decodes_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanisms = decoding_mechanisms
    monkeypatch.setattr(mechanisms, "SIZE", TINY)
    monkeypatch.setattr(mechanisms, "BEFORE", 8)
    monkeypatch.setattr(mechanisms, "NEW", 2)
    monkeypatch.setattr(mechanisms, "compiled", lambda model: None)
    times = mechanisms.measured(mechanisms.kinds(), 2, CPU)
    in_python = times[mechanisms.PYTHON]
    assert {"softmax", "elu", "rwkv7", "bigbird"} <= in_python.keys()
    assert "linformer" not in in_python, "it doesn't decode"
    assert all(len(taken) == 2 for taken in in_python.values())
    counted = {kind: mechanisms.operations(kind) for kind in in_python}
    assert counted["softmax"] < counted["differential"] < 1.3 * counted["softmax"]
    assert mechanisms.time_table(times, counted).row_count == len(in_python)


def test_goals_are_for_mechanisms_whose_operations_allow_them() -> None:
    mechanisms = decoding_mechanisms
    counted = dict.fromkeys(mechanisms.kinds(), 1.0) | {"rwkv7": 1.4, "differential": 1.4}
    times = {kind: [2.0] for kind in counted} | {"softmax": [1.0]}
    claims = mechanisms.claims({"in Python": times, "compiled": {"softmax": [1.0]}}, counted)
    assert claims["in Python"]["rwkv7"] == claims["in Python"]["latent"] == 2.0
    assert not {"softmax", "differential"} & claims["in Python"].keys()
    assert not claims["compiled"]


def test_a_hybrid_is_compared_with_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrids, "SIZE", msgspec.structs.replace(TINY, n_layers=4))
    monkeypatch.setattr(hybrids, "TOKENS", 16)
    monkeypatch.setattr(hybrids, "BEFORE", 8)
    monkeypatch.setattr(decoding_mechanisms, "BEFORE", 8)
    monkeypatch.setattr(decoding_mechanisms, "NEW", 2)
    monkeypatch.setattr(hybrids, "HYBRIDS", ("elu+softmax",))
    found = hybrids.measured(1, CPU)
    assert found.keys() == {"training step", "decoded token"}
    assert all(times.keys() == {"elu+softmax", "elu", "softmax"} for times in found.values())
    assert hybrids.time_table(found).row_count == 2
    assert hybrids.kinds("elu*3+softmax") == ["elu"] * 3 + ["softmax"]
    assert hybrids.kinds("elu+softmax") == ["elu", "softmax"] * 2
    times = {"elu": [2.0, 4.0], "softmax": [1.0, 2.0]}
    assert hybrids.expected("elu*3+softmax", times) == [1.75, 3.5]
