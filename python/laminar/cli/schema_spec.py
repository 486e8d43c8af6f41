"""Schemas as one line: ``id:int64,name:string?,at:timestamp[ms]?``. A question mark means that a value may be missing.

schema  ->  field ("," field)*
field   ->  name ":" type "?"?
type    ->  a name of Arrow's: int64, string, timestamp[ms], date32, decimal128(10,2), binary[16] …
         |  "list<" type "?"? ">"   |   "struct<" field ("," field)* ">"
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import pyarrow as pa

from laminar.errors import InvalidError

_NAME = re.compile(r"[^\s:,<>?\[\]()]+")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_BRACKETS = re.compile(r"\[\s*([^\]\[]*?)\s*\]")
_DECIMAL = re.compile(r"\(\s*(\d{1,3})\s*,\s*(-?\d{1,3})\s*\)")
_DEPTH_MAX = 16
_EXAMPLE = "id:int64,name:string?,at:timestamp[ms]?"


def parse_schema(text: str) -> pa.Schema:
    """The schema that a line says. A wrong one is an ``InvalidError`` with the place."""
    parser = _Parser(text)
    fields = parser.fields(end="", depth=0)
    names = [field.name for field in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidError(f"--schema: column {twice!r} is named twice; each name may stand once", column=twice)
    return pa.schema(fields)


class _Parser:
    """Reads from left to right; ``_place`` is how far it is."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def fields(self, end: str, depth: int) -> list[pa.Field]:
        fields = [self._field(depth)]
        while self._taken(","):
            fields.append(self._field(depth))
        if end == "" and self._place < len(self._text):
            self._refuse("expected a comma or the end")
        if end and not self._taken(end):
            self._refuse(f"expected a comma or {end}")
        return fields

    def _field(self, depth: int) -> pa.Field:
        name = self._match(_NAME)
        if name is None:
            self._refuse("expected the name of a column")
        if not self._taken(":"):
            self._refuse(f"expected a colon and the type of {name[0]!r}")
        return self._typed(name[0], depth)

    def _typed(self, name: str, depth: int) -> pa.Field:
        data_type = self._type(depth)
        return pa.field(name, data_type, nullable=self._taken("?"))

    def _type(self, depth: int) -> Any:
        self._skip()
        begin = self._place
        if depth > _DEPTH_MAX:
            self._refuse(f"types may be nested {_DEPTH_MAX} deep")
        word = self._match(_WORD)
        if word is None:
            self._refuse("expected a type")
        name = word[0].lower()
        if name == "list" and self._taken("<"):
            item = self._typed("item", depth + 1)
            if not self._taken(">"):
                self._refuse("expected >")
            return pa.list_(item)
        if name == "struct" and self._taken("<"):
            return pa.struct(self.fields(">", depth + 1))
        try:
            return self._named(name)
        except (ValueError, TypeError, pa.ArrowException):
            found = self._text[begin : self._place]
            raise InvalidError(
                f"--schema, character {begin + 1}: {found!r} is no type; there are int64, double, string, bool, "
                "timestamp[ms], date32, binary, decimal128(10,2) and more of Arrow's"
            ) from None

    def _named(self, name: str) -> Any:
        if name in ("decimal128", "decimal256", "decimal") and (digits := self._match(_DECIMAL)):
            make = pa.decimal256 if name == "decimal256" else pa.decimal128
            return make(int(digits[1]), int(digits[2]))
        brackets = self._match(_BRACKETS)
        if brackets is None:
            return pa.type_for_alias(name)
        if name == "timestamp" and "," in brackets[1]:
            unit, _, zone = brackets[1].partition(",")
            return pa.timestamp(unit.strip(), tz=zone.strip().removeprefix("tz=").strip())
        if name in ("binary", "fixed_size_binary"):
            return pa.binary(int(brackets[1]))
        return pa.type_for_alias(f"{name}[{brackets[1]}]")

    def _skip(self) -> None:
        while self._place < len(self._text) and self._text[self._place].isspace():
            self._place += 1

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._skip()
        match = pattern.match(self._text, self._place)
        if match is not None:
            self._place = match.end()
        return match

    def _taken(self, character: str) -> bool:
        self._skip()
        if not self._text.startswith(character, self._place):
            return False
        self._place += len(character)
        self._skip()
        return True

    def _refuse(self, why: str) -> NoReturn:
        rest = self._text[self._place : self._place + 20]
        found = f"there is {rest!r}" if rest else "it ends there"
        raise InvalidError(
            f"--schema, character {self._place + 1}: {why}, and {found}; write it as {_EXAMPLE} (? = may be missing)"
        )


def schema_text(schema: pa.Schema) -> str:
    """The line that ``parse_schema`` reads back."""
    return ",".join(_field_text(field) for field in schema)


def _field_text(field: pa.Field) -> str:
    return f"{field.name}:{type_text(field.type)}{'?' if field.nullable else ''}"


def type_text(data_type: Any) -> str:
    """A type as ``parse_schema`` reads it."""
    if pa.types.is_list(data_type):
        item = data_type.value_field
        return f"list<{type_text(item.type)}{'?' if item.nullable else ''}>"
    if pa.types.is_struct(data_type):
        return f"struct<{','.join(_field_text(field) for field in data_type)}>"
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return f"timestamp[{data_type.unit},{data_type.tz}]"
    return str(data_type).replace("fixed_size_binary", "binary").replace(", ", ",")


__all__ = ["parse_schema", "schema_text", "type_text"]
