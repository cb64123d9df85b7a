from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from tuner.spec.units import Bytes, Percent, Price, Rate, Seconds, digits, parse_bytes


class Quantities(BaseModel):
    time: Seconds = Seconds(1.0)
    size: Bytes = Bytes(1)
    share: Percent = Percent(0.1)


@pytest.mark.parametrize(
    ("text", "value"),
    [("500ms", 0.5), ("3s", 3.0), ("20m", 1200.0), ("1.5h", 5400.0), (" 2 s ", 2.0), (7, 7.0)],
)
def test_seconds_are_read_from_text_and_numbers(text: object, value: float) -> None:
    assert Seconds.of(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("64MiB", 64 << 20), ("1GiB", 1 << 30), ("64MB", 64_000_000), ("1.5KiB", 1536), (9, 9)],
)
def test_bytes_are_read_from_text_and_numbers(text: str | int, value: int) -> None:
    assert Bytes.of(text) == value
    assert type(parse_bytes(text)) is int
    assert f"size={parse_bytes(text)}" == f"size={value}"


@pytest.mark.parametrize(("text", "value"), [("2%", 0.02), ("100%", 1.0), (0.5, 0.5), (0, 0.0)])
def test_shares_are_read_from_text_and_numbers(text: object, value: float) -> None:
    assert Percent.of(text) == value


@pytest.mark.parametrize(
    ("kind", "word", "value"),
    [
        (Seconds, "60", 60.0),
        (Seconds, "1.5m", 90.0),
        (Percent, "0.02", 0.02),
        (Percent, "2%", 0.02),
        (Rate, "100", 100.0),
        (Rate, "5000/s", 5000.0),
        (Price, "2.5", 2.5),
        (Price, "2.5/h", 2.5),
    ],
)
def test_an_option_takes_the_numbers_that_a_spec_takes(
    kind: type[Seconds | Percent | Rate | Price], word: str, value: float
) -> None:
    assert kind.of_option(word) == value


@pytest.mark.parametrize(
    ("kind", "word", "expected"),
    [
        (Percent, "30", "30 is ambiguous: write 30% or a share below 1"),
        (Percent, "half", "'half' is not a share such as 2% or 0.02"),
        (Seconds, "-3", "-3 is not a duration"),
        (Seconds, "9" * 400, "' is not a duration"),
        (Rate, "0", "a rate must be above 0"),
        (Price, "-1", "-1 is not a price of one hour such as 2.5 or 2.5/h"),
    ],
)
def test_an_option_refuses_what_a_spec_refuses(
    kind: type[Seconds | Percent | Rate | Price], word: str, expected: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        kind.of_option(word)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Seconds, "5 minutes", "'5 minutes' is not a duration such as 500ms, 3s, 20m or 1h"),
        (Seconds, "3", "'3' is not a duration"),
        (Seconds, True, "true is not a duration"),
        (Seconds, -1, "-1 is not a duration"),
        (Seconds, math.nan, "nan is not a duration"),
        (Bytes, "64mb", "'64mb' is not a size such as 64MiB"),
        (Bytes, "1.5B", "'1.5B' is not a whole number of bytes"),
        (Bytes, 1.5, "1.5 is not a whole number of bytes"),
        (Percent, "2", "'2' is not a share such as 2% or 0.02"),
        (Percent, 2, "2 is ambiguous: write 2% or a share below 1"),
        (Percent, 1.0, "1.0 is ambiguous: write 1% or a share below 1"),
        (Percent, "101%", "'101%' is more than 100%"),
    ],
)
def test_errors_say_what_is_accepted(
    kind: type[Seconds | Bytes | Percent], value: object, expected: str
) -> None:
    with pytest.raises(ValueError) as error:
        kind.of(value)
    assert expected in str(error.value)


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        (Seconds(0.5), "500ms"),
        (Seconds(30.5), "30.5s"),
        (Seconds(90), "90s"),
        (Seconds(1200), "20m"),
        (Seconds(7200), "2h"),
        (Seconds(0), "0s"),
        (Seconds(math.inf), "inf"),
        (Bytes(64 << 20), "64MiB"),
        (Bytes(64_000_000), "64MB"),
        (Bytes(1 << 30), "1GiB"),
        (Bytes(1001), "1001B"),
        (Bytes(0), "0B"),
        (Percent(0.02), "2%"),
        (Percent(0.125), "12.5%"),
        (Percent(1), "100%"),
    ],
)
def test_printed_with_the_unit_that_suits(quantity: Seconds | Bytes | Percent, text: str) -> None:
    assert str(quantity) == text
    assert f"{quantity}" == text


def test_numbers_can_still_be_had() -> None:
    assert f"{Seconds(1200):g} {Bytes(1 << 20):d} {Percent(0.02):.2f}" == "1200 1048576 0.02"


@given(st.floats(min_value=0, max_value=1e9))
def test_seconds_survive_their_text(value: float) -> None:
    assert Seconds.of(str(Seconds(value))) == value


@given(st.integers(min_value=0, max_value=1 << 60))
def test_bytes_survive_their_text(value: int) -> None:
    assert Bytes.of(str(Bytes(value))) == value


@given(st.floats(min_value=0, max_value=1))
def test_shares_survive_their_text(value: float) -> None:
    assert Percent.of(str(Percent(value))) == value


def test_pydantic_reads_and_writes_them() -> None:
    quantities = Quantities.model_validate({"time": "20m", "size": "1GiB", "share": "2%"})
    assert isinstance(quantities.time, Seconds)
    assert quantities.model_dump(mode="json") == {"time": "20m", "size": "1GiB", "share": "2%"}
    assert Quantities.model_validate(quantities.model_dump()) == quantities
    with pytest.raises(ValidationError):
        Quantities.model_validate({"size": "huge"})


@pytest.mark.parametrize(
    ("value", "most", "text"),
    [
        (10760.0, 4, "10,760"),
        (2070000.0, 3, "2,070,000"),
        (0.00001, 3, "0.00001"),
        (0.0, 3, "0"),
        (9.999, 3, "10"),
        (99.96, 3, "100"),
        (31.25, 3, "31.2"),
        (-0.5, 3, "-0.5"),
        (1e-300, 2, "0." + "0" * 299 + "1"),
        (math.inf, 3, "inf"),
    ],
)
def test_numbers_have_thousands_separators(value: float, most: int, text: str) -> None:
    assert digits(value, most) == text


@given(st.floats(1e-6, 1e12), st.integers(1, 6))
def test_no_number_has_an_exponent_and_each_is_near_its_value(value: float, most: int) -> None:
    text = digits(value, most)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.51 * 10 ** (1 - most))
