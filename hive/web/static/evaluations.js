// Evaluations of the run, newest first, and its videos.

import { Chart } from "./charts.js";
import { amount, clock, h, put, span, table } from "./dom.js";

const AGAIN_MS = 5000;
const isNumber = (value) => typeof value === "number";

export class Evaluations {
  constructor(app) {
    this.app = app;
    this.chart = new Chart("mean return of evaluations, with the least and the greatest episode", 220);
    this.chartCard = h("section.card", {}, this.chart.element);
    this.list = h("section.card.scroll", {});
    this.videos = h("section.videos", {});
    this.figures = new Map(); // file name -> its figure
    this.element = h("div", {}, this.chartCard, this.videos, this.list);
    this.timer = setInterval(() => document.hidden || this.read(), AGAIN_MS);
    this.read();
  }

  close() {
    clearInterval(this.timer);
  }

  draw() {
    if (this.evaluations) this.drawChart(); // in the colors of another theme, perhaps
  }

  drawChart() {
    const column = (key) => this.evaluations.map((row) => (isNumber(row[key]) ? row[key] : null));
    this.chart.draw(this.evaluations.length ? [{ label: "mean return", x: column("steps"), y: column("mean_return"),
      low: column("min"), high: column("max"), color: "--line-1" }] : []);
  }

  async read() {
    try {
      this.show(await this.app.get("evaluations", { run: this.app.run }));
    } catch (error) {
      put(this.list, h("p.empty", {}, error.message));
    }
  }

  show({ evaluations, videos }) {
    const number = (row, key) => (isNumber(row[key]) ? amount(row[key]) : "–");
    this.evaluations = evaluations.filter((row) => isNumber(row.steps) && isNumber(row.mean_return));
    this.chartCard.hidden = !this.evaluations.length;
    this.drawChart();
    const rows = [...evaluations].reverse().map((row) => [isNumber(row.t) ? clock(row.t) : "–", number(row, "steps"),
      number(row, "updates"), number(row, "mean_return"), number(row, "deviation"), number(row, "min"),
      number(row, "max"), number(row, "episodes"), isNumber(row.wall_s) ? span(row.wall_s) : "–"]);
    const heading = ["time", "steps", "updates", "mean return", "deviation", "min", "max", "episodes", "took"];
    put(this.list, rows.length ? table(heading, rows, { numbers: [1, 2, 3, 4, 5, 6, 7, 8] })
      : h("p.empty", {}, "no evaluations; ", h("code", {}, "[evaluation] every = { updates = 200 }"), " makes some"));
    this.showVideos(videos);
  }

  // Newest first. Figures that stay are not touched: a browser stops a video that is moved.
  showVideos(videos) {
    const files = new Set(videos.map((video) => video.file));
    for (const [file, figure] of this.figures) {
      if (files.has(file)) continue;
      figure.remove();
      this.figures.delete(file);
    }
    for (const video of videos) {
      if (this.figures.has(video.file)) continue;
      const figure = this.figure(video);
      this.figures.set(video.file, figure);
      this.videos.prepend(figure);
    }
  }

  figure({ file, kind }) {
    const src = `/api/video?${new URLSearchParams({ run: this.app.run, file })}`;
    const [, update, episode] = /^(\d{6,})-(\d+)\.\w+$/.exec(file) ?? [];
    const text = update ? `update ${(+update).toLocaleString("en")}, episode ${episode}` : file;
    return h("figure.card", {}, kind === "image/gif" ? h("img", { src, alt: text, loading: "lazy" })
      : h("video", { src, controls: true, loop: true, muted: true, playsInline: true, preload: "metadata" }),
      h("figcaption", {}, text));
  }
}
