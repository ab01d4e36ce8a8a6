// The page: selects run and view by the address (#/curves?run=cartpole-1), and draws the view after every sample.

import { h, put } from "./dom.js";
import { Stream } from "./stream.js";
import { Actions } from "./actions.js";
import { Overview } from "./overview.js";
import { Curves } from "./curves.js";
import { Actors } from "./actors.js";
import { Logs } from "./logs.js";
import { Events } from "./events.js";
import { Config } from "./config.js";
import { Evaluations } from "./evaluations.js";

const VIEWS = { overview: Overview, curves: Curves, actors: Actors, logs: Logs, events: Events, config: Config,
  evaluations: Evaluations };
const LIST_MS = 5000; // interval between two reads of the list of runs

const key = actionKey();
const top = Object.fromEntries(["run", "link", "theme", "nav", "page", "notice"].map((id) =>
  [id, document.getElementById(id)]));

// What views use: the runs, the stream, the address, requests.
export const app = {
  runs: [],
  mayAct: false,
  stream: new Stream(() => schedule()),
  view: null,
  name: "",
  parameters: new URLSearchParams(),

  get run() {
    const named = this.parameters.get("run");
    if (named) return named;
    return (this.runs.find((row) => row.state === "running") || this.runs[0] || { run: "" }).run;
  },

  get state() {
    return this.stream.states.get(this.run);
  },

  async get(path, query = {}) {
    const response = await fetch(`/api/${path}?${new URLSearchParams(query)}`, { headers: { "X-Hive-Key": key } });
    return answer(response);
  },

  async post(document) {
    const response = await fetch("/api/actions", { method: "POST", body: JSON.stringify(document),
      headers: { "Content-Type": "application/json", "X-Hive-Key": key } });
    return answer(response);
  },

  go(changes, view = this.name) {
    const parameters = new URLSearchParams(this.parameters);
    for (const [key, value] of Object.entries(changes)) {
      if (value) parameters.set(key, value);
      else parameters.delete(key);
    }
    history.replaceState(null, "", `#/${view}?${parameters}`);
    route();
  },

  notify(text, bad = false) {
    top.notice.textContent = text;
    top.notice.className = bad ? "bad" : "";
    top.notice.hidden = false;
    clearTimeout(this.noticeTimer);
    this.noticeTimer = setTimeout(() => (top.notice.hidden = true), 6000);
  },
};

// The key that actions need: from the address (#key=...), to which the server redirects a browser that has the token.
// The store belongs to this host and port. Without a store the key lasts as long as the page.
function actionKey() {
  const given = /^#key=([\w-]+)$/.exec(location.hash)?.[1];
  if (given) history.replaceState(null, "", "/");
  try {
    if (given) localStorage.setItem("hive-key", given);
    return given || localStorage.getItem("hive-key") || "";
  } catch {
    return given || "";
  }
}

async function answer(response) {
  const document = await response.json();
  if (!response.ok) throw new Error([document.error, document.hint].filter(Boolean).join("; "));
  return document;
}

const actions = new Actions(app);

function route() {
  const [path, query] = (location.hash.slice(2) || "overview").split("?");
  app.parameters = new URLSearchParams(query || "");
  const name = path in VIEWS ? path : "overview";
  if (!app.view || name !== app.name || app.run !== app.shownRun) {
    app.view?.close?.();
    app.name = name;
    app.shownRun = app.run;
    top.page.className = name;
    app.view = null;
    put(top.page);
    if (app.run) {
      app.view = new VIEWS[name](app);
      top.page.append(actions.element, app.view.element);
    }
  }
  drawTop();
  schedule();
}

function drawTop() {
  const query = app.run && app.parameters.get("run") ? `?run=${encodeURIComponent(app.run)}` : "";
  put(top.nav, ...Object.keys(VIEWS).map((name) =>
    h("a", { href: `#/${name}${query}`, className: name === app.name ? "here" : "" }, name)));
  top.nav.querySelector(".here")?.scrollIntoView({ inline: "center", block: "nearest" });
  const options = app.runs.map((row) => h("option", { value: row.run, selected: row.run === app.run },
    row.state === "running" ? `${row.run} ●` : `${row.run} · ${row.state}`));
  const text = options.map((option) => option.textContent + option.selected).join();
  if (text !== top.run.dataset.text) {
    top.run.dataset.text = text;
    put(top.run, ...options);
  }
  document.title = app.run ? `${app.run} · hive` : "hive";
}

let scheduled = false;
function schedule() {
  if (scheduled) return;
  scheduled = true;
  setTimeout(() => {
    scheduled = false;
    draw();
  }, 0);
}

function draw() {
  top.link.className = app.stream.linked ? "link on" : "link off";
  top.link.textContent = app.stream.linked ? "connected" : "reconnecting";
  if (!app.run) {
    put(top.page, h("p.empty", {}, app.listed ? "no run yet; start one: " : "loading …",
      app.listed && h("code", {}, "hive up config.toml")));
    return;
  }
  app.stream.watch([...new Set([app.run, ...(app.view?.runs?.() || [])])]);
  actions.draw(app.state);
  app.view?.draw(app.state);
}

async function list() {
  try {
    app.runs = await app.get("runs");
    app.listed = true;
    if (!app.view || app.run !== app.shownRun) route();
    else drawTop();
    app.view?.listed?.();
  } catch (error) {
    if (!app.listed) put(top.page, h("p.empty", {}, String(error.message)));
  }
}

async function begin() {
  const session = await app.get("session").catch(() => ({ may_act: false }));
  app.mayAct = session.may_act;
  addEventListener("hashchange", route);
  top.run.addEventListener("change", () => app.go({ run: top.run.value, actor: "", match: "" }));
  top.theme.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    const theme = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("hive-theme", theme);
    } catch {
      // the choice lasts as long as the page
    }
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  await list();
  route();
  setInterval(() => document.hidden || list(), LIST_MS);
}

begin();
