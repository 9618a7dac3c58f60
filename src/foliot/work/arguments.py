"""A payload is a JSON object of keyword arguments. The function's signature says what may be in it.

Arguments are checked twice against the same type: when the promise is made, so that a mistake is told to whoever made
it, and when the attempt begins, because the code may have changed in between.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import msgspec

from foliot.domain.depth import MOST_DEPTH, is_too_deep
from foliot.domain.redaction import REDACTED, Secrets, is_secret_key, redacted_text
from foliot.errors import InvalidInput
from foliot.work.context import Context

MOST_PAYLOAD = 1 << 20
"""Bytes. A payload says what to do; data that is larger belongs where it can be fetched from."""

_encode = msgspec.json.Encoder().encode
_CANNOT_HOLD = (TypeError, ValueError, OverflowError, RecursionError)
_OF_ANY_NAME = inspect.Parameter.VAR_KEYWORD
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class Arguments:
    """How one job's arguments are written and read."""

    __slots__ = (
        "_all_exact",
        "_decode",
        "_exact",
        "_has_instants",
        "_open",
        "_optional",
        "_shape",
        "context",
        "defaults",
        "fields",
        "job",
        "secrets",
    )

    def __init__(self, job: str, function: Callable[..., Any]) -> None:
        """Reads the signature; InvalidInput when a parameter cannot come out of a JSON object."""
        self.job = job
        self.context: str | None = None
        """The parameter that is given the Context; never part of a payload."""
        self._open = False
        """The function takes `**anything`, so names beyond its parameters are no mistake."""
        self.defaults: dict[str, Any] = {}
        """What an argument is that a call leaves out."""
        exact: list[str] = []
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for parameter, annotation in _parameters(job, function):
            if _is_context(annotation):
                self.context = parameter.name
            elif parameter.kind is _OF_ANY_NAME:
                self._open = True
            else:
                if _check_type(job, parameter.name, annotation):
                    exact.append(parameter.name)
                required = parameter.default is inspect.Parameter.empty
                if not required:
                    self.defaults[parameter.name] = parameter.default
                # An absent argument is left to the function's own default: UNSET marks it until it is dropped.
                fields.append((parameter.name, annotation) if required else (parameter.name, annotation, msgspec.UNSET))
        self.fields = tuple(field[0] for field in fields)
        self._exact = frozenset(exact)
        """Fields whose type restores every value; under Any, a datetime would come back as text, unnoticed."""
        self._all_exact = len(exact) == len(fields) and not self._open
        self._has_instants = any(
            isinstance(kind, msgspec.inspect.DateTimeType)
            for field in fields
            for kind in _kinds(msgspec.inspect.type_info(field[1]))
        )
        self._optional = any(len(field) == 3 for field in fields)
        self.secrets = Secrets()
        """What of them must not be repeated in an error."""
        self._shape = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(self._shape).decode

    @property
    def takes_others(self) -> bool:
        """Names beyond its fields, too."""
        return self._open

    def is_secret(self, name: str) -> bool:
        """Whether an argument is secret, or anything in it."""
        return is_secret_key(name, self.secrets.keys) or any(path[0] == name for path in self.secrets.of_arguments)

    def _told(self, name: str, value: Any) -> str:
        """`name=value`, for people."""
        if self.is_secret(name):
            return f"{name}={REDACTED}"
        try:
            return f"{name}={redacted_text(repr(value))[:80]}"
        except RecursionError:
            return f"{name}, which contains itself,"

    def decode(self, payload: bytes, bound: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The keyword arguments in a payload, typed, with those that the tick gives; InvalidInput when they do not
        fit the signature."""
        try:
            if bound:
                payload = _encode({**msgspec.json.decode(payload, type=dict[str, Any]), **bound})
            return self._read(payload)
        except _CANNOT_HOLD as error:
            raise InvalidInput(f"{self.job}: the stored arguments do not match the job's parameters: {error}") from None

    def _read(self, payload: bytes) -> dict[str, Any]:
        others: dict[str, Any] = {}
        if self._open:
            others = msgspec.json.decode(payload, type=dict[str, Any])
            if self.context in others:
                raise InvalidInput(f"{self.context} is the Context, which the worker provides")
            declared = {name: others.pop(name) for name in self.fields if name in others}
            found = msgspec.structs.asdict(msgspec.convert(declared, self._shape, str_keys=True))
        else:
            found = msgspec.structs.asdict(self._decode(payload))
        if self._optional:
            found = {name: value for name, value in found.items() if value is not msgspec.UNSET}
        return {**found, **others} if others else found

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], bound: Mapping[str, Any] | None = None) -> bytes:
        """The payload of a call, checked as the worker will check it; only what was given is in it.

        `bound`: examples of arguments that each run will get from its tick. They are checked, and not written.
        Encoding and decoding again costs less than a microsecond, and is the one check that cannot disagree with
        what the worker will do.
        """
        if args:
            kwargs = self._named(args, kwargs)
        if bound:
            if twice := bound.keys() & kwargs.keys():
                raise InvalidInput(f"{self.job}: {min(twice)} is given and bound to the tick; leave one out")
            self.encode((), {**kwargs, **bound})
            return _encode(kwargs)
        try:
            payload = _encode(kwargs)
            if self._has_instants or not self._all_exact:
                found = self._read(payload)
            else:
                self._decode(payload)
        except _CANNOT_HOLD as error:
            raise self._refusal(kwargs, error) from None
        if b"null" in payload:  # what JSON makes of NaN and the infinities, silently
            self._refuse_non_finite(kwargs)
        if not self._all_exact:
            self._refuse_changed(kwargs, found)
        if self._has_instants:
            self._refuse_naive(found)
        if is_too_deep(payload):
            raise InvalidInput(f"{self.job}: the arguments are nested more than {MOST_DEPTH} levels deep; flatten them")
        if len(payload) > MOST_PAYLOAD:
            raise InvalidInput(
                f"{self.job}: the arguments take {len(payload):,} bytes as JSON, and at most {MOST_PAYLOAD:,} are "
                "allowed; store the data elsewhere and pass a reference"
            )
        return payload

    def _named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(self.fields):
            raise InvalidInput(
                f"{self.job} takes {len(self.fields)} arguments ({', '.join(self.fields)}) "
                f"and was given {len(args)} by position; leave the others out"
            )
        named = dict(zip(self.fields, args, strict=False))
        twice = named.keys() & kwargs.keys()
        if twice:
            raise InvalidInput(f"{self.job}: {min(twice)} was given by position and by name; give it once")
        return {**named, **kwargs}

    def _refusal(self, kwargs: Mapping[str, Any], error: Exception) -> InvalidInput:
        """What exactly was wrong, found the slow way."""
        if self.context in kwargs:
            return InvalidInput(f"{self.job}: {self.context} is the Context, which the worker provides; leave it out")
        unknown = [name for name in kwargs if name not in self.fields]
        if unknown and not self._open:
            nearest = get_close_matches(str(unknown[0]), self.fields, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"it takes: {', '.join(self.fields) or 'none'}"
            return InvalidInput(f"{self.job} has no argument {unknown[0]!r}; {hint}")
        for name, value in kwargs.items():
            try:
                _encode(value)
            except _CANNOT_HOLD as fault:
                return InvalidInput(f"{self.job}: {self._told(name, value)} cannot be written as JSON: {fault}")
        # msgspec says where: "Expected `int`, got `str` - at `$.class_id`", or which field is missing.
        fault_text, _, place = str(error).partition(" - at `$.")
        name = place.rstrip("`").split(".")[0].split("[")[0]
        if name in kwargs:
            return InvalidInput(f"{self.job}: {self._told(name, kwargs[name])} is invalid: {fault_text}")
        return InvalidInput(f"{self.job}: {fault_text.replace('Object missing required field', 'missing argument')}")

    def _refuse_non_finite(self, kwargs: Mapping[str, Any]) -> None:
        for name, value in kwargs.items():
            if _has_non_finite(msgspec.to_builtins(value)):
                raise InvalidInput(
                    f"{self.job}: {self._told(name, value)} contains NaN or infinity, which JSON cannot hold; pass None"
                )

    def _refuse_naive(self, found: Mapping[str, Any]) -> None:
        """As for `at`: without its zone a datetime is another instant on another machine."""
        for name, value in found.items():
            if _has_naive(value):
                raise InvalidInput(
                    f"{self.job}: {self._told(name, value)} has no time zone; add one: when.replace(tzinfo=UTC). "
                    "For a wall time, let the job take a date and a time"
                )

    def _refuse_changed(self, kwargs: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """An untyped value must come back as it went in; only a tuple may become a list."""
        for name, given in kwargs.items():
            if name not in self._exact and found[name] != given and found[name] != _as_lists(given):
                reaches = REDACTED if self.is_secret(name) else f"{found[name]!r:.80}"
                raise InvalidInput(
                    f"{self.job}: {self._told(name, given)} would reach the job as {reaches}; annotate the "
                    "parameter with its type to restore it"
                )


def _parameters(job: str, function: Callable[..., Any]) -> list[tuple[inspect.Parameter, Any]]:
    """Each parameter with its resolved annotation; Any where there is none."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    if not hasattr(inner, "__globals__"):  # a method, or an object that can be called
        inner = getattr(inner, "__func__", getattr(type(inner), "__call__", inner))  # noqa: B004 - looked at, not called
    known = {"Context": Context, **getattr(inner, "__globals__", {})}
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _BY_PLACE:
            raise InvalidInput(
                f"{job}: {str(parameter).split(':')[0]} can only be given by position; a job's arguments are stored "
                f"as a JSON object, by name: make it an ordinary parameter"
            )
        found.append((parameter, _resolved(job, parameter, known)))
    return found


def _resolved(job: str, parameter: inspect.Parameter, known: dict[str, Any]) -> Any:
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty or annotation is object:
        return Any
    holder = types.SimpleNamespace(__annotations__={parameter.name: annotation})
    try:
        return typing.get_type_hints(holder, globalns=known, include_extras=True)[parameter.name]
    except Exception as error:
        if isinstance(annotation, str) and annotation.rpartition(".")[2] == "Context":
            return Context  # imported for the type checker only
        raise InvalidInput(
            f"{job}: the annotation of {parameter.name} cannot be resolved ({annotation!r}: {error}); "
            f"its type must be importable where the job is defined"
        ) from None


def _is_context(annotation: Any) -> bool:
    """`Context`, or `Context | None` in functions that are also called by hand."""
    return annotation is Context or Context in typing.get_args(annotation)


def _check_type(job: str, name: str, annotation: Any) -> bool:
    """Refuses what a payload cannot hold; answers whether every value of the type survives JSON."""
    try:
        kinds = _kinds(msgspec.inspect.type_info(annotation))
    except TypeError as error:
        raise InvalidInput(f"{job}: {name}: {_spell(annotation)} cannot be an argument of a job: {error}") from None
    for kind in kinds:
        if isinstance(kind, msgspec.inspect.CustomType):
            raise InvalidInput(
                f"{job}: {name}: {_spell(annotation)} cannot be an argument of a job: {_spell(kind.cls)} has no "
                "JSON form; use built-in types, dates, enums, dataclasses or msgspec.Struct"
            )
    return not any(isinstance(kind, msgspec.inspect.AnyType) for kind in kinds)


def _kinds(info: Any) -> list[Any]:
    """All types inside a type; a recursive one is met once."""
    found: dict[int, Any] = {}
    waiting = [info]
    while waiting:
        piece = waiting.pop()
        if isinstance(piece, tuple):
            waiting.extend(piece)
        elif isinstance(piece, msgspec.inspect.Type | msgspec.inspect.Field) and id(piece) not in found:
            found[id(piece)] = piece
            waiting.extend(getattr(piece, field) for field in piece.__struct_fields__)
    return list(found.values())


def _spell(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _has_non_finite(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_non_finite, value.values()))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_has_non_finite, value))


def _has_naive(value: Any) -> bool:
    if isinstance(value, datetime):
        return value.tzinfo is None
    if isinstance(value, Mapping):
        return any(map(_has_naive, value)) or any(map(_has_naive, value.values()))
    if isinstance(value, msgspec.Struct):
        return any(_has_naive(getattr(value, name)) for name in value.__struct_fields__)
    if dataclasses.is_dataclass(value):
        return any(_has_naive(getattr(value, field.name)) for field in dataclasses.fields(value))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_has_naive, value))


def _as_lists(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_lists(item) for key, item in value.items()}
    return value
