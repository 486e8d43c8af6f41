"""What the documentation shows is run, and what help() prints is what the stubs say."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import laminar
from laminar import _native, assignment, cluster, errors, guards, metadata, stream, writer

ROOT = Path(__file__).parent.parent
STUB = ast.parse((ROOT / "python/laminar/_native.pyi").read_text())
STUB_CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
STUB_FUNCTIONS = {
    node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("check_")
}


@pytest.mark.parametrize("name", STUB_FUNCTIONS)
def test_help_of_native_functions_is_what_the_stubs_say(name: str) -> None:
    assert inspect.getdoc(getattr(_native, name)) == ast.get_docstring(STUB_FUNCTIONS[name])


@pytest.mark.parametrize("name", STUB_CLASSES)
def test_help_of_native_classes_is_what_the_stubs_say(name: str) -> None:
    built = getattr(_native, name)
    assert inspect.getdoc(built) == ast.get_docstring(STUB_CLASSES[name])
    for member in STUB_CLASSES[name].body:
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("__"):
            assert inspect.getdoc(getattr(built, member.name)) == ast.get_docstring(member), member.name


@pytest.mark.parametrize("name", STUB_CLASSES)
def test_examples_of_native_classes_run(name: str) -> None:
    _run_examples(ast.get_docstring(STUB_CLASSES[name]) or "", name)


@pytest.mark.parametrize(
    "module",
    [laminar, assignment, cluster, errors, guards, metadata, stream, writer],
    ids=lambda module: module.__name__,
)
def test_examples_of_python_modules_run(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def _run_examples(docstring: str, name: str) -> None:
    test = doctest.DocTestParser().get_doctest(docstring, {}, name, None, None)
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.failures == 0


def test_every_public_name_is_documented() -> None:
    undocumented = [
        name for name in laminar.__all__ if name != "__version__" and not inspect.getdoc(getattr(laminar, name))
    ]
    assert undocumented == []


def test_readme_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # They open ./data.
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    # Those that need a Spark session run in tests/spark/test_pages.py.
    blocks = [block for block in blocks if "spark." not in block]
    assert blocks
    for number, block in enumerate(blocks):
        script = tmp_path / f"readme_{number}.py"
        script.write_text(block)
        runpy.run_path(str(script))


def test_readme_and_example_commands_run() -> None:
    sources = [ROOT / "README.md", *sorted((ROOT / "examples/clusters").glob("*.toml"))]
    commands = [
        line for source in sources for line in re.findall(r"^#?\s*(laminar plan .*)$", source.read_text(), re.MULTILINE)
    ]
    assert len(commands) >= 5
    for command in commands:
        subprocess.run(
            [sys.executable, "-m", "laminar", *command.split()[1:]],
            cwd=ROOT,
            check=True,
            capture_output=True,
            timeout=60,
        )


def test_links_in_the_documents_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
