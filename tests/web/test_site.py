"""The routes: the page's files, the runs, and one run's config, logs, evaluations, videos and actors."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from canned_runs import trainer

from hive.records import RunDirectory
from hive.web.sampler import MOST_RUNS
from hive.web.site import STATIC

if TYPE_CHECKING:
    from conftest import Web

LINE = {"t": 1.7e9, "steps": 100, "updates": 1, "seconds": 0.5, "return/mean_100": 20.0, "learner/entropy": 0.7}


def test_the_vendored_files_are_those_of_the_manifest() -> None:
    manifest = json.loads((STATIC / "vendor/manifest.json").read_text())
    named = {}
    for package in manifest:
        assert package.keys() == {"name", "version", "licence", "source", "files"}
        named |= package["files"]
    found = {p.relative_to(STATIC / "vendor").as_posix() for p in (STATIC / "vendor").rglob("*") if p.is_file()}
    assert found == {*named, "manifest.json"}
    for name, digest in named.items():
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest


def test_the_page_names_no_other_server_and_has_no_inline_code() -> None:
    for path in STATIC.glob("*"):
        if path.is_file():
            links = re.findall(r"https?://[^\s\"']+", path.read_text())
            assert [link for link in links if "www.w3.org/2000/svg" not in link] == [], path
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|\bstyle=|\bon\w+=|<script>", page)
    for name in re.findall(r'(?:src|href)="/static/([^"]+)"', page):
        assert (STATIC / name).is_file()


def test_modules_import_files_that_exist() -> None:
    for path in STATIC.glob("*.js"):
        for name in re.findall(r'from "\./([^"]+)"', path.read_text()):
            assert (STATIC / name).is_file(), f"{path.name} imports {name}"


def test_files_are_sent_once(web: Web) -> None:
    reply = web.ask("/static/style.css")
    assert reply.headers["content-type"] == "text/css; charset=utf-8"
    assert web.ask("/static/style.css", if_none_match=reply.headers["etag"]).status == 304
    assert web.ask("/").headers["content-type"] == "text/html; charset=utf-8"
    assert web.ask("/favicon.ico").headers["content-type"] == "image/svg+xml"
    assert web.ask("/static/vendor/uplot/LICENSE").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../site.py",
        "/static/../../../pyproject.toml",
        "/static//etc/passwd",
        "/static/%2e%2e/site.py",
        "/site.py",
    ],
)
def test_no_other_file_is_served(web: Web, path: str) -> None:
    assert web.ask(path).status == 404


@pytest.mark.parametrize("name", ["", "..", "../cartpole-1", "/etc", "cartpole-1/..", "cartpole-2", "latest", "\x00"])
def test_a_run_is_named_by_its_key_only(web: Web, name: str) -> None:
    web.run()
    for route in ("config", "difference", "log", "evaluations", "actor", "video", "stream"):
        reply = web.ask(f"/api/{route}?run={name}")
        assert reply.status == 400, route
        assert reply.data["error"]


def test_the_runs_newest_first(web: Web) -> None:
    web.run("cartpole", '[run]\nseed = 3\n[env]\nid = "CartPole-v1"\n')
    web.run("cartpole")
    web.run("acrobot", '[env]\nid = "Acrobot-v1"\n')
    rows = {row["run"]: row for row in web.ask("/api/runs").data}
    assert rows.keys() == {"cartpole-1", "cartpole-2", "acrobot-1"}
    assert (rows["cartpole-1"]["seed"], rows["cartpole-1"]["env"]) == (3, "CartPole-v1")
    assert rows["cartpole-1"]["group"] == rows["cartpole-2"]["group"] != rows["acrobot-1"]["group"]
    assert rows["acrobot-1"] | {"state": "finished", "steps": 500, "return": 33.0} == rows["acrobot-1"]


def test_damaged_runs_are_listed_all_the_same(web: Web) -> None:
    directory = web.run()
    directory.resolved_file.write_text("[[[")
    directory.summary_file.write_text("{")
    (row,) = web.ask("/api/runs").data
    assert (row["state"], row["env"], row["steps"]) == ("lost", "", 0)
    assert web.ask("/api/config?run=cartpole-1").status == 400


def test_config_and_difference(web: Web) -> None:
    web.run()
    web.run("other", '[run]\nseed = 3\n[env]\nid = "CartPole-v1"\n[algorithm]\nlearning_rate = 1e-4\n')
    rows = {row["key"]: row for row in web.ask("/api/config?run=other-1").data}
    assert rows["run.seed"] | {"value": "3", "origin": "other.toml:2"} == rows["run.seed"]
    assert rows["collection.envs"]["origin"] == "default"
    assert rows["collection.envs"]["doc"]
    assert rows["run.topology"] | {"value": "not set", "origin": "default"} == rows["run.topology"]
    difference = {row["key"]: row for row in web.ask("/api/difference?run=cartpole-1&other=other-1").data}
    assert difference["run.seed"] == {"key": "run.seed", "first": "1", "second": "3"}
    assert {"algorithm.learning_rate", "run.seed"} <= difference.keys()
    assert web.ask("/api/difference?run=cartpole-1&other=cartpole-1").data == []


def test_logs_are_filtered(web: Web) -> None:
    directory = web.run()
    directory.log_file("learner-0").write_text(
        "2026-01-01 10:00:00.000 learner-0 INFO begins\n2026-01-01 10:00:02.000 learner-0 ERROR <b>fails</b>\n"
    )
    directory.log_file("collector-0").write_text("2026-01-01 10:00:01.000 collector-0 WARN slow\n")
    everything = web.ask("/api/log?run=cartpole-1").data
    assert everything["actors"] == ["collector-0", "learner-0"]
    assert [line[3] for line in everything["lines"]] == ["INFO begins", "WARN slow", "ERROR <b>fails</b>"]
    assert [line[1] for line in web.ask("/api/log?run=cartpole-1&level=warn").data["lines"]] == [
        "collector-0",
        "learner-0",
    ]
    assert len(web.ask("/api/log?run=cartpole-1&actor=learner-0&search=FAILS").data["lines"]) == 1


def test_evaluations_and_videos(web: Web) -> None:
    directory = web.run()
    assert web.ask("/api/evaluations?run=cartpole-1").data == {"evaluations": [], "videos": []}
    directory.evaluations_file.write_text(
        '{"t": 1.7e9, "steps": 200, "mean_return": 20.0}\ngarbage\n{"steps": 100, "mean_return": 10.0}\n'
    )
    directory.videos.mkdir()
    (directory.videos / "100.mp4").write_bytes(b"0123456789")
    (directory.videos / "notes.txt").write_text("no video")
    (directory.videos / "link.mp4").symlink_to(directory.summary_file)
    reply = web.ask("/api/evaluations?run=cartpole-1").data
    assert [row["mean_return"] for row in reply["evaluations"]] == [10.0, 20.0]
    assert reply["videos"] == [{"file": "100.mp4", "kind": "video/mp4"}]
    video = web.ask("/api/video?run=cartpole-1&file=100.mp4", range="bytes=2-4")
    assert (video.status, video.body, video.headers["content-type"]) == (206, b"234", "video/mp4")
    for name in ("link.mp4", "notes.txt", "../summary.json", "..%2Fsummary.json", "/etc/passwd", ""):
        assert web.ask(f"/api/video?run=cartpole-1&file={name}").status == 400


def test_a_folder_of_a_run_that_is_a_link_shows_nothing(web: Web) -> None:
    directory, elsewhere = web.run(), web.home / ".private"
    elsewhere.mkdir()
    (elsewhere / "film.mp4").write_bytes(b"private")
    (elsewhere / "auth.log").write_text("2026-01-01 10:00:00.000 auth INFO private\n")
    directory.videos.symlink_to(elsewhere)
    directory.logs.rename(web.home / ".log")
    directory.logs.symlink_to(elsewhere)
    for page in ("evaluations?run=cartpole-1", "video?run=cartpole-1&file=film.mp4", "log?run=cartpole-1"):
        answer = web.ask(f"/api/{page}")
        assert answer.status >= 400
        assert b"private" not in answer.body


@pytest.mark.parametrize(
    ("ranges", "status", "body"),
    [
        ("bytes=0-", 206, b"0123456789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=8-99999999999999999999999", 206, b"89"),
        ("bytes=0-1,4-5,2-3", 206, None),
        ("bytes=" + ",".join(["0-0"] * 2000), 200, b"0123456789"),
        ("bytes=10-", 416, None),
        ("bytes=5-2", 400, None),
        ("lines=0-1", 400, None),
        ("bytes", 400, None),
    ],
)
def test_parts_of_a_video(web: Web, ranges: str, status: int, body: bytes | None) -> None:
    directory = web.run()
    directory.videos.mkdir()
    (directory.videos / "100.mp4").write_bytes(b"0123456789")
    reply = web.ask("/api/video?run=cartpole-1&file=100.mp4", range=ranges)
    assert reply.status == status
    assert len(reply.body) < 2000
    if body is not None:
        assert reply.body == body


def test_texts_of_runs_are_sent_as_json_that_no_browser_takes_for_a_page(web: Web) -> None:
    markup = "<img src=x onerror=alert(1)>"
    directory = RunDirectory.open(web.run().path.rename(web.home / f"{markup}-1"))
    append(directory.events_file, {"t": 1.7e9, "kind": "died", "actor": markup, "text": markup})
    directory.log_file(markup).write_text(f"2026-01-01 10:00:00.000 {markup} INFO {markup}\n")
    (row,) = web.ask("/api/runs").data
    for name in ("runs", "config", "log", "evaluations", "actor", "video", "nothing", f"video?file={markup}"):
        reply = web.ask(f"/api/{name}{'&' if '?' in name else '?'}run={quote(row['run'])}")
        assert reply.headers["content-type"] in ("application/json", "text/plain; charset=utf-8"), name
        assert reply.headers["x-content-type-options"] == "nosniff"


def test_files_that_hold_anything_give_json(web: Web) -> None:
    directory = web.run()
    line = (
        b'{"t":1e999,"steps":NaN,"updates":-Infinity,"seconds":1,"a/b":1e999,"__proto__":{"x":1},"text":["\\ud800"]}\n'
    )
    deep = b'{"t":1.7e9,"kind":"died","text":"it died","steps":1,"deep":' + b"[" * 400 + b"]" * 400 + b"}\n"
    for file in (directory.metrics_file, directory.events_file, directory.evaluations_file):
        file.write_bytes(line + deep + b"[" * 100_000 + b"\n\x00\xff\n" + b"9" * 5000 + b"\n")
    ((_, sample),) = streamed(web, "run=cartpole-1", 1)
    assert sample["curves"]["places"] == [{"steps": [], "seconds": [], "updates": []}]
    assert sample["events"][-1] == {"t": 1.7e9, "kind": "died", "text": "it died", "steps": 1}
    assert "NaN" not in web.ask("/api/evaluations?run=cartpole-1").body.decode()


def test_an_actor_has_transitions_and_on_request_a_stack(web: Web) -> None:
    web.live()
    assert web.ask("/api/actor?run=cartpole-1&actor=learner-0").data["stack"] == ""
    reply = web.ask("/api/actor?run=cartpole-1&actor=learner-0&stack=1").data
    assert reply == {"stack": "in run of learner-0", "transitions": ["starting -ready-> ready"]}
    assert web.ask("/api/actor?run=cartpole-1&actor=nobody").data["error"] == "there is no actor `nobody`"
    web.run("ended")
    assert "not running" in web.ask("/api/actor?run=ended-1&actor=learner-0").data["error"]


@pytest.mark.parametrize(
    ("document", "steered"),
    [
        ({"action": "pause"}, ["pause"]),
        ({"action": "resume"}, ["resume"]),
        ({"action": "set", "sets": ["algorithm.learning_rate=1e-4"]}, ["set algorithm.learning_rate=1e-4"]),
        ({"action": "set"}, []),
        ({"action": "set", "sets": ["a=1"] * 33}, []),
        ({"action": "pause", "sets": ["a=1"]}, []),
        ({"action": "kill"}, []),
        ({"action": ["pause"]}, []),
        ({"run": 1}, []),
        ([], []),
    ],
)
def test_actions(web: Web, document: Any, steered: list[str]) -> None:
    _, supervisor = web.live()
    body = json.dumps({"run": "cartpole-1"} | document if isinstance(document, dict) else document).encode()
    reply = web.ask("/api/actions", "POST", body, app=web.site.app)
    assert supervisor.steered == steered
    assert reply.status == (200 if steered else 400)


def test_down_ends_the_run_in_order_and_a_refusal_is_shown(web: Web) -> None:
    _, supervisor = web.live()
    supervisor.refusal = "the run is ending"
    body = json.dumps({"run": "cartpole-1", "action": "save"}).encode()
    assert web.ask("/api/actions", "POST", body, app=web.site.app).data["error"] == "the run is ending"
    body = json.dumps({"run": "cartpole-1", "action": "down"}).encode()
    assert web.ask("/api/actions", "POST", body, app=web.site.app).status == 200
    assert supervisor.asked == [("hive web", False)]


def streamed(web: Web, query: str, count: int, **headers: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (id, sample) of the first `count` messages of a stream, then close it as a browser does."""

    async def read() -> list[str]:
        texts: list[str] = []
        incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        incoming.put_nowait({"type": "http.request", "body": b"", "more_body": False})

        async def send(message: dict[str, Any]) -> None:
            texts.append(message.get("body", b"").decode())
            if sum("data: " in text for text in texts) >= count:
                incoming.put_nowait({"type": "http.disconnect"})

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/stream",
            "query_string": query.encode(),
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "root_path": "",
            "scheme": "http",
            "headers": [(b"host", b"127.0.0.1:4483"), *((k.encode(), v.encode()) for k, v in headers.items())],
        }
        await web.guard(scope, incoming.get, send)
        return texts

    blocks = "".join(asyncio.run(read())).split("\n\n")
    found = [re.fullmatch(r"id: (\S+)\ndata: (.*)", block) for block in blocks]
    return [(match[1], json.loads(match[2])) for match in found if match]


def append(path: Path, *lines: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_a_stream_begins_with_everything_and_continues_from_an_id_without_gaps(web: Web) -> None:
    directory, _ = web.live()
    append(directory.metrics_file, LINE, LINE | {"steps": 200})
    append(directory.events_file, {"t": 1.7e9, "kind": "died", "actor": "collector-0", "text": "it died"})
    ((position, first),) = streamed(web, "run=cartpole-1", 1)
    assert first["page"]["state"] == "running"
    assert first["curves"]["places"][0]["steps"] == [100, 200]
    assert [event["kind"] for event in first["events"]] == ["died"]
    web.samplers.close()  # the server ends; the run continues
    append(directory.metrics_file, LINE | {"steps": 300}, LINE | {"steps": 400})
    append(directory.events_file, {"t": 1.7e9, "kind": "restarted", "text": "it is back"})
    again = type(web)(web.home)
    samples = streamed(again, "run=cartpole-1", 1, **{"last-event-id": position})
    again.samplers.close()
    ((_, sample),) = samples
    assert "curves" not in sample
    assert [line["steps"] for line in sample["lines"]] == [300, 400]
    assert [event["kind"] for event in sample["events"]] == ["restarted"]


def test_samples_of_a_live_run_follow_each_other(web: Web) -> None:
    directory, supervisor = web.live()
    append(directory.metrics_file, LINE)
    supervisor.script = [trainer(10.0 + n, run=directory.name) for n in range(3)]
    samples = streamed(web, "run=cartpole-1", 3)
    assert [sample["run"] for _, sample in samples] == ["cartpole-1"] * 3
    assert "curves" in samples[0][1]
    assert "curves" not in samples[1][1]
    assert (
        len(
            {sample["page"]["updates"] if "updates" in sample["page"] else str(sample["page"]) for _, sample in samples}
        )
        == 3
    )


def test_a_stream_of_two_runs_has_an_id_of_both(web: Web) -> None:
    web.run("a")
    web.run("b")
    samples = streamed(web, "run=a-1&run=b-1", 2)
    assert {sample["run"] for _, sample in samples} == {"a-1", "b-1"}
    assert len(samples[-1][0].split("~")) == 2


def test_too_many_runs_are_refused(web: Web) -> None:
    query = "&".join(f"run=r-{n}" for n in range(MOST_RUNS + 1))
    assert "a stream has 1 to 32 runs" in web.ask(f"/api/stream?{query}").data["error"]
    assert web.ask("/api/stream").status == 400
