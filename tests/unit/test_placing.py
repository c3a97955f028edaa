"""A job is placed on what is free, and after a loss its ranks stay where they can."""

from __future__ import annotations

from railweave.placement import AtMost, Cluster, Constraints, evaluate
from railweave.placement.domains import Domain
from railweave.placement.inference.health import Finding, Health, Symptom
from railweave.placement.inference.health_effects import Effects, effects_of
from railweave.scheduler.job import Job
from railweave.scheduler.ledger import Ledger
from railweave.scheduler.placing import Found, find_placement, moved_ranks
from railweave.scheduler.records import Holding

# Two pods of two nodes and a spare in the second, two devices each.
CLUSTER = Cluster.parse(
    {
        "format": "railweave.cluster/1",
        "name": "test",
        "tiers": [
            {"name": "pod", "bandwidth": 1e9, "latency": 1e-5},
            {"name": "spine", "bandwidth": 1e9, "latency": 1e-5},
        ],
        "nodes": [
            {"name": name, "accelerator": "cpu", "devices": 2, "domains": {"pod": pod}}
            for name, pod in [("a0", 0), ("a1", 0), ("b0", 1), ("b1", 1), ("spare", 1)]
        ],
    }
)


def job(devices: int, kind: str | None = None) -> Job:
    graph = {
        "format": "railweave.pcg/1",
        "world_size": devices,
        "groups": [{"name": "dp", "op": "all_reduce", "ranks": list(range(devices)), "bytes": 1e6}],
        "requires": [{"ranks": [0], "accelerator": kind}] if kind else [],
    }
    return Job(name="test", entrypoint="true", pcg=graph)


def test_held_devices_and_nodes_set_aside_are_not_used() -> None:
    held = {("a0", 0): Holding("other", 1, 0)}
    found = find_placement(job(7), Ledger(CLUSTER, held, {"b0": "lost"}))
    assert found.placement is not None
    assert set(found.placement.devices) == {
        (node, device) for node in ("a0", "a1", "b1", "spare") for device in (0, 1)
    } - {("a0", 0)}


def test_what_does_not_fit_now_is_told_apart_from_what_never_will() -> None:
    held = {("a0", 0): Holding("other", 1, 0)}
    now = find_placement(job(10), Ledger(CLUSTER, held, {}))
    assert now.placement is None and now.not_now and not now.never
    never = find_placement(job(11), Ledger(CLUSTER, {}, {}))
    assert never.placement is None and never.never
    kind = find_placement(job(1, "H800"), Ledger(CLUSTER, {}, {}))
    assert "H800" in kind.never


def test_after_a_loss_only_the_ranks_of_the_lost_node_move() -> None:
    before = find_placement(job(8), Ledger(CLUSTER, {}, {"spare": "kept back"})).placement
    assert before is not None
    after = find_placement(job(8), Ledger(CLUSTER, {}, {"b0": "lost"}), before).placement
    assert after is not None
    assert moved_ranks(before.devices, after.devices) == 2
    assert {node for node, _ in after.devices} == {"a0", "a1", "b1", "spare"}


def test_devices_that_another_job_took_meanwhile_count_as_lost() -> None:
    before = find_placement(job(4), Ledger(CLUSTER, {}, {})).placement
    assert before is not None
    held = {before.devices[0]: Holding("other", 1, 0)}
    after = find_placement(job(4), Ledger(CLUSTER, held, {}), before).placement
    assert after is not None
    assert before.devices[0] not in after.devices


def test_a_job_whose_devices_are_all_free_stays_where_it_was() -> None:
    before = find_placement(job(4), Ledger(CLUSTER, {}, {})).placement
    assert before is not None
    after = find_placement(job(4), Ledger(CLUSTER, {}, {}), before).placement
    assert after is not None and after.devices == before.devices


def test_ranks_do_move_when_that_saves_much_of_the_spines_traffic() -> None:
    # The first attempt found only one node free in each pod; by now a whole pod is.
    crowded = Ledger(CLUSTER, {}, {"a1": "busy", "b1": "busy", "spare": "busy"})
    before = find_placement(job(4), crowded).placement
    assert before is not None and before.cross_spine_bytes > 0
    after = find_placement(job(4), Ledger(CLUSTER, {}, {}), before).placement
    assert after is not None and after.cross_spine_bytes == 0
    traffic = evaluate(job(4).graph(), CLUSTER, after.devices).traffic_bytes
    assert traffic == after.traffic_bytes


def test_a_cluster_that_has_lost_the_nodes_altogether_is_placed_on_anew() -> None:
    before = find_placement(job(4), Ledger(CLUSTER, {}, {"b0": "", "b1": "", "spare": ""}))
    smaller = CLUSTER.with_nodes(CLUSTER.nodes[2:])
    assert before.placement is not None
    after = find_placement(job(4), Ledger(smaller, {}, {}), before.placement).placement
    assert after is not None
    assert {node for node, _ in after.devices} <= {"b0", "b1", "spare"}


def test_a_jobs_constraints_hold_for_its_first_placement_and_after_a_fault() -> None:
    wish = Constraints(at_most=AtMost(nodes=1, tier="pod"))
    one = job(4).model_copy(update={"constraints": wish})
    before = find_placement(one, Ledger(CLUSTER, {}, {})).placement
    assert before is not None and wish.broken(CLUSTER, before.devices) == []
    lost = before.devices[0][0]
    after = find_placement(one, Ledger(CLUSTER, {}, {lost: "broke"}), before).placement
    assert after is not None and wish.broken(CLUSTER, after.devices) == []
    assert lost not in {node for node, _ in after.devices}
    assert moved_ranks(before.devices, after.devices) == 2


def test_constraints_that_no_cluster_like_this_can_meet_are_told_at_once() -> None:
    wish = Constraints(at_most=AtMost(nodes=1, tier="pod"))
    found = find_placement(job(6).model_copy(update={"constraints": wish}), Ledger(CLUSTER, {}, {}))
    assert found.placement is None and "at_most" in found.never


def test_a_node_that_constraints_name_and_that_is_not_there_is_waited_for() -> None:
    wish = Constraints(excluded_nodes=("n9",))
    found = find_placement(job(2).model_copy(update={"constraints": wish}), Ledger(CLUSTER, {}, {}))
    assert found.placement is None and not found.never and "no node 'n9'" in found.not_now


def test_spares_of_other_jobs_are_taken_only_where_there_is_no_place_without_them() -> None:
    ledger = Ledger(CLUSTER, {}, {})
    for kept in ({"a0"}, {"b0", "b1"}):
        found = find_placement(job(2), ledger, kept=kept).placement
        assert found is not None and not kept & {node for node, _ in found.devices}
    everything = {node.name for node in CLUSTER.nodes}
    assert find_placement(job(2), ledger, kept=everything).placement is not None


def weak(*bad: tuple[object, float], most_out: int = 0, cluster: Cluster = CLUSTER) -> Effects:
    """What findings on these nodes or domains, with what is left of them, mean for placements."""
    found = [
        Finding(
            subject,  # type: ignore[arg-type]
            Health.DEGRADED if left else Health.DOWN,
            Symptom.BANDWIDTH,
            0.0,
            left,
        )
        for subject, left in bad
    ]
    return effects_of(cluster, found, most_out)


def nodes_of(found: Found) -> set[str]:
    assert found.placement is not None, found
    return {node for node, _ in found.placement.devices}


def test_nodes_behind_links_that_are_not_well_are_avoided_while_there_are_others() -> None:
    for name in ("a0", "b0"):
        ledger = Ledger(CLUSTER, {}, {}, weak((name, 0.7)))
        found = find_placement(job(4), ledger)
        assert name not in nodes_of(found) and found.avoided == (name,)
    everything = find_placement(job(10), ledger)
    assert len(nodes_of(everything)) == 5 and everything.avoided == ()


def test_a_domain_with_slow_links_outwards_is_still_used_for_jobs_inside_it() -> None:
    pod = weak((Domain("pod", "1"), 0.3))
    assert nodes_of(find_placement(job(4), Ledger(CLUSTER, {}, {}, pod))) == {"a0", "a1"}
    taken = {"a0": "busy", "a1": "busy"}
    inside = nodes_of(find_placement(job(4), Ledger(CLUSTER, {}, taken, pod)))
    assert inside < {"b0", "b1", "spare"}


def test_no_job_is_spread_over_both_sides_of_links_that_are_down() -> None:
    ledger = Ledger(CLUSTER, {}, {}, weak((Domain("pod", "1"), 0.0)))
    assert nodes_of(find_placement(job(4), ledger)) == {"a0", "a1"}
    assert nodes_of(find_placement(job(6), ledger)) == {"b0", "b1", "spare"}
    both = find_placement(job(8), ledger)
    assert both.placement is None and not both.never
    assert "links out of pod 1, which carry nothing" in both.not_now


def test_a_weak_node_is_used_where_going_around_it_takes_longer() -> None:
    tiers = [CLUSTER.tiers[0], CLUSTER.tiers[1].model_copy(update={"oversubscription": 8.0})]
    cluster = Cluster(name="c", tiers=tuple(tiers), nodes=CLUSTER.nodes)
    taken = {"spare": "busy"}
    held = {("b0", 0): Holding("other", 1, 0), ("b1", 0): Holding("other", 1, 0)}
    slightly = Ledger(cluster, held, taken, weak(("a0", 0.7), cluster=cluster))
    assert nodes_of(find_placement(job(4), slightly)) == {"a0", "a1"}
    hardly = Ledger(cluster, held, taken, weak(("a0", 0.01), cluster=cluster))
    assert "a0" not in nodes_of(find_placement(job(4), hardly))


def test_a_further_attempt_leaves_a_node_whose_links_are_not_well() -> None:
    before = find_placement(job(4), Ledger(CLUSTER, {}, {})).placement
    assert before is not None
    bad = before.devices[0][0]
    after = find_placement(job(4), Ledger(CLUSTER, {}, {}, weak((bad, 0.6))), before)
    assert bad not in nodes_of(after)
