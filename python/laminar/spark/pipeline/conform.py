"""Values held against the types that dataclasses declare, with messages for the people who wrote them."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

from laminar.errors import InvalidError

_WORDS = {str: "a text", int: "a whole number", bool: "true or false"}


def conform(thing: Any, where: str) -> None:
    """Hold every field of a dataclass against its type. Lists become tuples, and plain tables dataclasses."""
    hints = typing.get_type_hints(type(thing))
    for field in dataclasses.fields(thing):
        value = _conformed(getattr(thing, field.name), hints[field.name], f"{where}: {field.name}")
        object.__setattr__(thing, field.name, value)  # the dataclasses are frozen


def _conformed(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _one_of(value, arguments, where)
    if origin is tuple:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            raise InvalidError(f"{where} is {value!r}; it must be a list")
        return tuple(_conformed(one, arguments[0], where) for one in value)
    if origin is Mapping:
        return _options(value, where)
    if origin is Callable:
        if not callable(value):
            raise InvalidError(f"{where} is {value!r}; it must be a function")
        return value
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return made(typing.cast("type", hint), value, where)
    # True is an int for Python, and not for people.
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise InvalidError(f"{where} is {value!r}; it must be {_WORDS.get(hint, hint.__name__)}")
    return value


def _one_of(value: Any, choices: Iterable[Any], where: str) -> Any:
    if value is None and type(None) in choices:
        return None
    refused: InvalidError | None = None
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _conformed(value, choice, where)
        except InvalidError as error:
            refused = refused or error
    raise refused or InvalidError(f"{where} is {value!r}")


def _options(value: Any, where: str) -> dict[str, str]:
    """Options of Spark are texts; numbers and booleans are written as Spark reads them."""
    if not isinstance(value, Mapping):
        raise InvalidError(f'{where} is {value!r}; it must be a table such as {{ header = "true" }}')
    options = {}
    for name, given in value.items():
        if not isinstance(given, str | int | float | bool):
            raise InvalidError(f"{where}: {name} is {given!r}; it must be a text, a number, true or false")
        options[str(name)] = str(given).lower() if isinstance(given, bool) else str(given)
    return options


def made(kind: type, table: Mapping[str, Any], where: str) -> Any:
    """A dataclass of a table. A key that it does not know is refused with the nearest that it knows."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    check_keys(table, fields, where)
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise InvalidError(f"{where}: {name} is missing; give it")
    return kind(**table)


def check_keys(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse a key that is not known."""
    names = list(known)
    for key in table:
        if key not in names:
            raise InvalidError(f"{where}: there is no key {key!r}; {nearest(key, names)}")


def nearest(wrong: str, names: Iterable[str]) -> str:
    """What somebody may have meant."""
    known = sorted(names)
    near = difflib.get_close_matches(wrong, known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"there is {', '.join(known)}" if known else "there is none"


__all__ = ["check_keys", "conform", "made", "nearest"]
