// What a browser holds of one run: the newest page, events and curves. Samples of the stream are merged into it.

export const AXES = ["steps", "seconds", "updates"];
const MOST_POINTS = 1200; // points of a curve; beyond, every second one is kept
const MOST_EVENTS = 1000; // newest events
const BANDS = { "evaluation/mean_return": ["evaluation/min", "evaluation/max"] };

class Curve {
  constructor(places = { steps: [], seconds: [], updates: [] }, value = [], low = null, high = null) {
    for (const axis of AXES) this[axis] = places[axis].slice();
    Object.assign(this, { value, low, high });
  }

  add(line, value, bounds) {
    for (const axis of AXES) this[axis].push(line[axis]);
    this.value.push(value);
    if (this.low) {
      this.low.push(line[bounds[0]] ?? null);
      this.high.push(line[bounds[1]] ?? null);
    }
    if (this.value.length > MOST_POINTS) this.halve();
  }

  halve() {
    for (const column of [...AXES, "value", "low", "high"]) {
      if (this[column]) this[column] = this[column].filter((_, n, all) => n % 2 === 0 || n === all.length - 1);
    }
  }
}

export class RunState {
  constructor(run) {
    Object.assign(this, { run, page: null, problem: "", events: [], curves: new Map(), version: 0 });
  }

  merge(sample) {
    this.version += 1;
    this.page = sample.page;
    this.problem = sample.problem;
    if (sample.curves) {
      this.events = [];
      this.curves = new Map(Object.entries(sample.curves.curves).map(([name, c]) =>
        [name, new Curve(sample.curves.places[c.place], c.value, c.low ?? null, c.high ?? null)]));
    }
    this.events = [...this.events, ...sample.events].slice(-MOST_EVENTS);
    for (const line of sample.lines || []) this.addLine(line);
  }

  addLine(line) {
    if (!AXES.every((axis) => typeof line[axis] === "number")) return;
    for (const [name, value] of Object.entries(line)) {
      if (AXES.includes(name) || typeof value !== "number") continue;
      const bounds = BANDS[name] || null;
      if (!this.curves.has(name)) this.curves.set(name, new Curve(undefined, [], bounds && [], bounds && []));
      this.curves.get(name).add(line, value, bounds);
    }
  }

  // A sample with all that this state holds, for a page that begins with it.
  everything() {
    const names = [...this.curves.keys()];
    const places = names.map((name) => Object.fromEntries(AXES.map((axis) => [axis, this.curves.get(name)[axis]])));
    const curves = names.map((name, place) => {
      const { value, low, high } = this.curves.get(name);
      return [name, low ? { place, value, low, high } : { place, value }];
    });
    return { run: this.run, page: this.page, problem: this.problem, events: this.events,
      curves: { places, curves: Object.fromEntries(curves) } };
  }

  // The deaths in the event log, with their places on the axes: [{actor, text, t, steps, seconds, updates}]
  deaths() {
    return this.events.filter((event) => event.kind === "died").map((event) => ({ ...event, ...this.placeOf(event.t) }));
  }

  placeOf(t) {
    const times = this.curves.get("t");
    if (!times || !times.value.length) return { steps: 0, seconds: 0, updates: 0 };
    let after = times.value.findIndex((value) => value >= t);
    if (after < 0) after = times.value.length - 1;
    const before = Math.max(after - 1, 0), width = times.value[after] - times.value[before];
    const part = width > 0 ? Math.min(Math.max((t - times.value[before]) / width, 0), 1) : 1;
    return Object.fromEntries(AXES.map((axis) =>
      [axis, times[axis][before] + part * (times[axis][after] - times[axis][before])]));
  }
}
