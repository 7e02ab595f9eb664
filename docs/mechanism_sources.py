"""Formula, paper, code and models of each built-in mechanism, for the table of attention.md."""

from typing import NamedTuple

GITHUB = "https://github.com/"


class Source(NamedTuple):
    """Facts about a mechanism that its code doesn't have."""

    formula: str
    """Weights, or the state after a token; symbols are explained below the table."""
    paper: str
    """Address of the paper that introduced it."""
    code: str = ""
    """Code by the paper's authors: OWNER/REPOSITORY on GitHub, or a path in it."""
    models: str = ""
    """Released models with it."""

    @property
    def code_link(self) -> str:
        """A Markdown link, or a dash."""
        name = "/".join(self.code.split("/")[:2])
        return f"[{name}]({GITHUB}{self.code})" if self.code else "–"


def arxiv(number: str) -> str:
    """Return the address of a paper on arXiv."""
    return f"https://arxiv.org/abs/{number}"


PERFORMER = "google-research/google-research/tree/master/performer"

SOURCES = {
    "softmax": Source(
        "softmax(s_ij)",
        arxiv("1706.03762"),
        "tensorflow/tensor2tensor",
        "GPT-2, BERT, Llama and most others",
    ),
    "argmax": Source("1 for the first j with the highest s_ij, else 0", arxiv("1308.3432")),
    "gated-softmax": Source(
        "softmax(s_ij); output times σ(W x_i)",
        arxiv("2505.06708"),
        "qiuzh20/gated_attention",
        "Qwen3-Next (one of four layers)",
    ),
    "softmax-one": Source(
        "e^(s_ij) / (e^z + Σ_l e^(s_il)); z = 0, or learned for each head",
        arxiv("2410.10781"),
        "sail-sg/Attention-Sink",
        "gpt-oss (learned z)",
    ),
    "forgetting": Source(
        "softmax(s_ij + Σ_(j < t ≤ i) log f_t), f_t = σ(w·x_t + c) for each query head",
        arxiv("2503.02130"),
        "zhixuan-lin/forgetting-transformer",
    ),
    "latent": Source(
        "softmax(q_i·k_j/√(d + r)), k_j = [rotary key of width r; W_UK c_j], v_j = W_UV c_j",
        arxiv("2405.04434"),
        "deepseek-ai/DeepSeek-V3/blob/main/inference/model.py",
        "DeepSeek-V2 and -V3, Kimi K2",
    ),
    "differential": Source(
        "softmax(s_ij) − λ_i softmax(s'_ij), s' of a second query, λ_i = σ(w·x_i) for each head",
        "https://huggingface.co/blog/microsoft/diff-attn-v2",
        "microsoft/unilm/tree/master/Diff-Transformer",
    ),
    "top-k": Source(
        "softmax(s_ij) over the k highest scores of a query, and those equal to the k-th",
        arxiv("2106.06899"),
        "ag1988/top_k_attention",
        "DeepSeek-V3.2 (with an indexer, over latents)",
    ),
    "moba": Source(
        "softmax(s_ij) over the query's own block and the earlier blocks with the highest "
        "q_i·(mean key)",
        arxiv("2502.13189"),
        "MoonshotAI/MoBA",
    ),
    "stick-breaking": Source(
        "σ(s_ij) Π_(j < l < i) (1 − σ(s_il)) for j < i, else 0",
        arxiv("2410.17980"),
        "shawntan/stickbreaking-attention",
    ),
    "sigmoid": Source(
        "σ(s_ij + b), b = −log of the context length",
        arxiv("2409.04431"),
        "apple/ml-sigmoid-attention",
    ),
    "synthesizer": Source(
        "softmax(ReLU(q_i) B + b) without keys, or softmax(R) with a trained matrix R",
        arxiv("2005.00743"),
    ),
    "linformer": Source(
        "softmax(Q(EK)ᵀ/√d), times FV",
        arxiv("2006.04768"),
        "facebookresearch/fairseq/tree/main/examples/linformer",
    ),
    "bigbird": Source(
        "softmax(s_ij) over a window of blocks, global blocks and random blocks",
        arxiv("2007.14062"),
        "google-research/bigbird",
        "BigBird, BigBird-Pegasus",
    ),
    "sliding-window": Source(
        "softmax(s_ij) over the keys with |i − j| ≤ w",
        arxiv("2004.05150"),
        "allenai/longformer",
        "Longformer, Mistral 7B (v0.1); in some layers: Gemma 2 and 3, gpt-oss",
    ),
    "elu": Source(
        "∝ (elu(q_i) + 1)·(elu(k_j) + 1)", arxiv("2006.16236"), "idiap/fast-transformers"
    ),
    "polynomial": Source("∝ (q_i·k_j)^p", arxiv("1908.11775"), "yaohungt/TransformerDissection"),
    "fourier": Source(
        "∝ φ(q_i)·φ(k_j) ≈ e^(−‖q_i − k_j‖²/2σ²)",
        "https://papers.nips.cc/paper/2007/hash/013a006f03dbc5392effeb8f18fda755-Abstract.html",
    ),
    "favor-positive": Source(
        "∝ φ(q_i)·φ(k_j) ≈ e^(s_ij), all weights positive", arxiv("2009.14794"), PERFORMER
    ),
    "favor-trigonometric": Source(
        "∝ φ(q_i)·φ(k_j) ≈ e^(s_ij), some weights negative", arxiv("2009.14794"), PERFORMER
    ),
    "favor-hyperbolic": Source(
        "∝ φ(q_i)·φ(k_j) ≈ e^(s_ij), all weights positive, less variance",
        arxiv("2009.14794"),
        PERFORMER,
    ),
    "gated-linear": Source(
        "S_t = D_t S_(t−1) + k_t v_tᵀ, D by channel",
        arxiv("2312.06635"),
        "berlino/gated_linear_attention",
    ),
    "mamba2": Source(
        "S_t = D_t S_(t−1) + k_t (Δ_t v_t)ᵀ, D and Δ by head",
        arxiv("2405.21060"),
        "state-spaces/mamba",
        "Codestral Mamba; in most layers: Nemotron-H, Granite 4.0-H",
    ),
    "deltanet": Source(
        "S_t = (I − β_t k_t k_tᵀ) S_(t−1) + β_t k_t v_tᵀ",
        arxiv("2102.11174"),
        "ischlag/fast-weight-transformers",
    ),
    "gated-deltanet": Source(
        "S_t = (I − β_t k_t k_tᵀ) D_t S_(t−1) + β_t k_t v_tᵀ, D by head",
        arxiv("2412.06464"),
        "NVlabs/GatedDeltaNet",
        "Qwen3-Next (three of four layers)",
    ),
    "kimi-delta": Source(
        "S_t = (I − β_t k_t k_tᵀ) D_t S_(t−1) + β_t k_t v_tᵀ, D by channel",
        arxiv("2510.26692"),
        "MoonshotAI/Kimi-Linear",
        "Kimi Linear (three of four layers)",
    ),
    "gated-deltanet-2": Source(
        "S_t = (I − k_t (b_t ⊙ k_t)ᵀ) D_t S_(t−1) + k_t (w_t ⊙ v_t)ᵀ, D, b and w by channel",
        arxiv("2605.22791"),
        "NVlabs/GatedDeltaNet-2",
    ),
    "rwkv7": Source(
        "S_t = (D_t − (a_t ⊙ κ_t) κ_tᵀ) S_(t−1) + k_t v_tᵀ, D and a by channel",
        arxiv("2503.14456"),
        "BlinkDL/RWKV-LM",
        "RWKV-7",
    ),
}
"""In the order of `BUILT_IN`."""
