// Learning curves: every metric as a chart, of several runs selected by pattern; seeds as median and band.

import { COLORS, Chart, smoothed } from "./charts.js";
import { h, put } from "./dom.js";
import { matching, median } from "./groups.js";

const MOST_RUNS = 24; // runs drawn at once; the server allows 32 in one stream
const HEIGHT = 170;
const AXES = [["steps", "steps"], ["seconds", "wall time"], ["updates", "updates"]];

export function deathMarks(state, axis) {
  return state.deaths().map((death) => ({ x: death[axis], text: death.text || `${death.actor} died` }));
}

export class Curves {
  constructor(app) {
    this.app = app;
    const value = (name) => app.parameters.get(name) || "";
    this.match = h("input", { type: "search", value: value("match") || app.run, ariaLabel: "runs",
      placeholder: "cartpole-*", oninput: () => this.change() });
    this.metric = h("input", { type: "search", value: value("metric"), placeholder: "all metrics",
      ariaLabel: "metrics", oninput: () => this.change() });
    this.axis = AXES.some(([axis]) => axis === value("x")) ? value("x") : "steps";
    this.buttons = h("div.segments", {});
    this.smooth = h("input", { type: "range", min: 0, max: 0.98, step: 0.02, value: value("smooth") || 0,
      ariaLabel: "smoothing", oninput: () => this.change() });
    this.grouped = h("input", { type: "checkbox", checked: value("seeds") !== "apart", onchange: () => this.change() });
    this.logarithmic = h("input", { type: "checkbox", checked: value("log") === "1", onchange: () => this.change() });
    this.legend = h("div.run-legend", {});
    this.grid = h("div.grid", {});
    this.charts = new Map();
    this.element = h("div", {}, h("section.card.controls", {},
      h("label", {}, "runs", this.match), h("label", {}, "metrics", this.metric), h("label", {}, "over", this.buttons),
      h("label", {}, "smoothing", this.smooth),
      h("label.check", {}, this.grouped, "group seeds"), h("label.check", {}, this.logarithmic, "logarithmic")),
    this.legend, this.grid);
    this.drawButtons();
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) entry.target.chart.visible = entry.isIntersecting;
      this.drawCharts();
    }, { rootMargin: "200px" });
  }

  close() {
    this.seen.disconnect();
  }

  runs() {
    return matching(this.app.runs.map((row) => row.run), this.match.value || this.app.run).slice(0, MOST_RUNS);
  }

  listed() {
    this.draw();
  }

  drawButtons() {
    put(this.buttons, ...AXES.map(([axis, text]) => h("button", { type: "button",
      className: axis === this.axis ? "here" : "", onclick: () => {
        this.axis = axis;
        this.drawButtons();
        this.change();
      } }, text)));
  }

  change() {
    const match = this.match.value === this.app.run ? "" : this.match.value;
    this.app.go({ match, metric: this.metric.value, x: this.axis === "steps" ? "" : this.axis,
      smooth: Number(this.smooth.value) ? this.smooth.value : "", seeds: this.grouped.checked ? "" : "apart",
      log: this.logarithmic.checked ? "1" : "" });
  }

  // Groups of runs: [{label, states, color}]
  groups() {
    const facts = new Map(this.app.runs.map((row) => [row.run, row]));
    const groups = new Map();
    for (const run of this.runs()) {
      const state = this.app.stream.states.get(run);
      if (!state) continue;
      const key = this.grouped.checked ? facts.get(run)?.group || run : run;
      groups.set(key, [...(groups.get(key) || []), state]);
    }
    return [...groups.values()].map((states, n) => ({ states, color: COLORS[n % COLORS.length],
      label: states.length > 1 ? `${states.length} runs of ${facts.get(states[0].run)?.env || states[0].run}`
        : states[0].run }));
  }

  draw() {
    const groups = (this.shown = this.groups());
    const members = (group) => (group.states.length > 1 ? ` (${group.states.map((s) => s.run).sort().join(", ")})` : "");
    const deaths = groups.flatMap((g) => g.states).reduce((sum, state) => sum + state.deaths().length, 0);
    put(this.legend, ...groups.map((group) => h("span", {}, h("i.dot", { css: { background:
      `var(${group.color})` } }), h("b", {}, group.label), h("span.dim", {}, members(group)))),
    groups.some((g) => g.states.length > 1) ? h("span.dim", {}, "line: median, band: quartiles") : "",
    deaths ? h("span.bad", {}, `✕ ${deaths} ${deaths === 1 ? "actor died" : "actors died"}`) : "",
    groups.length ? "" : h("span.dim", {}, "no run matches"));
    const names = new Set();
    for (const state of groups.flatMap((g) => g.states)) for (const name of state.curves.keys()) names.add(name);
    names.delete("t");
    const wanted = this.metric.value.toLowerCase();
    const shown = [...names].filter((name) => name.toLowerCase().includes(wanted));
    for (const name of shown) if (!this.charts.has(name)) this.charts.set(name, this.card(name));
    const cards = shown.map((name) => this.charts.get(name).card);
    if (cards.length !== this.grid.children.length || cards.some((card, n) => card !== this.grid.children[n])) {
      put(this.grid, ...cards);
    }
    this.drawCharts();
  }

  card(name) {
    const chart = new Chart(name, HEIGHT), card = h("section.card", {}, chart.element);
    const entry = { chart, card, visible: false };
    card.chart = entry;
    this.seen.observe(card);
    return entry;
  }

  drawCharts() {
    for (const [name, { chart, card, visible }] of this.charts) {
      if (!visible || !card.isConnected) continue;
      const lines = [], marks = [];
      for (const group of this.shown || []) {
        lines.push(...this.lines(name, group));
        for (const state of group.states) if (state.curves.has(name)) marks.push(...deathMarks(state, this.axis));
      }
      chart.draw(lines, { axis: this.axis, logarithmic: this.logarithmic.checked, marks });
    }
  }

  lines(name, group) {
    const curves = group.states.map((state) => state.curves.get(name)).filter(Boolean)
      .map((c) => ({ x: c[this.axis], y: c.value, low: c.low, high: c.high }));
    if (!curves.length) return [];
    const weight = Number(this.smooth.value), { color, label } = group;
    if (curves.length > 1) {
      const joined = median(curves.map((c) => ({ x: c.x, y: smoothed(c.y, weight) })));
      return [{ label, color, ...joined }];
    }
    const [curve] = curves;
    const firm = { label, color, ...curve, y: smoothed(curve.y, weight) };
    return weight ? [{ ...curve, low: null, label, color, faint: true }, firm] : [firm];
  }
}
