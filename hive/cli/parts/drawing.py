"""Draws a topology as lines of text and as an SVG file.

    collectors.rollouts ══> gradient-workers.rollouts   slots, 2 x 3 slots of 24.1 KiB

The picture arranges groups in columns, with producers left of their consumers. Channels that lead back to the left run
below the boxes. The style of a line shows the carrier (`LOOKS`). The drawing is made from the plan that runs execute.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from hive.free_memory import size_text
from hive.runtime.carriers.carrier import PlanChannel
from hive.runtime.carriers.slots import Slots
from hive.runtime.topology.plan import Plan


class Look(NamedTuple):
    """How a channel is drawn: as text, and as attributes of a path in SVG."""

    arrow: str
    stroke: str


LOOKS = {
    "slots": Look("══>", 'stroke-width="3.5"'),
    "zmq": Look("╍╍>", 'stroke-width="3.5" stroke-dasharray="9 4"'),
    "messages": Look("──>", 'stroke-width="1.5"'),
    "board": Look("▒▒>", 'stroke-width="2" stroke-dasharray="2 5"'),
    "shared": Look("▓▓>", 'stroke-width="3.5" stroke-dasharray="2 3"'),
}
"""By the kind of the carrier."""

PLAIN = Look("──>", 'stroke-width="1.5"')  # of a carrier without a look
BOX_W, BOX_H, GAP_X, GAP_Y, EDGE, LANE = 190, 58, 190, 44, 30, 30  # pixels


def lines_of(plan: Plan) -> list[str]:
    """Return lines of text: processes with their actors, then channels with their carriers and sizes."""
    lines = [f"{len(plan.actors)} actors in {len(plan.processes)} processes, {size_text(plan.bytes)} of shared memory"]
    for process, numbers in plan.processes.items():
        lines.append(f"  {process:<20} {', '.join(plan.actors[n].name for n in numbers)}")
    for channel in plan.channels:
        targets = ", ".join(channel.targets) or "(its successor)"
        lines.append(
            f"  {channel.source} {LOOKS.get(channel.carrier, PLAIN).arrow} {targets}   {_detail(plan, channel)}"
        )
    return lines


def _detail(plan: Plan, channel: PlanChannel) -> str:
    """Return the carrier of a channel and its size: `slots, 2 x 3 slots of 24.1 KiB`."""
    if not channel.segments:
        return channel.carrier
    segment, carrier = plan.segment[channel.segments[0]], channel.description
    unit, size = "blocks", segment.item_bytes
    if isinstance(carrier, Slots):
        unit, size = "slots", carrier.layout.bytes - carrier.layout.sparse_bytes
    return f"{channel.carrier}, {len(channel.producers)} x {segment.count} {unit} of {size_text(size)}"


def svg_of(plan: Plan, title: str) -> str:
    """Return the picture as the text of an SVG file."""
    groups = list(dict.fromkeys(actor.group for actor in plan.actors))
    places = _places(plan, groups)
    bottom = EDGE * 2 + (max(y for _, y in places.values()) + 1) * (BOX_H + GAP_Y) - GAP_Y
    edges, lanes = _edges(plan, places, bottom)
    width = EDGE * 2 + (max(x for x, _ in places.values()) + 1) * (BOX_W + GAP_X) - GAP_X
    height = bottom + EDGE + lanes * LANE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="ui-sans-serif, system-ui, sans-serif" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
        'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L10 5L0 10z" fill="#446"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fbfbf8"/>',
        f'<text x="{EDGE}" y="{EDGE}" font-weight="600">{escape(title)}, {size_text(plan.bytes)} shared</text>',
        *edges,
        *(_box(plan, group, *_corner(places[group])) for group in groups),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _places(plan: Plan, groups: list[str]) -> dict[str, tuple[int, int]]:
    """Return the column and row of each group: right of its producers placed so far, below other groups there."""
    columns: dict[str, int] = {}
    rows: dict[int, int] = {}
    places = {}
    for group in groups:
        channels = [c for c in plan.channels if group in {_group(target) for target in c.targets}]
        before = [columns[_group(c.source)] for c in channels if _group(c.source) in columns]
        column = columns[group] = max((place + 1 for place in before), default=0)
        places[group] = column, rows.get(column, 0)
        rows[column] = rows.get(column, 0) + 1
    return places


def _group(port: str) -> str:
    """Return the group of a port: `learner.weights` -> `learner`."""
    return port.partition(".")[0]


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return EDGE + place[0] * (BOX_W + GAP_X), EDGE * 2 + place[1] * (BOX_H + GAP_Y)


def _box(plan: Plan, group: str, x: int, y: int) -> str:
    actors = [actor for actor in plan.actors if actor.group == group]
    processes = {actor.process for actor in actors}
    own = processes == {actor.name for actor in actors}
    count = f"{len(processes)} process{'es' * (len(processes) > 1)}"
    where = count if own else f"in {', '.join(sorted(processes)[:2])}"
    name = f"{group} × {len(actors)}" if len(actors) > 1 else group
    return (
        f'<g><rect x="{x}" y="{y}" width="{BOX_W}" height="{BOX_H}" rx="7" fill="#fff" stroke="#446"/>'
        f'<text x="{x + 12}" y="{y + 24}" font-weight="600">{escape(name)}</text>'
        f'<text x="{x + 12}" y="{y + 43}" fill="#668" font-size="11">{escape(where)}</text></g>'
    )


def _edges(plan: Plan, places: dict[str, tuple[int, int]], bottom: int) -> tuple[list[str], int]:
    """Return a line for each pair of channel and consuming group, and the number of lanes below the boxes."""
    parts: list[str] = []
    beside: dict[tuple[str, str], int] = {}  # number of the last line between two groups
    lanes = 0
    for channel in plan.channels:
        for target in channel.targets:
            pair = _group(channel.source), _group(target)
            (x1, y1), (x2, y2) = _corner(places[pair[0]]), _corner(places[pair[1]])
            number = beside[pair] = beside.get(pair, -1) + 1
            if x2 > x1:
                shift = 12 + 17 * number
                x1, y1, y2 = x1 + BOX_W, y1 + shift, y2 + shift
                path = f"M{x1} {y1}C{x1 + GAP_X // 2} {y1} {x2 - GAP_X // 2} {y2} {x2} {y2}"
                middle = (x1 + x2) // 2, (y1 + y2) // 2 - 4
            else:
                lanes += 1
                lane = bottom + lanes * LANE - LANE // 3
                x1, x2 = x1 + BOX_W // 2 - 14 * lanes, x2 + BOX_W // 2 - 14 * number
                path = f"M{x1} {y1 + BOX_H}V{lane}H{x2}V{y2 + BOX_H}"
                middle = (x1 + x2) // 2, lane - 4
            parts += _line(path, channel, f"{channel.name}: {_detail(plan, channel)}", middle)
    return parts, lanes


def _line(path: str, channel: PlanChannel, text: str, middle: tuple[int, int]) -> list[str]:
    look = LOOKS.get(channel.carrier, PLAIN)
    return [
        f'<path d="{path}" fill="none" stroke="#446" {look.stroke} marker-end="url(#tip)"/>',
        f'<text x="{middle[0]}" y="{middle[1]}" text-anchor="middle" font-size="9" fill="#446" stroke="#fbfbf8" '
        f'stroke-width="3" paint-order="stroke">{escape(text)}</text>',
    ]
