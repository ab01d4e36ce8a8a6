"""`hive web` in a real browser, on a live run with two collectors and on one that has ended."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np
import pytest

from hive.config import load_config, render
from hive.records import RunDirectory
from hive.records.sinks.videos import video_writer

if TYPE_CHECKING:
    from conftest import House

pytest.importorskip("starlette", reason="the extra `web` is not installed")
pytest.importorskip("websockets", reason="websockets, which drives the browser, is not installed")
sys.path.insert(0, str(Path(__file__).parent))

from chromium import CHROMIUM, LIMIT_S, Browser, Page, chromium

pytestmark = [
    pytest.mark.full(reason="a browser takes seconds"),
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]

# Steps that take time leave the cores to the browser.
LIVE = """
[run]
scheme = "a2c"
name = "cart"
steps = 100_000_000
[env]
id = "patient_environment:Patient"
options = { step_s = 0.002 }
[collection]
workers = 2
envs = 1
rollout = 16
[record]
every_s = 0.3
"""
MARKUP = "<img src=x onerror=document.body.dataset.hacked=1><script>document.body.dataset.hacked=1</script>"
MOST_CPU = 0.1  # share of a core; 0.01 is used, more on a busy machine
STATE = "import('/static/app.js').then(({ app }) => app.state"
STEPS = f"{STATE}.curves.get('return/mean_100').steps)"
PICTURE = "document.querySelector('.chart canvas').toDataURL()"
# How many pixels of the first chart have the color of this name, within a little.
PIXELS = """import('/static/dom.js').then(({ color }) => {
  const canvas = document.querySelector('.chart canvas');
  const [r, g, b] = color('%s').match(/\\d+/g).map(Number);
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let count = 0;
  for (let n = 0; n < data.length; n += 4) {
    count += data[n + 3] > 200 && Math.abs(data[n] - r) + Math.abs(data[n + 1] - g) + Math.abs(data[n + 2] - b) < 12;
  }
  return count;
})"""


@dataclass
class Served:
    """A live run with two collectors, one that has ended, the server, and a browser."""

    house: House
    browser: Browser
    server: subprocess.Popen[str]
    url: str

    @property
    def base(self) -> str:
        return self.url.partition("?")[0]

    def serve_again(self) -> None:
        """End the server as Ctrl-C does, and start another one at the same port."""
        self.server.send_signal(signal.SIGINT)
        assert self.server.wait(LIMIT_S) == 0
        self.start(self.base.rstrip("/").rpartition(":")[2])

    def start(self, port: str) -> None:
        self.server = self.house.start("web", "--port", port)
        assert self.server.stdout is not None
        self.url = self.server.stdout.readline().strip()


def ended_run(home: Path) -> None:
    """Write a run that has ended: its returns differ from those of the live run, and its texts are hostile."""
    directory = RunDirectory.create(home, "ended")
    directory.resolved_file.write_text(render(load_config("ended.toml", text='[env]\nid = "CartPole-v1"\n')))
    lines = [
        {"t": 1.7e9 + n, "steps": 50 * n, "updates": n, "seconds": n, "return/mean_100": 3.0 + n} for n in range(9)
    ]
    directory.metrics_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    event = {"t": 1.7e9 + 5, "kind": "died", "actor": MARKUP, "text": MARKUP}
    directory.events_file.write_text(f"{json.dumps(event)}\n")
    directory.evaluations_file.write_text(f"{json.dumps({'t': 1.7e9, 'steps': 5, 'mean_return': MARKUP})}\n")
    directory.log_file("learner-0").write_text(f"2026-01-01 10:00:00.000 learner-0 ERROR {MARKUP}\n")
    directory.videos.mkdir()
    (directory.videos / f"{MARKUP.replace('/', '')}.gif").write_bytes(b"GIF89a")


@pytest.fixture(scope="module")
def served(open_house: Callable[[], AbstractContextManager[House]]) -> Iterator[Served]:
    with open_house() as house:
        ended_run(house.home)
        starting = house.start("up", house.config(LIVE, "live.toml"), "-d")
        made = Served(house, None, None, "")  # type: ignore[arg-type]
        made.start("0")
        with chromium() as made.browser:
            starting.communicate(timeout=LIMIT_S)
            assert starting.returncode == 0
            yield made
            made.server.send_signal(signal.SIGINT)
            assert made.server.wait(LIMIT_S) == 0
        assert house.ps("cart-1")["learner-0"]["state"] == "running"  # the end of the page did not affect it
        house.hive("down", "cart-1", "--now")


@pytest.fixture
def page(served: Served) -> Iterator[Page]:
    opened = served.browser.page()
    yield opened
    assert [url for url in opened.requests if not url.startswith((served.base, "data:", "about:"))] == []
    opened.call("Page.close")


def test_curves_move_and_a_killed_collector_appears_in_place_and_on_the_curve(served: Served, page: Page) -> None:
    page.go(served.base)
    page.until("!!document.querySelector('.group') && !!document.querySelector('.chart canvas')")
    page.evaluate("document.body.dataset.kept = 'yes'")
    before = page.evaluate(PICTURE)
    page.until(f"{PICTURE} !== {json.dumps(before)}")
    assert page.evaluate(PIXELS % "--bad") == 0
    os.kill(served.house.ps("cart-1")["collector-0"]["pid"], signal.SIGKILL)
    page.until("[...document.querySelectorAll('.event.bad')].some((e) => e.textContent.includes('collector-0 died'))")
    page.until("document.querySelector('.facts').textContent.includes('restarts 1')")
    page.until(f"{PIXELS % '--bad'}.then((count) => count > 20)")
    assert page.evaluate("document.body.dataset.kept") == "yes"  # the page was not loaded again
    assert page.problems == []


def test_two_runs_are_overlaid_and_a_phone_needs_no_scrolling_sideways(served: Served, page: Page) -> None:
    page.go(f"{served.base}#/curves?run=cart-1&match=cart-*,ended-*")
    page.until("document.querySelectorAll('.run-legend b').length === 2")
    for color in ("--line-1", "--line-2"):
        page.until(f"{PIXELS % color}.then((count) => count > 0)")
    page.size(360, 740, mobile=True)
    for view in ("overview", "curves", "actors", "logs", "events", "config", "evaluations"):
        page.evaluate(f"location.hash = '#/{view}?run=cart-1'")
        page.until(f"document.getElementById('page').className === '{view}'")
        page.until("document.querySelector('main .card') !== null")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
    assert page.problems == []


def test_actions_need_the_token_and_foreign_hosts_are_refused(served: Served, page: Page) -> None:
    page.go(served.base)
    page.until("document.querySelector('.buttons')?.textContent === 'read only'")
    act = "fetch('/api/actions', { method: 'POST', body: JSON.stringify({ run: 'cart-1', action: 'pause' }) })"
    assert page.evaluate(f"{act}.then((reply) => reply.status)") == 401
    assert page.evaluate("fetch('http://localhost:1/').catch((error) => 'blocked')") == "blocked"
    page.requests.clear()
    port = int(served.base.rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    connection.request("GET", "/api/runs", headers={"Host": "evil.example"})
    assert connection.getresponse().status == 421
    connection.close()
    page.go(served.url)
    page.until("location.search + location.hash === '' && document.querySelectorAll('.buttons button').length === 4")
    page.evaluate("document.querySelector('.buttons button').click()")
    page.until("document.querySelector('.badge').textContent === 'paused'")
    page.evaluate("document.querySelector('.buttons button').click()")
    page.until("document.querySelector('.badge').textContent === 'running'")


def test_a_page_continues_without_gaps_after_the_server_was_restarted(served: Served, page: Page) -> None:
    page.go(served.base)
    page.until("!!document.querySelector('.chart canvas')")
    known = page.evaluate(STEPS)
    served.serve_again()
    page.until(f"{STEPS}.then((steps) => steps.at(-1) > {known[-1]})")
    steps = page.evaluate(STEPS)
    lines = (served.house.home / "cart-1/metrics.jsonl").read_text().splitlines()
    written = [json.loads(line)["steps"] for line in lines]
    assert steps == written[: len(steps)]
    page.until("document.getElementById('link').textContent === 'connected'")


@pytest.mark.parametrize(
    "without",
    [
        "delete window.SharedWorker",
        "SharedWorker = class { port = { postMessage() {} }; constructor() { setTimeout(() => this.onerror()); } }",
    ],
    ids=["absent", "without modules"],
)
def test_a_browser_without_shared_workers_shows_the_same(served: Served, page: Page, without: str) -> None:
    page.before_scripts(without)
    page.go(served.base)
    page.until("!!document.querySelector('.group') && document.getElementById('link').textContent === 'connected'")
    known = page.evaluate(STEPS)
    page.until(f"{STEPS}.then((steps) => steps.at(-1) > {known[-1]})")
    assert page.problems == []


def test_texts_of_a_run_stay_texts(served: Served, page: Page) -> None:
    page.go(f"{served.base}#/events?run=ended-1")
    shown = "document.getElementById('page').textContent"
    for view in ("events", "overview", "logs", "evaluations"):
        page.evaluate(f"location.hash = '#/{view}?run=ended-1&match={quote(MARKUP)}&metric={quote(MARKUP)}'")
        page.until(
            f"{shown}.includes({json.dumps(MARKUP[:20])}) && document.querySelector('#page').className === '{view}'"
        )
        assert page.evaluate("[...document.querySelectorAll('#page script, #page [src=x]')].length") == 0
    page.evaluate(f"location.hash = '#/curves?run=ended-1&match=ended-1&metric={quote(MARKUP)}&x={quote(MARKUP)}'")
    page.until("document.querySelector('.run-legend b')?.textContent === 'ended-1'")
    assert page.evaluate("document.body.dataset.hacked") is None
    page.problems.clear()  # the video is none


def test_a_video_plays_on_when_a_newer_one_appears(served: Served, page: Page) -> None:
    pytest.importorskip("imageio_ffmpeg", reason="needs the extra video")
    folder = served.house.home / "cart-1" / "videos"
    folder.mkdir()
    write_video(folder / "000100-0.mp4")
    page.go(f"{served.base}#/evaluations?run=cart-1")
    page.until("(window.first = document.querySelector('.videos video')) !== null")
    assert page.evaluate("document.querySelector('.videos figcaption').textContent") == "update 100, episode 0"
    page.evaluate("first.play()")
    write_video(folder / "001000-1.mp4")
    page.until("document.querySelectorAll('.videos video').length === 2")
    page.until("first.currentTime > 0.1 && first.isConnected && !first.paused")
    assert page.evaluate("document.querySelector('.videos figcaption').textContent") == "update 1,000, episode 1"
    assert page.problems == []


def write_video(path: Path) -> None:
    with video_writer(path, 10.0) as writer:
        for shade in range(0, 250, 10):
            writer.add(np.full((64, 64, 3), shade, np.uint8))


def test_twenty_viewers_are_served_for_little_cpu_time(served: Served) -> None:
    """Eight pages of a browser, which allows six connections to a server, and streams as of twelve more browsers."""
    port = int(served.base.rstrip("/").rpartition(":")[2])
    pages = [served.browser.page() for _ in range(8)]
    for page in pages:
        page.go(served.base)
    with ExitStack() as stack:
        streams = [
            stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)))
            for _ in range(12)
        ]
        for stream in streams:
            stream.request("GET", "/api/stream?run=cart-1")
        replies = [stream.getresponse() for stream in streams]
        for page in pages:
            page.until("!!document.querySelector('.group')")
        next_sample(replies[0])
        # Any of them will do: on a busy machine pages are still being loaded in the first.
        assert any(share_of_cpu(served.server.pid, replies) < MOST_CPU for _ in range(5))
    for page in pages:
        page.call("Page.close")


def share_of_cpu(server: int, replies: list[http.client.HTTPResponse]) -> float:
    """Return the share of a core that a server uses while each stream gets two samples."""
    before, begun = cpu_s(server), time.monotonic()
    for _ in range(2):
        for reply in replies:
            next_sample(reply)
    return (cpu_s(server) - before) / (time.monotonic() - begun)


def next_sample(reply: http.client.HTTPResponse) -> None:
    while not reply.readline().startswith(b"data: "):
        pass


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
