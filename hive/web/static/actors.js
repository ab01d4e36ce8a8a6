// Every process of the run; one of them in detail: its time, transitions, log, and its stack on request.

import { h, percent, put, table } from "./dom.js";
import { shareBar } from "./overview.js";

const HEADING = ["name", "state", "activity", "since", "cpu", "memory", "rate", "time", "busy", "version", "lag", "restarts"];

export class Actors {
  constructor(app) {
    this.app = app;
    this.list = h("section.card.scroll", {});
    this.time = h("div", {});
    this.replies = h("div", {});
    this.ask = h("button", { type: "button", onclick: () => this.inspect(true) }, "read the stack now");
    this.detail = h("section.card.detail", { hidden: true });
    this.element = h("div", {}, this.list, this.detail);
    if (this.chosen) this.inspect(false);
  }

  get chosen() {
    return this.app.parameters.get("actor") || "";
  }

  choose(name) {
    this.app.go({ actor: name === this.chosen ? "" : name });
    put(this.replies);
    if (this.chosen) this.inspect(false);
    this.draw(this.app.state);
  }

  draw(state) {
    const page = state?.page;
    if (!page) return;
    const rows = page.actors.map((row) => {
      const slow = page.trouble.some((entry) => entry.actor === row.name);
      return [h("button.name", { type: "button", onclick: () => this.choose(row.name) }, row.name),
        h("span", { className: `state ${row.state}` }, row.state), h("span", { className: slow ? "bad" : "" }, row.activity),
        h("span", { className: slow ? "bad" : "" }, row.since), row.cpu, row.memory, row.rate,
        row.shares.busy === null ? "" : shareBar(row.shares, row.texts), row.texts.busy, row.version, row.lag,
        row.restarts ? h("span.warn", {}, String(row.restarts)) : "0"];
    });
    const shown = table(HEADING, rows, { numbers: [3, 4, 5, 6, 8, 9, 10, 11] });
    shown.className = "actors-table";
    [...shown.tBodies[0].rows].forEach((row, n) => row.classList.toggle("here", page.actors[n].name === this.chosen));
    const focused = document.activeElement?.textContent;
    const reports = page.actors.filter((row) => row.report).map((row) =>
      h("p.dim.report", {}, h("b", {}, row.name), ` last exit report: ${row.report}`));
    const held = this.list.contains(document.activeElement);
    put(this.list, shown, ...reports);
    if (held) [...this.list.querySelectorAll("button")].find((b) => b.textContent === focused)?.focus();
    this.drawDetail(page);
  }

  drawDetail(page) {
    const row = page.actors.find((actor) => actor.name === this.chosen);
    this.detail.hidden = !row;
    if (!row) return;
    if (this.detail.dataset.actor !== row.name) {
      this.detail.dataset.actor = row.name;
      put(this.detail, h("h2", {}, row.name), this.time, h("div.buttons", {}, this.ask), this.replies);
    }
    const facts = [`pid ${row.pid}`, ...row.counters.map(([name, value]) => `${name} ${value}`)];
    put(this.time, h("p.dim", {}, facts.join(" · ")), ...row.phases.slice(0, 8).map((phase) =>
      h("div.phase", {}, h("span", {}, phase.name), h("div.bar", {}, h("i", { className: phase.kind,
        css: { width: percent(phase.share) } })), h("span.number", {}, phase.text), h("span.dim", {}, phase.kind.replace("_", " ")))));
  }

  async inspect(stack) {
    const actor = this.chosen, run = this.app.run;
    try {
      const reply = await this.app.get("actor", { run, actor, stack: stack ? "1" : "0" });
      if (actor !== this.chosen) return;
      const history = [h("h3", {}, "transition history, newest first"), h("pre", {}, reply.transitions.reverse().join("\n"))];
      const text = reply.stack || "no stack: its process is stopped, gone, or the supervisor's";
      put(this.replies, ...(stack ? [h("h3", {}, "stack, innermost call first"), h("pre", {}, text)] : []), ...history);
    } catch (error) {
      put(this.replies, h("p.dim", {}, error.message));
    }
    const log = await this.app.get("log", { run, actor }).catch(() => ({ lines: [] }));
    if (actor !== this.chosen || !log.lines.length) return;
    this.replies.append(h("h3", {}, "log"), h("pre", {}, log.lines.slice(-40).map((line) => line[3]).join("\n")));
  }
}
