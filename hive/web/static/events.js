// The event log: what happened to the run and its actors, newest first.

import { clock, h, put } from "./dom.js";

const BAD = ["died", "lost", "not finite", "failed"];

export function eventRow(event) {
  const kind = BAD.includes(event.kind) ? "bad" : event.kind === "warning" ? "warn" : "";
  return h("div", { className: `event ${kind}` }, h("time", {}, clock(event.t || 0)),
    h("span.who", {}, event.actor || "supervisor"), h("span", {}, event.text || event.kind || ""));
}

export class Events {
  constructor(app) {
    this.app = app;
    this.search = h("input", { type: "search", placeholder: "search", ariaLabel: "search", oninput: () => this.draw(app.state) });
    this.list = h("div", {});
    this.element = h("section.card", {}, h("div.controls", {}, this.search), this.list);
  }

  draw(state) {
    const wanted = this.search.value.toLowerCase();
    const events = (state?.events || []).filter((event) =>
      `${event.actor || "supervisor"} ${event.text} ${event.kind}`.toLowerCase().includes(wanted));
    const key = `${wanted} ${events.length} ${events.at(-1)?.t}`;
    if (key === this.key) return;
    this.key = key;
    put(this.list, ...(events.length ? events.reverse().map(eventRow) : [h("p.empty", {}, "no events")]));
  }
}
