// The page of `regard serve`: it asks, and hands what comes back to look.js.

import { render } from "./look.js";

const form = document.querySelector("form");
const [about, pair, writing, trouble, written, state, seen] = ["about", "pair", "writing", "trouble", "written", "state", "seen"]
  .map((name) => document.querySelector(`.${name}`));
const { run, text, second, look, write, stop, tokens, temperature } = form.elements;
const shown = changing();
let runs = [];
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

async function view(wish, grows) {
  const data = await ask("look", wish);
  data.grows = grows;
  data.ask = ({ map, layer, head }) => ask("steps", { ...wish, map, layer, head });
  return data;
}

const wished = () => ({ run: Number(run.value), text: text.value });

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
    const data = await view({ ...wished(), second: second.value || null }, false);
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
  const wish = wished();
  stop.hidden = false;
  stop.onclick = () => stopped.abort();
  const follow = follower(wish, ids, () => mine === last);
  try {
    const answer = await send("write", { ...wish, tokens: Number(tokens.value), temperature: Number(temperature.value), seed: Math.floor(Math.random() * 2 ** 31) }, stopped.signal);
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
  const one = runs[Number(run.value)];
  about.textContent = one.about;
  writing.hidden = !one.writes;
  pair.textContent = one.pair ? "What is written about it (empty: the model writes it)" : "Second text (may stay empty)";
}

form.addEventListener("submit", (event) => { event.preventDefault(); read(); });
write.addEventListener("click", () => { if (form.reportValidity()) continueText(); });
run.addEventListener("change", () => { choose(); if (text.value) read(); });
for (const field of [text, second]) field.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); form.requestSubmit(look); }
});

try {
  runs = await (await fetch("runs")).json();
  for (const [i, one] of runs.entries()) run.append(new Option(one.name, i));
  choose();
} catch (error) {
  fail(error);
}
