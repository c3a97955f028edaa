"""What `--json` prints: plain data with names that stay, described in docs/cli.md."""

from __future__ import annotations

from typing import Any

from ..effective import EffectiveTime
from ..quarantine import NodeRecord
from ..records import AttemptRecord, EventRecord, JobRecord
from ..views import DaemonStatus, NodeView


def job_data(job: JobRecord) -> dict[str, Any]:
    """A job. Times are seconds since the epoch; null for what has not happened."""
    return {
        "id": job.job_id,
        "name": job.name,
        "state": job.state.value,
        "reason": job.reason,
        "devices": job.devices,
        "priority": job.priority,
        "attempt": job.life.attempt,
        "faults": job.life.faults,
        "max_restarts": job.life.max_restarts,
        "submitted_s": job.submitted_s,
        "updated_s": job.updated_s,
        "ended_s": job.ended_s,
    }


def attempt_data(attempt: AttemptRecord) -> dict[str, Any]:
    """One launch of a job: when what happened to it, where it ran, and why it ended."""
    return {
        "number": attempt.number,
        "started_s": attempt.started_s,
        "running_s": attempt.running_s,
        "fault_seen_s": attempt.fault_seen_s,
        "stopped_s": attempt.stopped_s,
        "ended_s": attempt.ended_s,
        "resumed_from": attempt.resumed_from,
        "moved_ranks": attempt.moved_ranks,
        "cause": attempt.cause,
        "placement": attempt.placement,
    }


def time_data(time: EffectiveTime) -> dict[str, Any]:
    """Where a job's time went, in seconds, and what the faults of each kind cost."""
    return {
        "wall_s": time.wall_s,
        "effective_ratio": time.ratio,
        "parts_s": {part.value: seconds for part, seconds in time.parts.items()},
        "faults": [
            {
                "kind": cost.kind,
                "count": cost.count,
                "detect_s": cost.detect_s,
                "recover_s": cost.recover_s,
                "lost_steps": cost.lost_steps,
            }
            for cost in time.kinds
        ],
    }


def event_data(event: EventRecord) -> dict[str, Any]:
    """Something that happened to a job, or (job null) to the cluster."""
    return {
        "seq": event.seq,
        "job": event.job_id,
        "time_s": event.time_s,
        "kind": event.kind,
        "attempt": event.attempt,
        "message": event.message,
        "data": event.data,
    }


def node_data(node: NodeView) -> dict[str, Any]:
    """A node as the daemon sees it."""
    return {
        "name": node.name,
        "state": node.state,
        "reason": node.reason,
        "address": node.address,
        "accelerator": node.accelerator,
        "devices": node.devices,
        "free": node.free,
        "held": node.held,
        "domains": node.domains,
    }


def node_record_data(record: NodeRecord) -> dict[str, Any]:
    """Why a node is kept out, and what is held against it."""
    return {
        "out": None if record.out is None else record.out.value,
        "out_reason": record.reason,
        "since_s": record.since_s,
        "until_s": record.until_s,
        "trial_until_s": record.trial_until_s or None,
        "faults": [
            {
                "time_s": fault.time_s,
                "why": fault.why.value,
                "message": fault.message,
                "job": fault.job_id or None,
            }
            for fault in record.faults
        ],
    }


def status_data(status: DaemonStatus) -> dict[str, Any]:
    """The daemon, its nodes, and how many jobs are in each state."""
    return {
        "daemon": {
            "pid": status.pid,
            "epoch": status.epoch,
            "started_s": status.started_s,
            "fenced": status.fenced,
            "probing": status.probing,
        },
        "jobs": {state.value: count for state, count in status.jobs.items()},
        "nodes": [node_data(node) for node in status.nodes],
    }
