"""Any order of launches, stops, crashes and restarts on a node, with real processes."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from node_bench import NodeBench, node_bench
from railweave.agents.attempt import NodePhase, Refused
from railweave.agents.runner import Runner
from waiting import wait_until

OVER = (NodePhase.ENDED, NodePhase.STOPPED)
# A rank with a child in a session of its own, which outlives it if nobody sees to it.
COMMANDS = {
    "lasting": ("sh", "-c", "setsid sleep 1000 & exec sleep 1000"),
    "brief": ("sh", "-c", "setsid sleep 1000 & exit 3"),
    "stubborn": ("sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"),
    "missing": ("./no-such-command",),
}


class OneNode(RuleBasedStateMachine):
    """A node on which at most one attempt is alive, whatever happens to agent, guard and ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.node: NodeBench = self.stack.enter_context(node_bench(Path(folder)))
        self.highest = 0  # number launched or stopped
        self.launched = 0  # the last one that was launched
        self.over: set[int] = set()

    def phase(self, attempt: int) -> NodePhase:
        return self.node.runner.status("job", attempt).phase

    @rule(kind=st.sampled_from(sorted(COMMANDS)), skip=st.integers(1, 2))
    def launch(self, kind: str, skip: int) -> None:
        attempt = self.highest + skip
        alive = self.launched > 0 and self.phase(self.launched) not in OVER
        try:
            status = self.node.launch(*COMMANDS[kind], ranks=2, attempt=attempt)
        except Refused as refused:
            assert alive and re.search(r"stop it before|is in use", str(refused)), refused
            return
        # One that was alive may have ended by itself meanwhile, and must have.
        assert not alive or self.phase(self.launched) in OVER
        assert status.phase in (NodePhase.RUNNING, *OVER)
        self.highest = self.launched = attempt

    @precondition(lambda self: self.highest)
    @rule()
    def launch_late(self) -> None:
        with pytest.raises(Refused, match=r"fenced|other settings"):
            self.node.launch("sleep", "999", attempt=self.highest)

    @precondition(lambda self: self.launched)
    @rule(grace_s=st.sampled_from([0.0, 0.05]))
    def stop(self, grace_s: float) -> None:
        assert self.node.runner.stop("job", self.launched, grace_s).survivors == ()
        assert self.phase(self.launched) in OVER
        assert self.node.alive() == []

    @rule()
    def stop_ahead(self) -> None:
        """A stop that arrives before the launch it is meant for."""
        self.highest += 1
        assert self.node.runner.stop("job", self.highest, 0.0).survivors == ()

    @precondition(lambda self: self.launched and self.phase(self.launched) is NodePhase.RUNNING)
    @rule(number=st.sampled_from([signal.SIGKILL, signal.SIGTERM]))
    def hit_guard(self, number: signal.Signals) -> None:
        guard = self.node.guard_pid(self.launched)
        if not self.node.gone(guard):
            os.kill(guard, number)
            wait_until(lambda: self.phase(self.launched) in OVER, 30, "the attempt is over")

    @precondition(lambda self: self.launched)
    @rule()
    def hit_rank(self) -> None:
        ranks = self.node.runner.status("job", self.launched).ranks
        running = [rank.pid for rank in ranks if rank.pid and rank.exited_s is None]
        if running and not self.node.gone(running[0]):
            os.kill(running[0], signal.SIGKILL)

    @rule()
    def restart_agent(self) -> None:
        self.node.runner.close()
        self.node.runner = Runner(self.node.state_dir, "n0", self.node.raylet.pid)

    @invariant()
    def an_attempt_that_is_over_has_no_process_and_stays_over(self) -> None:
        for attempt in range(1, self.launched + 1):
            if self.phase(attempt) in OVER:
                self.over.add(attempt)
            else:
                assert attempt not in self.over
        if self.launched in self.over:
            assert self.node.alive() == []

    def teardown(self) -> None:
        self.stack.close()


TestOneNode = OneNode.TestCase
TestOneNode.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)
