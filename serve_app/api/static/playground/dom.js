// Elements without a framework: text is always text, never markup.

export const $ = (id) => document.getElementById(id);

/** Make an element; `on…` attributes are listeners; `false` and `null` ones are left out, but `aria-…=false` is not. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("aria-")) node.setAttribute(name, value);
    else if (value === false || value === null || value === undefined) continue;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Seconds as `3:05`. */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

/** A number with its sign as it is printed, not a hyphen. */
export const signed = (value, digits) => value.toFixed(digits).replace("-", "−");

/** The value of a colour of the style sheet, as it is now: light or dark. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
