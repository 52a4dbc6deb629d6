// The answer of each kind of model. Places in texts are characters (code points), as the server
// counts them; JavaScript's own places count an emoji twice.

import { bars, decimal, make, matrix, percent, scroller } from "./dom.js";

const COLOURS = 8;

// Each function takes {outputs, texts, card, put} and returns an element. `texts` holds the texts of
// the request by name, lists of strings; put(text, run) writes a text into the first field.
const SHOW = {
  classifier: showClasses,
  multi_label: showLabels,
  regression: showNumber,
  tagger: showEntities,
  question_answering: showSpan,
  fill_mask: showMasks,
  next_sentence: showNext,
  embeddings: showSimilarity,
  encoder: showPieces,
};

export const showAnswer = (answer) => SHOW[answer.card.kind](answer);

const byValue = (a, b) => (b.value ?? -1) - (a.value ?? -1);

function named(labels, values) {
  return labels.map((name, index) => ({ name, value: values[index] }));
}

function showClasses({ outputs, card }) {
  const rows = named(card.labels, outputs.probabilities[0]);
  rows[card.labels.indexOf(outputs.label[0])].isOn = true;
  return bars(rows.sort(byValue), "Classes and their probabilities");
}

function showLabels({ outputs, card }) {
  const list = make("div");
  const shown = make("output", { for: "threshold" });
  const slider = make("input", {
    type: "range", id: "threshold", min: "0", max: "1", step: "0.01", value: "0.5",
  });
  const draw = () => {
    const threshold = Number(slider.value);
    shown.textContent = percent(threshold);
    const rows = named(card.labels, outputs.probabilities[0]).sort(byValue);
    for (const row of rows) row.isOn = row.value !== null && row.value > threshold;
    list.replaceChildren(bars(rows, "Labels and their probabilities; a tick is above the threshold"));
  };
  slider.addEventListener("input", draw);
  draw();
  const label = make("label", { for: "threshold", text: "Threshold" });
  return make("div", {}, make("p", { class: "threshold" }, label, slider, shown), list);
}

function showNumber({ outputs }) {
  return make("p", { class: "number", text: decimal(outputs.value[0]) });
}

function showEntities({ outputs, texts, card }) {
  const characters = Array.from(texts.text[0]);
  const entities = outputs.entities[0];
  const types = typesOf(card.labels);
  const text = make("p", { class: "text" });
  let done = 0;
  for (const { type, start, end, score } of entities) {
    text.append(characters.slice(done, start).join(""));
    const mark = make("mark", {
      class: `entity colour-${Math.max(0, types.indexOf(type)) % COLOURS}`,
      title: `${type || "entity"}: ${percent(score)}`,
    });
    mark.append(characters.slice(start, end).join(""));
    mark.append(make("span", { class: "tag", text: type || "entity" }));
    text.append(mark);
    done = end;
  }
  text.append(characters.slice(done).join(""));
  const found = new Set(entities.map(({ type }) => type));
  const legend = make("ul", { class: "legend", "aria-label": "Types found" },
    ...types.filter((type) => found.has(type)).map((type) => {
      const count = entities.filter((entity) => entity.type === type).length;
      const colour = `swatch colour-${types.indexOf(type) % COLOURS}`;
      return make("li", {}, make("span", { class: colour, "aria-hidden": "true" }),
        `${type || "entity"}: ${count}`);
    }));
  const note = entities.length ? legend : make("p", { class: "note", text: "No entity found." });
  return make("div", {}, text, note, wordTable(outputs));
}

function typesOf(labels) {
  const isBio = labels.every((label) => /^(O|[BI](-.*)?)$/s.test(label));
  return [...new Set(labels.filter((label) => label !== "O")
    .map((label) => (isBio ? label.slice(2) : label)))];
}

function wordTable({ words, tags, scores }) {
  const count = tags[0].filter((tag) => tag !== "").length;
  const rows = words[0].slice(0, count).map((word, index) => make("tr", {},
    make("td", { text: word }), make("td", { text: tags[0][index] }),
    make("td", { class: "value", text: percent(scores[0][index]) })));
  const head = ["Word", "Tag", "Probability"].map((text) => make("th", { scope: "col", text }));
  return make("details", {}, make("summary", { text: "All words" }),
    scroller({},
      make("table", { class: "plain", "aria-label": "All words and their tags" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows))));
}

function showSpan({ outputs, texts }) {
  const characters = Array.from(texts.context[0]);
  const [start, end] = [outputs.start[0], outputs.end[0]];
  const text = make("p", { class: "text" });
  if (start < 0) {
    text.append(texts.context[0]);
  } else {
    text.append(characters.slice(0, start).join(""));
    text.append(make("mark", { class: "span", text: characters.slice(start, end).join("") }));
    text.append(characters.slice(end).join(""));
  }
  const answer = outputs.answer[0] || "No answer in this context.";
  const odds = outputs.null_odds[0];
  const numbers = `Score ${decimal(outputs.score[0], 2)}; odds of no answer ` +
    `${odds === 1e6 ? "certain: there is no span" : decimal(odds, 2)}.`;
  return make("div", {},
    make("p", { class: "number words", text: answer }), text, make("p", { class: "note", text: numbers }));
}

const MASK = "[MASK]";

function showMasks({ outputs, texts, put }) {
  const text = texts.text[0];
  const pieces = outputs.pieces[0], probabilities = outputs.probabilities[0];
  const asked = text.split(MASK).length - 1;
  if (!asked) {
    return make("p", { class: "note", text: `Write ${MASK} where a word is to be filled in.` });
  }
  const masks = pieces.map((candidates, number) => {
    const rows = candidates.map((name, index) => ({
      name, value: probabilities[number][index], onPick: () => put(fillIn(text, number, name), true),
    }));
    const title = `Mask ${number + 1}`;
    return make("div", {}, make("h3", { text: title }), bars(rows, `${title}: candidates`));
  });
  if (pieces.length < asked) {
    masks.push(make("p", { class: "note", text: `${asked - pieces.length} more stand where the text is cut.` }));
  }
  return make("div", { class: "masks" }, ...masks);
}

// Puts a piece in the place of a mask; one that begins with ## joins the word before.
function fillIn(text, number, piece) {
  const parts = text.split(MASK);
  let before = parts.slice(0, number + 1).join(MASK);
  if (piece.startsWith("##")) before = before.trimEnd();
  return before + piece.replace(/^##/, "") + parts.slice(number + 1).join(MASK);
}

function showNext({ outputs }) {
  const value = outputs.is_next[0];
  const rows = [
    { name: "the second text follows the first", value },
    { name: "it does not", value: value === null ? null : 1 - value },
  ];
  rows[value > 0.5 ? 0 : 1].isOn = value !== null;
  return bars(rows, "Whether the second text follows the first");
}

function showSimilarity({ outputs, texts }) {
  const rows = texts.text.map((line, index) => `${index + 1}  ${line}`);
  const values = outputs.similarity;
  const table = matrix({
    rows,
    columns: rows.map((_, index) => String(index + 1)),
    valueAt: (row, column) => 0.6 * (values[row][column] ?? 0),
    textAt: (row, column) => decimal(values[row][column], 2),
    label: "Cosine similarity of each two lines",
  });
  const size = outputs.embedding[0].length;
  const note = `Cosine similarity of each two lines, from vectors of ${size} numbers; one line a text.`;
  return make("div", {}, table, make("p", { class: "note", text: note }));
}

function showPieces({ outputs }) {
  const pieces = outputs.pieces[0], ids = outputs.input_word_ids[0];
  const chips = pieces.map((piece, index) => make("li", { title: `id ${ids[index]}`, text: piece }));
  const list = make("ol", { class: "pieces", "aria-label": "Pieces of the text" }, ...chips);
  const shown = pieces.slice(0, 60), values = outputs.similarity[0];
  const status = make("p", { class: "note", "aria-live": "polite" });
  const note = "Cosine similarity of the pieces' vectors in the last layer: point at a cell.";
  status.textContent = note;
  const table = matrix({
    rows: shown,
    columns: shown,
    valueAt: (row, column) => values[row][column] ?? 0,
    textAt: (row, column) => decimal(values[row][column], 2),
    onCell: (row, column) => {
      status.textContent = `${shown[row]} and ${shown[column]}: ${decimal(values[row][column])}`;
    },
    label: "Cosine similarity of the pieces",
    isSmall: true,
  });
  return make("div", {}, list, status, table);
}
