// The first view: how the run learns, what limits it, what its groups do, and who is in trouble.

import { COLORS, Chart } from "./charts.js";
import { h, percent, put, table } from "./dom.js";
import { eventRow } from "./events.js";
import { deathMarks } from "./curves.js";

const EVENTS = 8; // newest events that are shown
const RETURN = "return/mean_100";
const KINDS = [["busy", "busy"], ["runtime", "runtime"], ["wait_in", "waits for input"], ["wait_out", "waits for room"]];

export class Overview {
  constructor(app) {
    this.app = app;
    this.chart = new Chart("return, mean of the last 100 episodes", 240);
    this.policies = h("div.run-legend", {});
    this.rates = h("section.card.rates", {});
    this.bound = h("section.card.bound", {});
    this.trouble = h("section", {});
    this.pipeline = h("section.card.pipeline", {});
    this.events = h("section.card", {});
    this.element = h("div", {}, this.bound, this.trouble,
      h("div.split", {}, h("section.card", {}, this.chart.element, this.policies), this.rates),
      this.pipeline, this.events);
  }

  draw(state) {
    const page = state?.page;
    if (!page) {
      put(this.bound, h("p.empty", {}, "waiting for the first sample …"));
      return;
    }
    put(this.bound, h("span.label", {}, "bound by"), h("b", {}, page.bound_by || "–"));
    this.drawTrouble(page);
    this.drawChart(state);
    const [heading, ...rows] = page.rates;
    const live = ["running", "starting", "paused", "draining"].includes(page.state);
    put(this.rates, live ? table(heading, rows, { numbers: [1, 2, 3] }) : "",
      h("dl", {}, page.facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
    put(this.pipeline, h("h2", {}, "pipeline"), legend(), ...page.groups.map((group) => groupRows(group)).flat(),
      ...page.others.map(channelRow), page.groups.length ? "" : h("p.empty", {}, "the actors are starting"));
    const events = state.events.slice(-EVENTS).reverse().map(eventRow);
    put(this.events, h("h2", {}, "events"), ...(events.length ? events : [h("p.empty", {}, "no events yet")]));
  }

  drawTrouble(page) {
    const rows = page.trouble.map((row) => h("p.alert.bad", {}, h("b", {}, row.actor), ` ${row.what}`,
      row.since && ` for ${row.since}`, row.more && h("span.dim", {}, ` · ${row.more}`)));
    put(this.trouble, ...rows);
  }

  drawChart(state) {
    const curve = state.curves.get(RETURN);
    const [first, ...others] = state.page.policies;
    const lines = others.map((policy, n) => ({ label: policy.name, x: policy.steps, y: policy.values,
      color: COLORS[(n + 1) % COLORS.length] }));
    if (curve) lines.unshift({ label: first?.name ?? state.run, x: curve.steps, y: curve.value, color: COLORS[0] });
    put(this.policies, ...(first ? lines : []).map((line) => h("span", {}, h("i.dot", { css: { background:
      `var(${line.color})` } }), line.label)));
    const empty = state.page.state === "running" ? "no episode has ended yet" : "this run has no metrics";
    this.chart.draw(lines, { marks: deathMarks(state, "steps"), empty });
  }
}

function legend() {
  return h("div.legend", {}, KINDS.map(([kind, text]) => h("span", {}, h("i", { className: `swatch ${kind}` }), text)));
}

export function shareBar(shares, texts) {
  const title = KINDS.map(([kind, text]) => `${text} ${texts[kind]}`).join(" · ");
  return h("div.bar", { title }, KINDS.map(([kind]) => h("i", { className: kind, css: { width: percent(shares[kind]) } })));
}

function groupRows(group) {
  const unknown = group.shares.busy === null;
  const states = [...new Set(group.actors.map((actor) => actor.state))].join(", ");
  const phases = group.missing.length ? h("span.bad", {}, group.missing.slice(0, 2).join(", "),
    group.missing.length > 2 && ` and ${group.missing.length - 2} more`)
    : h("span.dim", {}, unknown ? states : group.phases.join(" · "));
  return [
    h("div.group", {}, h("b.name", {}, group.name, group.count > 1 && h("span.dim", {}, ` ×${group.count}`)),
      unknown ? h("div.bar", {}) : shareBar(group.shares, group.texts), h("b.number", {}, group.texts.busy), phases,
      h("span.cells", {}, group.actors.map((actor) => h("i", { className: `cell ${actor.state}`,
        title: `${actor.name} ${actor.state}` }, h("i", { css: { height: percent(actor.busy ?? 0) } }))))),
    ...group.channels.map(channelRow),
    ...(group.boards.length ? [h("div.boards", {}, group.boards.map((board) => h("span", {}, h("b", {}, board.name),
      ` ${board.version} → ${board.targets.join(", ")}`)))] : []),
  ];
}

function channelRow(channel) {
  const full = channel.occupancy !== null && channel.occupancy >= 0.99 && ["slots", "zmq"].includes(channel.carrier);
  return h("div.channel", {}, h("span.name", {}, channel.name),
    h("div", { className: full ? "bar thin full" : "bar thin", title: `${channel.held} · ${channel.carrier}` },
      h("i.held", { css: { width: percent(channel.occupancy) } })),
    h("span.number", {}, channel.held), h("span.dim", {}, channel.rate,
      channel.targets.length > 0 && ` → ${channel.targets.join(", ")}`),
    channel.dropped && h("span.warn", {}, channel.dropped));
}
