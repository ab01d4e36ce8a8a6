// Every key of the run's config with its origin, or the keys in which it differs from another run.

import { h, put, table } from "./dom.js";

export class Config {
  constructor(app) {
    this.app = app;
    this.other = h("select", { ariaLabel: "other run", onchange: () => this.read() });
    this.changed = h("input", { type: "checkbox", checked: true, onchange: () => this.show() });
    this.search = h("input", { type: "search", placeholder: "search", ariaLabel: "search", oninput: () => this.show() });
    this.list = h("div.scroll", {});
    this.check = h("label.check", {}, this.changed, "only keys that differ from the defaults");
    this.element = h("section.card", {}, h("div.controls", {}, h("label", {}, "compare with", this.other), this.search,
      this.check), this.list);
    this.listed();
    this.read();
  }

  draw() {}

  listed() {
    const runs = this.app.runs.map((row) => row.run).filter((run) => run !== this.app.run);
    if (runs.join() === this.known) return;
    this.known = runs.join();
    const value = this.other.value;
    put(this.other, h("option", { value: "" }, "no other run"), ...runs.map((run) => h("option", { value: run,
      selected: run === value }, run)));
  }

  async read() {
    const run = this.app.run, other = this.other.value;
    try {
      this.rows = other ? await this.app.get("difference", { run, other }) : await this.app.get("config", { run });
      this.show();
    } catch (error) {
      put(this.list, h("p.empty", {}, error.message));
    }
  }

  show() {
    const other = this.other.value, wanted = this.search.value.toLowerCase();
    this.check.hidden = Boolean(other);
    const rows = (this.rows || []).filter((row) => row.key.includes(wanted) || (row.doc || "").toLowerCase().includes(wanted))
      .filter((row) => other || !this.changed.checked || !["default", "scheme"].includes(row.origin));
    const code = (text) => h("code", {}, text);
    const shown = other
      ? table(["key", this.app.run, other], rows.map((row) => [code(row.key), code(row.first), code(row.second)]))
      : table(["key", "value", "origin", "description"], rows.map((row) =>
        [code(row.key), code(row.value), h("span.dim", { title: row.origin }, row.origin.split("/").pop()), h("span.dim", {}, row.doc)]));
    shown.className = "config-table";
    const empty = other ? "the configs are equal" : "every key has its default";
    put(this.list, rows.length ? shown : h("p.empty", {}, wanted ? "no key matches" : empty));
  }
}
