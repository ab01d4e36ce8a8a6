// Every process of the run; one of them in detail: its time, environments, transitions, log, and its stack on request.

import { h, percent, put, table } from "./dom.js";
import { shareBar } from "./overview.js";

const HEADING = ["name", "state", "activity", "since", "cpu", "memory", "rate", "time", "busy", "version", "lag", "restarts"];
const OF_ENVIRONMENTS = ["envs", "failures", "median", "worst"]; // of a run with environments that processes step

const counted = (count) => (count ? h("span.warn", {}, String(count)) : "0");

function environmentCells(environments) {
  if (!environments) return OF_ENVIRONMENTS.map(() => "");
  const { running, failures, median, worst } = environments;
  return [running.includes("/") ? h("span.warn", {}, running) : running, counted(failures), median, worst];
}

function environmentTable({ text, heading, rows, troubled }) {
  const shown = table(heading.slice(0, -1), rows.map((row) => row.slice(0, -1)), { numbers: [0, 2, 3, 4, 5, 6, 7] });
  shown.className = "environments-table";
  [...shown.tBodies[0].rows].forEach((row, n) => row.cells[1].classList.toggle("bad", troubled[n]));
  const reports = rows.filter((row) => row.at(-1)).map((row) => // below the table: they are long
    h("p.dim.report", {}, h("b", {}, `env ${row[0]}`), ` last failure: ${row.at(-1)}`));
  return [h("h3", {}, "environments"), h("p.dim", {}, text), shown, ...reports];
}

export class Actors {
  constructor(app) {
    this.app = app;
    this.list = h("section.card.scroll", {});
    this.time = h("div", {});
    this.environments = h("div.scroll", {});
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
    const stepped = page.actors.some((row) => row.environments);
    const rows = page.actors.map((row) => {
      const slow = page.trouble.some((entry) => entry.actor === row.name && entry.since);
      return [h("button.name", { type: "button", onclick: () => this.choose(row.name) }, row.name),
        h("span", { className: `state ${row.state}` }, row.state), h("span", { className: slow ? "bad" : "" }, row.activity),
        h("span", { className: slow ? "bad" : "" }, row.since), row.cpu, row.memory, row.rate,
        row.shares.busy === null ? "" : shareBar(row.shares, row.texts), row.texts.busy, row.version, row.lag,
        counted(row.restarts), ...(stepped ? environmentCells(row.environments) : [])];
    });
    const heading = stepped ? [...HEADING, ...OF_ENVIRONMENTS] : HEADING;
    const shown = table(heading, rows, { numbers: [3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15] });
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
      put(this.detail, h("h2", {}, row.name), this.time, this.environments, h("div.buttons", {}, this.ask), this.replies);
    }
    const facts = [`pid ${row.pid}`, ...row.counters.map(([name, value]) => `${name} ${value}`)];
    put(this.time, h("p.dim", {}, facts.join(" · ")), ...row.phases.slice(0, 8).map((phase) =>
      h("div.phase", {}, h("span", {}, phase.name), h("div.bar", {}, h("i", { className: phase.kind,
        css: { width: percent(phase.share) } })), h("span.number", {}, phase.text), h("span.dim", {}, phase.kind.replace("_", " ")))));
    put(this.environments, ...(row.environments ? environmentTable(row.environments) : []));
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
