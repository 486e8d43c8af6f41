"""Faults against a real folder, and the rules that its history must keep: used by tests, soaks and ``laminar chaos``.

``workload`` starts client processes and hurts them and the node; each client writes down what it asked for and what
came of it (``history``); at the end the rows that are there (``log``) are held against that (``checks``).

``workload`` and ``client`` are not imported here, because the clients are started as a module of this package.
"""

from laminar.chaos.checks import RULES, Violation, check
from laminar.chaos.history import History, HistoryWriter, Operation
from laminar.chaos.log import Log
from laminar.chaos.report import Report

__all__ = [
    "RULES",
    "History",
    "HistoryWriter",
    "Log",
    "Operation",
    "Report",
    "Violation",
    "check",
]
