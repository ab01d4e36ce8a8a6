// The logs of all actors, merged by time; filtered by level, actor and text.

import { h, put } from "./dom.js";

const AGAIN_MS = 2000;
const RANKS = ["dim", "", "warn", "bad"];

export class Logs {
  constructor(app) {
    this.app = app;
    const changed = () => this.read();
    this.level = h("select", { ariaLabel: "level", onchange: changed }, ["all", "info", "warn", "error"].map((text) =>
      h("option", { value: text }, text)));
    this.actor = h("select", { ariaLabel: "actor", onchange: changed }, h("option", { value: "" }, "all actors"));
    this.search = h("input", { type: "search", placeholder: "search", ariaLabel: "search", oninput: changed });
    this.list = h("div.log", {});
    this.element = h("section.card", {}, h("div.controls", {}, this.level, this.actor, this.search), this.list);
    this.timer = setInterval(() => document.hidden || this.read(), AGAIN_MS);
    this.read();
  }

  close() {
    clearInterval(this.timer);
  }

  draw() {} // the log is read by itself

  async read() {
    try {
      const reply = await this.app.get("log", { run: this.app.run, level: this.level.value, actor: this.actor.value,
        search: this.search.value });
      const known = [...this.actor.options].map((option) => option.value);
      for (const name of reply.actors) if (!known.includes(name)) this.actor.append(h("option", { value: name }, name));
      this.show(reply.lines);
    } catch (error) {
      if (!this.key) put(this.list, h("p.empty", {}, error.message));
    }
  }

  show(lines) {
    const key = JSON.stringify([lines.length, lines.at(-1), this.search.value]);
    if (key === this.key) return;
    this.key = key;
    const atEnd = this.list.scrollTop + this.list.clientHeight >= this.list.scrollHeight - 40;
    put(this.list, ...(lines.length ? lines.map(([time, actor, rank, text]) =>
      h("div", { className: `log-line ${RANKS[rank]}` }, h("time", {}, time.slice(11, 19)), h("span.who", {}, actor),
        h("span", {}, text))) : [h("p.empty", {}, "no lines")]));
    if (atEnd) this.list.scrollTop = this.list.scrollHeight;
  }
}
