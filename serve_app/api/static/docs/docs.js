// The reference, made from /openapi.json: what each operation takes and gives, and a box to try it.

const KEY = "afa-key"; // the playground's: a key that was given there need not be given again
const SENDABLE = /^[!-~]*$/; // a header takes no other key
const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
};
const code = (text) => make("code", {}, text);
/** Text with `words` in backticks as code. */
const prose = (text = "") => text.split(/`([^`]+)`/).map((part, i) => (i % 2 ? code(part) : part));
const paragraphs = (text = "") => text.split("\n\n").map((part) => make("p", {}, prose(part)));
const key = () => sessionStorage.getItem(KEY) ?? "";

const nameOf = (reference) => reference.split("/").pop();
function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return nameOf(schema.$ref);
  const one = schema.anyOf ?? schema.oneOf;
  if (one) return one.map(kind).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `array of ${kind(schema.items)}`;
  return schema.format ? `${schema.type} (${schema.format})` : schema.type ?? "any";
}
const BOUNDS = { minimum: "at least", maximum: "at most", minLength: "length at least", maxLength: "length at most", minItems: "items at least", maxItems: "items at most", default: "default" };
const bounds = (schema = {}) => {
  const told = { ...schema.anyOf?.[0], ...schema }; // the other is null
  return Object.entries(BOUNDS).filter(([name]) => told[name] !== undefined).map(([name, words]) => `${words} ${JSON.stringify(told[name])}`).join(", ");
};
const notes = (description, schema) => [...prose(description), " ", make("span", { class: "dim" }, bounds(schema))];
const table = (heads, rows) => make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `Table: ${heads.join(", ")}` }, make("table", {},
  make("tr", {}, heads.map((head) => make("th", { scope: "col" }, head))),
  rows.map((cells) => make("tr", {}, cells.map((cell) => make("td", {}, cell))))));

/** What is filled when it is opened first: a page of all fields at once takes a phone seconds. */
function fold(summary, fill, isOpen = false) {
  const fillOnce = () => box.childElementCount > 1 || box.append(...fill().flat().filter(Boolean));
  const box = make("details", { open: isOpen && "", ontoggle: fillOnce }, make("summary", {}, summary));
  if (isOpen) fillOnce(); // now: what stands below is scrolled to
  return box;
}

function fields(name, root) {
  const schema = root.components.schemas[name];
  const required = new Set(schema.required ?? []);
  return table(["Field", "Type", "Meaning"], Object.entries(schema.properties ?? {}).map(([field, one]) => [code(field + (required.has(field) ? " *" : "")), kind(one), notes(one.description, one)]));
}
const references = (schema) => (!schema ? [] : schema.$ref ? [nameOf(schema.$ref)] : (schema.anyOf ?? schema.oneOf ?? []).flatMap(references));
const content = (media, root) => Object.entries(media ?? {}).flatMap(([type, one]) => [
  make("p", { class: "dim" }, type),
  ...references(one.schema).map((name) => fold(code(name), () => [fields(name, root)])),
  one.example === undefined ? null : make("pre", { tabindex: 0 }, JSON.stringify(one.example, null, 2)),
]);

/** An address with the examples of its parameters in it. */
function exampleOf(path, one) {
  const value = (parameter) => parameter.schema?.examples?.[0] ?? parameter.example ?? "";
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(value(one.parameters?.find((parameter) => parameter.name === name) ?? {}) || `{${name}}`));
  const asked = (one.parameters ?? []).filter((parameter) => parameter.in === "query" && parameter.required);
  return filled + (asked.length ? `?${new URLSearchParams(asked.map((parameter) => [parameter.name, value(parameter)]))}` : "");
}
const jsonOf = (one, root) => {
  const schema = one.requestBody?.content["application/json"]?.schema;
  const [name] = references(schema);
  if (!name) return "";
  const { properties, required } = root.components.schemas[name];
  const told = required ?? Object.keys(properties).filter((field) => properties[field].examples);
  return JSON.stringify(Object.fromEntries(told.map((field) => [field, properties[field].examples?.[0] ?? ""])));
};
const takesFile = (one) => Boolean(one.requestBody?.content["multipart/form-data"]);

function curl(path, method, one, root) {
  const body = takesFile(one) ? " -F file=@track.mp3" : one.requestBody ? ` -d '${jsonOf(one, root)}'` : "";
  const verb = ["get", "post"].includes(method) ? "" : ` -X ${method.toUpperCase()}`;
  const auth = one.security ? ' -H "Authorization: Bearer $KEY"' : "";
  return `curl${verb}${auth}${body} \\\n  '${location.origin}${exampleOf(path, one)}'`;
}

/** A box that sends the request with what is written into it. */
function tryBox(path, method, one, root) {
  const label = (name, input) => make("label", {}, name, input);
  const address = make("input", { value: exampleOf(path, one), spellcheck: "false" });
  const json = one.requestBody ? make("textarea", { spellcheck: "false" }) : null;
  if (json && !takesFile(one)) json.value = jsonOf(one, root);
  const file = takesFile(one) ? make("input", { type: "file" }) : null;
  const answer = make("div", { "aria-live": "polite" });
  const send = async (event) => {
    event.preventDefault();
    if (one.security && !SENDABLE.test(key())) {
      answer.replaceChildren(make("p", {}, "This API key is not valid; it may have been mistyped."));
      return;
    }
    const headers = one.security ? { Authorization: `Bearer ${key()}` } : {};
    let body;
    if (file?.files[0]) {
      body = new FormData();
      body.append("file", file.files[0]);
    } else if (json?.value) body = json.value;
    answer.replaceChildren(make("p", { class: "dim" }, "…"));
    try {
      const began = performance.now();
      const given = await fetch(address.value, { method: method.toUpperCase(), headers, body });
      const text = await given.text();
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* no JSON: as it is */ }
      answer.replaceChildren(make("p", {}, make("b", {}, `${given.status} ${given.statusText}`), ` in ${Math.round(performance.now() - began)} ms`), make("pre", { tabindex: 0 }, shown));
    } catch {
      answer.replaceChildren(make("p", {}, "The service does not answer."));
    }
  };
  return make("details", {}, make("summary", {}, "Try it"), make("form", { onsubmit: send },
    label("Address", address), file && label("Audio file", file), json && label(file ? "or JSON" : "JSON", json), make("button", {}, "Send"), answer));
}

const operation = (path, method, one, root) => make("section", { id: one.operationId },
  make("h2", {}, make("span", { class: `m ${method}` }, method.toUpperCase()), code(path)),
  make("p", {}, make("b", {}, one.summary ?? "")),
  paragraphs(one.description),
  make("pre", { tabindex: 0 }, curl(path, method, one, root)),
  tryBox(path, method, one, root),
  one.parameters?.length ? [make("h3", {}, "Parameters"), table(["Parameter", "In", "Type", "Meaning"], one.parameters.map((parameter) => [
    code(parameter.name + (parameter.required ? " *" : "")), parameter.in, kind(parameter.schema), notes(parameter.description, parameter.schema)]))] : null,
  one.requestBody ? [make("h3", {}, "Body"), ...paragraphs(one.requestBody.description), ...content(one.requestBody.content, root)] : null,
  make("h3", {}, "Answers"),
  Object.entries(one.responses).map(([status, answer]) => fold([code(status), " ", answer.description], () => [
    Object.keys(answer.headers ?? {}).length ? make("p", { class: "dim" }, `Headers: ${Object.keys(answer.headers).join(", ")}`) : null,
    ...content(answer.content, root)], status < 300)));

const keyBox = () => make("div", { class: "key" }, make("label", {}, "API key for the boxes below; it stays in this tab",
  make("input", { type: "password", autocomplete: "off", value: key(), placeholder: "afa_live_…", oninput: (event) => sessionStorage.setItem(KEY, event.target.value.trim()) })));

function show(root) {
  const groups = new Map();
  for (const [path, methods] of Object.entries(root.paths))
    for (const [method, one] of Object.entries(methods)) {
      const tag = one.tags?.[0] ?? "Other";
      groups.set(tag, [...(groups.get(tag) ?? []), [path, method, one]]);
    }
  const last = groups.get("Health"); // probes are for operators
  groups.delete("Health");
  if (last) groups.set("Health", last);
  const nav = document.querySelector("nav");
  const main = document.getElementById("reference");
  main.replaceChildren(make("h1", {}, `${root.info.title} ${root.info.version}`), ...paragraphs(root.info.description),
    make("p", {}, "Machine-readable: ", make("a", { href: "/openapi.json" }, "/openapi.json")), keyBox());
  for (const [tag, operations] of groups) {
    nav.append(make("p", { class: "group" }, tag));
    for (const [path, method, one] of operations) {
      nav.append(make("a", { href: `#${one.operationId}` }, make("span", { class: "dim" }, `${method.toUpperCase()} `), path));
      main.append(operation(path, method, one, root));
    }
  }
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

fetch("/", { method: "HEAD" }).then((answer) => (document.getElementById("home").hidden = !answer.ok)); // not every service shows it

const wide = matchMedia("(min-width: 801px)");
const unfold = () => (document.getElementById("contents").open = wide.matches);
wide.addEventListener("change", unfold);
unfold();
fetch("/openapi.json").then((answer) => answer.json()).then(show, () => {
  document.getElementById("reference").replaceChildren(make("p", {}, "The service does not answer; load the page again."));
});
