// The page: texts in, answers out. Everything that depends on the kind of model is in answers.js.
//
// A link may bring texts along: ?text=...&run=1 runs them, &attention=1 opens that panel, with
// &layer=2&head=3 at that head.

import { showAnswer } from "./answers.js";
import { showAttention } from "./attention.js";
import { make } from "./dom.js";

const NAMES = {
  text: "Text", text_b: "Second text", question: "Question", context: "Context",
};
const KINDS = {
  classifier: "Classifies a text", multi_label: "Finds the labels of a text",
  regression: "Rates a text", tagger: "Finds entities", question_answering: "Answers questions",
  fill_mask: "Fills in masks", next_sentence: "Tells whether a sentence follows",
  embeddings: "Compares texts", encoder: "Encodes a text",
};

const find = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const isHeadGiven = query.has("layer") || query.has("head");
const chosen = { layer: numberOf("layer"), head: isHeadGiven ? numberOf("head") : null, line: 0 };
let card = null;
let running = null; // The controller of the request that is on its way.
let asked = null; // The texts of the last answer.
let attentionOf = ""; // What the attention panel shows.

function numberOf(name) {
  return Math.max(0, (parseInt(query.get(name), 10) || 1) - 1);
}

// Asks the server; throws an Error whose message may be shown.
async function ask(path, inputs, signal) {
  const request = inputs && {
    method: "POST", signal, headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ inputs }),
  };
  let response, answer;
  try {
    response = await fetch(path, request);
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is the program still running?");
  }
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

function say(message) {
  find("message").hidden = !message;
  find("message").textContent = message;
}

// The texts of the fields, lists by name: of embeddings a line each, else one each.
function readTexts() {
  const texts = {};
  for (const name of card.inputs) {
    const value = find(`field-${name}`).value;
    const lines = value.split("\n").filter((line) => line.trim() !== "");
    texts[name] = card.kind === "embeddings" && lines.length ? lines : [value];
  }
  return texts;
}

// Runs `work` unless a newer one takes over; the message says what went wrong.
async function guarded(work) {
  running?.abort();
  const mine = (running = new AbortController());
  say("");
  find("status").textContent = "Working…";
  document.body.setAttribute("aria-busy", "true");
  try {
    await work(mine.signal);
  } catch (error) {
    if (running !== mine) return;
    find("status").textContent = "";
    say(error.message);
  } finally {
    if (running === mine) {
      running = null;
      document.body.removeAttribute("aria-busy");
    }
  }
}

async function run() {
  const texts = readTexts();
  const [name, column] = Object.entries(texts)[0];
  if (column.length > card.max_texts) {
    say(`${column.length} lines in ${NAMES[name]}; expected at most ${card.max_texts}.`);
    return;
  }
  await guarded(async (signal) => {
    const answer = await ask("api/answer", texts, signal);
    asked = texts;
    find("answer").replaceChildren(showAnswer({ outputs: answer.outputs, texts, card, put }));
    if (answer.is_full.some(Boolean)) find("answer").append(make("p", { class: "note", text:
      `This model reads ${card.max_seq_length} pieces; what stands behind them was cut off.` }));
    find("answer-section").hidden = false;
    find("status").textContent = `${answer.milliseconds.toFixed(answer.milliseconds < 10 ? 1 : 0)} ms`;
    await refreshAttention(signal);
  });
  document.body.dataset.runs = Number(document.body.dataset.runs || 0) + 1;
}

// Shows the attention of the last answer's texts, if the panel is open and shows others.
async function refreshAttention(signal) {
  if (!asked || !find("attention-section").open) return;
  const rows = asked[card.inputs[0]].length;
  chosen.line = Math.min(chosen.line, rows - 1);
  const texts = {};
  for (const name of card.inputs) texts[name] = [asked[name][chosen.line]];
  const wanted = JSON.stringify(texts);
  if (wanted === attentionOf) return;
  const panel = find("attention");
  const answer = await ask("api/attention", texts, signal);
  const head = make("div");
  panel.replaceChildren(...(rows > 1 ? [lineSelect()] : []), head);
  showAttention(head, answer, chosen);
  attentionOf = wanted;
}

function lineSelect() {
  const lines = asked[card.inputs[0]];
  const options = lines.map((line, index) =>
    make("option", { value: index, text: `${index + 1}  ${Array.from(line).slice(0, 60).join("")}` }));
  const select = make("select", { id: "line" }, ...options);
  select.value = chosen.line;
  select.addEventListener("change", () => {
    chosen.line = Number(select.value);
    openAttention();
  });
  return make("p", { class: "selects" }, make("label", { for: "line", text: "Line " }), select);
}

async function openAttention() {
  if (!asked || running || !find("attention-section").open) return;
  const before = find("status").textContent;
  await guarded(async (signal) => {
    await refreshAttention(signal);
    find("status").textContent = before;
  });
}

function put(text, isRun) {
  find(`field-${card.inputs[0]}`).value = text;
  if (isRun) run();
}

function fillFields(values) {
  for (const name of card.inputs) find(`field-${name}`).value = values(name);
}

function makeFields() {
  const fields = card.inputs.map((name) => {
    const id = `field-${name}`;
    const label = card.kind === "embeddings" ? "Texts, one a line" : NAMES[name] ?? name;
    const isShort = name === "question" || card.inputs[1] === "text_b";
    return make("div", { class: "field" }, make("label", { for: id, text: label }),
      make("textarea", { id, name, rows: isShort ? 2 : 4, maxlength: 2 * card.max_characters }));
  });
  find("fields").replaceChildren(...fields);
}

async function start() {
  try {
    card = await ask("api/model");
  } catch (error) {
    say(error.message);
    return;
  }
  const title = card.name || "Try a model";
  document.title = `${title}: ${card.kind}`;
  find("title").textContent = title;
  find("card").textContent = `${KINDS[card.kind] ?? ""} (${card.kind}): ${card.num_layers} layers of ` +
    `${card.num_heads} heads, ${card.hidden_size} wide; ${card.max_seq_length} pieces; ` +
    `${card.do_lower_case ? "uncased" : "cased"}.`;
  makeFields();
  fillFields((name) => query.get(name) ?? card.samples[name]);
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  find("form").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    run();
  });
  find("sample").addEventListener("click", () => {
    fillFields((name) => card.samples[name]);
    run();
  });
  find("attention-section").open = query.get("attention") === "1";
  find("attention-section").addEventListener("toggle", openAttention);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    attentionOf = "";
    openAttention();
  });
  if (query.get("run") === "1") await run();
  document.body.dataset.ready = "1";
}

start();
