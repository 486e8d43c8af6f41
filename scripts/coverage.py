"""Measures line coverage: the Rust crates under their own tests and under pytest, and the Python package.

Fails if any crate, or the Python package, has fewer than 80 % of its lines covered. Needs `cargo-llvm-cov` (by
`cargo install cargo-llvm-cov`) and the `llvm-tools` of the toolchain (by `rustup component add llvm-tools`).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
LEAST_PERCENT = 80


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Run a command and return what it printed; stop if it fails."""
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.stderr.write(done.stdout)
        sys.exit(f"coverage: {shlex.join(map(str, command))} failed")
    return done.stdout


def instrumented_environment() -> dict[str, str]:
    """The environment in which cargo and maturin build with counters.

    In a folder of its own: cargo would not notice that what it finds in the usual one was built with counters.
    """
    environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "target/coverage")}
    lines = run("cargo", "llvm-cov", "show-env", "--sh", env=environment).splitlines()
    pairs = (shlex.split(line.removeprefix("export "))[0].split("=", 1) for line in lines if "=" in line)
    return {**environment, **dict(pairs)}


def rust_lines(environment: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Covered and all lines of each crate."""
    report = json.loads(run("cargo", "llvm-cov", "report", "--release", "--json", "--summary-only", env=environment))
    lines: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for file in report["data"][0]["files"]:
        path = Path(file["filename"])
        if ROOT / "crates" in path.parents:
            crate = path.relative_to(ROOT / "crates").parts[0]
            covered, count = lines[crate]
            summary = file["summary"]["lines"]
            lines[crate] = (covered + summary["covered"], count + summary["count"])
    return dict(lines)


def python_lines() -> tuple[int, int]:
    """Covered and all lines of the Python package."""
    run(BIN / "coverage", "combine")
    totals = json.loads(run(BIN / "coverage", "json", "-o", "-"))["totals"]
    return totals["covered_lines"], totals["num_statements"]


def main() -> None:
    """Measure, print, and fail where too little is covered."""
    if shutil.which("cargo-llvm-cov") is None:
        sys.exit("coverage: cargo-llvm-cov is missing; install it with `cargo install cargo-llvm-cov --locked`")
    environment = instrumented_environment()
    run("cargo", "llvm-cov", "clean", "--workspace", env=environment)
    run("cargo", "test", "--release", "--locked", "--workspace", "--exclude", "laminar-py", env=environment)
    # What is installed from here on counts its lines; without its stamp the next `make` builds it plain again.
    (BIN.parent / ".native").unlink(missing_ok=True)
    run(BIN / "maturin", "develop", "--release", "--quiet", env=environment)
    # The command line is tested in processes of its own: they report through the same setting.
    settings = {"COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml")}
    run(BIN / "coverage", "run", "-m", "pytest", "-q", env={**environment, **settings})
    lines = {**rust_lines(environment), "python/laminar": python_lines()}
    too_little = []
    for name, (covered, count) in sorted(lines.items()):
        percent = 100 * covered / count
        sys.stdout.write(f"{name:<20} {percent:5.1f} %  ({covered} of {count} lines)\n")
        if percent < LEAST_PERCENT:
            too_little.append(name)
    if too_little:
        sys.exit(f"coverage: {', '.join(too_little)} below {LEAST_PERCENT} %")


if __name__ == "__main__":
    main()
