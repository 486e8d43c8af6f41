"""Jobs on streams, on the caller's Spark or a local one: ingest, export, replay, verify, compact. See docs/jobs.md."""

from __future__ import annotations

from laminar.spark.jobs.compact import Compacted, CompactedPartition, check_compact, compact
from laminar.spark.jobs.export import Exported, export
from laminar.spark.jobs.ingest import Ingested, check_ingest, ingest
from laminar.spark.jobs.manifest import ExportedFile, Folder, Manifest
from laminar.spark.jobs.replay import Replayed, replay
from laminar.spark.jobs.verify import Fault, Verified, VerifiedPartition, verify

__all__ = [
    "Compacted",
    "CompactedPartition",
    "Exported",
    "ExportedFile",
    "Fault",
    "Folder",
    "Ingested",
    "Manifest",
    "Replayed",
    "Verified",
    "VerifiedPartition",
    "check_compact",
    "check_ingest",
    "compact",
    "export",
    "ingest",
    "replay",
    "verify",
]
