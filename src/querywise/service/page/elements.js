// Elements. Everything that comes from the service goes in as text, never as markup.

export const at = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

export const unseen = (text) => make("span", { class: "unseen", text });

/** A number to read, and the very number the service gave for whoever wants it. */
export function number(value, { sign = false, percent = false } = {}) {
  return make("data", { value: String(value), text: written(value, sign, percent) });
}

export function written(value, sign = false, percent = false) {
  const size = Math.abs(percent ? 100 * value : value);
  let digits = percent ? 1 : Math.min(Math.max(2 - Math.floor(Math.log10(size || 1)), 0), 4);
  if (size > 0 && Number(size.toFixed(digits)) === 0) digits = percent ? 2 : 6;
  const shown = size.toFixed(digits);
  const mark = Number(shown) === 0 ? "" : value < 0 ? "−" : sign ? "+" : "";
  return mark + (Number(shown) === 0 ? "0" : shown) + (percent ? " %" : "");
}

export const counted = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/** A bar from a middle line, to the left below 0 and to the right above it. */
export function bar(value, most, kind) {
  const share = most > 0 ? (50 * Math.abs(value)) / most : 0;
  const made = make("span", { class: `bar ${kind}` });
  made.style.left = `${value < 0 ? 50 - share : 50}%`;
  made.style.width = `${share}%`;
  return made;
}

export const bars = (...made) => make("span", { class: "bars", "aria-hidden": "true" }, ...made);
export const largest = (values) => Math.max(...values.map(Math.abs), 0);

export function full(value, most) {
  const made = make("span", { class: "bar here" });
  made.style.left = "0";
  made.style.width = `${most > 0 ? (100 * value) / most : 0}%`;
  return make("span", { class: "bars plain", "aria-hidden": "true" }, made);
}

export const legend = () => make("p", { class: "legend", "aria-hidden": "true" },
  make("span", { class: "here", text: "this query’s model" }), make("span", { class: "everyone", text: "one model for all" }));

export const named = (query) => query.text || `Query ${query.id}`;
export const kind = (query) => (query.class ? make("span", { class: "kind", text: query.class }) : null);
