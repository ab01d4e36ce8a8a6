"""The sampler of a run: its viewers, its end, and files that are replaced."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from hive.errors import UsageError
from hive.web import sampler as module
from hive.web.positions import Position
from hive.web.sampler import LINGER_S, QUEUED_SAMPLES, Sampler, Viewer

if TYPE_CHECKING:
    from conftest import Web

LINE = '{{"t": 1.7e9, "steps": {0}, "updates": {0}, "seconds": {0}, "return/mean_100": 5.0}}\n'


async def received(viewer: Viewer) -> list[tuple[str, dict[str, Any]]]:
    """Return (position, sample) of all that is queued."""
    await asyncio.sleep(0)  # offers arrive by the loop
    found = []
    while not viewer.queue.empty():
        item = viewer.queue.get_nowait()
        assert item is not None
        found.append((item[1], json.loads(item[2])))
    return found


async def test_one_poll_serves_all_viewers_and_nothing_new_is_not_sent(web: Web) -> None:
    directory = web.run()
    directory.metrics_file.write_text(LINE.format(1))
    one = Sampler("cartpole-1", directory)
    viewers = [Viewer(["cartpole-1"], [None]) for _ in range(3)]
    for viewer in viewers:
        assert one.join(viewer, None)
    assert one.sample()  # an ended run sends nothing by itself
    for viewer in viewers:
        ((_, first),) = await received(viewer)
        assert first["curves"]["curves"]["return/mean_100"]["value"] == [5.0]
    one.sample()
    assert await received(viewers[0]) == []
    with directory.metrics_file.open("a") as file:
        file.write(LINE.format(2))
    one.sample()
    for viewer in viewers:
        ((_, sample),) = await received(viewer)
        assert [line["steps"] for line in sample["lines"]] == [2]


async def test_an_unexpected_error_is_sent_to_all_pages(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(snapshot: object) -> None:
        raise ZeroDivisionError("no number")

    monkeypatch.setattr(module, "page_document", broken)
    one, viewer = Sampler("cartpole-1", web.run()), Viewer(["cartpole-1"], [None])
    one.join(viewer, None)
    one.start()
    one.thread.join()
    ((_, sample),) = await received(viewer)
    assert (sample["page"], sample["problem"]) == (None, "this run cannot be shown: ZeroDivisionError: no number")
    assert not one.join(viewer, None), "the next page starts another sampler"


async def test_a_replaced_file_is_sent_as_a_whole_and_old_ids_do_not_fit(web: Web) -> None:
    directory = web.run()
    directory.metrics_file.write_text(LINE.format(1) + LINE.format(2))
    one, viewer = Sampler("cartpole-1", directory), Viewer(["cartpole-1"], [None])
    one.join(viewer, None)
    one.sample()
    ((old, _),) = await received(viewer)
    new = directory.path / "new"
    new.write_text(LINE.format(1) + LINE.format(9) + LINE.format(10))
    os.replace(new, directory.metrics_file)
    one.sample()
    ((_, sample),) = await received(viewer)
    assert sample["curves"]["places"][0]["steps"] == [1, 9, 10]
    assert sample["curves"]["curves"]["t"]["value"] == [1.7e9] * 3
    late = Viewer(["cartpole-1"], [Position.parse(old)])
    one.join(late, Position.parse(old))
    ((_, sample),) = await received(late)
    assert "curves" in sample


async def test_a_slow_viewer_is_disconnected(web: Web) -> None:
    viewer = Viewer(["cartpole-1"], [None])
    for _ in range(QUEUED_SAMPLES + 1):
        viewer.offer("cartpole-1", "", "{}")
    await asyncio.sleep(0)
    assert await viewer.message(1.0) is None


async def test_a_sampler_ends_some_time_after_its_last_viewer(web: Web) -> None:
    now = [100.0]
    one, viewer = Sampler("cartpole-1", web.run(), clock=lambda: now[0]), Viewer(["cartpole-1"], [None])
    assert one.join(viewer, None)
    now[0] += 10 * LINGER_S
    one.wake.set()
    one.leave(viewer)
    now[0] += LINGER_S - 1
    assert one.join(viewer, None)
    one.leave(viewer)
    now[0] += LINGER_S
    one.start()
    one.thread.join(10)
    assert one.stopped
    assert not one.join(viewer, None)


async def test_a_silent_stream_sends_comments(web: Web) -> None:
    viewer = Viewer(["a", "b"], [None, None])
    assert (await viewer.message(0.0) or "").startswith(":")
    viewer.offer("b", "1.2.3.4", '{"run": "b"}')
    await asyncio.sleep(0)
    assert await viewer.message(1.0) == 'id: 0~1.2.3.4\ndata: {"run": "b"}\n\n'


async def test_the_number_of_viewers_is_limited(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VIEWERS", 1)
    directory = web.run()
    first = Viewer(["cartpole-1"], [None])
    web.samplers.join(first, {"cartpole-1": directory}, [None])
    second = Viewer(["cartpole-1"], [None])
    with pytest.raises(UsageError, match="which is the limit"):
        web.samplers.join(second, {"cartpole-1": directory}, [None])
    web.samplers.leave(second)  # the end of its stream does this
    web.samplers.leave(first)
    web.samplers.join(second, {"cartpole-1": directory}, [None])
    assert len(web.samplers.samplers) == 1


async def test_the_sampler_of_another_directory_is_stopped_and_its_pages_reconnect(web: Web) -> None:
    first, second = Viewer(["cartpole-1"], [None]), Viewer(["cartpole-1"], [None])
    web.samplers.join(first, {"cartpole-1": web.run()}, [None])
    replaced = web.samplers.samplers["cartpole-1"]
    web.samplers.join(second, {"cartpole-1": web.run()}, [None])
    replaced.thread.join(10)
    assert replaced.stopped
    assert not replaced.thread.is_alive()
    while await first.message(1.0) is not None:
        pass
    assert web.samplers.samplers["cartpole-1"].viewers == [second]
    web.samplers.close()
