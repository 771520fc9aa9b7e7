// One run: its graph, its timeline with a playhead, the inspector, and exactly the controls that the server allows.

const CONTROLS = {
  pause: ["Pause", "Park the run at its last durable boundary"],
  resume: ["Resume", "Let the run go on"],
  cancel: ["Cancel", "End the run now"],
  restart: ["Restart", "Start the run once more, as a new one"],
};
const TABS = ["Steps", "Output", "Updates", "Progress", "Effects", "Events", "Logs", "Info"];
const SPEEDS = [1, 2, 5, 10];
const ASK_AGAIN = 1000;
const STEP = { index: 0, node: 1, status: 2, started: 3, finished: 4, attempt: 5 };

class RunView {
  constructor(model, el) {
    this.model = model;
    this.wishes = new Wishes(model);
    this.at = null; // the position of the playhead among the steps; null follows the run
    this.node = null;
    this.tab = "Steps";
    this.playing = null;
    this.build(el);
    this.drawGraph();
    this.update();
    this.leave = follow(model, ["picture", "steps"], () => this.update(), (message) => this.hear(message));
    model.on("change:graph", (this.graphChanged = () => { this.drawGraph(); this.update(); }));
    this.clock = setInterval(() => this.tick(), 1000);
  }

  build(el) {
    this.head = make("div", { class: "pwnb-head" });
    this.reason = make("div", { class: "pwnb-reason" });
    this.buttons = {};
    for (const [name, [text, tooltip]] of Object.entries(CONTROLS)) {
      this.buttons[name] = button(text, tooltip, () => this.wishes.ask({ act: name }, text), { hidden: true });
    }
    this.box = make("input", { type: "text", "aria-label": "answer", placeholder: "JSON, or plain text" });
    this.answer = make("form", { class: "pwnb-answer", hidden: true, submit: (event) => this.send(event) },
      make("label", {}, "Answer ", this.box), make("button", { type: "submit" }, "Send"));
    this.graph = make("div", { class: "pwnb-graph", tabindex: 0, role: "group", "aria-label": "graph of the run" });
    this.lines = draw("svg", { class: "pwnb-lines", role: "img", "aria-label": "timeline", preserveAspectRatio: "none" });
    this.head2 = make("span", { class: "pwnb-where", "aria-live": "polite" });
    this.slider = make("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "step", input: () => this.scrub(Number(this.slider.value)) });
    this.play = button("Play", "Play the steps one after the other", () => this.toggle());
    this.speed = make("select", { "aria-label": "speed" }, ...SPEEDS.map((speed) => make("option", { value: speed }, `${speed}×`)));
    this.live = button("Live", "Follow the run", () => this.scrub(null), { "aria-pressed": "true" });
    this.tabs = make("div", { role: "tablist", class: "pwnb-tabs", "aria-label": "inspector", keydown: (event) => this.turn(event) });
    for (const name of TABS) {
      this.tabs.append(button(name, name, () => this.choose(name), { role: "tab", "data-tab": name }));
    }
    this.about = make("div", { class: "pwnb-about" });
    this.panel = make("div", { role: "tabpanel", class: "pwnb-panel", tabindex: 0, "aria-label": "inspector" });
    own(el);
    el.append(
      this.head, this.reason,
      make("div", { class: "pwnb-bar" }, ...Object.values(this.buttons), this.answer), this.wishes.line,
      make("div", { class: "pwnb-main" }, this.graph, make("div", { class: "pwnb-inspector" }, this.tabs, this.about, this.panel)),
      make("div", { class: "pwnb-time" }, this.lines, make("div", { class: "pwnb-bar" }, this.play, this.speed, this.slider, this.live, this.head2)),
    );
    this.mark();
  }

  drawGraph() {
    const graph = this.model.get("graph");
    this.cards = new Map();
    this.ways = [];
    if (!graph.nodes) return;
    const svg = draw("svg", { width: graph.width, height: graph.height, viewBox: `-2 -2 ${graph.width} ${graph.height}` });
    for (const link of graph.links) {
      const way = draw("path", { d: link.path + link.head, class: "pwnb-way", "stroke-dasharray": link.back ? "4 3" : null });
      svg.append(way);
      this.ways.push([link, way]);
      if (link.label) svg.append(draw("text", { x: link.x, y: link.y, "text-anchor": link.anchor, class: "pwnb-label" }, link.label));
    }
    for (const node of graph.nodes) {
      const title = draw("title");
      const second = draw("text", { x: node.x + 10, y: node.y + 33, class: "pwnb-second" });
      const card = draw("g", { class: "pwnb-card", role: "button", tabindex: 0, "aria-pressed": "false" }, title,
        draw("rect", { x: node.x, y: node.y, width: graph.card[0], height: graph.card[1], rx: 6 }),
        draw("text", { x: node.x + 10, y: node.y + 17, class: "pwnb-name" }, node.shown), second);
      card.addEventListener("click", () => this.select(node.name));
      card.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.select(node.name); }
      });
      svg.append(card);
      this.cards.set(node.name, { card, title, second, node, told: null });
    }
    this.graph.replaceChildren(svg);
  }

  get steps() { return this.model.get("steps"); }

  // The run as it stands, or as it stood at the playhead.
  shown() {
    const picture = this.model.get("picture");
    if (this.at === null) {
      return { nodes: picture.nodes, taken: new Set(picture.taken.map((pair) => pair.join("\0"))), current: picture.current };
    }
    const nodes = {}, taken = new Set();
    let before = null;
    for (const step of this.steps.slice(0, this.at + 1)) {
      const node = step[STEP.node];
      nodes[node] = [step[STEP.status], (nodes[node]?.[1] ?? 0) + 1, step[STEP.started], step[STEP.finished]];
      if (before !== null) taken.add(`${before}\0${node}`);
      before = node;
    }
    return { nodes, taken, current: before };
  }

  update() {
    const picture = this.model.get("picture");
    if (!picture.status) return;
    for (const [name, control] of Object.entries(this.buttons)) control.hidden = !picture.controls.includes(name);
    this.answer.hidden = !picture.controls.includes("answer");
    this.reason.replaceChildren(...[picture.reason, picture.note].filter(Boolean).map((text) => make("div", {}, text)));
    if (picture.error) this.reason.append(make("details", {}, make("summary", {}, "error"), make("pre", {}, picture.error)));
    this.drawHead();
    this.drawTimeline();
    this.drawState();
    if (this.tab === "Steps" || this.tab === "Info") this.inspect();
    else this.askSoon();
  }

  drawHead() {
    const picture = this.model.get("picture");
    const length = (picture.finishedAt ?? Date.now()) - picture.createdAt;
    this.head.replaceChildren(
      chip(picture.status), make("strong", {}, picture.title || picture.workflow),
      make("span", { class: "pwnb-muted" },
        `${picture.title ? `${picture.workflow} · ` : ""}${picture.steps} ${picture.steps === 1 ? "step" : "steps"} · ${duration(length)} · started ${moment(picture.createdAt)}`),
      make("code", {}, picture.runId));
  }

  drawState() {
    const { nodes, taken, current } = this.shown();
    for (const [name, entry] of this.cards) {
      const about = nodes[name];
      let told = entry.node.kind;
      if (about) {
        told += ` · ${words(about[0])}${about[1] > 1 ? ` ×${about[1]}` : ""}`;
        if (about[2] != null && about[3] != null) told += ` · ${duration(about[3] - about[2])}`;
      }
      const key = `${told}\0${about?.[0]}\0${name === current}\0${name === this.node}`;
      if (key === entry.told) continue;
      entry.told = key;
      entry.second.textContent = plain(told);
      entry.title.textContent = plain(`${entry.node.shown}: ${told}`);
      entry.card.dataset.status = about?.[0] ?? "";
      entry.card.classList.toggle("pwnb-current", name === current);
      entry.card.setAttribute("aria-pressed", String(name === this.node));
      entry.card.setAttribute("aria-label", plain(`${entry.node.shown}: ${told}`));
    }
    for (const [link, way] of this.ways) way.classList.toggle("pwnb-taken", taken.has(`${link.source}\0${link.target}`));
  }

  drawTimeline() {
    const steps = this.steps, picture = this.model.get("picture");
    const first = steps[0]?.[STEP.started] ?? picture.createdAt;
    const last = Math.max(first + 1, ...steps.slice(-50).map((step) => step[STEP.finished] ?? step[STEP.started] ?? first));
    const scale = 1000 / (last - first);
    this.lines.setAttribute("viewBox", "0 0 1000 20");
    this.lines.replaceChildren(...steps.map((step, at) => {
      const start = step[STEP.started] ?? first, end = step[STEP.finished] ?? last;
      return draw("rect", { x: (start - first) * scale, width: Math.max(2, (end - start) * scale), y: 4, height: 12, "data-status": step[STEP.status], class: at === this.at ? "pwnb-here" : "" });
    }));
    const most = Math.max(0, steps.length - 1);
    this.slider.max = most;
    this.slider.value = this.at ?? most;
    this.slider.disabled = this.play.disabled = steps.length === 0;
    const step = steps[this.at ?? most];
    const where = step ? `step ${step[STEP.index] + 1} of ${picture.steps}: ${step[STEP.node]}` : "no steps yet";
    this.slider.setAttribute("aria-valuetext", plain(where));
    this.head2.textContent = plain(where);
    this.live.setAttribute("aria-pressed", String(this.at === null));
  }

  scrub(at) {
    this.at = at === null ? null : Math.max(0, Math.min(at, this.steps.length - 1));
    if (at === null) this.stop();
    this.drawTimeline();
    this.drawState();
  }

  toggle() {
    if (this.playing) return this.stop();
    if (this.at === null || this.at >= this.steps.length - 1) this.scrub(0);
    this.play.textContent = "Stop";
    const next = () => {
      if (this.at === null || this.at >= this.steps.length - 1) return this.stop();
      this.scrub(this.at + 1);
      this.playing = setTimeout(next, 1000 / Number(this.speed.value));
    };
    this.playing = setTimeout(next, 1000 / Number(this.speed.value));
  }

  stop() {
    clearTimeout(this.playing);
    this.playing = null;
    this.play.textContent = "Play";
  }

  send(event) {
    event.preventDefault();
    this.wishes.ask({ act: "answer", text: this.box.value }, "Answer");
  }

  select(name) {
    this.node = this.node === name ? null : name;
    this.drawState();
    this.inspect();
  }

  choose(name) {
    this.tab = name;
    this.mark();
    this.inspect();
  }

  turn(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.choose(TABS[(TABS.indexOf(this.tab) + step + TABS.length) % TABS.length]);
    this.tabs.querySelector('[aria-selected="true"]').focus();
  }

  mark() {
    for (const tab of this.tabs.children) {
      tab.setAttribute("aria-selected", String(tab.dataset.tab === this.tab));
      tab.tabIndex = tab.dataset.tab === this.tab ? 0 : -1;
    }
  }

  inspect() {
    this.about.replaceChildren(this.node === null ? "the whole run; a click on a node shows it alone" : `node ${plain(this.node)}`);
    const picture = this.model.get("picture");
    if (this.tab === "Info") {
      this.panel.replaceChildren(table(["what", "is"], Object.entries({
        run: picture.runId, workflow: picture.workflow, status: words(picture.status), created: moment(picture.createdAt),
        finished: moment(picture.finishedAt), "can do": picture.controls.join(", "), chain: picture.chain.join(", ") })));
    } else if (this.tab === "Steps") {
      const steps = this.steps.filter((step) => this.node === null || step[STEP.node] === this.node).slice(-200).reverse();
      this.panel.replaceChildren(table(["step", "node", "status", "time", "started"], steps.map((step) => [
        step[STEP.index] + 1, step[STEP.node], chip(step[STEP.status]),
        step[STEP.finished] == null ? "" : duration(step[STEP.finished] - step[STEP.started]), moment(step[STEP.started])])));
    } else {
      this.panel.replaceChildren("…");
      this.ask();
    }
  }

  ask() {
    clearTimeout(this.soon);
    this.soon = null;
    this.wishes.ask({ inspect: this.tab, node: this.node });
  }

  askSoon() {
    this.soon ??= setTimeout(() => this.ask(), ASK_AGAIN);
  }

  hear(message) {
    this.wishes.hear(message);
    if (message.answered) this.box.value = "";
    if (message.inspect !== this.tab || (message.node ?? null) !== this.node) return;
    if (message.text !== undefined) this.panel.replaceChildren(make("pre", {}, message.text));
    else this.panel.replaceChildren(message.rows.length ? table(message.columns, message.rows, (value, at) => this.cell(message, value, at)) : "nothing yet");
  }

  cell(message, value, at) {
    if (message.times.includes(at)) return moment(value);
    if (message.columns[at] !== "to do" || !value) return value;
    const settle = (act, text, tooltip) => button(text, tooltip, () => this.wishes.ask({ act, effect: value }, text));
    return make("span", {}, settle("confirm", "Confirm", "It has happened"), settle("retry", "Retry", "It has not happened: apply it again"));
  }

  tick() {
    if (this.model.get("picture").finishedAt == null) this.drawHead();
  }

  end() {
    this.stop();
    this.wishes.end();
    clearInterval(this.clock);
    clearTimeout(this.soon);
    this.model.off("change:graph", this.graphChanged);
    this.leave();
  }
}

export default {
  render({ model, el }) {
    const view = new RunView(model, el);
    return () => view.end();
  },
};
