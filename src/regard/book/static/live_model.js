// The live model: a decoder as in regard/models/transformer.py, on rows of numbers.

// Numbers of half precision, IEEE 754 binary16.
function fromHalf(bits) {
  const sign = bits >> 15 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
}

// Tensors of a safetensors file by name: rows of a matrix, or one row of a vector.
function readTensors(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const start = 8 + Number(view.getBigUint64(0, true));
  const { __metadata__, ...header } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, start)));
  const read = ({ shape, data_offsets: [first] }) => {
    const [rows, columns] = shape.length > 1 ? shape : [1, shape[0]];
    const at = (row, column) => fromHalf(view.getUint16(start + first + 2 * (row * columns + column), true));
    const matrix = Array.from({ length: rows }, (_, row) => Float32Array.from({ length: columns }, (_, i) => at(row, i)));
    return shape.length > 1 ? matrix : matrix[0];
  };
  return Object.fromEntries(Object.entries(header).map(([name, one]) => [name, read(one)]));
}

function loadModel({ config, tokens, weights }) {
  const tensors = readTensors(Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0)));
  return { config, tensors, tokens, ids: new Map(tokens.map((token, id) => [token, id])) };
}

// A character is a token; others are the token for unknown text.
const encode = (model, text) => [...text].map((letter) => model.ids.get(letter) ?? model.ids.get("<unknown>"));

// ---- operations

function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

const sum = (rows) => rows[0].map((_, i) => rows.reduce((total, row) => total + row[i], 0));
const add = (x, y) => x.map((row, i) => sum([row, y[i]]));
const gelu = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

function softmax(scores) {
  const largest = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - largest));
  const total = powers.reduce((a, b) => a + b);
  return powers.map((power) => power / total);
}

function layerNorm(x, scale, shift, epsilon) {
  return x.map((row) => {
    const mean = row.reduce((a, b) => a + b) / row.length;
    const deviation = Math.sqrt(row.reduce((a, b) => a + (b - mean) ** 2, 0) / row.length + epsilon);
    return row.map((value, i) => ((value - mean) / deviation) * scale[i] + shift[i]);
  });
}

const linear = (x, weight, bias = []) => x.map((row) => weight.map((w, i) => dot(w, row) + (bias[i] ?? 0)));

// Scores q·k / √d of each query with each key; those of the future are -∞ under a causal mask.
const products = (q, k) => q.map((query) => k.map((key) => dot(query, key) / Math.sqrt(key.length)));
const causal = (scores) => scores.map((row, i) => row.map((score, j) => (j > i ? -Infinity : score)));
const weightedSum = (weights, v) => v[0].map((_, i) => v.reduce((total, row, j) => total + weights[j] * row[i], 0));

function attendHead([q, k, v]) {
  const scores = products(q, k), weights = causal(scores).map(softmax);
  return { q, k, v, scores, weights, output: weights.map((row) => weightedSum(row, v)) };
}

// Logits of the token after each, and the heads of each layer; `places` are the positions.
function forward(model, ids, places = ids.map((_, i) => i)) {
  const { tensors, config } = model, width = config.d_model / config.n_heads;
  const get = (name) => tensors[`body.${name}`];
  const norm = (x, name) => layerNorm(x, get(`${name}.weight`), get(`${name}.bias`), config.norm_eps);
  const apply = (x, name) => linear(x, get(`${name}.weight`), get(`${name}.bias`));
  const columns = (x, part, head) => x.map((row) => row.slice(part * config.d_model + head * width, part * config.d_model + (head + 1) * width));
  let x = ids.map((id, i) => Array.from(get("embedding.weight")[id], (value, j) => value + get("absolute.vectors")[places[i]][j]));
  const layers = [];
  for (let n = 0; n < config.n_layers; n++) {
    const at = `layers.${n}`;
    const qkv = apply(norm(x, `${at}.norm_attention`), `${at}.self_attention.qkv_proj`);
    const heads = Array.from({ length: config.n_heads }, (_, head) => attendHead([0, 1, 2].map((part) => columns(qkv, part, head))));
    const joined = ids.map((_, i) => heads.flatMap((head) => head.output[i]));
    x = add(x, apply(joined, `${at}.self_attention.o_proj`));
    const inner = apply(norm(x, `${at}.norm_feed_forward`), `${at}.feed_forward.up_proj`);
    x = add(x, apply(inner.map((row) => row.map(gelu)), `${at}.feed_forward.down_proj`));
    layers.push(heads);
  }
  return { layers, logits: linear(norm(x, "norm"), get("embedding.weight")) };
}
