// Line charts by uPlot: several curves with their own places, bands, and marks of deaths.

import { amount, color, h, put, span } from "./dom.js";

export const COLORS = Array.from({ length: 8 }, (_, n) => `--line-${n + 1}`);
const MARK_REACH = 7; // pixels within which a mark explains itself

export const onAxis = (axis, value) => (axis === "seconds" ? span(value) : amount(value));

// Exponential moving average without bias at its start. weight: of the past, 0 to 1
export function smoothed(values, weight) {
  if (!weight) return values;
  let mean = 0, total = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return mean / total;
  });
}

export class Chart {
  // title: text above the chart; height in pixels
  constructor(title, height) {
    this.height = height;
    this.title = h("span.chart-title", {}, title);
    this.last = h("span.chart-last", {});
    this.body = h("div.chart-body", {});
    this.tip = h("div.tip", { hidden: true });
    this.empty = h("p.empty", { hidden: true });
    this.element = h("figure.chart", {}, h("figcaption", {}, this.title, this.last), this.body, this.empty, this.tip);
    this.body.style.height = `${height}px`;
    this.plot = null;
    this.marks = [];
    new ResizeObserver(() => this.resize()).observe(this.body);
  }

  resize() {
    const width = Math.floor(this.body.clientWidth);
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }

  // lines: [{label, x, y, low, high, color, faint}]; marks: [{x, text}]
  draw(lines, { axis = "steps", logarithmic = false, marks = [], empty = "no data yet" } = {}) {
    const drawn = lines.filter((line) => line.x.length);
    this.empty.hidden = drawn.length > 0;
    this.empty.textContent = empty;
    this.body.hidden = !drawn.length;
    if (!drawn.length) {
      this.last.textContent = "";
      return;
    }
    this.axis = axis;
    this.marks = marks;
    this.lines = drawn;
    const firm = drawn.filter((line) => !line.faint);
    this.last.textContent = firm.length === 1 ? amount(firm[0].y.findLast((y) => y !== null) ?? NaN) : "";
    const tables = [], series = [], bands = [];
    for (const line of drawn) this.addLine(line, tables, series, bands, logarithmic);
    const data = tables.length > 1 ? uPlot.join(tables) : tables[0];
    const shape = JSON.stringify([series.map((s) => [s.label, s.stroke, s.width]), bands.length, axis, logarithmic,
      color("--text"), color("--card")]);
    if (this.plot && shape === this.shape) {
      this.plot.setData(data);
      return;
    }
    this.shape = shape;
    this.plot?.destroy();
    const width = Math.floor(this.body.clientWidth) || 320;
    this.plot = new uPlot(this.options(series, bands, width, logarithmic), data, this.body);
  }

  addLine(line, tables, series, bands, logarithmic) {
    const clean = (values) => (logarithmic ? values.map((v) => (v !== null && v > 0 ? v : null)) : values);
    const stroke = color(line.color);
    tables.push([line.x, clean(line.y)]);
    const width = line.faint ? 1 : 1.75;
    series.push({ label: line.label, stroke, width, spanGaps: true, points: { show: line.x.length === 1, size: 6 },
      alpha: line.faint ? 0.3 : 1 });
    if (line.low) {
      const first = series.length + 1;
      tables.push([line.x, clean(line.high)], [line.x, clean(line.low)]);
      const hidden = { label: "", stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
      series.push({ ...hidden }, { ...hidden });
      bands.push({ series: [first, first + 1], fill: stroke.replace("rgb(", "rgba(").replace(")", ", 0.16)") });
    }
  }

  options(series, bands, width, logarithmic) {
    const text = color("--dim"), grid = { stroke: color("--line"), width: 1 };
    const font = "11px system-ui, sans-serif";
    const axis = { stroke: text, grid, ticks: { show: false }, font, gap: 4 };
    return {
      width, height: this.height, series: [{}, ...series], bands, legend: { show: false },
      padding: [10, 14, 0, 0],
      cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false } },
      scales: { x: { time: false }, y: { distr: logarithmic ? 3 : 1, range: logarithmic ? undefined : spread } },
      axes: [
        { ...axis, size: 22, space: 70, values: (_, splits) => splits.map((v) => onAxis(this.axis, v)) },
        { ...axis, size: 52, space: 32, values: (_, splits) => splits.map((v) => (v === null ? "" : amount(v))) },
      ],
      hooks: { draw: [(plot) => this.drawMarks(plot)], setCursor: [(plot) => this.explain(plot)] },
    };
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot, scale = devicePixelRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = color("--bad");
    ctx.lineWidth = scale;
    ctx.font = `${12 * scale}px system-ui, sans-serif`;
    ctx.textAlign = "center";
    for (const mark of this.marks) {
      const x = Math.round(plot.valToPos(mark.x, "x", true)) + (scale % 2) / 2; // a line of whole pixels
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.setLineDash([3 * scale, 3 * scale]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top + 10 * scale);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText("✕", x, bbox.top + 8 * scale);
    }
    ctx.restore();
  }

  explain(plot) {
    const { left, idx } = plot.cursor;
    this.tip.hidden = idx === null || idx === undefined || left < 0;
    if (this.tip.hidden) return;
    const x = plot.posToVal(left, "x");
    const near = this.marks.filter((mark) => Math.abs(plot.valToPos(mark.x, "x") - left) < MARK_REACH);
    const rows = this.lines.filter((line) => !line.faint).map((line) =>
      h("div.tip-row", {}, h("i.dot", { css: { background: `var(${line.color})` } }), h("span", {}, line.label),
        h("b", {}, valueAt(line, x))));
    put(this.tip, h("div.tip-x", {}, `${onAxis(this.axis, x)} ${this.axis === "seconds" ? "" : this.axis}`),
      ...rows, ...near.map((mark) => h("div.tip-mark", {}, `✕ ${mark.text}`)));
    const right = left > plot.over.clientWidth / 2, offset = plot.over.offsetLeft + this.body.offsetLeft;
    this.tip.style.left = right ? "auto" : `${left + offset + 14}px`;
    this.tip.style.right = right ? `${this.element.clientWidth - left - offset + 14}px` : "auto";
  }
}

// Leaves room above and below, also around a flat line.
function spread(_, low, high) {
  if (low === null) return [0, 1];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

function valueAt(line, x) {
  let best = -1;
  for (let n = 0; n < line.x.length; n += 1) {
    if (line.y[n] !== null && (best < 0 || Math.abs(line.x[n] - x) < Math.abs(line.x[best] - x))) best = n;
  }
  return best < 0 ? "–" : amount(line.y[best]);
}
