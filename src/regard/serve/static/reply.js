// The reply to a question, as elements. All text is inserted as text, never parsed as HTML.

import { make } from "./look.js";

export function describe(reply) {
  if (reply.best_guess === null) return [heading("I don't know."), make("p", {}, reply.reason)];
  return [answerOf(reply), ...evidenceOf(reply), signalsOf(reply)];
}

const heading = (...parts) => make("p", {}, make("strong", {}, parts[0]), ...parts.slice(1));
const number = (value) => (value === null ? "–" : value.toPrecision(3)); // JSON has no infinity
const counted = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;

function answerOf({ answer, best_guess: guess, confidence, calibrated, evidence, reason }) {
  const sure = `confidence ${confidence.toFixed(2)}${calibrated ? "" : " (not calibrated)"}`;
  const parts = [...(answer === null ? [`best guess ${guess || "(empty)"}`] : []), sure, ...(evidence ? [evidence.verdict] : []), ...(reason ? [reason] : [])];
  return heading(answer === null ? "I don't know." : answer || "(empty)", ` · ${parts.join(" · ")}`);
}

// Verdict, the sentences with the answer, and those that contradict it.
function evidenceOf({ evidence, subject }) {
  if (!evidence) return [make("p", { class: "note" }, subject ? "No evidence: the run has no index of its training text." : "No evidence: the question has no recognized subject.")];
  const { verdict, meaning, documents, sentences, contradiction, others } = evidence;
  const found = documents ? `${counted(documents, "document")} on ${subject}, ${counted(sentences, "sentence")} with this answer` : `no document names ${subject}`;
  return [
    make("p", { class: "note" }, `${verdict}: ${meaning} (${found})`),
    ...passagesOf(evidence),
    ...(contradiction ? [make("p", {}, `The text says ${contradiction.answer}, ${counted(contradiction.sentences, "time")}:`), ...passagesOf(contradiction)] : []),
    ...(others.length ? [make("p", { class: "note" }, `Other answers: ${others.map(([name, n]) => `${name} (${n})`).join(", ")}`)] : []),
  ];
}

function passagesOf({ sentences, passages }) {
  if (!passages.length) return [];
  const more = sentences > passages.length ? [make("p", { class: "note" }, `… and ${counted(sentences - passages.length, "more sentence")}`)] : [];
  return [make("ul", {}, ...passages.map(passageOf)), ...more];
}

function passageOf({ place, parts: [before, answer, after] }) {
  return make("li", {}, make("span", { class: "place" }, place), " ", before, make("mark", {}, answer), after);
}

function signalsOf({ signals }) {
  const rows = signals.map(({ name, value, definition }) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, number(value)), make("td", {}, definition)));
  const names = ["signal", "value", "definition"].map((name) => make("th", { scope: "col" }, name));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...names)), make("tbody", {}, ...rows));
  return make("details", {}, make("summary", {}, "Signals"), make("div", { class: "signals", tabindex: "0", role: "group", "aria-label": "Signals" }, table));
}
