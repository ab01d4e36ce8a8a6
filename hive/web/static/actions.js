// The head of every view: the run's state and progress, its warnings, and the actions.

import { h, percent, put } from "./dom.js";

const BUTTONS = [
  ["pause", "pause", (page) => page.state === "running"],
  ["resume", "resume", (page) => page.state === "paused"],
  ["save", "save", (page) => page.state === "running"],
  ["set", "set …", (page) => ["running", "paused"].includes(page.state)],
  ["down", "end …", (page) => ["running", "paused"].includes(page.state)],
];

export class Actions {
  constructor(app) {
    this.app = app;
    this.facts = h("div.facts", {});
    this.buttons = h("div.buttons", {});
    this.bar = h("div.progress", {}, h("i", {}));
    this.warnings = h("div", {});
    this.question = h("div", {});
    this.element = h("section.head", {}, h("div.head-row", {}, this.facts, this.buttons), this.bar, this.question,
      this.warnings);
  }

  draw(state) {
    const page = state?.page;
    if (state?.problem) put(this.warnings, h("p.alert.bad", {}, state.problem));
    if (!page) {
      put(this.facts, h("h1", {}, this.app.run));
      this.bar.hidden = true;
      put(this.buttons);
      if (!state?.problem) put(this.warnings);
      return;
    }
    put(this.facts, h("h1", {}, this.app.run), h("span", { className: `badge ${page.state}` }, page.state),
      h("span", {}, page.elapsed),
      h("span", {}, page.goal ? `${page.steps} / ${page.goal} steps (${page.done_text})` : `${page.steps} steps`),
      page.left && h("span", {}, `left ${page.left}`),
      page.restarts > 0 && h("span.warn", {}, `restarts ${page.restarts}`),
      !["running", "starting"].includes(page.state) && page.reason && h("span.dim", {}, page.reason));
    this.bar.hidden = page.done === null;
    this.bar.firstChild.style.width = percent(page.done);
    this.bar.className = `progress ${page.state}`;
    if (!state.problem) {
      put(this.warnings, page.supervisor ? h("p.alert.bad", {}, `supervisor ${page.supervisor}`) : "",
        ...page.warnings.map((text) => h("p.alert", {}, `⚠ ${text}`)));
    }
    this.drawButtons(page);
  }

  drawButtons(page) {
    const shown = BUTTONS.filter(([, , fits]) => fits(page));
    const key = `${this.app.run} ${this.app.mayAct} ${shown.map(([name]) => name)}`;
    if (key === this.key) return;
    this.key = key;
    put(this.question);
    const hint = "Actions need the URL with the token, which `hive web` printed.";
    put(this.buttons, ...(this.app.mayAct
      ? shown.map(([name, text]) => h("button", { type: "button", onclick: () => this.ask(name) }, text))
      : shown.length ? [h("span.dim", { title: hint }, "read only")] : []));
  }

  ask(name) {
    if (name === "down") {
      put(this.question, h("div.question", {}, `End ${this.app.run}? It saves its state first.`,
        h("button.danger", { type: "button", onclick: () => this.send("down") }, "end the run"), this.cancel()));
    } else if (name === "set") {
      const input = h("input", { type: "text", placeholder: "algorithm.learning_rate=1e-4", ariaLabel: "key and value" });
      const form = h("form.question", { onsubmit: (event) => {
        event.preventDefault();
        this.send("set", input.value.split(/\s+/).filter(Boolean));
      } }, input, h("button", { type: "submit" }, "set"), this.cancel());
      put(this.question, form);
      input.focus();
    } else {
      this.send(name);
    }
  }

  cancel() {
    return h("button.quiet", { type: "button", onclick: () => put(this.question) }, "cancel");
  }

  async send(action, sets = []) {
    try {
      const { notice } = await this.app.post({ run: this.app.run, action, sets });
      put(this.question);
      this.app.notify(notice);
    } catch (error) {
      this.app.notify(error.message, true);
    }
  }
}
