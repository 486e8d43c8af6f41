"""The command line in this process, for tests: quicker than a process each, with the same exit codes and outputs."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from laminar.cli import main


class Commands:
    """Runs ``laminar … --at FOLDER``."""

    def __init__(self, at: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.at = at
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.delenv("LAMINAR_AT", raising=False)
        monkeypatch.delenv("LAMINAR_SECRET", raising=False)

    def run(self, *args: str | Path | int, exit_code: int = 0, stdin: str = "") -> tuple[str, str]:
        """What it says on both outputs."""
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["laminar", *map(str, args), "--at", self.at])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as ended:
            main()
        said = self._capsys.readouterr()
        assert (ended.value.code or 0) == exit_code, said.err
        assert "Traceback" not in said.err
        return said.out, said.err

    def out(self, *args: str | Path | int, stdin: str = "") -> str:
        """What a command that is done says."""
        out, err = self.run(*args, stdin=stdin)
        assert err == ""
        return out

    def json(self, *args: str | Path | int, stdin: str = "") -> Any:
        """What it says with ``--json``."""
        return json.loads(self.out(*args, "--json", stdin=stdin))

    def rows(self, *args: str | Path | int) -> list[dict[str, Any]]:
        """The JSON lines of a read."""
        return [json.loads(line) for line in self.out("read", *args).split("\n") if line]

    def refused(self, *args: str | Path | int, stdin: str = "") -> str:
        """The one line of a command that is refused."""
        out, err = self.run(*args, exit_code=1, stdin=stdin)
        assert out == ""
        assert err.count("\n") == 1, err
        return err
