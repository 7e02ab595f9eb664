"""Runs of studies: verdicts, known values, and parameters that are refused."""

from pathlib import Path

import pytest

from regard.errors import UserError
from regard.studies.finding import Finding, Verdict
from regard.studies.registry import find_study
from regard.studies.structure.raw_text import TEXT
from tiny_studies import broken, measured

HOLDING = (
    "approximations n=512",
    "causal-sums features=favor-positive d=32 n=50 doublings=1",
    "concepts tokens=2 length=2 seed=4",
    "copying m=6 n=4",
    "fourier-features widths=[8,32] waves=[32,128] draws=20",
    "free-labels masking=0.4 seed=7",
    "gaussian-identity d=1 n=2 spread=4",
    "heads-as-filters taps=4 width=2 n=30 seed=13",
    "masking hidden=1 row=3",
    "noisy-keys-two-heads t=10000 n=4 alpha=1e-12 seed=17",
    "order-of-products length=2 m=1 d=1",
    "products h=[[5.1,1.3],[4.2,3.3],[-2.1,6.7]]",
    "random-heads h_beyond=128 n_beyond=8",
    "receptive-field heads=1 layers=1 inputs=2 seed=1",
    "relative-bias length=3 heads=1 clip=100 d=2",
    "span-corruption n=16 draws=200 seed=3",
    "vanishing-and-exploding radii=[0.0,0.001] stretches=[0.001] steps=300",
)
"""Runs with other parameters that support the claim."""

FAILING = {
    "adding d=16": "cross terms / x·x of a word with itself",
    "adding sigma=0.1": "cross terms / x·x of a word with itself",
    "approximations n=512 spread=2.0": "error of Performer, 512 / 64 features",
    "averaging t=1": "weight of all others",
    "averaging n=2048": "weight of all others",
    "backpropagation-through-time activation=tanh": "∂J_t/∂h_i: formula and autograd",
    "backpropagation-through-time y=[[1,0],[0,1],[0.6,0.7]]": "∂J_t/∂o_t: formula and autograd",
    "block-graph random=0": "longest path, with random blocks",
    "block-graph global_blocks=0": "longest path, with a global block",
    "causal-sums chunk=4096 d=4 n=50 doublings=1": "exponent of N, operations in chunks",
    "complexity h=16 start=0.125": "exponent of the count from n = 2 to 16",
    "concepts std=0": "2: difference of outputs, other weights",
    "copying m=1": "largest ‖c − v_j‖ relative to the farthest value, random keys",
    "copying m=6": "weight of all others, other scores equal",
    "copying n=1024": "weight of all others, other scores equal",
    "designing beta=1": "‖c₂ − u_b‖/β, with matrices",
    "designing x=[[1],[-1]] targets=[[1],[1]]": "custom targets: largest error",
    "equal-heads std=0 steps=10": "distance of two heads, independent weights",
    "fourier-features variance=σ² draws=20 waves=[16,64]": "mean of the features where K = 1/e",
    "fourier-features spread=0.25 draws=20 waves=[64,256]": (
        "output, D = 64, 256 waves, compared with zero"
    ),
    "furthest n=64 random=8": "share found by BigBird in one layer",
    "gaussian-identity width=1.01": "largest difference of the logarithms of both sides",
    "heads-as-filters width=1": "k − 1 heads: least relative error, by the truncated SVD",
    "heads-as-filters taps=9 width=2": "k − 1 heads: least relative error, by the truncated SVD",
    "masked-autoencoder positions=rotary": "gap between masks, positions dropped too",
    "masking size=1000": "largest difference between −∞ and renormalization",
    "noisy-keys-one-head t=1.5": "mean weight outside ½(v_a + v_b), equal noise",
    "noisy-keys-one-head t=400": "mean weight outside ½(v_a + v_b), equal noise",
    "noisy-keys-one-head alpha=0.01": "mean weight outside ½(v_a + v_b), equal noise",
    "noisy-keys-one-head stretch=0.001": "share of draws with s below 0.1 or above 0.9",
    "noisy-keys-two-heads t=2.5": "mean weight outside ½(v_a + v_b), equal noise",
    "noisy-keys-two-heads n=48 draws=1000": "share of draws with less than a quarter",
    "noisy-keys-two-heads alpha=0.1": "share of draws with α_a > ½",
    "noisy-keys-two-heads stretch=4.0": "share of draws with less than a quarter",
    "order-of-products length=16": ("operations, keys and values first / queries and keys first"),
    "permutation n=33 positions=one-hot": "largest change of a state, with one-hot positions",
    "permutation positions=learned": "largest change of a state, with learned positions",
    "products h=[[1,0],[0,1]] w_q=[[0,0],[0.1,0]] i=1": "largest weight by softmax",
    "projection n=32 rows=5 steps=1": "error of Q(CK)ᵀDV",
    "projection n=32 reach=0 steps=100": "error of trained Linformer / mean of all values",
    "projection n=32 steps=5": "error of trained / random Linformer",
    "random-heads h=8": "required diagonal weight of a near identity: h = 8, n = 20",
    "random-heads n=300": "required diagonal weight of a near identity: h = 64, n = 300",
    "receptive-field inputs=80": "inputs of a node, planted pointers",
    "receptive-field attention=softmax": "most inputs of a node, random pointers",
    "relative-bias scaled=true": "difference between a bias and concatenation, outputs",
    "scale correlation=0.5 draws=2000": "mean of q·k",
    "scale sigma=2.0 draws=2000": "entropy, scaled, h = 1024",
    "scale sigma=0.1 draws=2000": "entropy / ln n, unscaled, h = 1024",
    "shifting encoding=random": "largest entry of p(t + s) − Mˢ p(t)",
    "trained-embeddings d=8 steps=10": "loss after / before training",
    "vanishing-and-exploding radii=[0.9] steps=20": "‖∂h_T/∂h₀‖, T = 20",
    "vanishing-and-exploding radii=[0.99] steps=100": "‖∂h_T/∂h₀‖, T = 100",
    "wrong-options std=0": "9: smallest influence of an earlier token",
}
"""Runs with a broken premise, and the beginning of a measurement that shows it."""
ALONE = ("causal-sums", "fourier-features spread", "heads-as-filters")
"""Of them, those in which nothing else is out of bounds."""

MEASURED: dict[str, dict[str, object]] = {
    "adding d=64": {"cross terms / x₁·x₂ of two different words": pytest.approx(1, abs=0.09)},
    "block-graph n=100 side=2": {
        "longest path, window": 50,
        "longest path, with a global block": 2,
    },
    "complexity h=16 start=2": {
        "attention / projections at n = 24": 1,
        "encoder: 2M²h": 2 * 256**2 * 16,
        "cross-attention: 2MNh": 2 * 256 * 192 * 16,
    },
    "designing": {
        "distance of the nearest average from u_b, relative to β": pytest.approx(0.4**0.5),
        "distance of the nearest average from u_b, relative to β, u_d added to x₂": (
            pytest.approx(0.5**0.5)
        ),
    },
    "free-labels": {
        "next-token labels": len(TEXT) - 1,
        "masked-token labels per draw": round(0.15 * len(TEXT)),
    },
    "masking": {"weight of the masked token, score −∞": 0},
    "products": {
        "score of state 1": 1054,
        "score of state 2": 852,
        "score of state 3": -396,
        "output, entry 1, by argmax": 23,
        "output, entry 2, by argmax": 46,
    },
    "projection steps=1": {
        "rank of P": 6,
        "multiplications of Q(CK)ᵀDV": 4 * 64 * 6 * 16,
        "multiplications of Q(KᵀV)": 2 * 64 * 16 * 16,
        "multiplications of (QKᵀ)V": 2 * 64 * 64 * 16,
    },
    "relative-bias": {
        "parameters, (2(T − 1) + 1)m": 31 * 4,
        "parameters, clipped, (2k + 1)m": 9 * 4,
        "parameters of Shaw's vectors, 2(2k + 1)d": 2 * 9 * 8,
    },
    "shifting d=128": {
        "shortest wavelength / 2π, k from 1": pytest.approx(10_000 ** (1 / 64)),
        "longest wavelength / (10000·2π), k from 0": pytest.approx(10_000 ** (-1 / 64)),
    },
}
"""Runs, and values known in closed form."""

REFUSED = {
    "backpropagation-through-time w_hh=[[1]]": "w_hh: is 1×1, .*; make it 4×4",
    "backpropagation-through-time w_yh=[[1,2]]": "make it 1×4",
    "backpropagation-through-time x=[[1,2],[1]]": "rows of 2, 1 numbers",
    "backpropagation-through-time x=[[1,2]]": "make it 1×3",
    "backpropagation-through-time y=[[1],[0],[0]]": "make it 3×2",
    "backpropagation-through-time y=[[1,0]]": "y: is 1×2, .*; make it 3×2",
    "backpropagation-through-time x=[[9,9,9]]": "<= 2",
    "capacity exposures=100": "exposures",
    "designing targets=[[1]]": "1 for 3 inputs",
    "designing targets=[[],[],[]]": "all are empty",
    "designing x=[[1,2],[3],[4]]": "x: rows of 2, 1, 1",
    "designing targets=[[1],[1,2],[]]": "targets: rows of 1, 2",
    "designing x=[[],[],[]]": "x: rows of 0, 0, 0",
    "designing x=[[1],[2],[nan]]": "not all numbers are finite",
    "designing x=[[1],[1]] targets=[[1],[2]]": "inputs 1 and 2 are equal",
    "designing x=[[1],[2]] targets=[[1,0],[0,1]]": "span 2 dimensions",
    "fourier-features widths=[8,8]": r"fourier-features: widths: \[8, 8\] doesn't increase",
    "masked-autoencoder masking=0.01": r"masking = 0\.01 of 11 words hides 1",
    "masking row=5": "there are 4 texts",
    "masking hidden=9": "the longest source has 8",
    "masking sources=[1,1,1,1]": "use at least two in one of them",
    "masking targets=[3]": "1 for 4 sources",
    "masking sources=[0,1,2,3]": "sources.* >= 1",
    "products i=4": "there are 3 states",
    "products w_q=[[1],[2]]": "w_q: is 2×1, .*; make it 2×2",
    "products h=[[1,2],[3]]": "h: rows of 2, 1 numbers",
    "products w_k=[[1,1]]": "w_k: is 1×2, .*; make it 2×2",
    "projection n=16 rank=17": "has at most rank 16",
    "projection n=16 rows=20": "rows = 20 of n = 16",
}
"""Runs with parameters that don't fit together, and what the error says."""

HARDLY_TRAINED = (
    "counterfactual people=80 steps=1",
    "fixed-windows cell=vanilla steps=2 width=8",
    "probing width=16 longest=8 steps=1",
    "reversal steps=1",
    "roles-of-sequences width=16 longest=8 steps=1",
    "two-heads k=4 steps=1",
)
HARDLY_TRAINED_SLOW = (
    "architectures steps=1 width=16",
    "augmentation people=80 steps=1",
    "bias people=120 steps=1",
    "bias correlation=0 steps=1",
    "bottleneck width=16 longest=8 steps=1",
    "different-widths steps=1 width=16",
    "encoder-gradient width=16 longest=8",
    "encodings longest=9 width=64 steps=2 cell=lstm",
    "linear-probe steps=2",
    "performer steps=5 length=4",
    "pretraining people=80 steps=2",
    "recalled people=80 steps=2",
    "several-summaries steps=1 width=16 articles=10",
    "structures steps=2",
    "three-sentences steps=2",
    "truncation steps=2 kept=5",
    "untrained std=0.3 steps=2",
    "untrained steps=2",
    "word-order training=20",
    "word-order positions=rotary steps=1",
)
"""Runs whose models have learned nothing, or too little for the claim."""

TRAINED = {
    "architectures": Verdict.CONDITIONAL,
    "bias": Verdict.HOLDS,
    "bias correlation=0": Verdict.FAILS,
    "bottleneck": Verdict.HOLDS,
    "different-widths": Verdict.HOLDS,
    "encodings": Verdict.HOLDS,
    "fallback": Verdict.HOLDS,
    "fallback correlation=0": Verdict.FAILS,
    "fixed-windows": Verdict.HOLDS,
    "linear-probe": Verdict.HOLDS,
    "one-way-or-both": Verdict.HOLDS,
    "one-way-or-both ahead=0": Verdict.FAILS,
    "performer": Verdict.CONDITIONAL,
    "pretraining": Verdict.HOLDS,
    "pretraining correlation=1": Verdict.FAILS,
    "probing": Verdict.HOLDS,
    "roles-of-sequences": Verdict.HOLDS,
    "several-summaries": Verdict.HOLDS,
    "three-sentences": Verdict.HOLDS,
    "truncation": Verdict.HOLDS,
    "two-heads": Verdict.CONDITIONAL,
    "untrained": Verdict.HOLDS,
    "word-order positions=rotary": Verdict.HOLDS,
}
"""Runs that train models for minutes, and their verdicts."""
SHORT = ("fallback", "one-way-or-both", "truncation", "two-heads", "word-order")
"""Studies whose models are trained in less than a minute."""


def run(line: str) -> Finding:
    """Run a study with parameters, as after `regard study run`."""
    name, *assignments = line.split()
    return find_study(name).with_texts(assignments)


@pytest.mark.parametrize("line", HOLDING)
def test_a_claim_holds_with_other_parameters(line: str) -> None:
    found = run(line)
    assert found.verdict is Verdict.HOLDS, broken(found.numbers + found.outside_condition)


@pytest.mark.parametrize("line", FAILING)
def test_a_broken_premise_is_measured(line: str) -> None:
    found = run(line)
    assert found.verdict is Verdict.FAILS
    wrong = broken(found.numbers)
    if line.startswith(ALONE):
        assert wrong == [FAILING[line]]
    assert any(name.startswith(FAILING[line]) for name in wrong)


@pytest.mark.parametrize("line", MEASURED)
def test_known_values_are_measured(line: str) -> None:
    found = measured(run(line))
    assert {name: found[name] for name in MEASURED[line]} == MEASURED[line]


@pytest.mark.parametrize("line", REFUSED)
def test_parameters_that_do_not_fit_are_refused_in_one_line(line: str) -> None:
    with pytest.raises(UserError, match=REFUSED[line]) as error:
        run(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "line",
    [
        *HARDLY_TRAINED,
        *(pytest.param(line, marks=pytest.mark.slow) for line in HARDLY_TRAINED_SLOW),
    ],
)
def test_a_model_that_is_hardly_trained_supports_no_claim(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    assert run(line).verdict is Verdict.FAILS


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(
            line, marks=pytest.mark.slow if line.split()[0] in SHORT else pytest.mark.findings
        )
        for line in TRAINED
    ],
)
def test_a_trained_model_gives_the_verdict(
    line: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Studies that share models find those that another run has trained."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path_factory.getbasetemp() / "trained"))
    assert run(line).verdict is TRAINED[line]
