"""The picture of README: how fast peers are beside hive, from the newest rows of examples/results/league.csv."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from documentation.figures import Row, grouped, rows_of
from hive.comparison.picture import new_figure, write_figure

WORK: Mapping[str, str] = {
    "ppo-cartpole": "PPO\nCartPole",
    "dqn-cartpole": "DQN\nCartPole",
    "sac-pendulum": "SAC\nPendulum",
    "sac-halfcheetah": "SAC\nHalfCheetah",
    "td3-halfcheetah": "TD3\nHalfCheetah",
}
"""Row of the league -> label."""

PEERS: Mapping[str, str] = {"rltools": "RLtools", "sbx": "SBX", "sb3": "Stable-Baselines3"}
COLORS = {"hive": "#E69F00", "RLtools": "#009E73", "SBX": "#56B4E9", "Stable-Baselines3": "#7F7F7F"}
WIDTH = 0.2  # of a bar; the distance of two groups is 1


def shares(rows: list[Row]) -> dict[str, float]:
    """Return how fast each trainer is in one row of the league, hive 1: a peer with its best number of threads."""
    found = {"hive": 1.0}
    for row in rows:
        name = PEERS.get(row["contender"].removesuffix("-1-thread"))
        if name is not None:
            found[name] = max(found.get(name, 0.0), 1.0 / float(row["ratio"]))
    return found


def write_league(path: Path) -> None:
    """Write the bars as a picture."""
    newest = {key: group[-1] for key, group in grouped(rows_of("league"), "row", "contender").items()}
    sheet, panels = new_figure(9.0, 2.6, (1.0,))
    (axes,) = panels
    for place, name in enumerate(WORK):
        found = shares([row for (work, _), row in newest.items() if work == name])
        present = [who for who in COLORS if who in found]
        for n, who in enumerate(present):
            at = place + (n - (len(present) - 1) / 2) * WIDTH
            label = who if place == list(WORK).index("sac-pendulum") else None
            axes.bar(at, found[who], WIDTH * 0.9, color=COLORS[who], label=label)
            text = "1" if who == "hive" else f"{found[who]:.2f}"
            axes.text(at, found[who] + 0.02, text, ha="center", fontsize=8)
    axes.set_xticks(range(len(WORK)), list(WORK.values()))
    axes.set(ylabel="steps per second, hive = 1", ylim=(0.0, 1.3))
    axes.legend(loc="upper center", ncols=4, frameon=False, fontsize=9)
    write_figure(sheet, path)


if __name__ == "__main__":
    write_league(Path(__file__).parents[2] / "examples" / "pictures" / "league.svg")
