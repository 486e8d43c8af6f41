"""What a run found, for people and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from laminar.chaos.history import OUTCOMES

if TYPE_CHECKING:
    from laminar.chaos.checks import Violation
    from laminar.chaos.history import History
    from laminar.chaos.log import Log


@dataclass(kw_only=True)
class Report:
    """The counts of a run, and the rules that did not hold."""

    seed: int
    command: str
    seconds: float
    #: {(kind, outcome): count}
    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Errors by class.
    errors: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    #: How often a process took the folder.
    folder_epoch: int = 0
    violations: Sequence[Violation] = ()
    #: Where the folder and the histories are kept; empty if they are not.
    kept: str = ""

    def count(self, history: History, log: Log | None) -> None:
        """Count operations; and rows, if they could be read."""
        for operation in history:
            self.operations[operation.kind, operation.outcome] += 1
            if operation.error:
                self.errors[operation.error.split(":", 1)[0]] += 1
            if operation.writes and log is not None:
                counts = log.counts(operation.row_ids)
                self.doubled += sum(count > 1 for count in counts)
                batch_of_another = operation.kind == "batch" and operation.duplicate
                if operation.outcome == "done" and not batch_of_another:
                    self.lost += counts.count(0)
        self.rows = 0 if log is None else len(log)

    def outcome(self, name: str) -> int:
        """How many operations ended so."""
        return sum(count for (_, outcome), count in self.operations.items() if outcome == name)

    @property
    def is_good(self) -> bool:
        """Whether every rule held."""
        return not self.violations and not self.lost and not self.doubled

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON takes it."""
        kinds = sorted({kind for kind, _ in self.operations})
        return {
            "seed": self.seed,
            "command": self.command,
            "seconds": round(self.seconds, 1),
            "operations": {kind: {name: self.operations[kind, name] for name in OUTCOMES} for kind in kinds},
            **{name: self.outcome(name) for name in OUTCOMES},
            "errors": dict(self.errors.most_common()),
            "faults": dict(sorted(self.faults.items())),
            "folder_epoch": self.folder_epoch,
            "rows": self.rows,
            "lost": self.lost,
            "doubled": self.doubled,
            "violations": [{"rule": violation.rule, "what": violation.what} for violation in self.violations],
            "kept": self.kept,
        }

    def __str__(self) -> str:
        total = sum(self.operations.values())
        lines = [f"{total} operations in {self.seconds:.1f} s, seed {self.seed}"]
        for kind in sorted({kind for kind, _ in self.operations}):
            counts = ", ".join(f"{self.operations[kind, name]} {name}" for name in OUTCOMES)
            lines.append(f"  {kind:<8} {counts}")
        faults = ", ".join(f"{count} x {name}" for name, count in sorted(self.faults.items())) or "none"
        lines += [
            f"faults   {faults}",
            f"errors   {', '.join(f'{count} x {name}' for name, count in self.errors.most_common()) or 'none'}",
            f"taken    {self.folder_epoch} times",
            f"rows     {self.rows}",
        ]
        refused, unknown = self.outcome("refused"), self.outcome("unknown")
        lines.append(f"refused {refused}, unknown {unknown}, lost {self.lost}, doubled {self.doubled}")
        lines += [f"VIOLATION {violation}" for violation in self.violations]
        if self.kept:
            lines.append(f"kept     {self.kept}")
        lines.append(f"repeat   {self.command}")
        return "\n".join(lines)
