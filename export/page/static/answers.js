// The answer of each kind of model. Places in texts are characters (code points), as the server
// counts them; JavaScript's own places count an emoji twice.

import { bars, decimal, make, matrix, percent, scroller } from "./dom.js";

const COLOURS = 8;
const MASK = "[MASK]";
const UNLIKELY = 0.01;
const HALF = 0.5; // the threshold of a label that has none

// Each function takes {outputs, texts, card, put, rewrite} and returns an element. `texts` holds the
// texts of the request by name, lists of strings; put(text) writes a text into the first field and runs
// it; rewrite() puts what the model makes of the text.
const SHOW = {
  classifier: showClasses,
  multi_label: showLabels,
  zero_shot: showCandidates,
  regression: ({ outputs }) => make("p", { class: "number", text: decimal(outputs.value[0]) }),
  tagger: showEntities,
  question_answering: showSpan,
  fill_mask: showMasks,
  next_sentence: showNext,
  reranker: showOrder,
  search: showFound,
  embeddings: showSimilarity,
  encoder: showPieces,
};

export const showAnswer = (answer) => SHOW[answer.card.kind](answer);

const note = (text, attributes = {}) => make("p", { class: "note", text, ...attributes });

// The rows of `bars` for the labels, the largest first.
const ordered = (labels, values, isOn) => labels
  .map((name, index) => ({ name, value: values[index], isOn: isOn(name, values[index]) }))
  .sort((a, b) => b.value - a.value);

// A text with marks: elements by their places {start, end, mark}, in order.
function marked(text, marks) {
  const characters = Array.from(text);
  const parts = [];
  let done = 0;
  for (const { start, end, mark } of marks) {
    mark.prepend(characters.slice(start, end).join(""));
    parts.push(characters.slice(done, start).join(""), mark);
    done = end;
  }
  return make("p", { class: "text" }, ...parts, characters.slice(done).join(""));
}

function showClasses({ outputs, card }) {
  const rows = ordered(card.labels, outputs.probabilities[0], (name) => name === outputs.label[0]);
  return bars(rows, "Classes and their probabilities");
}

// One label a text, and each candidate alone.
function showCandidates({ outputs, texts }) {
  const one = ordered(texts.candidates, outputs.probabilities[0], (name) => name === outputs.label[0]);
  const parts = [bars(one, "Candidates and their probabilities, if a text has one label")];
  if (outputs.several_probabilities) {
    const alone = ordered(texts.candidates, outputs.several_probabilities[0], (_, value) => value > 0.5);
    parts.push(note("Each candidate alone, if a text may have several:"),
      bars(alone, "Probability of each candidate alone; a tick is above a half"));
  }
  return make("div", {}, ...parts);
}

function showLabels({ outputs, card }) {
  const list = make("div");
  const shown = make("output", { for: "threshold" });
  // The model's own thresholds count until the slider, which sets one for all labels, is moved.
  const stored = card.labels.map((name) => (card.thresholds || {})[name] ?? HALF);
  const mean = stored.reduce((sum, value) => sum + value, 0) / stored.length;
  const areEqual = stored.every((value) => value === stored[0]);
  const draw = (thresholds, text) => {
    shown.textContent = text;
    const rows = card.labels.map((name, index) => ({
      name,
      value: outputs.probabilities[0][index],
      least: thresholds[index],
      isOn: outputs.probabilities[0][index] > thresholds[index],
    })).sort((a, b) => b.value - a.value);
    list.replaceChildren(bars(rows, "Labels and their probabilities; a tick is above the threshold"));
  };
  const slider = make("input", {
    type: "range", id: "threshold", min: 0, max: 1, step: 0.01, value: mean,
    oninput: () => draw(stored.map(() => Number(slider.value)), percent(Number(slider.value))),
  });
  draw(stored, areEqual ? percent(stored[0]) : "the model's, one for each label");
  const label = make("label", { for: "threshold", text: "Threshold" });
  return make("div", {}, make("p", { class: "threshold" }, label, slider, shown), list);
}

function showEntities({ outputs, texts, card }) {
  const entities = outputs.entities[0];
  const isBio = card.labels.every((label) => /^(O|[BI](-.*)?)$/s.test(label));
  const types = [...new Set(card.labels.filter((label) => label !== "O")
    .map((label) => (isBio ? label.slice(2) : label)))];
  const coloured = (type, tag, attributes, ...children) => {
    const element = make(tag, attributes, ...children);
    element.style.setProperty("--colour", `var(--c${types.indexOf(type) % COLOURS})`);
    return element;
  };
  const marks = entities.map(({ type, start, end, score }) => {
    const name = type || "entity";
    const tag = make("span", { class: "tag", text: name });
    const mark = coloured(type, "mark", { class: "entity", title: `${name}: ${percent(score)}` }, tag);
    return { start, end, mark };
  });
  const legend = types.flatMap((type) => {
    const count = entities.filter((entity) => entity.type === type).length;
    const swatch = coloured(type, "span", { class: "swatch", "aria-hidden": "true" });
    return count ? [make("li", {}, swatch, `${type || "entity"}: ${count}`)] : [];
  });
  const found = entities.length
    ? make("ul", { class: "legend", "aria-label": "Types found" }, ...legend) : note("No entity found.");
  return make("div", {}, marked(texts.text[0], marks), found, wordTable(outputs));
}

function wordTable({ words, tags, scores }) {
  const count = tags[0].filter((tag) => tag !== "").length;
  const rows = words[0].slice(0, count).map((word, index) => make("tr", {},
    make("td", { text: word }), make("td", { text: tags[0][index] }),
    make("td", { class: "value", text: percent(scores[0][index]) })));
  const head = ["Word", "Tag", "Probability"].map((text) => make("th", { scope: "col", text }));
  const table = make("table", { class: "plain", "aria-label": "All words and their tags" },
    make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
  return make("details", {}, make("summary", { text: "All words" }), scroller({}, table));
}

function showSpan({ outputs, texts }) {
  const [start, end, odds] = [outputs.start[0], outputs.end[0], outputs.null_odds[0]];
  const marks = start < 0 ? [] : [{ start, end, mark: make("mark", { class: "span" }) }];
  const answer = outputs.answer[0] || "No answer in this context.";
  return make("div", {},
    make("p", { class: "number words", text: answer }), marked(texts.context[0], marks),
    note(`Score ${decimal(outputs.score[0], 2)}; odds of no answer ` +
      `${odds === 1e6 ? "certain: there is no span" : decimal(odds, 2)}.`));
}

function showMasks({ outputs, texts, put, rewrite }) {
  const parts = texts.text[0].split(MASK);
  const rows = outputs.fillings.map(({ text, share }) => ({ name: text, value: share, onPick: () => put(text) }));
  const whole = make("div", {}, make("h3", { text: "Whole texts" }), bars(rows, "Whole texts, the best first"));
  if (parts.length === 1) return rows.length ? whole : showUnlikely(outputs.words, texts.text[0], put, rewrite);
  // Puts a piece in the place of a mask; one that begins with ## joins the word before, and one that
  // brings its space stands in the place of those before it.
  const fillIn = (number, piece) => {
    const before = parts.slice(0, number + 1).join(MASK);
    const after = parts.slice(number + 1).join(MASK);
    if (piece.startsWith("##")) put(before.trimEnd() + piece.slice(2) + after);
    else if (piece.startsWith(" ")) put(before.replace(/ +$/, "") + piece + after);
    else put(before + piece + after);
  };
  const masks = outputs.pieces[0].map((candidates, number) => {
    const rows = candidates.map((name, index) => ({
      name, value: outputs.probabilities[0][number][index], onPick: () => fillIn(number, name),
    }));
    const title = `Mask ${number + 1}`;
    return make("div", {}, make("h3", { text: title }), bars(rows, `${title}: candidates`));
  });
  const more = parts.length - 1 - masks.length;
  if (more > 0) masks.push(note(`${more} more stand where the text is cut.`));
  if (parts.length > 2 && rows.length) masks.push(whole);
  return make("div", { class: "masks" }, ...masks);
}

// Marks the words of a text that the model did not expect; a click puts what it did in their place.
function showUnlikely(words, text, put, rewrite) {
  const help = note(`Write ${MASK} where a word is to be filled in, [GAP:1-4] for one to four pieces.`);
  if (!words.length) return help;
  const characters = Array.from(text);
  const marks = words.filter(({ probability }) => probability < UNLIKELY)
    .map(({ start, end, probability, alternative }) => {
      const onclick = () => put([...characters.slice(0, start), alternative, ...characters.slice(end)].join(""));
      const title = `${percent(probability)}; rather: ${alternative}`;
      return { start, end, mark: make("button", { type: "button", class: "unlikely", title, onclick }) };
    });
  const said = marks.length ? "Marked: words that the model gives less than 1 %; a click puts in what it would say." :
    "The model gives each of these words 1 % or more.";
  const button = make("button", { type: "button", id: "rewrite", text: "Rewrite", onclick: rewrite });
  return make("div", {}, marked(text, marks), note(said), button, help);
}

function showNext({ outputs }) {
  const value = outputs.is_next[0];
  return bars([
    { name: "the second text follows the first", value, isOn: value > 0.5 },
    { name: "it does not", value: value === null ? null : 1 - value, isOn: value !== null && value <= 0.5 },
  ], "Whether the second text follows the first");
}

const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];

// Documents with their scores, the best first; words of the query stand out in them.
function documentList(query, documents) {
  const wanted = new Set(wordsOf(query).filter((word) => Array.from(word).length > 2));
  const items = documents.map(({ name, score, text }) => {
    const parts = text.split(/([\p{L}\p{N}]+)/u).map((part) =>
      (wanted.has(part.toLowerCase()) ? make("strong", { text: part }) : part));
    return make("li", {}, make("p", { class: "note" }, `${name}  ${decimal(score)}`),
      make("p", { class: "text" }, ...parts));
  });
  return make("ol", { class: "found", "aria-label": "Documents, the best first" }, ...items);
}

function showFound({ outputs, texts }) {
  return documentList(texts.query[0], outputs.ids[0].map((name, place) => ({
    name, score: outputs.scores[0][place], text: outputs.texts?.[0][place] ?? "",
  })));
}

function showOrder({ outputs, texts }) {
  return documentList(texts.query[0], outputs.order[0].map((place) => ({
    name: `Line ${place + 1}`, score: outputs.scores[0][place], text: texts.documents[place],
  })));
}

function showSimilarity({ outputs, texts }) {
  const rows = texts.text.map((line, index) => `${index + 1}  ${line}`);
  const values = outputs.similarity;
  const table = matrix({
    rows,
    columns: rows.map((_, index) => index + 1),
    valueAt: (row, column) => 0.6 * values[row][column],
    textAt: (row, column) => decimal(values[row][column], 2),
    label: "Cosine similarity of each two lines",
  });
  const size = outputs.embedding[0].length;
  return make("div", {}, table,
    note(`Cosine similarity of each two lines, from vectors of ${size} numbers; one line a text.`));
}

function showPieces({ outputs }) {
  const pieces = outputs.pieces[0], ids = outputs.input_word_ids[0], values = outputs.similarity[0];
  const chips = pieces.map((piece, index) => make("li", { title: `id ${ids[index]}`, text: piece }));
  const list = make("ol", { class: "pieces", "aria-label": "Pieces of the text" }, ...chips);
  const shown = pieces.slice(0, 60);
  const status = note("Cosine similarity of the pieces' vectors in the last layer: point at a cell.",
    { "aria-live": "polite" });
  const table = matrix({
    rows: shown,
    columns: shown,
    valueAt: (row, column) => values[row][column],
    textAt: (row, column) => decimal(values[row][column], 2),
    onCell: (row, column) => {
      status.textContent = `${shown[row]} and ${shown[column]}: ${decimal(values[row][column])}`;
    },
    label: "Cosine similarity of the pieces",
    isSmall: true,
  });
  return make("div", {}, list, status, table);
}
