// The page: texts in, answers out. Everything that depends on the kind of model is in answers.js.
//
// A link may bring texts along: ?text=...&run=1 runs them, &attention=1 opens that panel, with
// &layer=2&head=3 at that head. <body aria-busy> says that something is under way.

import { showAnswer } from "./answers.js";
import { showAttention } from "./attention.js";
import { make } from "./dom.js";

const NAMES = { text: "Text", text_b: "Second text", question: "Question", context: "Context",
  query: "Query", documents: "Documents, one a line", candidates: "Candidate labels, one a line" };
const KINDS = {
  classifier: "Classifies a text", multi_label: "Finds the labels of a text",
  zero_shot: "Chooses among candidate labels",
  regression: "Rates a text", tagger: "Finds entities", question_answering: "Answers questions",
  fill_mask: "Fills in masks", next_sentence: "Tells whether a sentence follows",
  embeddings: "Compares texts", encoder: "Encodes a text",
  reranker: "Orders documents for a query", search: "Searches documents",
};

const find = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
const chosen = {}; // The layer and head of the attention panel that somebody chose.
if (query.has("layer") || query.has("head")) {
  for (const name of ["layer", "head"]) chosen[name] = Math.max(1, parseInt(query.get(name), 10) || 1) - 1;
}
let line = 0; // Whose attention is shown, of several texts.
let card = null;
let running = null; // The controller of the request that is on its way.
let asked = null; // The texts of the last answer.
let attentionOf = ""; // What the attention panel shows.

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
    throw new Error("The server does not answer. Is the program still running?");
  }
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

// Runs `work`, which returns what the status says, unless a newer one takes over.
async function guarded(work) {
  running?.abort();
  const mine = (running = new AbortController());
  const say = (status, message) => {
    find("status").textContent = status;
    find("message").textContent = message;
    find("message").hidden = !message;
  };
  say("Working…", "");
  document.body.setAttribute("aria-busy", "true");
  const [status, message] = await work(mine.signal).then((status) => [status, ""], (error) => ["", error.message]);
  if (running !== mine) return;
  running = null;
  say(status, message);
  document.body.removeAttribute("aria-busy");
}

// Whether each line of a field is a text of its own.
const isList = (name) => card.kind === "embeddings" || (card.lists ?? []).includes(name);

// The texts of the fields, lists by name: of embeddings a line each, else one each.
function readTexts() {
  return Object.fromEntries(card.inputs.map((name) => {
    const { value } = find(`field-${name}`);
    const lines = value.split("\n").filter((text) => text.trim() !== "");
    return [name, isList(name) && lines.length ? lines : [value]];
  }));
}

const run = () => guarded(async (signal) => {
  const texts = readTexts();
  const answer = await ask("api/answer", texts, signal);
  asked = texts;
  find("answer").replaceChildren(showAnswer({ outputs: answer.outputs, texts, card, put, rewrite }));
  if (answer.is_full.some(Boolean)) find("answer").append(make("p", { class: "note", text:
    `This model reads ${card.max_seq_length} pieces; what stands behind them was cut off.` }));
  find("answer-section").hidden = false;
  await refreshAttention(signal);
  return `${answer.milliseconds.toFixed(answer.milliseconds < 10 ? 1 : 0)} ms`;
});

// Lets the model put likelier words into the text of the last answer.
const rewrite = () => guarded(async (signal) => {
  const { text } = await ask("api/rewrite", asked, signal);
  if (text === asked.text[0]) return "Nothing likelier was found.";
  put(text);
  return "";
});

// Shows the attention of the last answer's texts, if the panel is open and shows others.
async function refreshAttention(signal) {
  if (!asked || !find("attention-section").open) return;
  const lines = asked[card.inputs.find(isList) ?? card.inputs[0]];
  line = Math.min(line, lines.length - 1);
  const texts = Object.fromEntries(card.inputs.map((name) => [name, [asked[name][line] ?? asked[name][0]]]));
  const wanted = JSON.stringify(texts);
  if (wanted === attentionOf) return;
  const answer = await ask("api/attention", texts, signal);
  const panel = make("div");
  find("attention").replaceChildren(...(lines.length > 1 ? [lineSelect(lines)] : []), panel);
  showAttention(panel, answer, chosen);
  attentionOf = wanted;
}

function lineSelect(lines) {
  const options = lines.map((text, value) =>
    make("option", { value, text: `${value + 1}  ${text.slice(0, 60)}` }));
  const onchange = ({ target }) => {
    line = Number(target.value);
    openAttention();
  };
  const select = make("select", { id: "line", onchange }, ...options);
  select.value = line;
  return make("p", { class: "selects" }, make("label", { for: "line", text: "Line " }), select);
}

function openAttention() {
  const before = find("status").textContent;
  if (!running) guarded((signal) => refreshAttention(signal).then(() => before));
}

function put(text) {
  find(`field-${card.inputs[0]}`).value = text;
  run();
}

function fillFields(values) {
  for (const name of card.inputs) find(`field-${name}`).value = values(name);
}

function makeField(name) {
  const id = `field-${name}`;
  const label = card.kind === "embeddings" ? "Texts, one a line" : NAMES[name];
  const isShort = name === "question" || name === "query" || card.inputs[1] === "text_b";
  return make("div", { class: "field" }, make("label", { for: id, text: label }),
    make("textarea", { id, name, rows: isShort ? 2 : 4 }));
}

async function start() {
  card = await ask("api/model");
  document.title = `${card.name}: ${card.kind}`;
  find("title").textContent = card.name;
  find("card").textContent = `${KINDS[card.kind]} (${card.kind}): ${card.num_layers} layers of ` +
    `${card.num_heads} heads, ${card.hidden_size} wide; ${card.max_seq_length} pieces; ` +
    `${card.do_lower_case ? "uncased" : "cased"}.`;
  find("fields").replaceChildren(...card.inputs.map(makeField));
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
  if (query.get("run") === "1") run();
}

guarded(start);
