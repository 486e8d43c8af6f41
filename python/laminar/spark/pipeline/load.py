"""Pipeline files: ``pipeline.toml``, or ``pipeline.py`` that has ``pipelines``. Whatever is read has been checked."""

from __future__ import annotations

import dataclasses
import importlib
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from laminar.errors import InvalidError, LaminarError
from laminar.spark import clients
from laminar.spark.pipeline.checked import check_file, is_url
from laminar.spark.pipeline.conform import check_keys, made, nearest
from laminar.spark.pipeline.model import (
    SINKS,
    SOURCES,
    Check,
    FencedSink,
    FilesSource,
    Pipeline,
    PipelineFile,
    PythonTransform,
    Sink,
    Source,
    SqlTransform,
    Transform,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: The tables of a pipeline, and the fields that they become.
_TABLES = {"source": "sources", "transform": "transforms", "check": "checks", "sink": "sinks"}
_PLAIN = tuple(field.name for field in dataclasses.fields(Pipeline) if field.name not in (*_TABLES, *_TABLES.values()))


def load(path: Path | str, *, endpoint: str | None = None, only: Sequence[str] = ()) -> PipelineFile:
    """Read a file, check all of it, and keep the pipelines that ``only`` names. Paths are relative to the file.

    ``endpoint`` is used in place of the file's.
    """
    path = Path(path)
    if path.suffix not in (".toml", ".py"):
        raise InvalidError(f"{path}: its name must end with .toml or .py")
    try:
        file = _toml(path) if path.suffix == ".toml" else _python(path)
    except FileNotFoundError:
        raise InvalidError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InvalidError(f"{path}: it cannot be read, {error.strerror}") from None
    try:
        file = _resolved(file, path.parent, endpoint)
        check_file(file)
        _check_functions(file, path.parent)
        return _chosen(file, only)
    except InvalidError as error:
        raise InvalidError(f"{path}: {error}") from None


def _toml(path: Path) -> PipelineFile:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidError(f"{path}: it is not TOML, {error}") from None
    try:
        check_keys(table, ("endpoint", "checkpoints", "pipeline"), "file")
        tables = _list_of_tables(table.pop("pipeline", []), "pipeline")
        pipelines = tuple(_pipeline(one, number) for number, one in enumerate(tables, 1))
        return PipelineFile(pipelines=pipelines, **table)
    except InvalidError as error:
        raise InvalidError(f"{path}: {error}") from None


def _pipeline(table: Mapping[str, Any], number: int) -> Pipeline:
    where = f"pipeline {table.get('name', number)}"
    check_keys(table, (*_PLAIN, *_TABLES), where)
    readers: dict[str, Callable[[Mapping[str, Any], str], Any]] = {
        "source": _source,
        "transform": _transform,
        "check": lambda one, at: made(Check, one, at),
        "sink": _sink,
    }
    fields = {name: value for name, value in table.items() if name in _PLAIN}
    for name, field in _TABLES.items():
        things = []
        for place, one in enumerate(_list_of_tables(table.get(name, []), f"{where}, {name}"), 1):
            thing_where = f"{where}, {name} {one.get('name', place)}"
            try:
                things.append(readers[name](one, thing_where))
            except InvalidError as error:
                text = str(error)
                raise InvalidError(text if text.startswith(where) else f"{where}, {text}") from None
        fields[field] = tuple(things)
    if "name" not in fields:
        raise InvalidError(f"{where}: name is missing; give it")
    return Pipeline(**fields)


def _list_of_tables(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InvalidError(f"{where} is {value!r}; write it as [[…]] with keys below")
    return value


def _source(table: Mapping[str, Any], where: str) -> Source:
    thing: Source = _of_kind(table, SOURCES, where)
    return thing


def _sink(table: Mapping[str, Any], where: str) -> Sink:
    thing: Sink = _of_kind(table, SINKS, where)
    return thing


def _of_kind(table: Mapping[str, Any], kinds: Mapping[str, type], where: str) -> Any:
    kind = table.get("kind", "laminar")
    if kind not in kinds:
        raise InvalidError(f"{where}: there is no kind {kind!r}; {nearest(str(kind), kinds)}")
    return made(kinds[kind], {name: value for name, value in table.items() if name != "kind"}, where)


def _transform(table: Mapping[str, Any], where: str) -> Transform:
    if ("sql" in table) == ("python" in table):
        check_keys(table, ("name", "inputs", "sql", "python"), where)
        raise InvalidError(f"{where}: give one of sql and python")
    thing: Transform = made(SqlTransform if "sql" in table else PythonTransform, table, where)
    return thing


def _python(path: Path) -> PipelineFile:
    folder = str(path.parent.absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = runpy.run_path(os.fspath(path))
    except (LaminarError, OSError) as error:
        if isinstance(error, FileNotFoundError) and not path.exists():
            raise
        raise InvalidError(f"{path}: {error}") from None
    except Exception as error:
        # Whatever a file of somebody else raises is told in one line, with its place.
        raise InvalidError(f"{path}: {_place(error, path)}{type(error).__name__}: {error}") from error
    pipelines = module.get("pipelines")
    if not isinstance(pipelines, list | tuple) or not all(isinstance(one, Pipeline) for one in pipelines):
        raise InvalidError(f"{path}: it must have pipelines, a list of laminar.spark.pipeline.Pipeline")
    given = {name: module[name] for name in ("endpoint", "checkpoints") if name in module}
    try:
        return PipelineFile(pipelines=tuple(pipelines), **given)
    except InvalidError as error:
        raise InvalidError(f"{path}: {error}") from None


def _place(error: Exception, path: Path) -> str:
    trace, line = error.__traceback__, None
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).name == path.name:
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f"line {line}: "


def _resolved(file: PipelineFile, folder: Path, endpoint: str | None) -> PipelineFile:
    """The same with absolute paths, so that it means the same wherever it runs."""
    base = folder.absolute()

    def placed(path: str) -> str:
        return path if is_url(path) else os.path.normpath(base / path)

    def cluster(given: str | None) -> str | None:
        return given if given is None or clients.is_address(given) else placed(given)

    def moved(thing: Any) -> Any:
        changed = {"endpoint": cluster(thing.endpoint)} if hasattr(thing, "endpoint") else {}
        if isinstance(thing, FilesSource | FencedSink):
            changed["path"] = placed(thing.path)
        return dataclasses.replace(thing, **changed) if changed else thing

    return PipelineFile(
        pipelines=tuple(
            dataclasses.replace(
                pipeline,
                sources=tuple(moved(source) for source in pipeline.sources),
                checks=tuple(moved(check) for check in pipeline.checks),
                sinks=tuple(moved(sink) for sink in pipeline.sinks),
            )
            for pipeline in file.pipelines
        ),
        endpoint=cluster(file.endpoint) if endpoint is None else clients.absolute(endpoint),
        checkpoints=placed(file.checkpoints),
    )


def _check_functions(file: PipelineFile, folder: Path) -> None:
    base = str(folder.absolute())
    if base not in sys.path:
        sys.path.insert(0, base)
    for pipeline in file.pipelines:
        for transform in pipeline.transforms:
            if isinstance(transform, PythonTransform):
                try:
                    function_of(transform)
                except InvalidError as error:
                    raise InvalidError(f"pipeline {pipeline.name}, {error}") from None


def function_of(transform: PythonTransform) -> Callable[..., Any]:
    """The function of a transform, imported if it is named."""
    if not isinstance(transform.python, str):
        return transform.python
    where = f"transform {transform.name}: python is {transform.python!r}"
    module_name, _, name = transform.python.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InvalidError(f"{where}, and {module_name} cannot be imported: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        functions = [known for known, value in vars(module).items() if callable(value) and not known.startswith("_")]
        raise InvalidError(f"{where}, and {module_name} has no function {name}; {nearest(name, functions)}")
    return function  # type: ignore[no-any-return]


def _chosen(file: PipelineFile, only: Sequence[str]) -> PipelineFile:
    names = [pipeline.name for pipeline in file.pipelines]
    for name in only:
        if name not in names:
            raise InvalidError(f"there is no pipeline {name}; {nearest(name, names)}")
    kept = tuple(pipeline for pipeline in file.pipelines if not only or pipeline.name in only)
    return dataclasses.replace(file, pipelines=kept)


__all__ = ["function_of", "load"]
