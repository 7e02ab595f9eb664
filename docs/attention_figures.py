"""Draw the figures of docs/attention.md: the matrices that mechanisms apply, and how far random
features are off. Seeded; `make figures`. Those of speed are drawn by benchmarks/."""

from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from regard.attention import (
    RWKV7,
    Argmax,
    Attention,
    BigBird,
    DeltaNet,
    GatedDeltaNet,
    GatedDeltaNet2,
    GatedLinear,
    KernelAttention,
    KimiDelta,
    Linformer,
    Mamba2,
    Mask,
    SlidingWindow,
    Softmax,
    truncate,
)
from regard.attention.feature_maps import (
    Elu,
    FavorHyperbolic,
    FavorPositive,
    FavorTrigonometric,
    Fourier,
    Polynomial,
    RandomFeatures,
)

FIGURES = Path(__file__).parent / "figures"
N, D = 64, 16


def main() -> None:
    """Write attention-matrices.png and random-features.png."""
    with plt.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        draw_matrices().savefig(FIGURES / "attention-matrices.png", dpi=110)
        draw_errors().savefig(FIGURES / "random-features.png", dpi=110)


def draw_matrices() -> plt.Figure:
    """What each mechanism applies to the values, for the same queries and keys."""
    x = smooth_walk()
    drawn = matrices(x) | recurrences(x)
    figure, axes = plt.subplots(4, 5, figsize=(11, 9.6), layout="constrained")
    for ax in axes.flat[len(drawn) :]:
        ax.axis("off")
    for ax, (name, matrix) in zip(axes.flat, drawn.items(), strict=False):
        shown = matrix[0, 0].detach().numpy()
        limit = np.quantile(np.abs(shown), 0.995)
        ax.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit)
        ax.set(title=name, xticks=[], yticks=[])
    axes[0, 0].set(ylabel="queries")
    axes[0, 0].set(xlabel="keys")
    figure.suptitle("red: positive weight · blue: negative · white: none · each to its own scale")
    return figure


def matrices(x: Tensor) -> dict[str, Tensor]:
    """Each mechanism's matrix."""
    exact = Softmax().weights(x, x)
    causal = Mask.causal()
    torch.manual_seed(0)

    def of(attend: Attention, mask: Mask | None = None) -> Tensor:
        return attend.weights(x, x, mask=mask)

    return {
        "softmax": exact,
        "softmax, causal": of(Softmax(), causal),
        "argmax": of(Argmax()),
        "truncate, rank 8": truncate(exact, 8).matrix,
        "Linformer, k = 16": of(Linformer(length=N, k=16)),
        "BigBird": of(BigBird(block_size=4, window=3, random=1, global_blocks=1, max_keys=N)),
        "sliding window": of(SlidingWindow(size=6, block_size=4)),
        "elu + 1": of(KernelAttention(Elu())),
        "(q·k)²": of(KernelAttention(Polynomial(d=D))),
        "Fourier, 256": of(KernelAttention(Fourier(d=D, features=256))),
        "FAVOR+, 256": of(KernelAttention(FavorPositive(d=D, features=256))),
        "FAVOR+, 256, causal": of(KernelAttention(FavorPositive(d=D, features=256)), causal),
    }


def recurrences(x: Tensor) -> dict[str, Tensor]:
    """The implied matrices of gated recurrences, for keys of length 1 and the same gates."""
    key = x / x.norm(dim=-1, keepdim=True)
    ones = torch.ones(1, 1, N)
    channels = torch.linspace(0.01, 0.2, D).expand(1, 1, N, D)
    values = {
        ("log_decay", "head"): -0.1 * ones,
        ("log_decay", "key"): -channels,
        ("beta", "head"): 0.5 * ones,
        ("erase", "key"): 0.5 * torch.ones(1, 1, N, D),
        ("write", "value"): 0.5 * torch.ones(1, 1, N, D),
        ("removal_key", "key"): key,
    }
    found = {}
    for mechanism in (
        GatedLinear,
        Mamba2,
        DeltaNet,
        GatedDeltaNet,
        KimiDelta,
        GatedDeltaNet2,
        RWKV7,
    ):
        attend = mechanism()
        gates = {gate.name: values[gate.name, gate.per] for gate in attend.gates}
        found[attend.name] = attend.weights(x, key, mask=Mask.causal(), gates=gates)
    return found


def smooth_walk() -> Tensor:
    """Queries and keys at once: a walk that comes back to where it was."""
    random = np.random.default_rng(3)
    steps = random.standard_normal((N, D)).cumsum(0)
    steps += random.standard_normal(D) - np.linspace(0, 1, N)[:, None] * steps[-1]
    scaled = 1.6 * steps / np.sqrt((steps**2).mean())
    return torch.from_numpy(scaled.astype(np.float32))[None, None]


def draw_errors() -> plt.Figure:
    """The kernel at fixed norms, and attention of ordinary heads, against the features."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    draws = (16, 32, 64, 128, 256, 512, 1024)
    maps = {
        "trigonometric": FavorTrigonometric,
        "positive": FavorPositive,
        "hyperbolic": FavorHyperbolic,
    }
    for (name, make), color in zip(maps.items(), ("#3d85c6", "#e07b39", "#45a567"), strict=True):
        for orthogonal, style in ((False, ":"), (True, "-")):
            errors = [kernel_error(make, m, orthogonal) for m in draws]
            label = f"{name}, {'orthogonal' if orthogonal else 'independent'}"
            left.loglog(draws, errors, style, color=color, label=label)
    left.loglog(draws, 0.9 * np.power(draws, -0.5), color="#888888", lw=0.8, label="m^(−½)")
    left.set(xlabel="directions m", ylabel="median |K̂ − K| / K")
    left.set_title("the softmax kernel, ‖q‖ = ‖k‖ = d^¼, d = 16")
    left.legend(frameon=False, fontsize=7)
    for d, color in ((4, "#45a567"), (16, "#e07b39"), (64, "#b067b5")):
        errors = [output_error(d, m) for m in draws]
        right.loglog(draws, errors, color=color, label=f"d = {d}")
    right.axhline(1.0, color="#888888", lw=0.8)
    right.set(xlabel="directions m", ylabel="median relative error of a row")
    right.set_title("FAVOR+ against softmax attention, q, k ~ N(0, 1), 64 keys")
    right.legend(frameon=False)
    return figure


def kernel_error(make: Callable[..., RandomFeatures], m: int, orthogonal: bool) -> float:
    """Median relative error over pairs, each draw with pairs of its own."""
    generator, errors = torch.Generator().manual_seed(m), []
    for seed in range(40):
        q, k = torch.randn(2, 64, D, generator=generator, dtype=torch.float64)
        q, k = (x * D**0.25 / x.norm(dim=-1, keepdim=True) for x in (q, k))
        features = make(d=D, features=m, orthogonal=orthogonal, seed=seed)
        (a, log_a), (b, log_b) = features(q), features(k)
        estimate = (a * b).sum(-1) * (log_a + log_b).exp()
        true = ((q * k).sum(-1) * D**-0.5).exp()
        errors.append((estimate / true - 1).abs())
    return float(torch.cat(errors).median())


def output_error(d: int, m: int) -> float:
    """Median over rows of ‖out − exact‖ / ‖exact‖, positive orthogonal features."""
    generator, errors = torch.Generator().manual_seed(d * m), []
    for seed in range(20):
        q, k, v = torch.randn(3, 1, 1, 64, d, generator=generator, dtype=torch.float64)
        attend = KernelAttention(FavorPositive(d=d, features=m, seed=seed))
        exact = Softmax()(q, k, v)
        errors.append(((attend(q, k, v) - exact).norm(dim=-1) / exact.norm(dim=-1)).flatten())
    return float(torch.cat(errors).median())


if __name__ == "__main__":
    main()
