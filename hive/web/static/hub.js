// One connection to the server for all runs that are watched, shared by all pages of a browser (worker.js): browsers
// allow six connections to a server. A page that joins gets the state that is there, then every sample.

import { RunState } from "./store.js";

const AGAIN_MS = 2000; // delay after the server has refused a stream

export class Hub {
  constructor() {
    this.clients = new Map(); // client (a function that receives messages) -> its runs
    this.states = new Map(); // run -> RunState
    this.positions = new Map(); // run -> how far it was read, from the event ids
    this.runs = [];
    this.source = null;
    this.linked = false;
  }

  watch(client, runs) {
    const before = this.clients.get(client) || [];
    this.clients.set(client, runs);
    client({ linked: this.linked });
    for (const run of runs) {
      if (!before.includes(run) && this.states.has(run)) client(this.states.get(run).everything());
    }
    this.update();
  }

  leave(client) {
    this.clients.delete(client);
    this.update();
  }

  update() {
    const runs = [...new Set([...this.clients.values()].flat())].sort();
    if (runs.join("~") === this.runs.join("~") && (this.source || !runs.length)) return;
    this.runs = runs;
    for (const run of this.states.keys()) {
      if (!runs.includes(run)) {
        this.states.delete(run);
        this.positions.delete(run);
      }
    }
    this.open();
  }

  open() {
    clearTimeout(this.again);
    this.source?.close();
    this.source = null;
    if (!this.runs.length) return;
    const query = new URLSearchParams(this.runs.map((run) => ["run", run]));
    query.append("after", this.runs.map((run) => this.positions.get(run) || "0").join("~"));
    const runs = this.runs, source = (this.source = new EventSource(`/api/stream?${query}`));
    source.onopen = () => this.tell((this.linked = true));
    source.onmessage = (event) => this.receive(runs, event);
    source.onerror = () => {
      this.tell((this.linked = false));
      if (source.readyState === EventSource.CLOSED && source === this.source) {
        this.again = setTimeout(() => this.open(), AGAIN_MS);
      }
    };
  }

  tell(linked) {
    for (const client of this.clients.keys()) client({ linked });
  }

  receive(runs, event) {
    event.lastEventId.split("~").forEach((position, n) => this.positions.set(runs[n], position));
    const sample = JSON.parse(event.data);
    if (!this.states.has(sample.run)) this.states.set(sample.run, new RunState(sample.run));
    this.states.get(sample.run).merge(sample);
    for (const [client, watched] of this.clients) {
      if (watched.includes(sample.run)) client(sample);
    }
  }
}
