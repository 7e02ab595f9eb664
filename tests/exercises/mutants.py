"""Typical mistakes: a change of the right program, and words of the hint that must name it."""

Mutant = tuple[str, str, str]
"""Text of the solution, what stands in its place, words of the hint."""

MUTANTS: dict[str, list[Mutant]] = {
    "softmax_gradient": [
        ("o.softmax(0) - y", "y - o.softmax(0)", "sign"),
        ("o.softmax(0) - y", "-y * (1 - torch.softmax(o, 0))", "diagonal"),
    ],
    "state_gradients": [
        ("w_hh.T @ out", "w_hh @ out", "by W_hh."),
        (
            "return out",
            "for i in range(t, steps):\n        out[i] = out[t - 1]\n    return out",
            "nonzero gradients for i > t",
        ),
        (
            "return out",
            "for i in range(t, steps):\n        out[i] = w_hh.T @ out[i - 1]\n    return out",
            "nonzero gradients for i > t",
        ),
    ],
    "recurrent_weight_gradient": [
        ("h[i - 1])", "h[i])", "by h_i."),
        ("range(t, 0, -1)", "[t]", "i = t"),
        ("torch.outer(g, h[i - 1])", "torch.outer(h[i - 1], g)", "transpose"),
    ],
    "greedy_translation": [
        ("    token, result", "    h = 0 * h\n    token, result", "never sees the source"),
        ("w_dec @ embedding[token]", "w_dec @ embedding[start]", "start token at every step"),
        (
            "        if token == stop:\n            break\n        result.append(token)",
            "        result.append(token)\n        if token == stop:\n            break",
            "included the stop token",
        ),
    ],
    "attention_from_svd": [
        ("u @ (s[:, None] * (w.T @ v))", "u @ torch.diag(s) @ w.T @ v", "n × n"),
        ("s[:, None] * ", "", "left out the singular values"),
    ],
    "linear_projections": [
        ("c = wt[:rank]", "c = u[:, :rank].T", "left singular vectors"),
        ("return c, c / root", "return c, c", "left out √h"),
    ],
    "masked_attention": [
        (
            "    scores[:, hidden] = -math.inf\n    return scores.softmax(-1) @ v",
            "    weights = scores.softmax(-1)\n    weights[:, hidden] = 0\n    return weights @ v",
            "after the softmax",
        ),
        ("-math.inf", "0", "score 0"),
        (
            "    scores[:, hidden] = -math.inf\n    return scores.softmax(-1) @ v",
            "    out = scores.softmax(-1) @ v\n    out[hidden] = 0\n    return out",
            "hid queries",
        ),
    ],
    "product_moments": [
        (" + 2 * sigma**2 * square", "", "term with μ"),
        ("sigma**4", "sigma**2", "hσ² for hσ⁴"),
        ("sigma**4 + 2 * sigma**2", "sigma**2 + 2 * sigma", "standard deviation"),
    ],
    "mean_of_padded": [
        (
            "k[b, :l].T / math.sqrt(q.shape[2])\n        out = scores.softmax(-1) @ v[b, :l]",
            "k[b].T / math.sqrt(q.shape[2])\n        out = scores.softmax(-1) @ v[b]",
            "look at pads:",
        ),
        ("out[:l].mean(0)", "out.mean(0)", "in the mean: leave"),
        ("l = int(lengths[b])", "l = q.shape[1]", "look at pads and"),
    ],
    "transformer_block": [
        ("x = x + layer(norm(x))", "x = layer(norm(x))", "residual connections"),
        (".triu(1)", ".triu(n)", "later ones"),
        ("x = x + layer(norm(x))", "x = norm(x + layer(x))", "after the residual sum"),
        ("z.view(n, heads, -1).transpose(0, 1)", "z.view(heads, n, -1)", "split the rows"),
    ],
    "weighted_query": [
        ("t = 40.0", "t = 1.0", "large t"),
        (" + math.log(share / (1 - share)) * keys[a]", "", "equal weights"),
    ],
    "found_probability": [
        ("math.sqrt(variance)", "variance", "take its root"),
        ("math.log(n - 1) / t", "0", "forgot the other"),
        ("math.log(n - 1)", "math.log(n)", "counted n other"),
    ],
    "head_matrices": [
        ("/ beta**2", "", "left out β²"),
        (
            "torch.outer(d, a) + torch.outer(c, d)",
            "torch.outer(a, d) + torch.outer(d, c)",
            "transposed the outer products",
        ),
    ],
    "span_corruption": [
        ("len(text) // 4", "len(document) // 4", "whole document"),
        ("corrupted[1:]", "corrupted[:-1]", "shift"),
        ("text[end:] + [mask] +", "text[end:] +", "second mask"),
    ],
    "linformer_attention": [
        (
            "(q @ keys.T / math.sqrt(q.shape[1])).softmax(-1) @ values",
            "(q @ e.T @ e @ k.T / math.sqrt(q.shape[1])).softmax(-1) @ v",
            "projected the width",
        ),
        (
            "    keys = e[:, :length] @ k[:length]\n    values = f[:, :length] @ v[:length]",
            "    keys = e @ k\n    values = f @ v",
            "beyond `length`",
        ),
        ("f[:, :length]", "e[:, :length]", "by E:"),
    ],
    "big_bird_mask": [
        ("i < n_global or ", "", "fill the rows"),
        ("j < n_global or ", "", "fill the columns"),
        ("abs(i - j) <= window", "0 <= i - j <= window", "one side"),
    ],
    "positive_features": [
        (" - (z**2).sum(-1, keepdim=True) / 2", "", "−‖x‖²/2"),
        ("** 0.25", "** 0.5", "share this root"),
        ("x / x.shape[1] ** 0.25", "x", "didn't divide x"),
        (" / math.sqrt(len(w))", "", "1/√m"),
    ],
    "cross_terms": [
        (" + p @ x.T", "", "add the other one"),
        ("x @ p.T + p @ x.T", "(x + p) @ (x + p).T - x @ x.T", "cancel"),
        ("x @ p.T + p @ x.T", "-x @ p.T - p @ x.T", "sign"),
    ],
    "relative_bias": [
        ("i - j + zero", "j - i + zero", "j − i"),
        ("i - j + zero", "i - j + zero + 1", "off by one"),
        ("i - j + zero", "i - j + zero - 1", "off by one"),
    ],
    "bias_parameters": [
        ("(2 * (length - 1) + 1) * heads", "2 * length * heads", "2T"),
        (" * heads", "", "left out the heads"),
        ("(2 * (length - 1) + 1)", "length", "negative"),
        ("(2 * (length - 1) + 1)", "length**2", "pair of positions"),
    ],
    "receptive_fields": [
        ("set(before[i])", "set()", "left out the residual connection"),
        (
            "return torch.tensor([len(field) for field in fields])",
            "return torch.tensor([heads**layers] * n)",
            "kⁿ",
        ),
        (
            "return torch.tensor([len(field) for field in fields])",
            "return torch.tensor([(heads + 1) ** layers] * n)",
            "fewer inputs",
        ),
    ],
    "attention_costs": [
        (
            "2 * m * m * k, 2 * m * n * k, 2 * n * n * k",
            "m * m * k, m * n * k, n * n * k",
            "only QKᵀ",
        ),
        ("2 * m * n * k", "2 * m * m * k", "cross-attention"),
        (
            "2 * m * m * k, 2 * m * n * k, 2 * n * n * k",
            "2 * n * n * k, 2 * m * n * k, 2 * m * m * k",
            "exchanged",
        ),
    ],
    "attention_map": [
        ("math.sqrt(q.shape[1]), -1)", "math.sqrt(q.shape[1]), 0)", "over queries"),
        (" / math.sqrt(q.shape[1])", "", "didn't divide"),
        ("math.sqrt(q.shape[1])", "q.shape[1]", "by h:"),
    ],
    "shift_by": [
        ("return matrix", "return matrix.T", "transpose"),
        ("10000 ** (-2 * k / d)", "10000 ** (-2 * (k + 1) / d)", "k = 1"),
        ("angle = s * 10000", "angle = 10000", "one position"),
    ],
    "attention_masks": [
        ("j <= i and", "j < i and", "diagonal"),
        (
            "                decoder[b, i, j] = j <= i and j < targets[b]\n"
            "            for j in range(n):\n"
            "                cross[b, i, j] = j < sources[b]",
            "                decoder[b, i, j] = j <= i and i < targets[b]\n"
            "            for j in range(n):\n"
            "                cross[b, i, j] = i < targets[b]",
            "queries of padding",
        ),
        ("j <= i and ", "", "causal"),
    ],
    "best_continuation": [
        (
            "            ended = ids[-1] == stop or step == max_tokens - 1",
            "            ended = step == max_tokens - 1",
            "extended finished beams",
        ),
        (" / (len(ids) - 1) ** penalty", "", "length penalty"),
        ("    live, finished", "    beams = 1\n    live, finished", "greedy"),
    ],
    "softmax_similarity": [
        (" * of_keys", "", "factor of the keys"),
        ("two_variances).exp()", "-two_variances).exp()", "sign"),
        ("2 * math.sqrt(d)", "2 * d", "σ² = d"),
    ],
    "fourier_features": [
        ("g / sigma", "g * sigma", "1/σ²"),
        ("math.sqrt(len(g))", "math.sqrt(2 * len(g))", "1/√(2m)"),
        (" / math.sqrt(len(g))", "", "left out the factor"),
    ],
    "causal_kernel_attention": [
        ("phi_q[i] @ z)", "phi_q[i] @ phi_k.sum(0))", "last Z"),
        (
            "        s = s + torch.outer(phi_k[i], v[i])\n        z = z + phi_k[i]\n"
            "        rows.append(phi_q[i] @ s / (phi_q[i] @ z))",
            "        rows.append(phi_q[i] @ s / (phi_q[i] @ z))\n"
            "        s = s + torch.outer(phi_k[i], v[i])\n        z = z + phi_k[i]",
            "before updating them",
        ),
        (
            "    rows = []",
            "    weights = (phi_q @ phi_k.T).tril()\n"
            "    return weights @ v / weights.sum(1, keepdim=True)\n    rows = []",
            "n × n",
        ),
    ],
    "attention_readout": [
        (
            "    rows = []",
            "    encoder = decoder\n    rows = []",
            "own states",
        ),
        (
            "    rows = []",
            "    weights = (decoder @ encoder.T).softmax(0)\n"
            "    return torch.cat([decoder, weights @ encoder], 1) @ w_out.T\n    rows = []",
            "decoder's steps",
        ),
        ("[state, context]", "[context, state]", "exchanged"),
    ],
    "sine_positions": [
        (
            "            vectors[t, 2 * k] = math.sin(angle)\n"
            "            vectors[t, 2 * k + 1] = math.cos(angle)",
            "            vectors[t, k] = math.sin(angle)\n"
            "            vectors[t, d // 2 + k] = math.cos(angle)",
            "all sines",
        ),
        ("-2 * k / d", "-k / d", "exponent k/d"),
        ("angle = t *", "angle = (t + 1) *", "from 1"),
    ],
    "self_attention": [
        (
            "    q = [w_q @ state for state in h]\n    k = [w_k @ state for state in h]\n"
            "    v = torch.stack([w_v @ state for state in h])",
            "    q, k, v = h @ w_q, h @ w_k, h @ w_v",
            "transposed",
        ),
        ("softmax(1)", "softmax(0)", "over queries"),
        ("scores.softmax", "(scores / math.sqrt(2)).softmax", "by √d"),
    ],
    "argmax_attention": [
        ("v[scores.argmax(1)]", "scores.softmax(1) @ v", "softmax weights"),
        ("argmax(1)", "argmax(0)", "over queries"),
        (
            "    q = [w_q @ state for state in h]\n    k = [w_k @ state for state in h]\n"
            "    v = torch.stack([w_v @ state for state in h])",
            "    q, k, v = h @ w_q, h @ w_k, h @ w_v",
            "transposed",
        ),
    ],
    "multi_head_attention": [
        ("math.sqrt(width)", "math.sqrt(q.shape[1])", "whole width"),
        (
            "    width =",
            "    n = len(q)\n    q, k, v = (x.reshape(heads, n, -1) for x in (q, k, v))\n"
            "    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[2])\n"
            "    return (scores.softmax(-1) @ v).reshape(n, -1)\n    width =",
            "split the rows",
        ),
        ("    width =", "    heads = 1\n    width =", "one head"),
    ],
}
