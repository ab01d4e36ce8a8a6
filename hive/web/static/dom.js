// Makes elements without HTML text, so that no text of a run can become markup.

// h("div.card", {title: "x"}, "text", element, [more]): null and false are left out
export function h(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "css") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...present(children));
  return element;
}

// Replaces the children of an element, by the rules of `h`.
export function put(element, ...children) {
  element.replaceChildren(...present(children));
}

const present = (children) =>
  children.flat(Infinity).filter((child) => child !== null && child !== false && child !== undefined);

export const percent = (share) => `${(100 * Math.min(Math.max(share || 0, 0), 1)).toFixed(1)}%`;

// A table with a heading; rows are arrays of texts or elements. numbers: indices of columns aligned to the right
export function table(heading, rows, { numbers = [], kind = "table" } = {}) {
  const side = (index) => (numbers.includes(index) ? "number" : "");
  return h(kind, {},
    h("thead", {}, h("tr", {}, heading.map((text, i) => h("th", { className: side(i), scope: "col" }, text)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, i) => h("td", { className: side(i) }, cell))))));
}

export const clock = (t) => new Date(t * 1000).toLocaleTimeString("en-GB");

// The value of a color of style.css, as canvas needs it.
const probe = document.createElement("span");
probe.hidden = true;
export function color(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// --- numbers on axes; all others come as text from the server

export function amount(value) {
  const size = Math.abs(value);
  for (const [limit, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) return `${+(value / (unit === "k" ? 1e3 : limit)).toPrecision(4)}${unit}`;
  }
  return size >= 1000 ? String(Math.round(value)) : String(+value.toPrecision(4));
}

export function span(seconds) {
  if (seconds < 60) return `${+seconds.toFixed(seconds < 10 ? 1 : 0)}s`;
  const minutes = Math.floor(seconds / 60), two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (minutes < 60) return `${minutes}:${two(seconds % 60)}`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`;
}
