"""The store's tables: the same on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

SCHEMA_VERSION: Final = 1

# Written into every SQLite file of ours ("RWsd"), so that another program's file is told apart.
APPLICATION_ID: Final = 0x52577364

metadata = MetaData()

meta = Table(
    "railweave_meta",
    metadata,
    Column("key", String(40), primary_key=True),
    Column("value", Text, nullable=False),
)

# `number` is the order of submission. The specification stands apart because it can be megabytes
# and the queue is read often. `kinds` counts the devices that must be of one accelerator kind.
jobs = Table(
    "jobs",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("id", String(63), nullable=False, unique=True),
    Column("name", String(200), nullable=False),
    Column("priority", Integer, nullable=False),
    Column("devices", Integer, nullable=False),
    Column("kinds", JSON, nullable=False),
    Column("state", String(12), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("faults", Integer, nullable=False),
    Column("max_restarts", Integer, nullable=False),
    Column("holds_devices", Boolean, nullable=False),
    Column("ending", String(12)),
    Column("reason", Text, nullable=False, default=""),
    Column("submitted_s", Float, nullable=False),
    Column("updated_s", Float, nullable=False),
    Column("ended_s", Float),
    Index("jobs_by_state", "state", "holds_devices", "number"),
)

specs = Table(
    "job_specs",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("spec", Text, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("placement", JSON, nullable=False),
    Column("plan", JSON),
    Column("resumed_from", Text, nullable=False, default=""),
    Column("moved_ranks", Integer, nullable=False, default=0),
    Column("started_s", Float, nullable=False),
    Column("running_s", Float),
    Column("fault_seen_s", Float),
    Column("stopped_s", Float),
    Column("ended_s", Float),
    Column("cause", JSON),
)

events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("job_id", ForeignKey("jobs.id")),
    Column("time_s", Float, nullable=False),
    Column("kind", String(40), nullable=False),
    Column("attempt", Integer),
    Column("message", Text, nullable=False),
    Column("data", JSON, nullable=False),
    Index("events_by_job", "job_id", "seq"),
)

# The ledger. A row lives exactly as long as its job holds the device, so its primary key makes
# booking a device twice impossible whatever the daemon believes.
held = Table(
    "held_devices",
    metadata,
    Column("node", String(253), primary_key=True),
    Column("device", Integer, primary_key=True, autoincrement=False),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Index("held_by_job", "job_id"),
)

quarantine = Table(
    "quarantined_nodes",
    metadata,
    Column("node", String(253), primary_key=True),
    Column("reason", Text, nullable=False),
    Column("since_s", Float, nullable=False),
    Column("until_s", Float),
)

documents = Table(
    "documents",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("content", JSON, nullable=False),
    Column("written_s", Float, nullable=False),
)
