// Elements of the page. Texts only ever become text nodes, never markup.

// Makes an element: attributes by name, `text` its content, `on...` its listeners.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export const percent = (value) =>
  value === null ? "not a number" : `${(100 * value).toFixed(value > 0.9995 && value < 1 ? 2 : 1)} %`;

export const decimal = (value, digits = 3) =>
  value === null ? "not a number" : value.toFixed(digits);

// A list of names with bars behind them; `rows` hold name, value 0..1, and perhaps isOn, onPick.
export function bars(rows, label) {
  const items = rows.map(({ name, value, isOn = false, onPick }) => {
    const fill = make("span", { class: "fill" });
    fill.style.width = `${100 * Math.min(1, Math.max(0, value ?? 0))}%`;
    const parts = [
      make("span", { class: "name", text: (isOn ? "✓ " : "") + name }),
      make("span", { class: "value", text: percent(value) }),
      make("span", { class: "track", "aria-hidden": "true" }, fill),
    ];
    const row = onPick
      ? make("button", { type: "button", class: "bar", title: "Put it in", onclick: onPick }, ...parts)
      : make("div", { class: "bar" }, ...parts);
    return make("li", isOn ? { class: "on" } : {}, row);
  });
  return make("ul", { class: "bars", "aria-label": label }, ...items);
}

// A box whose content may be wider than the page. As phones show no scrollbar until one scrolls, its
// right edge fades while there is more behind it, and a line says so.
export function scroller(attributes, content) {
  const box = make("div", { class: "scroller", ...attributes }, content);
  const hint = make("p", { class: "note hint", text: "Wider than the page: scroll sideways." });
  const look = () => {
    box.classList.toggle("cut", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
    hint.hidden = box.scrollWidth <= box.clientWidth;
  };
  box.addEventListener("scroll", look);
  new ResizeObserver(look).observe(box);
  return make("div", {}, hint, box);
}

// A table of cells whose background says how much, with names along both sides.
//   valueAt(row, column): 0..1 for the colour; textAt(row, column): what stands in the cell;
//   onCell(row, column): called when a cell is pointed at, or reached with the arrow keys.
export function matrix({ rows, columns, valueAt, textAt, onCell, label, isSmall = false }) {
  const head = make("tr", {}, make("td", { class: "corner" }),
    ...columns.map((name) => make("th", { scope: "col" }, make("span", { text: name }))));
  const body = rows.map((name, row) => {
    const cells = columns.map((_, column) => {
      const text = textAt(row, column);
      const cell = make("td", isSmall ? { "aria-label": text } : { text });
      cell.style.setProperty("--share", `${Math.round(100 * Math.min(1, Math.max(0, valueAt(row, column))))}%`);
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row", text: name }), ...cells);
  });
  const table = make("table", { class: isSmall ? "matrix small" : "matrix", "aria-label": label },
    make("thead", {}, head), make("tbody", {}, ...body));
  // Few cells may be large ones.
  if (isSmall) table.style.setProperty("--cell", `${Math.min(2, Math.max(0.8, 28 / columns.length))}rem`);
  const box = scroller({ tabindex: "0", role: "region", "aria-label": label }, table);
  if (onCell) follow(box, table, rows.length, columns.length, onCell);
  return box;
}

// Lets the pointer and the arrow keys choose a cell.
function follow(box, table, height, width, onCell) {
  let row = 0, column = 0;
  const cellAt = () => table.tBodies[0].rows[row].cells[column + 1];
  const choose = (newRow, newColumn) => {
    cellAt().classList.remove("chosen");
    row = Math.min(height - 1, Math.max(0, newRow));
    column = Math.min(width - 1, Math.max(0, newColumn));
    cellAt().classList.add("chosen");
    onCell(row, column);
  };
  table.addEventListener("pointerover", (event) => {
    const cell = event.target.closest("tbody td");
    if (cell) choose(cell.parentElement.rowIndex - 1, cell.cellIndex - 1);
  });
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  box.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    choose(row + step[0], column + step[1]);
    cellAt().scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}
