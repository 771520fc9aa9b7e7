// What all views share. Whatever comes from a workflow is text: it goes into text nodes, never into markup.

const SVG = "http://www.w3.org/2000/svg";
const PATIENCE = 1000;

// Controls, and what changes the direction of the text around it, are written as their codes.
function plain(text) {
  return String(text ?? "").replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]/gu,
    (found) => `\\u${found.codePointAt(0).toString(16).padStart(4, "0")}`,
  );
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.map((child) => (child instanceof Node ? child : plain(child))));
  return element;
}

const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const words = (status) => String(status).replaceAll("_", " ");
const chip = (status) => make("span", { class: "pwnb-chip", "data-status": status }, words(status));
const moment = (ms) => (ms == null ? "" : new Date(ms).toLocaleString());

function duration(ms) {
  if (ms == null) return "";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.floor(ms / 1000);
  for (const [large, small, one, other] of [[86400, 3600, "d", "h"], [3600, 60, "h", "min"], [60, 1, "min", "s"]]) {
    if (seconds >= large) return `${Math.floor(seconds / large)} ${one} ${Math.floor((seconds % large) / small)} ${other}`;
  }
}

function table(columns, rows, cell = (value) => value) {
  const head = make("thead", {}, make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name))));
  const lines = rows.map((row) => make("tr", {}, ...row.map((value, at) => make("td", {}, cell(value, at, row)))));
  return make("table", {}, head, make("tbody", {}, ...lines));
}

// What a person asks for goes to the kernel, which says at once that it has heard. When it does not, a cell is in the way.
class Wishes {
  constructor(model) {
    this.model = model;
    this.line = make("div", { class: "pwnb-said", role: "status" });
    this.number = 0;
    this.waiting = new Map();
  }
  ask(wish, words) {
    const number = ++this.number;
    if (words) {
      this.say(`${words} …`);
      const late = () => this.say(`${words}: waits for the cell that is running; Kernel → Interrupt ends it, and the command line works beside it`);
      this.waiting.set(number, setTimeout(late, PATIENCE));
    }
    this.model.send({ ...wish, number });
  }
  hear(message) {
    if (message.heard !== undefined && this.waiting.has(message.heard)) {
      clearTimeout(this.waiting.get(message.heard));
      this.waiting.delete(message.heard);
    }
    if (message.said !== undefined) this.say(message.said, message.failed);
  }
  say(text, failed = false) {
    this.line.setAttribute("role", failed ? "alert" : "status");
    this.line.classList.toggle("pwnb-failed", failed);
    this.line.replaceChildren(plain(text));
  }
  end() {
    this.waiting.forEach(clearTimeout);
  }
}

function button(text, tooltip, pressed, more = {}) {
  return make("button", { type: "button", title: tooltip, click: pressed, ...more }, text);
}

// Keys pressed in a view are the view's: a notebook would take Enter for its own.
function own(el) {
  el.classList.add("pwnb");
  el.setAttribute("data-lm-suppress-shortcuts", "true");
  el.addEventListener("keydown", (event) => event.stopPropagation());
}

// Follows traits and messages of a model until it is ended.
function follow(model, names, changed, heard) {
  for (const name of names) model.on(`change:${name}`, changed);
  model.on("msg:custom", heard);
  return () => {
    for (const name of names) model.off(`change:${name}`, changed);
    model.off("msg:custom", heard);
  };
}
