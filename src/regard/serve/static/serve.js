// The page of `regard serve`: it asks, and hands what comes back to look.js.

import { render } from "./look.js";

const form = document.querySelector("form");
const [about, pair, beside, writing, trouble, written, state, seen] = ["about", "pair", "beside", "writing", "trouble", "written", "state", "seen"]
  .map((name) => document.querySelector(`.${name}`));
const { model, text, second, otherModel, otherText, otherSecond, word, layers, heads, look, write, stop, tokens, temperature } = form.elements;
const [SAME, UNTRAINED] = ["the same", "the same before its training"]; // beside all others, which are numbers
const shown = changing();
let models = [];
let last = 0; // the newest wish; older ones are dropped

// What render looks at, and that can change.
function changing() {
  let [data, acts] = [null, []];
  const model = { get: () => data, on: (_, act) => acts.push(act) };
  return (next) => {
    const first = data === null;
    data = next;
    if (first) render({ model, el: seen }); else for (const act of acts) act();
  };
}

// Asking

async function send(place, wish, signal) {
  const answer = await fetch(place, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(wish), signal });
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer;
}

const ask = async (place, wish) => (await send(place, wish)).json();

async function* lines(answer) {
  let rest = "";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

// Looking

// The exact steps of a head are asked of the side that it is on.
async function view(wish, grows) {
  const data = await ask("look", wish);
  const { beside, word, ...first } = wish;
  data.grows = grows;
  data.ask = ({ side, map, layer, head }) => ask("steps", { ...first, ...(side ? beside : {}), map, layer, head });
  return data;
}

const reading = () => ({ model: Number(model.value), text: text.value, second: second.value || null });
const chosen = () => ({ layers: layers.value, heads: heads.value });

// What reads beside the model, if another model or another text is chosen.
function other() {
  const same = [SAME, UNTRAINED].includes(otherModel.value);
  const one = {
    model: Number(same ? model.value : otherModel.value),
    text: otherText.value || text.value,
    second: otherSecond.value || second.value || null,
    untrained: otherModel.value === UNTRAINED,
  };
  return JSON.stringify(one) === JSON.stringify({ ...reading(), untrained: false }) ? null : one;
}

function begin(says) {
  stop.onclick?.();
  stop.onclick = null;
  stop.hidden = true;
  trouble.textContent = written.textContent = "";
  state.textContent = says;
  return ++last;
}

function fail(error) {
  state.textContent = "";
  trouble.textContent = error instanceof TypeError ? "The server is gone; start it again." : error.message;
}

async function read() {
  const mine = begin("Reading …");
  try {
    const data = await view({ ...reading(), ...chosen(), beside: other(), word: word.value || null }, false);
    if (mine === last) { state.textContent = ""; shown(data); }
  } catch (error) {
    if (mine === last) fail(error);
  }
}

// Writing: the tokens come as fast as they can, and the view follows as fast as it can.

async function continueText() {
  const mine = begin("Writing …");
  const stopped = new AbortController();
  const ids = [];
  const { model, text } = reading();
  stop.hidden = false;
  stop.onclick = () => stopped.abort();
  const follow = follower({ model, text, ...chosen() }, ids, () => mine === last);
  try {
    const answer = await send("write", { model, text, tokens: Number(tokens.value), temperature: Number(temperature.value), seed: Math.floor(Math.random() * 2 ** 31) }, stopped.signal);
    for await (const line of lines(answer)) {
      if (line.error) throw new Error(line.error);
      if (line.end) { state.textContent = line.end; continue; }
      ids.push(line.token);
      written.textContent = line.text;
      written.scrollTop = written.scrollHeight;
      follow();
    }
  } catch (error) {
    if (error.name === "AbortError") { if (mine === last) state.textContent = "Stopped."; }
    else if (mine === last) fail(error);
  }
  if (mine === last) { stop.hidden = true; stop.onclick = null; }
}

// Looks at what is written whenever more of it is, one look at a time.
function follower(wish, ids, wanted) {
  let [busy, upto] = [false, 0];
  return async () => {
    if (busy) return;
    busy = true;
    try {
      while (upto < ids.length && wanted()) {
        upto = ids.length;
        const data = await view({ ...wish, written: [...ids] }, true);
        if (wanted()) shown(data);
      }
    } catch (error) {
      if (wanted()) fail(error);
    } finally {
      busy = false;
    }
  };
}

// The form

function choose() {
  const one = models[Number(model.value)];
  about.textContent = one.about;
  writing.hidden = !one.writes;
  pair.textContent = one.pair ? "What is written about it (empty: the model writes it)" : "Second text (may stay empty)";
}

// The summary of what is beside it: seen where that is folded, too.
function tellOther() {
  const named = otherModel.value === SAME ? [] : [otherModel.selectedOptions[0].textContent];
  const parts = [...named, ...(otherText.value || otherSecond.value ? ["another text"] : [])];
  beside.textContent = other() ? parts.join(", ") : "nothing";
}

form.addEventListener("submit", (event) => { event.preventDefault(); read(); });
form.addEventListener("input", tellOther);
write.addEventListener("click", () => { if (form.reportValidity()) continueText(); });
model.addEventListener("change", choose);
for (const field of [model, otherModel]) field.addEventListener("change", () => { if (text.value) read(); });
for (const field of form.querySelectorAll("textarea")) field.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(look); }
});

try {
  models = await (await fetch("models")).json();
  for (const one of [SAME, UNTRAINED]) otherModel.append(new Option(one, one));
  for (const [i, one] of models.entries()) for (const field of [model, otherModel]) field.append(new Option(one.name, i));
  choose();
} catch (error) {
  fail(error);
}
