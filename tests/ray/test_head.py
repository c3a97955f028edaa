"""The head dies with all that is on it and is started again: jobs go on, and each comes to its end.

With the head go Ray's control store, the daemon and every controller; ranks are on other nodes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos_bench import Ledger
from job_bench import Bench, kill, rank_pids
from railweave.agents import processes
from railweave.scheduler.client import Client
from railweave.scheduler.embedded import HEAD, EmbeddedCluster, EmbeddedClusterError
from railweave.scheduler.lifecycle import JobState
from waiting import wait_until

COUNTING = """
count = 0
while not os.path.exists("go-on"):
    count += 1
    pathlib.Path(f"count-{attempt}-{rank}").write_text(str(count))
    time.sleep(0.02)
"""
BROKEN_ONCE = """
if attempt > 1:
    sys.exit(0)
until("never")
"""


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_jobs_outlive_the_head_and_what_happened_meanwhile_is_found(
    durable: EmbeddedCluster, tmp_path: Path
) -> None:
    with Client() as client:
        bench = Bench(client, tmp_path)
        ledger = Ledger(bench)
        goes_on = bench.submit(
            COUNTING, devices=2, name="goes-on", checkpoint_dir=tmp_path / "goes-on"
        )
        ends = bench.submit(
            "until('end')", devices=2, name="ends", checkpoint_dir=tmp_path / "ends"
        )
        breaks = bench.submit(
            BROKEN_ONCE, devices=2, name="breaks", checkpoint_dir=tmp_path / "breaks"
        )
        for job in (goes_on, ends, breaks):
            bench.until(job, JobState.RUNNING, 150)
        waits = bench.submit("pass", devices=6, name="waits", checkpoint_dir=tmp_path / "waits")
        before = client.status()
        pids = {job.id: rank_pids(job) for job in (goes_on, ends, breaks)}

        assert durable.kill_node(HEAD) >= 6 and not durable.head_runs
        count = tmp_path / "count-1-0"
        counted = int(count.read_text() or 0)
        wait_until(lambda: int(count.read_text() or 0) > counted + 50, 60, "ranks go on")
        bench.touch("end")
        wait_until(lambda: not alive(pids[ends.id]), 60, "the ranks of a job have ended")
        kill(pids[breaks.id][1])
        assert alive(pids[breaks.id]) == 1 and alive(pids[goes_on.id]) == 2

        durable.restart_head()
        after = client.status()  # by the same connection
        assert after.pid != before.pid and after.epoch == before.epoch + 1
        assert bench.ends(ends, 150) is JobState.SUCCEEDED, ends.explain()
        assert bench.ends(breaks, 150) is JobState.SUCCEEDED, breaks.explain()
        assert rank_pids(goes_on) == pids[goes_on.id]
        ledger.look()
        bench.touch("go-on")
        assert bench.ends(goes_on, 150) is JobState.SUCCEEDED, goes_on.explain()
        assert bench.ends(waits, 150) is JobState.SUCCEEDED, waits.explain()
        assert ledger.wrong == [] and bench.alive() == []
        assert [len(job.attempts) for job in (goes_on, ends, breaks, waits)] == [1, 1, 2, 1]
        broken = breaks.attempts[0].cause
        assert broken is not None and broken["kind"] == "rank_signal" and broken["rank"] == 1
        assert "quarantined" not in [event.kind for event in client.events()]


def alive(pids: dict[int, int]) -> int:
    """How many of these ranks run."""
    found = [processes.process(pid) for pid in pids.values()]
    return sum(entry is not None and entry.state != "Z" for entry in found)


def test_a_head_without_a_store_on_the_disk_is_not_started_again(cluster: EmbeddedCluster) -> None:
    with pytest.raises(EmbeddedClusterError, match="was in memory only, and is lost with it"):
        cluster.restart_head()
    assert cluster.head_runs
