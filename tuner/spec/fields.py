"""The base class of a spec's models, and the types of single fields.

The types are strict numbers, paths relative to the spec, and values to try (ranges, lists and
subsets). YAML reads ``on`` as true and ``"16"`` as text; neither is a number here.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo

from tuner.spec.mistakes import path_meant
from tuner.spec.paths import CONFIG_NAMES
from tuner.spec.units import Seconds
from tuner.spec.yaml_tree import dump_scalar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class UnknownValueError(Exception):
    """A rule cannot be applied, since it needs a value that is wrong in the spec."""


#: The field that tells the kinds of a union apart.
KIND = Field(description="which of the kinds this is; the other fields depend on it")


class Strict(BaseModel):
    """A model without unknown keys: a mistyped key is an error, never ignored.

    While the mistakes of a spec are collected, an instance may have only its valid fields; access
    to another field raises `UnknownValueError`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in type(self).model_fields:
                raise UnknownValueError(name)
            return super().__getattr__(name)


class Unknown:
    """Replaces a wrong value among the valid ones of a list or mapping; any use of it raises."""

    def __getattr__(self, name: str) -> NoReturn:
        raise UnknownValueError(name)

    def _use(self, *_: object) -> NoReturn:
        raise UnknownValueError

    __len__ = __iter__ = __getitem__ = __contains__ = __bool__ = __index__ = __int__ = _use
    __float__ = __lt__ = __le__ = __gt__ = __ge__ = _use
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _use


def known(items: Iterable[tuple[_Key, _Value]]) -> Iterator[tuple[_Key, _Value]]:
    """The items with a valid value."""
    return ((key, value) for key, value in items if not isinstance(value, Unknown))


def by_key(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model by their keys in a spec."""
    return {info.alias or name: info for name, info in model.model_fields.items()}


def models_in(annotation: Any) -> tuple[type[BaseModel], ...]:
    """The models whose instances a field of this type may contain."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(model for inner in get_args(annotation) for model in models_in(inner))


Integer = Annotated[int, Field(strict=True)]
Natural = Annotated[int, Field(strict=True, ge=0)]
Count = Annotated[int, Field(strict=True, ge=1)]
PositiveNumber = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]


def _above_zero(time: Seconds) -> Seconds:
    if time <= 0:
        raise ValueError("must be above 0")
    return time


Duration = Annotated[Seconds, AfterValidator(_above_zero)]
#: Which of a machine's GPUs a server may see, by number.
Gpus = Literal["all", "none"] | tuple[int, ...]


def _beside_the_spec(path: Path, info: ValidationInfo) -> Path:
    """The path relative to ``context["directory"]``, the directory of the spec file, if given."""
    directory: Path | None = (info.context or {}).get("directory")
    if directory is None:
        return path
    try:
        resolved = (directory / path.expanduser()).resolve()
        mode = resolved.stat().st_mode  # exists() of Python 3.14 hides what is wrong with a name
    except (FileNotFoundError, NotADirectoryError):
        return resolved
    except (OSError, RuntimeError) as error:  # no such user; a loop of links; too long
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"is not a usable path: {str(reason).lower()}") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError("is a pipe, a socket or a device")
    return resolved


def _program(name: str, info: ValidationInfo) -> str:
    """A program's name, unchanged, or a path relative to the spec file."""
    return str(_beside_the_spec(Path(name), info)) if "/" in name else name


def config_of_a_model(name: str) -> str:
    """The name of a file that Triton may read as a config.

    Raises:
        ValueError: Triton reads no config from such a file.
    """
    if not CONFIG_NAMES.fullmatch(name):
        text = "config.pbtxt or configs/NAME.pbtxt is expected, for a server that is started with"
        raise ValueError(f"{text} --model-config-name=NAME")
    return name


def _there(path: Path, info: ValidationInfo) -> Path:
    if info.context and "directory" in info.context and not path.is_file():
        if path.is_dir():
            raise ValueError(f"{path} is a directory, and a file is expected")
        near = path_meant(path, Path.is_file)
        raise ValueError(f"there is no file {path}" + (f" ({near})" if near else ""))
    kernel = path.is_relative_to("/dev") and not path.is_relative_to("/dev/shm")  # noqa: S108
    if kernel or path.is_relative_to("/proc") or path.is_relative_to("/sys"):
        raise ValueError(f"{path} is the kernel's: only files of a disk, or of /dev/shm, are read")
    return path


def _of_requests(path: Path, info: ValidationInfo) -> Path:
    if info.context and "directory" in info.context and path.is_dir():
        form = '{"data": [{"INPUT": {"b64": "...", "shape": [...]}}]}'
        raise ValueError(
            f"{path} is a directory: write one JSON file, with the bytes of each of its files in "
            f"base64: {form}"
        )
    return _there(path, info)


SpecPath = Annotated[Path, AfterValidator(_beside_the_spec)]
#: Of a spec that is read to be run: a run would only miss the file when it measures.
SpecFile = Annotated[SpecPath, AfterValidator(_there)]
#: perf_analyzer also takes a directory with a binary file for each input.
RequestsFile = Annotated[SpecPath, AfterValidator(_of_requests)]
WriteTo = Annotated[str, AfterValidator(config_of_a_model)]
Program = Annotated[str, AfterValidator(_program)]


def listed_value(value: Any) -> Any:
    """A value of a `Choice`; refuses mappings, nothing and lists of mixed types."""
    if value is None:
        raise ValueError("a value is missing here; to leave the field out write unset")
    if isinstance(value, (list, tuple)):
        if value and (all(map(_is_int, value)) or all(isinstance(v, str) for v in value)):
            return tuple(value)
        text = "a list as a value has whole numbers, or texts: [4, 8], ['0', '1']"
        raise ValueError(f"{text}; for none write unset")
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError("a number, text, off, on, unset or a list is expected")  # noqa: TRY004
    return value


ListedValue = Annotated[
    bool | int | float | str | tuple[Integer, ...] | tuple[str, ...],
    BeforeValidator(listed_value),
]


def pair(value: Any) -> Any:
    """The lowest and the highest whole number, in this order."""
    numbers = value if isinstance(value, (list, tuple)) else ()
    if len(numbers) != 2 or not all(_is_int(number) for number in numbers):
        written = dump_scalar(value)
        raise ValueError(f"two whole numbers are expected: [lowest, highest], not {written}")
    low, high = numbers
    if low > high:
        raise ValueError(f"lowest {low} is above highest {high}; write [{high}, {low}]")
    return value


def number_or_unset(value: Any) -> Any:
    if value is None or value == "unset" or _is_int(value):
        return value
    raise ValueError("a whole number or unset is expected")


def unset(value: Any) -> Any:
    if value is None or value == "unset":
        return value
    raise ValueError("only unset can be added to subsets")


def gpu_numbers(value: Any) -> Any:
    numbers = value if isinstance(value, (list, tuple)) else ()
    if value in ("all", "none") or (numbers and all(_is_int(n) and n >= 0 for n in numbers)):
        return value
    raise ValueError("all, none or a list of GPU numbers such as [0, 1] is expected")


#: Linux numbers no more CPUs than this (NR_CPUS).
MOST_CPUS = 8192


def cpu_numbers(value: Any) -> Any:
    """Reads ``all``, a number, a list of numbers, or ranges as Linux writes them: ``0-5,8``."""
    if value is None or value == "all":
        return value
    listed = value if isinstance(value, (list, tuple)) else str(value).split(",")
    numbers: list[int] = []
    for part in listed:
        first, dash, last = str(part).strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise ValueError("all, or CPU numbers such as 3, 0-5 or [0, 1] are expected")
        if int(last or first) > MOST_CPUS:
            raise ValueError(f"{part} is no CPU number: no Linux machine has more than {MOST_CPUS}")
        numbers += range(int(first), int(last or first) + 1)
    if not numbers:
        raise ValueError("at least one CPU is needed; all sets no limit")
    return sorted({*numbers})


#: CPUs of a machine, by number; None: as tune splits them between server and load generator.
Cpus = Annotated[
    Literal["all"] | tuple[Natural, ...] | None,
    BeforeValidator(
        cpu_numbers, json_schema_input_type=Literal["all"] | int | str | tuple[Natural, ...] | None
    ),
]


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class IntRange(Strict):
    """A whole number between two bounds, both included; ``or`` adds one value outside them."""

    int_: Annotated[tuple[Integer, Integer], BeforeValidator(pair)] = Field(
        alias="int", description="lowest and highest value"
    )
    log: Flag = Field(False, description="search by ratio rather than by difference")
    step: Count = Field(1, description="distance between values")
    or_: Annotated[Literal["unset"] | int | None, BeforeValidator(number_or_unset)] = Field(
        None, alias="or", description="one more value, a separate choice: a number or unset"
    )

    @field_validator("int_")
    @classmethod
    def _something_between(cls, bounds: tuple[int, int]) -> tuple[int, int]:
        low, high = bounds
        if low == high:
            text = "lowest and highest are equal: nothing to search"
            raise ValueError(f"{text}; {{choice: [{low}]}} sets it in every config")
        return bounds

    @field_validator("log")
    @classmethod
    def _log_from_one(cls, log: bool, info: ValidationInfo) -> bool:
        low, _ = info.data.get("int_", (1, 1))
        if log and low < 1:
            raise ValueError(f"ratios need a lowest value of 1 or more, not {low}: start at 1")
        return log

    @field_validator("step")
    @classmethod
    def _step_fits(cls, step: int, info: ValidationInfo) -> int:
        low, high = info.data.get("int_", (0, 0))
        if step != 1 and info.data.get("log"):
            raise ValueError("step and log: true do not go together")
        if (high - low) % step:
            nearest = high - (high - low) % step
            raise ValueError(f"steps of {step} from {low} end at {nearest}, not at {high}")
        return step

    @field_validator("or_")
    @classmethod
    def _or_outside(cls, value: str | int | None, info: ValidationInfo) -> str | int | None:
        low, high = info.data.get("int_", (0, -1))
        if isinstance(value, int) and low <= value <= high:
            raise ValueError(f"{value} is already in the range {low} to {high}")
        return value


class Choice(Strict):
    """One of the listed values; ``unset`` leaves the field out, ``off`` and ``on`` a message.

    YAML reads ``off`` and ``on`` as booleans, and so do we. Values of ``response_cache.size`` are
    False or sizes as text (``64MiB``): read them with `parse_bytes`.
    """

    choice: tuple[ListedValue, ...] = Field(
        min_length=1,
        description="the values: numbers, text, off and on, unset; lists of numbers or of text "
        "for fields that are lists; sizes for response_cache.size; a single one is in all "
        "but the current config, and stays in the winner",
    )

    @field_validator("choice")
    @classmethod
    def _distinct(cls, values: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[tuple[type, Any]] = set()
        for value in values:
            if (type(value), value) in seen:
                raise ValueError(f"{value} is listed twice")
            seen.add((type(value), value))
        return values


class Subsets(Strict):
    """Every subset of the listed sizes with 1 to ``at_most`` members; ``or: unset`` adds none."""

    subsets: tuple[Count, ...] = Field(min_length=1, description="the sizes to choose from")
    at_most: Count = Field(2, description="largest number of sizes in a subset")
    or_: Annotated[Literal["unset"] | None, BeforeValidator(unset)] = Field(
        None, alias="or", description="one more value, a separate choice: unset"
    )

    @field_validator("subsets")
    @classmethod
    def _distinct(cls, sizes: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(sizes)) < len(sizes):
            raise ValueError("a size is listed twice")
        return sizes

    @field_validator("at_most")
    @classmethod
    def _at_most_listed(cls, at_most: int, info: ValidationInfo) -> int:
        sizes = info.data.get("subsets")
        if sizes and at_most > max(2, len(sizes)):  # the default is no mistake beside one size
            raise ValueError(f"{at_most} is more than the sizes listed, {len(sizes)}")
        return at_most


ParameterSpec = IntRange | Choice | Subsets


def _parameter_kind(value: Any) -> str | None:
    if isinstance(value, ParameterSpec):
        return type(value).__name__
    keys = {"int": "IntRange", "choice": "Choice", "subsets": "Subsets"}
    kinds = [kind for key, kind in keys.items() if isinstance(value, dict) and key in value]
    return kinds[0] if kinds else None


#: A space as it is written: what is varied, and the values to try.
SpaceSpec = dict[
    str,
    Annotated[
        Annotated[IntRange, Tag("IntRange")]
        | Annotated[Choice, Tag("Choice")]
        | Annotated[Subsets, Tag("Subsets")],
        Discriminator(_parameter_kind),
    ],
]
