// The page of `regard serve`: sends requests, and passes the answers to look.js.

import { generatedText } from "./generated.js";
import { render } from "./look.js";
import { describe } from "./reply.js";

const form = document.querySelector("form");
const [description, secondLabel, comparison, generation, asItStands, asking, error, generatedSection, reply, status, view, editing, edits, switches] =
  ["description", "second-label", "comparison", "generation", "as-it-stands", "asking", "error", "generated", "reply", "status", "view-area", "editing", "edits", "switches"]
    .map((name) => document.querySelector(`.${name}`));
const { model, text, second, otherModel, otherText, otherSecond, word, layers, heads, look, generate, ask, expected, stop, maxNewTokens, temperature, raw, edit } = form.elements;
const [SAME, UNTRAINED, UNEDITED] = ["the same", "the same, untrained", "the same, not edited"]; // all other options are indices
const show = liveView();
const generated = generatedText(generatedSection);
let models = [];
let latest = 0; // number of the latest request; answers to older ones are dropped

// A view that look.js renders once, and updates afterwards.
function liveView() {
  let [data, listeners] = [null, []];
  const model = { get: () => data, on: (_, listener) => listeners.push(listener) };
  return (next) => {
    const first = data === null;
    data = next;
    if (first) render({ model, el: view }); else for (const listener of listeners) listener();
  };
}

// Requests

async function post(endpoint, body, signal) {
  const response = await fetch(endpoint, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal });
  if (!response.ok) throw new Error((await response.json()).error);
  return response;
}

const postJson = async (endpoint, body) => (await post(endpoint, body)).json();

async function* lines(response) {
  let rest = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

// Attention

// Details of a head are requested from the panel that it is in.
async function fetchView(request, grows) {
  const data = await postJson("look", request);
  const { compare, word, ...first } = request;
  data.grows = grows;
  data.ask = ({ panel, map, layer, head }) => postJson("detail", { ...first, ...(panel ? compare : {}), map, layer, head });
  return data;
}

// An edit whatever the order, quotes and comments of its lines.
const meaning = (block) => block.split("\n").map((line) => line.replace(/\s*#.*$/, "").replaceAll("'", '"').replace(/\s*=\s*/, "=").trim()).filter(Boolean).sort().join("\n");
const toml = () => (meaning(edit.value) ? edit.value : null); // comments alone are no edit
const inputs = () => ({ model: Number(model.value), text: text.value, second: second.value || null, edit: toml() });
const selection = () => ({ layers: layers.value, heads: heads.value });

// The other side, if its model or texts differ. Another model isn't edited.
function otherInputs() {
  const same = [SAME, UNTRAINED, UNEDITED].includes(otherModel.value);
  const other = {
    model: Number(same ? model.value : otherModel.value),
    text: otherText.value || text.value,
    second: otherSecond.value || second.value || null,
    edit: same && otherModel.value !== UNEDITED ? toml() : null,
    untrained: otherModel.value === UNTRAINED,
  };
  if (JSON.stringify(other) === JSON.stringify({ ...inputs(), untrained: false })) return null;
  return { ...other, imported: same && Boolean(toml()) };
}

function begin(message) {
  stop.onclick?.();
  stop.onclick = null;
  stop.hidden = true;
  error.textContent = "";
  generated.clear();
  reply.replaceChildren();
  status.textContent = message;
  return ++latest;
}

function showError(reason) {
  status.textContent = "";
  error.textContent = reason instanceof TypeError ? "No connection to the server; restart it." : reason.message;
}

async function lookAtText() {
  const current = begin("Loading …");
  try {
    const data = await fetchView({ ...inputs(), ...selection(), compare: otherInputs(), word: word.value || null }, false);
    if (current === latest) { status.textContent = ""; show(data); }
  } catch (reason) {
    if (current === latest) showError(reason);
  }
}

// Generation: tokens arrive as fast as they can, and the view follows as fast as it can.

async function generateText() {
  const current = begin("Generating …");
  const aborter = new AbortController();
  const ids = [];
  const { model, text, edit } = inputs();
  stop.hidden = false;
  stop.onclick = () => aborter.abort();
  const continued = raw.checked && models[model].template;
  const follow = follower({ model, text, edit, raw: continued, ...selection() }, ids, () => current === latest);
  try {
    const request = { model, text, edit, max_new_tokens: Number(maxNewTokens.value), temperature: Number(temperature.value), raw: continued, seed: Math.floor(Math.random() * 2 ** 31) };
    for await (const line of lines(await post("generate", request, aborter.signal))) {
      if (line.error) throw new Error(line.error);
      if (line.end) { status.textContent = line.end; continue; }
      ids.push(line.token);
      generated.add(line);
      follow();
    }
  } catch (reason) {
    if (reason.name === "AbortError") { if (current === latest) status.textContent = "Stopped."; }
    else if (current === latest) showError(reason);
  }
  if (current === latest) { stop.hidden = true; stop.onclick = null; }
}

// Updates the view while tokens arrive, one request at a time.
function follower(request, ids, isCurrent) {
  let [busy, seen] = [false, 0];
  return async () => {
    if (busy) return;
    busy = true;
    try {
      while (seen < ids.length && isCurrent()) {
        seen = ids.length;
        const data = await fetchView({ ...request, generated: [...ids] }, true);
        if (isCurrent()) show(data);
      }
    } catch (reason) {
      if (isCurrent()) showError(reason);
    } finally {
      busy = false;
    }
  };
}

// Questions: the reply, and the attention of the step that generates the first token of the answer.

async function askQuestion() {
  const current = begin("Answering …");
  const { model, text, edit } = inputs();
  try {
    const found = await postJson("ask", { model, text, edit, expected: expected.value || null });
    if (current !== latest) return;
    reply.replaceChildren(...describe(found));
    if (found.reason !== null) { status.textContent = ""; return; }
    const data = await fetchView({ model, text: text.trim(), edit, ...selection(), generated: [] }, true);
    if (current === latest) { status.textContent = "Attention of the step that begins the answer:"; show({ ...data, view: "heads" }); }
  } catch (reason) {
    if (current === latest) showError(reason);
  }
}

// Form

function updateModel() {
  const info = models[Number(model.value)];
  description.textContent = info.description;
  generate.hidden = generation.hidden = !info.generates;
  ask.hidden = asking.hidden = !info.answers;
  maxNewTokens.disabled = temperature.disabled = !info.generates; // hidden fields would be validated
  if (!text.value.trim() || models.some((one) => one.example === text.value)) text.value = info.example;
  asItStands.hidden = !info.template;
  secondLabel.textContent = info.seq2seq ? "Target text (empty: generated by the model)" : "Second text (optional)";
}

// The summary shows the comparison even when folded.
function updateComparison() {
  const named = otherModel.value === SAME ? [] : [otherModel.selectedOptions[0].textContent];
  const parts = [...named, ...(otherText.value || otherSecond.value ? ["another text"] : [])];
  comparison.textContent = otherInputs() ? parts.join(", ") : "nothing";
}

function updateEdits() {
  edits.textContent = toml() ? "in use" : "none";
  for (const button of switches.querySelectorAll("button")) button.ariaPressed = String(!isOff(button.value));
}

// Switches of heads: each adds the edit that sets its head to zero to the text, or removes it.

const blocks = () => edit.value.split(/(?=^\[\[edit\]\])/m).map((block) => block.trim()).filter(Boolean);
const isOff = (block) => blocks().some((other) => meaning(other) === meaning(block));

function toggle(block) {
  if (blocks().some((other) => meaning(other) && !other.startsWith("[[edit]]"))) {
    error.textContent = "Switches need edits as tables: begin each with [[edit]].";
    return;
  }
  const others = blocks().filter((other) => meaning(other) !== meaning(block));
  edit.value = [...others, ...(isOff(block) ? [] : [block.trim()])].join("\n\n");
  updateEdits();
  updateComparison();
  if (text.value) lookAtText();
}

async function showSwitches() {
  const current = model.value;
  switches.replaceChildren();
  try {
    const layers = await postJson("heads", { model: Number(current) });
    if (current !== model.value) return;
    switches.replaceChildren(...layers.map(({ layer, edits }) => {
      const row = document.createElement("p");
      row.append(Object.assign(document.createElement("span"), { textContent: layer }));
      for (const [head, block] of edits.entries()) {
        const button = Object.assign(document.createElement("button"), { type: "button", value: block, textContent: head, ariaLabel: `${layer}, head ${head}` });
        button.addEventListener("click", () => toggle(block));
        row.append(button);
      }
      return row;
    }));
    updateEdits();
  } catch (reason) {
    if (current === model.value) switches.textContent = reason.message; // a model that can't be edited
  }
}

form.addEventListener("submit", (event) => { event.preventDefault(); lookAtText(); });
// A folded field can't show that it is invalid.
form.addEventListener("invalid", (event) => event.target.closest("details")?.setAttribute("open", ""), true);
form.addEventListener("input", updateComparison);
edit.addEventListener("input", updateEdits);
editing.addEventListener("toggle", () => { if (editing.open) showSwitches(); });
model.addEventListener("change", () => { if (editing.open) showSwitches(); });
generate.addEventListener("click", () => { if (form.reportValidity()) generateText(); });
ask.addEventListener("click", () => { if (form.reportValidity()) askQuestion(); });
expected.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); ask.click(); }
});
model.addEventListener("change", updateModel);
for (const field of [model, otherModel]) field.addEventListener("change", () => { if (text.value) lookAtText(); });
for (const field of form.querySelectorAll("textarea:not([name=edit])")) field.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(look); }
});

// The attribute autofocus would be processed late, perhaps after the first click.
text.focus();
try {
  models = await (await fetch("models")).json();
  edit.value = await (await fetch("edit")).text();
  editing.open = Boolean(toml());
  updateEdits();
  for (const option of [SAME, UNTRAINED, UNEDITED]) otherModel.append(new Option(option, option));
  for (const [i, info] of models.entries()) for (const field of [model, otherModel]) field.append(new Option(info.name, i));
  updateModel();
} catch (reason) {
  showError(reason);
}
