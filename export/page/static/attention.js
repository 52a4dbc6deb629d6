// The attention panel: all heads small, one head large, numbers where one points.

import { decimal, make, matrix, scroller } from "./dom.js";

const MOST_NAMED = 5;

// Decodes base64 of little-endian float32.
export function decodeFloats(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

// Fills `panel`. `chosen` is the layer and head that somebody chose, kept up to date; else `head`.
export function showAttention(panel, { pieces, num_pieces, shape, probabilities, head }, chosen) {
  const [layers, heads, rows, columns] = shape;
  const values = decodeFloats(probabilities);
  const at = (layer, head, row, column) =>
    values[((layer * heads + head) * rows + row) * columns + column];
  const names = columns > rows ? [...pieces, "(others)"] : pieces;
  const [firstLayer, firstHead] = chosen.head === null ? head : [chosen.layer, chosen.head];
  const shown = { layer: Math.min(firstLayer, layers - 1), head: Math.min(firstHead, heads - 1) };

  const layerSelect = numberSelect("layer", "Layer", layers);
  const headSelect = numberSelect("head", "Head", heads);
  const status = make("p", { id: "cell", class: "note", "aria-live": "polite" });
  const strongest = make("p", { class: "note" });
  const large = make("div");
  const overview = make("div", { class: "overview", role: "group", "aria-label": "All heads" });
  overview.style.setProperty("--heads", heads);

  const onCell = (row, column) => {
    const value = at(shown.layer, shown.head, row, column);
    status.textContent = `${names[row]} looks at ${names[column]}: ${decimal(value)}`;
    const order = names.map((name, index) => ({ name, value: at(shown.layer, shown.head, row, index) }))
      .sort((a, b) => b.value - a.value).slice(0, MOST_NAMED);
    strongest.textContent = `${names[row]} looks most at ` +
      order.map((part) => `${part.name} ${decimal(part.value, 2)}`).join(", ");
  };
  const draw = () => {
    layerSelect.value = shown.layer;
    headSelect.value = shown.head;
    const label = `Attention of layer ${shown.layer + 1}, head ${shown.head + 1}`;
    large.replaceChildren(matrix({
      rows: pieces,
      columns: names,
      valueAt: (row, column) => Math.sqrt(at(shown.layer, shown.head, row, column)),
      textAt: (row, column) => decimal(at(shown.layer, shown.head, row, column)),
      onCell,
      label,
      isSmall: true,
    }));
    status.textContent = `${label}: point at a cell, or use the arrow keys.`;
    strongest.textContent = "Each row sums to 1.";
    for (const button of overview.children) {
      const isChosen = Number(button.dataset.layer) === shown.layer && Number(button.dataset.head) === shown.head;
      button.setAttribute("aria-pressed", isChosen);
    }
  };
  const choose = (layer, head) => {
    for (const place of [chosen, shown]) Object.assign(place, { layer, head });
    draw();
  };
  for (const select of [layerSelect, headSelect]) {
    select.addEventListener("change", () => choose(Number(layerSelect.value), Number(headSelect.value)));
  }
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      overview.append(thumbnail(layer, head, rows, columns, at, () => choose(layer, head)));
    }
  }
  const all = num_pieces > rows
    ? `The row has ${num_pieces} pieces: the first ${rows} are shown, “(others)” is what the rest gets.`
    : `${num_pieces} pieces.`;
  const notes = make("p", { class: "note", text:
    `${all} Rows look, columns are looked at. Stronger colour is more (square root).` });
  panel.replaceChildren(notes,
    make("div", { class: "selects" },
      make("label", { text: "Layer ", for: "layer" }), layerSelect,
      make("label", { text: "Head ", for: "head" }), headSelect),
    make("div", { class: "attention" },
      make("div", {}, make("h3", { text: "All heads: a line a layer" }), scroller({}, overview)),
      make("div", {}, status, strongest, large)));
  draw();
}

function numberSelect(id, label, count) {
  const options = Array.from({ length: count }, (_, i) => make("option", { value: i, text: i + 1 }));
  return make("select", { id, "aria-label": label }, ...options);
}

// A button with the head's matrix, a dot a cell, in the colour of the text.
function thumbnail(layer, head, rows, columns, at, onClick) {
  const canvas = make("canvas", { width: columns, height: rows, "aria-hidden": "true" });
  const image = new ImageData(columns, rows);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const [red, green, blue] = dark ? [140, 180, 255] : [25, 75, 175];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const alpha = 255 * Math.sqrt(at(layer, head, row, column));
      image.data.set([red, green, blue, alpha], 4 * (row * columns + column));
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  const label = `Layer ${layer + 1}, head ${head + 1}`;
  return make("button", {
    type: "button", title: label, "aria-label": label, "data-layer": layer, "data-head": head,
    onclick: onClick,
  }, canvas);
}
