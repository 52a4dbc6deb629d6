// Elements of the page. Texts only ever become text nodes, never markup.

// Makes an element: attributes by name, `text` its content, `on...` its listeners.
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export const percent = (value) =>
  value === null ? "not a number" : `${(100 * value).toFixed(value > 0.9995 && value < 1 ? 2 : 1)} %`;

export const decimal = (value, digits = 3) =>
  value === null ? "not a number" : value.toFixed(digits);

const asPercentage = (value) => `${Math.round(100 * Math.min(1, Math.max(0, value)))}%`;

// A list of names with bars behind them; `rows` hold name, value 0..1, and perhaps isOn, onPick and
// least, the value from which on a label applies, which is marked on the bar.
export function bars(rows, label) {
  const items = rows.map(({ name, value, isOn, onPick, least }) => {
    const fill = make("span", { class: "fill" });
    fill.style.width = asPercentage(value);
    const marks = least === undefined ? [] : [make("span", { class: "least", title: percent(least) })];
    for (const mark of marks) mark.style.left = asPercentage(least);
    const attributes = onPick ? { type: "button", title: "Put it in", onclick: onPick } : {};
    return make("li", { class: isOn ? "on" : "" },
      make(onPick ? "button" : "div", { class: "bar", ...attributes },
        make("span", { class: "name", text: (isOn ? "✓ " : "") + name }),
        make("span", { class: "value", text: percent(value) }),
        make("span", { class: "track", "aria-hidden": "true" }, fill, ...marks)));
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
  const head = columns.map((name) => make("th", { scope: "col" }, make("span", { text: name })));
  const body = rows.map((name, row) => {
    const cells = columns.map((_, column) => {
      const text = textAt(row, column);
      const cell = make("td", isSmall ? { "aria-label": text } : { text });
      cell.style.setProperty("--share", asPercentage(valueAt(row, column)));
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row", text: name }), ...cells);
  });
  const table = make("table", { class: isSmall ? "matrix small" : "matrix", "aria-label": label },
    make("thead", {}, make("tr", {}, make("td", { class: "corner" }), ...head)),
    make("tbody", {}, ...body));
  // Few cells may be large ones.
  table.style.setProperty("--cell", `${Math.min(2, Math.max(0.8, 28 / columns.length))}rem`);
  const box = scroller({ tabindex: "0", role: "region", "aria-label": label }, table);
  if (onCell) follow(table, onCell);
  return box;
}

// Lets the pointer and the arrow keys choose a cell.
function follow(table, onCell) {
  const cellAt = (row, column) => table.tBodies[0].rows[row]?.cells[column + 1];
  let row = 0, column = 0;
  const choose = (newRow, newColumn) => {
    if (newColumn < 0 || !cellAt(newRow, newColumn)) return;
    cellAt(row, column).classList.remove("chosen");
    [row, column] = [newRow, newColumn];
    cellAt(row, column).classList.add("chosen");
    onCell(row, column);
  };
  table.addEventListener("pointerover", ({ target }) => {
    const cell = target.closest("tbody td");
    if (cell) choose(cell.parentElement.rowIndex - 1, cell.cellIndex - 1);
  });
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  table.parentElement.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    choose(row + step[0], column + step[1]);
    cellAt(row, column).scrollIntoView({ block: "nearest", inline: "nearest" });
  });
}
