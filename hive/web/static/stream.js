// The page's end of the stream: states of the watched runs, kept up to date by the shared worker, or by a Hub of the
// page where the browser has no shared workers. Such a page disconnects while it is hidden.

import { Hub } from "./hub.js";
import { RunState } from "./store.js";

const ALIVE_MS = 10000; // a page tells the worker this often that it exists

export class Stream {
  constructor(changed) {
    this.changed = changed;
    this.states = new Map();
    this.runs = [];
    this.linked = false;
    this.receive = (message) => this.take(message);
    setInterval(() => this.send({}), ALIVE_MS);
    addEventListener("pagehide", () => this.send({ leave: true }));
    addEventListener("pageshow", (event) => event.persisted && this.send({ runs: this.runs }));
    try {
      this.share();
    } catch {
      this.connect();
    }
  }

  // Use the shared worker. Where shared workers cannot be modules, it reports an error before any message.
  share() {
    const worker = new SharedWorker("/static/worker.js", { type: "module", name: "hive" }), { port } = worker;
    worker.onerror = () => this.connect();
    port.onmessage = ({ data }) => this.take(data);
    this.send = (message) => port.postMessage(message);
  }

  // Use a connection of this page.
  connect() {
    if (this.hub) return;
    this.hub = new Hub();
    this.send = ({ runs, leave }) => {
      if (leave) this.hub.leave(this.receive);
      else if (runs) this.hub.watch(this.receive, runs);
    };
    document.addEventListener("visibilitychange", () => this.send({ runs: document.hidden ? [] : this.runs }));
    if (this.runs.length) this.send({ runs: this.runs });
  }

  watch(runs) {
    if (runs.join("~") === this.runs.join("~")) return;
    this.runs = runs;
    for (const run of this.states.keys()) if (!runs.includes(run)) this.states.delete(run);
    this.send({ runs });
  }

  take(message) {
    if ("linked" in message) {
      this.linked = message.linked;
    } else {
      if (!this.states.has(message.run)) {
        if (!this.runs.includes(message.run)) return;
        this.states.set(message.run, new RunState(message.run));
      }
      this.states.get(message.run).merge(message);
    }
    this.changed();
  }
}
