"""The mutants of runs with hosts: messages that are lost, repeated, late, or one number off."""

from __future__ import annotations

from mutation.mutant import Mutant

__all__ = ["HOSTS"]

HEAD, HOST = "hosts/head.py", "hosts/host.py"
TESTS = "hosts/test_simulated_hosts.py"
LOST, WRONG = "lost over a link", "wrong over a link"


def fault(kind: str, text: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(kind, text, (), file, old, new, tests=TESTS)


SENT, LACKS, KEPT = (
    "self.unsent.popleft()\n",
    "Taken(collector, incoming.lacks))\n\n    async def evaluate",
    "deque(slot for",
)

HOSTS = [
    fault(
        *(LOST, "rollouts retired before the head has them", HOST, SENT),
        SENT + "            self.untaken[collector].remove(slot)\n            self.retire(slot)\n",
    ),
    fault(LOST, "rollouts not sent again on a new connection", HOST, KEPT, "deque(slot for slot in () for"),
    fault(LOST, "a rollout that Taken names one too early", HEAD, LACKS, LACKS.replace("lacks)", "lacks + 1)")),
    fault(
        *(LOST, "the first rollout of a successor", HEAD),
        *("[self.incoming[number].lacks for", "[self.incoming[number].lacks + 1 for"),
    ),
    fault(LOST, "versions that were on their way", HEAD, "self.line, self.sent = client, -1", "self.line = client"),
    fault(
        *(LOST, "versions that collectors choose by number", HEAD),
        *("max(wanted, self._oldest_needed())", "max(wanted, board.latest, self._oldest_needed())"),
    ),
    fault(LOST, "requests of evaluations", HEAD, "self.unsent = {*self.evaluating}", "self.unsent = set()"),
    fault(LOST, "evaluations", HOST, "in self.evaluated.values():", "in ():"),
    fault(
        WRONG, "messages of earlier incarnations", HEAD, "elif message.incarnation != self.incarnation:", "elif False:"
    ),
    fault(
        WRONG, "rollouts that came before", HEAD, "if message.sequence == incoming", "if message.sequence <= incoming"
    ),
]
