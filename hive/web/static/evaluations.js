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
    this.element = h("div", {}, this.chartCard, this.videos, this.list);
    this.timer = setInterval(() => document.hidden || this.read(), AGAIN_MS);
    this.read();
  }

  close() {
    clearInterval(this.timer);
  }

  draw() {}

  async read() {
    try {
      this.show(await this.app.get("evaluations", { run: this.app.run }));
    } catch (error) {
      put(this.list, h("p.empty", {}, error.message));
    }
  }

  show({ evaluations, videos }) {
    const number = (row, key) => (isNumber(row[key]) ? amount(row[key]) : "–");
    const drawn = evaluations.filter((row) => isNumber(row.steps) && isNumber(row.mean_return));
    const column = (key) => drawn.map((row) => (isNumber(row[key]) ? row[key] : null));
    this.chartCard.hidden = !drawn.length;
    this.chart.draw(drawn.length ? [{ label: "mean return", x: column("steps"), y: column("mean_return"),
      low: column("min"), high: column("max"), colour: "--line-1" }] : []);
    const rows = [...evaluations].reverse().map((row) => [isNumber(row.t) ? clock(row.t) : "–", number(row, "steps"),
      number(row, "updates"), number(row, "mean_return"), number(row, "deviation"), number(row, "min"),
      number(row, "max"), number(row, "episodes"), isNumber(row.wall_s) ? span(row.wall_s) : "–"]);
    const heading = ["time", "steps", "updates", "mean return", "deviation", "min", "max", "episodes", "took"];
    put(this.list, rows.length ? table(heading, rows, { numbers: [1, 2, 3, 4, 5, 6, 7, 8] })
      : h("p.empty", {}, "no evaluations; ", h("code", {}, "[evaluation] every = { updates = 200 }"), " makes some"));
    const key = videos.map((video) => video.file).join();
    if (key === this.key) return;
    this.key = key;
    put(this.videos, ...videos.map((video) => {
      const src = `/api/video?${new URLSearchParams({ run: this.app.run, file: video.file })}`;
      return h("figure.card", {}, video.kind === "image/gif" ? h("img", { src, alt: video.file, loading: "lazy" })
        : h("video", { src, controls: true, loop: true, muted: true, preload: "metadata" }), h("figcaption", {}, video.file));
    }));
  }
}
