"""A dry run: what would run, as a table, and how rows flow, as a tree."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from laminar.spark.pipeline.graph import Output, ancestors, ordered, outputs
from laminar.spark.pipeline.model import (
    FilesSource,
    KafkaSource,
    Pipeline,
    PipelineFile,
    RateSource,
    Source,
    SqlTransform,
    StreamSink,
)

_SQL_LENGTH_MAX = 60


def plan(file: PipelineFile) -> list[dict[str, Any]]:
    """What would run, for ``--json``."""
    return [
        {
            "name": pipeline.name,
            "once": pipeline.once,
            "trigger": pipeline.trigger,
            "sources": [{"kind": source.kind, **dataclasses.asdict(source)} for source in pipeline.sources],
            "transforms": [_transform_told(transform) for transform in ordered(pipeline)],
            "checks": [dataclasses.asdict(check) for check in pipeline.checks],
            "queries": [
                {
                    "input": output.sink.input,
                    "kind": output.sink.kind,
                    "target": output.target,
                    "endpoint": output.sink.endpoint or file.endpoint,
                    "writer": output.writer,
                    "rejected_by": list(output.rejected_by),
                    "checkpoint": checkpoint(file, output),
                }
                for output in outputs(pipeline)
            ],
        }
        for pipeline in file.pipelines
    ]


def checkpoint(file: PipelineFile, output: Output) -> str:
    """The folder of an output's checkpoint."""
    return f"{file.checkpoints.rstrip('/')}/{output.pipeline.name}/{output.name}"


def _transform_told(transform: Any) -> dict[str, Any]:
    told = {"name": transform.name, "inputs": list(transform.inputs)}
    if isinstance(transform, SqlTransform):
        return {**told, "sql": transform.sql}
    return {**told, "python": _function_name(transform.python)}


def _function_name(function: Any) -> str:
    return function if isinstance(function, str) else f"{function.__module__}:{function.__qualname__}"


def plan_table(file: PipelineFile) -> Table:
    """One line for each streaming query."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("pipeline", "reads", "writes", "as", "rows", "runs"):
        table.add_column(name, overflow="fold")
    for pipeline in file.pipelines:
        for output in outputs(pipeline):
            made_of = ancestors(pipeline, output.sink.input)
            table.add_row(
                Text(pipeline.name),
                Text(", ".join(_origin(source) for source in pipeline.sources if source.name in made_of)),
                Text(output.target),
                Text(f"{output.sink.kind}, writer {output.writer}"),
                Text(f"refused by {', '.join(output.rejected_by)}" if output.rejected_by else output.sink.input),
                "once" if pipeline.once else f"every {pipeline.trigger}" if pipeline.trigger else "always",
            )
    return table


def _origin(source: Source) -> str:
    if isinstance(source, FilesSource):
        return f"{source.path} ({source.format})"
    if isinstance(source, KafkaSource):
        return f"{source.topic} (kafka at {source.servers})"
    if isinstance(source, RateSource):
        return f"rate ({source.rows_per_second} rows/s)"
    return f"{source.stream} from {source.start}"


def graph_tree(pipeline: Pipeline) -> Tree:
    """Sources at the left, what becomes of them to the right."""
    tree = Tree(Text(pipeline.name, style="bold"), guide_style="dim")
    drawn: set[str] = set()
    for source in pipeline.sources:
        label = Text.assemble((source.name, "cyan"), f"  {source.kind}  ", (_origin(source), "dim"))
        _draw(tree.add(label), pipeline, source.name, drawn)
    return tree


def _draw(branch: Tree, pipeline: Pipeline, relation: str, drawn: set[str]) -> None:
    """What reads a relation, and what reads that. What has more inputs is drawn in full once."""
    drawn.add(relation)
    for check in pipeline.checks:
        if check.on == relation:
            then = f"put aside in {check.to}" if check.to else check.otherwise
            branch.add(Text.assemble(("? ", "yellow"), check.name, f"  {check.expect}  ", (f"else {then}", "yellow")))
    for output in outputs(pipeline):
        if output.sink.input == relation and not output.rejected_by:
            kind = "" if isinstance(output.sink, StreamSink) else f"  {output.sink.kind}, fenced by {output.sink.fence}"
            branch.add(Text.assemble(("=> ", "green"), (output.target, "green"), kind, f"  writer {output.writer}"))
    for transform in pipeline.transforms:
        if relation not in transform.inputs:
            continue
        how = _shortened(transform.sql) if isinstance(transform, SqlTransform) else _function_name(transform.python)
        label = Text.assemble((transform.name, "cyan"), "  ", (how, "dim"))
        if transform.name in drawn:
            branch.add(Text.assemble((transform.name, "cyan"), ("  (above)", "dim")))
        else:
            _draw(branch.add(label), pipeline, transform.name, drawn)


def _shortened(sql: str) -> str:
    line = " ".join(sql.split())
    return line if len(line) <= _SQL_LENGTH_MAX else f"{line[: _SQL_LENGTH_MAX - 1]}…"


__all__ = ["checkpoint", "graph_tree", "plan", "plan_table"]
