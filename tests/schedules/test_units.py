"""Units as people write them: exact, or refused with an example."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stragglar.schedules import UsageError
from stragglar.schedules.units import (
    format_bandwidth,
    format_bytes,
    format_seconds,
    parse_bandwidth,
    parse_seconds,
    parse_size,
)

SIZES = {
    "64MiB": 64 << 20,
    "1GiB": 1 << 30,
    "1 GiB": 1 << 30,
    " 1\tGiB ": 1 << 30,
    "100MB": 10**8,
    "4KiB": 4096,
    "4kib"[:3] + "B": 4096,
    "4Ki": 4096,
    "2TB": 2 * 10**12,
    "1PiB": 1 << 50,
    "1e6": 10**6,
    "1E+3B": 1000,
    "512": 512,
    "512B": 512,
    "8 bytes": 8,
    "0": 0,
    "0.5KiB": 512,
    ".5KiB": 512,
    "3.KiB": 3072,
    "0.1MB": 100_000,
    "1.1kB": 1100,
    "0.3GB": 300_000_000,
    "9223372036854775807": 2**63 - 1,
}


@pytest.mark.parametrize("text", SIZES)
def test_sizes(text):
    assert parse_size(text) == SIZES[text]
    assert isinstance(parse_size(text), int)


TIMES = {
    "3us": 3e-6,
    "3µs": 3e-6,
    "3μs": 3e-6,
    "200ms": 0.2,
    "5 ms": 0.005,
    "1.5s": 1.5,
    "20ns": 2e-8,
    "2min": 120.0,
    "0": 0.0,
    "0.0": 0.0,
    "0s": 0.0,
    "0.1s": 0.1,
    "1e-3s": 0.001,
}


@pytest.mark.parametrize("text", TIMES)
def test_times(text):
    assert parse_seconds(text) == TIMES[text]


BANDWIDTHS = {
    "450GiB/s": 450 * 2.0**30,
    "450 GiB/s": 450 * 2.0**30,
    "25GB/s": 25e9,
    "25GBps": 25e9,
    "25gB/s": 25e9,
    "25GB": 25e9,
    "200Gbit/s": 25e9,
    "200Gbps": 25e9,
    "200Gb/s": 25e9,
    "200mbit": 25e6,
    "200mbit/s": 25e6,
    "8bit/s": 1.0,
    "1Gibit/s": 2.0**27,
    "12B/s": 12.0,
    "10 Mbytes/s": 1e7,
    "0GB/s": 0.0,
}


@pytest.mark.parametrize("text", BANDWIDTHS)
def test_bandwidths(text):
    assert parse_bandwidth(text) == BANDWIDTHS[text]


NUMBERS = [
    "",
    " ",
    "x",
    "-1",
    "+1",
    "1_000",
    "1,5",
    "nan",
    "inf",
    "1 2",
    "0x10",
    "1e",
    "e5",
    "\u0661",
    "1" * 100,
    ".",
]
REFUSED = {
    parse_size: [
        *NUMBERS,
        "0.1MiB",
        "1.5",
        "1e-3",
        "64M",
        "64mb",
        "64Mb",
        "64mib",
        "8Mbit",
        "1GB/s",
        "1ms",
        "1EB",
        "1e999",
        "2e18 kB",
    ],
    parse_seconds: [*NUMBERS, "1", "200", "3S", "3Ms", "1h", "1GB", "1e999s", "1e-999s", "1s s"],
    parse_bandwidth: [
        *NUMBERS,
        "1e9",
        "450",
        "10G",
        "10Gi/s",
        "25gb/s",
        "5kb/s",
        "5b/s",
        "5GB/h",
        "3s",
        "1e999B/s",
        "10ps",
    ],
}
EXAMPLES = {parse_size: "64MiB", parse_seconds: "200ms", parse_bandwidth: "450GiB/s"}


@pytest.mark.parametrize(
    ("parse", "text"), [(parse, text) for parse, texts in REFUSED.items() for text in texts]
)
def test_refused_with_the_text_and_an_example(parse, text):
    with pytest.raises(UsageError) as caught:
        parse(text)
    message = str(caught.value)
    assert ascii(text[:80]) in message
    assert f"write for example {EXAMPLES[parse]}" in message or EXAMPLES[parse] in message
    assert message.isascii() and message.isprintable()


@pytest.mark.parametrize(
    ("text", "reason"),
    [("0.1MiB", "not a whole number of bytes"), ("64M", "MB or MiB"), ("64mb", "capital B")],
)
def test_why_a_size_is_refused(text, reason):
    with pytest.raises(UsageError, match=reason):
        parse_size(text)


SHOWN = {
    format_bytes: [
        (0, "0B"), (1, "1B"), (1000, "1000B"), (1024, "1KiB"), (1536, "1.5KiB"), (64 << 20, "64MiB"),
        (10**8, "100MB"),
        (2**30 / 7, "146.3MiB"), (1048575, "1MiB"), (2**63, "8192PiB"), (25 * 10**9, "25GB"),
    ],
    format_seconds: [
        (0, "0s"),
        (3e-6, "3us"), (0.2, "200ms"), (1.5, "1.5s"), (75, "75s"), (2e-8, "20ns"), (5e-10, "0.5ns"),
        (0.00099999999, "1ms"), (3.930889e-3, "3.931ms"), (12345.6, "12346s"),
    ],
    format_bandwidth: [(450 * 2**30, "450GiB/s"), (25e9, "25GB/s"), (0, "0B/s"), (123456789, "117.7MiB/s")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("show", "value", "text"), [(show, *case) for show, cases in SHOWN.items() for case in cases]
)
def test_shown(show, value, text):
    assert show(value) == text


@given(
    st.integers(1, 999),
    st.sampled_from(["B", "kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "PiB"]),
)
def test_sizes_that_four_digits_can_say_come_back(number, unit):
    size = parse_size(f"{number}{unit}")
    assert parse_size(format_bytes(size)) == size
    assert parse_bandwidth(format_bandwidth(size)) == size


@given(st.integers(0, 2**62))
def test_any_size_comes_back_to_four_digits(size):
    assert parse_bandwidth(format_bytes(size)) == pytest.approx(size, rel=5.1e-4)
    assert parse_size(f"{size}") == size == parse_size(f"{size}B")


@given(st.floats(1e-9, 1e6))
def test_any_time_comes_back_to_four_digits(seconds):
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=5.1e-4)
    assert len(format_seconds(seconds)) <= 9


@given(st.decimals(0, 10**6, places=6), st.sampled_from([("ns", -9), ("us", -6), ("ms", -3), ("s", 0)]))
def test_times_are_exact(number, unit):
    name, power = unit
    assert parse_seconds(f"{number}{name}") == float(Fraction(number) * Fraction(10) ** power)


@given(st.text(max_size=12), st.sampled_from(list(REFUSED)))
def test_any_text_is_read_or_refused(text, parse):
    try:
        value = parse(text)
    except UsageError:
        return
    assert 0 <= value < 2**63
