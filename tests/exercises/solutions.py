"""A right program for every exercise, as a student would write it."""

# ruff: noqa: E741, PERF401, RUF005, RUF059 (a student's style)

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def softmax_gradient(
    o: Float[Tensor, " classes"], y: Float[Tensor, " classes"]
) -> Float[Tensor, " classes"]:
    return o.softmax(0) - y


def state_gradients(
    w_hh: Float[Tensor, "d d"],
    w_yh: Float[Tensor, "out d"],
    g: Float[Tensor, " out"],
    t: int,
    steps: int,
) -> Float[Tensor, "steps d"]:
    out = torch.zeros(steps, len(w_hh), dtype=torch.float64)
    out[t - 1] = w_yh.T @ g
    for i in range(t - 2, -1, -1):
        out[i] = w_hh.T @ out[i + 1]
    return out


def recurrent_weight_gradient(
    w_hx: Float[Tensor, "d d_in"],
    w_hh: Float[Tensor, "d d"],
    w_yh: Float[Tensor, "out d"],
    x: Float[Tensor, "steps d_in"],
    y: Float[Tensor, "steps out"],
) -> Float[Tensor, "d d"]:
    h = [torch.zeros(len(w_hh), dtype=torch.float64)]
    for row in x:
        h.append(w_hh @ h[-1] + w_hx @ row)
    total = torch.zeros_like(w_hh)
    for t in range(1, len(x) + 1):
        g = w_yh.T @ (torch.softmax(w_yh @ h[t], 0) - y[t - 1])
        for i in range(t, 0, -1):
            total = total + torch.outer(g, h[i - 1])
            g = w_hh.T @ g
    return total


def greedy_translation(
    source: list[int],
    embedding: Float[Tensor, "tokens d"],
    u_enc: Float[Tensor, "d d"],
    w_enc: Float[Tensor, "d d"],
    u_dec: Float[Tensor, "d d"],
    w_dec: Float[Tensor, "d d"],
    w_out: Float[Tensor, "tokens d"],
    start: int,
    stop: int,
    max_tokens: int,
) -> list[int]:
    h = torch.zeros(len(u_enc), dtype=torch.float64)
    for token in source:
        h = torch.tanh(u_enc @ h + w_enc @ embedding[token])
    token, result = start, []
    for _ in range(max_tokens):
        h = torch.tanh(u_dec @ h + w_dec @ embedding[token])
        token = int(torch.argmax(w_out @ h))
        if token == stop:
            break
        result.append(token)
    return result


def attention_from_svd(
    u: Float[Tensor, "n k"],
    s: Float[Tensor, " k"],
    w: Float[Tensor, "n k"],
    v: Float[Tensor, "n h"],
) -> Float[Tensor, "n h"]:
    return u @ (s[:, None] * (w.T @ v))


def linear_projections(
    q: Float[Tensor, "n h"], k: Float[Tensor, "n h"], rank: int
) -> tuple[Float[Tensor, "rank n"], Float[Tensor, "rank n"]]:
    root = math.sqrt(q.shape[1])
    u, s, wt = torch.linalg.svd(q @ k.T / root)
    c = wt[:rank]
    return c, c / root


def masked_attention(
    q: Float[Tensor, "n h"],
    k: Float[Tensor, "n h"],
    v: Float[Tensor, "n h"],
    hidden: Bool[Tensor, " n"],
) -> Float[Tensor, "n h"]:
    scores = q @ k.T / math.sqrt(q.shape[1])
    scores[:, hidden] = -math.inf
    return scores.softmax(-1) @ v


def product_moments(mu: Float[Tensor, " h"], sigma: float) -> tuple[float, float]:
    square = float(mu @ mu)
    return square, len(mu) * sigma**4 + 2 * sigma**2 * square


def mean_of_padded(
    q: Float[Tensor, "batch n h"],
    k: Float[Tensor, "batch n h"],
    v: Float[Tensor, "batch n h"],
    lengths: Int[Tensor, " batch"],
) -> Float[Tensor, "batch h"]:
    means = []
    for b in range(len(q)):
        l = int(lengths[b])
        scores = q[b] @ k[b, :l].T / math.sqrt(q.shape[2])
        out = scores.softmax(-1) @ v[b, :l]
        means.append(out[:l].mean(0))
    return torch.stack(means)


def transformer_block(
    x: Float[Tensor, "n d"],
    w_q: Float[Tensor, "d d"],
    w_k: Float[Tensor, "d d"],
    w_v: Float[Tensor, "d d"],
    w_o: Float[Tensor, "d d"],
    w_1: Float[Tensor, "d f"],
    w_2: Float[Tensor, "f d"],
    heads: int,
) -> Float[Tensor, "n d"]:
    n, d = x.shape

    def norm(z: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(z, (d,))

    def split(z: Tensor) -> Tensor:
        return z.view(n, heads, -1).transpose(0, 1)

    def attention(z: Tensor) -> Tensor:
        q, k, v = split(z @ w_q), split(z @ w_k), split(z @ w_v)
        scores = q @ k.transpose(1, 2) / math.sqrt(d / heads)
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -math.inf)
        return (scores.softmax(-1) @ v).transpose(0, 1).reshape(n, d) @ w_o

    def feed_forward(z: Tensor) -> Tensor:
        return torch.relu(z @ w_1) @ w_2

    for layer in (attention, feed_forward):
        x = x + layer(norm(x))
    return x


def weighted_query(keys: Float[Tensor, "n d"], a: int, b: int, share: float) -> Float[Tensor, " d"]:
    t = 40.0
    return t * (keys[a] + keys[b]) + math.log(share / (1 - share)) * keys[a]


def found_probability(n: int, t: float, variance: float) -> float:
    z = (1 - math.log(n - 1) / t) / math.sqrt(variance)
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))


def head_matrices(
    u: Float[Tensor, "4 d"], beta: float
) -> tuple[Float[Tensor, "d d"], Float[Tensor, "d d"], Float[Tensor, "d d"]]:
    a, b, c, d = u
    query = (torch.outer(d, a) + torch.outer(c, d)) / beta**2
    value = (torch.outer(b, b) - torch.outer(c, c)) / beta**2
    return torch.eye(len(a), dtype=torch.float64), query, value


def span_corruption(
    document: list[int], truncate_to: int, start: int, mask: int
) -> tuple[list[int], list[int]]:
    text = document[:truncate_to]
    end = start + len(text) // 4
    corrupted = text[:start] + [mask] + text[end:] + [mask] + text[start:end]
    return corrupted[:-1], corrupted[1:]


def linformer_attention(
    q: Float[Tensor, "n d"],
    k: Float[Tensor, "n d"],
    v: Float[Tensor, "n d"],
    e: Float[Tensor, "rows n"],
    f: Float[Tensor, "rows n"],
    length: int,
) -> Float[Tensor, "n d"]:
    keys = e[:, :length] @ k[:length]
    values = f[:, :length] @ v[:length]
    return (q @ keys.T / math.sqrt(q.shape[1])).softmax(-1) @ values


def big_bird_mask(
    n: int, window: int, n_global: int, random: list[list[int]]
) -> Bool[Tensor, "n n"]:
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        for j in range(n):
            near = abs(i - j) <= window
            mask[i, j] = near or i < n_global or j < n_global or j in random[i]
    return mask


def positive_features(x: Float[Tensor, "n d"], w: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    z = x / x.shape[1] ** 0.25
    exponent: Tensor = z @ w.T - (z**2).sum(-1, keepdim=True) / 2
    return exponent.exp() / math.sqrt(len(w))


def cross_terms(x: Float[Tensor, "n d"], p: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    return x @ p.T + p @ x.T


def relative_bias(table: Float[Tensor, "heads entries"], n: int) -> Float[Tensor, "heads n n"]:
    zero = table.shape[1] // 2
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    return table[:, i - j + zero]


def bias_parameters(length: int, heads: int) -> int:
    return (2 * (length - 1) + 1) * heads


def receptive_fields(pointers: Int[Tensor, "layers heads n"]) -> Int[Tensor, " n"]:
    layers, heads, n = pointers.shape
    fields = [{i} for i in range(n)]
    for layer in range(layers):
        before, fields = fields, []
        for i in range(n):
            field = set(before[i])
            for head in range(heads):
                field |= before[int(pointers[layer, head, i])]
            fields.append(field)
    return torch.tensor([len(field) for field in fields])


def attention_costs(m: int, n: int, k: int) -> tuple[int, int, int]:
    return 2 * m * m * k, 2 * m * n * k, 2 * n * n * k


def attention_map(q: Float[Tensor, "n h"], k: Float[Tensor, "n h"]) -> Float[Tensor, "n n"]:
    return torch.softmax(q @ k.T / math.sqrt(q.shape[1]), -1)


def shift_by(d: int, s: int) -> Float[Tensor, "d d"]:
    matrix = torch.zeros(d, d, dtype=torch.float64)
    for k in range(d // 2):
        angle = s * 10000 ** (-2 * k / d)
        matrix[2 * k, 2 * k] = matrix[2 * k + 1, 2 * k + 1] = math.cos(angle)
        matrix[2 * k, 2 * k + 1] = math.sin(angle)
        matrix[2 * k + 1, 2 * k] = -math.sin(angle)
    return matrix


def attention_masks(
    sources: Int[Tensor, " batch"], targets: Int[Tensor, " batch"], n: int, m: int
) -> tuple[Bool[Tensor, "batch m m"], Bool[Tensor, "batch m n"]]:
    decoder = torch.zeros(len(targets), m, m, dtype=torch.bool)
    cross = torch.zeros(len(targets), m, n, dtype=torch.bool)
    for b in range(len(targets)):
        for i in range(m):
            for j in range(m):
                decoder[b, i, j] = j <= i and j < targets[b]
            for j in range(n):
                cross[b, i, j] = j < sources[b]
    return decoder, cross


def best_continuation(
    log_p: Float[Tensor, "steps tokens tokens"],
    start: int,
    stop: int,
    beams: int,
    max_tokens: int,
    penalty: float,
) -> list[int]:
    live, finished = [([start], 0.0)], []
    for step in range(max_tokens):
        grown = []
        for ids, score in live:
            for token in range(log_p.shape[2]):
                grown.append((ids + [token], score + float(log_p[step, ids[-1], token])))
        grown = sorted(grown, key=lambda beam: beam[1], reverse=True)
        live = []
        for rank, (ids, score) in enumerate(grown):
            ended = ids[-1] == stop or step == max_tokens - 1
            if ended and rank < beams:
                finished.append((ids[1:], score / (len(ids) - 1) ** penalty))
            if not ended and len(live) < beams:
                live.append((ids, score))
    best = max(finished, key=lambda beam: beam[1])[0]
    return [token for token in best if token != stop]


def softmax_similarity(
    gaussian: Float[Tensor, "n m"],
    q_norms: Float[Tensor, " n"],
    k_norms: Float[Tensor, " m"],
    d: int,
) -> Float[Tensor, "n m"]:
    two_variances = 2 * math.sqrt(d)
    of_queries = (q_norms**2 / two_variances).exp()[:, None]
    of_keys = (k_norms**2 / two_variances).exp()[None]
    return of_queries * gaussian * of_keys


def fourier_features(
    x: Float[Tensor, "n d"], g: Float[Tensor, "m d"], sigma: float
) -> Float[Tensor, "n features"]:
    angles = x @ (g / sigma).T
    return torch.cat([angles.sin(), angles.cos()], 1) / math.sqrt(len(g))


def causal_kernel_attention(
    phi_q: Float[Tensor, "n m"], phi_k: Float[Tensor, "n m"], v: Float[Tensor, "n e"]
) -> Float[Tensor, "n e"]:
    s = torch.zeros(phi_k.shape[1], v.shape[1], dtype=torch.float64)
    z = torch.zeros(phi_k.shape[1], dtype=torch.float64)
    rows = []
    for i in range(len(v)):
        s = s + torch.outer(phi_k[i], v[i])
        z = z + phi_k[i]
        rows.append(phi_q[i] @ s / (phi_q[i] @ z))
    return torch.stack(rows)


def attention_readout(
    encoder: Float[Tensor, "n d"],
    decoder: Float[Tensor, "m d"],
    w_out: Float[Tensor, "tokens two_d"],
) -> Float[Tensor, "m tokens"]:
    rows = []
    for state in decoder:
        weights = torch.softmax(encoder @ state, 0)
        context = weights @ encoder
        rows.append(w_out @ torch.cat([state, context]))
    return torch.stack(rows)


def sine_positions(length: int, d: int) -> Float[Tensor, "length d"]:
    vectors = torch.zeros(length, d, dtype=torch.float64)
    for t in range(length):
        for k in range(d // 2):
            angle = t * 10000 ** (-2 * k / d)
            vectors[t, 2 * k] = math.sin(angle)
            vectors[t, 2 * k + 1] = math.cos(angle)
    return vectors


def self_attention(
    h: Float[Tensor, "n d"],
    w_q: Float[Tensor, "d d"],
    w_k: Float[Tensor, "d d"],
    w_v: Float[Tensor, "d d"],
) -> Float[Tensor, "n d"]:
    q = [w_q @ state for state in h]
    k = [w_k @ state for state in h]
    v = torch.stack([w_v @ state for state in h])
    scores = torch.tensor([[float(a @ b) for b in k] for a in q], dtype=torch.float64)
    return scores.softmax(1) @ v


def argmax_attention(
    h: Float[Tensor, "n d"],
    w_q: Float[Tensor, "d d"],
    w_k: Float[Tensor, "d d"],
    w_v: Float[Tensor, "d d"],
) -> Float[Tensor, "n d"]:
    q = [w_q @ state for state in h]
    k = [w_k @ state for state in h]
    v = torch.stack([w_v @ state for state in h])
    scores = torch.tensor([[float(a @ b) for b in k] for a in q], dtype=torch.float64)
    return v[scores.argmax(1)]


def multi_head_attention(
    q: Float[Tensor, "n d"], k: Float[Tensor, "n d"], v: Float[Tensor, "n d"], heads: int
) -> Float[Tensor, "n d"]:
    width = q.shape[1] // heads
    outputs = []
    for start in range(0, q.shape[1], width):
        part = slice(start, start + width)
        scores = q[:, part] @ k[:, part].T / math.sqrt(width)
        outputs.append(scores.softmax(-1) @ v[:, part])
    return torch.cat(outputs, 1)
