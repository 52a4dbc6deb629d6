// The attention panel: all heads small, one head large, numbers where one points.

import { decimal, make, matrix, scroller } from "./dom.js";

// Fills `panel`. `chosen` is the layer and head that somebody chose, kept up to date; else `head`.
export function showAttention(panel, { pieces, num_pieces, shape, probabilities, head }, chosen) {
  const [layers, heads, rows, columns] = shape;
  const bytes = Uint8Array.from(atob(probabilities), (character) => character.charCodeAt(0));
  const values = new DataView(bytes.buffer); // Of little-endian float32.
  const at = (layer, head, row, column) =>
    values.getFloat32(4 * (((layer * heads + head) * rows + row) * columns + column), true);
  const names = columns > rows ? [...pieces, "(others)"] : pieces;

  const pick = () => choose(Number(layerSelect.value), Number(headSelect.value));
  const layerSelect = numberSelect("layer", layers, pick);
  const headSelect = numberSelect("head", heads, pick);
  const status = make("p", { id: "cell", class: "note", "aria-live": "polite" });
  const strongest = make("p", { class: "note" });
  const large = make("div");
  const overview = make("div", { class: "overview", role: "group", "aria-label": "All heads" });
  overview.style.setProperty("--heads", heads);
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) {
      const valueAt = (row, column) => at(layer, head, row, column);
      overview.append(thumbnail(layer, head, rows, columns, valueAt, () => choose(layer, head)));
    }
  }

  const choose = (layer, head) => {
    Object.assign(chosen, { layer, head });
    draw(layer, head);
  };
  const draw = (layer, head) => {
    layerSelect.value = layer;
    headSelect.value = head;
    const label = `Attention of layer ${layer + 1}, head ${head + 1}`;
    const onCell = (row, column) => {
      status.textContent = `${names[row]} looks at ${names[column]}: ${decimal(at(layer, head, row, column))}`;
      const order = names.map((name, index) => ({ name, value: at(layer, head, row, index) }))
        .sort((a, b) => b.value - a.value).slice(0, 5);
      strongest.textContent = `${names[row]} looks most at ` +
        order.map(({ name, value }) => `${name} ${decimal(value, 2)}`).join(", ");
    };
    large.replaceChildren(matrix({
      rows: pieces, columns: names, onCell, label, isSmall: true,
      valueAt: (row, column) => Math.sqrt(at(layer, head, row, column)),
      textAt: (row, column) => decimal(at(layer, head, row, column)),
    }));
    status.textContent = `${label}: point at a cell, or use the arrow keys.`;
    strongest.textContent = "Each row sums to 1.";
    Array.from(overview.children).forEach((button, index) =>
      button.setAttribute("aria-pressed", index === layer * heads + head));
  };

  const all = num_pieces > rows
    ? `The row has ${num_pieces} pieces: the first ${rows} are shown, “(others)” is what the rest gets.`
    : `${num_pieces} pieces.`;
  panel.replaceChildren(
    make("p", { class: "note", text:
      `${all} Rows look, columns are looked at. Stronger colour is more (square root).` }),
    make("div", { class: "selects" },
      make("label", { text: "Layer ", for: "layer" }), layerSelect,
      make("label", { text: "Head ", for: "head" }), headSelect),
    make("div", { class: "attention" },
      make("div", {}, make("h3", { text: "All heads: a line a layer" }), scroller({}, overview)),
      make("div", {}, status, strongest, large)));
  draw(Math.min(chosen.layer ?? head[0], layers - 1), Math.min(chosen.head ?? head[1], heads - 1));
}

function numberSelect(id, count, onchange) {
  const options = Array.from({ length: count }, (_, i) => make("option", { value: i, text: i + 1 }));
  return make("select", { id, onchange }, ...options);
}

// A button with the head's matrix, a dot a cell.
function thumbnail(layer, head, rows, columns, valueAt, onclick) {
  const canvas = make("canvas", { width: columns, height: rows, "aria-hidden": "true" });
  const image = new ImageData(columns, rows);
  for (let index = 0; index < rows * columns; index++) {
    const alpha = 255 * Math.sqrt(valueAt(Math.floor(index / columns), index % columns));
    image.data.set([25, 75, 175, alpha], 4 * index);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  const label = `Layer ${layer + 1}, head ${head + 1}`;
  return make("button", { type: "button", title: label, "aria-label": label, onclick }, canvas);
}
