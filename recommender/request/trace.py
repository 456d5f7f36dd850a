"""A file of requests as a load: lengths, arrivals, repeated prefixes and images."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice, pairwise
from pathlib import Path

from recommender.common.cpu_budget import cpu_budget
from recommender.common.errors import RequestError
from recommender.common.text import count, masked, shorten
from recommender.common.timestamps import LEAST_DATE, SINCE_START
from recommender.common.user_file import Unreadable, open_regular
from recommender.request.trace_formats import MOST_SEARCHES, MOST_TOKENS, RESULTS, Reader, Understood, format_of
from recommender.request.trace_prefix import Beginning
from recommender.request.trace_rows import MOST_ROWS, Rows

MOST_BYTES = 64 * 2**20
NEEDED = 'a number of tokens of input and output for each request, for example "input_tokens" and "output_tokens"'
NO_TOKENIZER = "without numbers of tokens; count them with the model's tokenizer and add input_tokens and output_tokens"
HINTS = {
    "conversations": f"conversations as in ShareGPT, {NO_TOKENIZER}",
    "messages": f"prompts {NO_TOKENIZER}",
    "prompt": f"prompts {NO_TOKENIZER}",
    "runinfo": "GuideLLM's CSV has no single requests; name its JSON report",
}
"""What a file without token counts holds, by a field that it has."""
NO_TOKENS = "no numbers of tokens"
BAD_TIME = "time: missing or not understood"
OTHER_TIME = "time: a date among seconds, or the other way round"
FEW = 20
FEW_NOTES = (
    "one request tells neither arrivals nor how lengths vary: all are taken to be like it; use a few hundred",
    "too few requests to learn arrivals and how lengths vary; use a few hundred",
)
"""What is said of a file with one request, and with fewer than ``FEW``."""
TIED = 0.2
"""Share of requests that arrive with the one before, above which the clock is taken to be coarse."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What a file says of a load. The same index is the same request in all lists."""

    format: str
    """As people call it: "Mooncake trace"."""
    requests: int
    """Rows understood."""
    skipped: tuple[tuple[str, int], ...]
    """Reason and count of rows that were not understood, the most frequent first."""
    input_tokens: tuple[int, ...]
    """Tokens of each whole prompt, in order of arrival; without times in the file's order."""
    output_tokens: tuple[int, ...]
    arrivals_s: tuple[float, ...]
    """Seconds since the first, ascending; empty where the file has none, or where arrivals follow the server."""
    prefix_tokens: int
    """The longest prefix that 90 % of the requests share; 0 if unknown."""
    prefix_hit_share: float
    """Share of input tokens that an unlimited prefix cache finds; 0 if unknown."""
    images: int
    """The most frequent number of images of a request; 0 if unknown."""
    most_in_flight: int
    """Requests in flight at once, at most; 0 if unknown."""
    summary: tuple[str, ...]
    """Four to eight lines for people."""
    beginnings: tuple[Beginning, ...] = ()
    """What each prompt begins with, as far as the file tells; empty if it has no prompts."""
    each_images: tuple[int, ...] = ()
    """Images of each request; 0 if unknown."""


def read_trace(path: Path) -> Trace:
    """Return what a file of requests says of a load. Raises RequestError."""
    try:
        with cpu_budget():
            return _read(path)
    except OSError as error:
        problem = f"{error.strerror or error}; name an existing file that you may read"
    except Unreadable as error:
        problem = str(error)
    raise RequestError(f"--trace {shorten(str(path), 120)}: {problem}")


def quantiles(values: Sequence[int], count: int = 50) -> tuple[int, ...]:
    """Return this many equally likely values that stand for all: the quantiles (i + 0.5) / count, ascending.

    Interpolated between neighbours (Hazen), rounded to whole values. At least one value is needed.
    """
    ordered = sorted(values)
    return tuple(_quantile(ordered, (step + 0.5) / count) for step in range(count))


def _quantile(ordered: Sequence[int], share: float) -> int:
    place = min(max(share * len(ordered) - 0.5, 0.0), len(ordered) - 1.0)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return int(ordered[below] + (place - below) * (ordered[above] - ordered[below]) + 0.5)


def _read(path: Path) -> Trace:
    with open_regular(path) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Unreadable(f"larger than {MOST_BYTES // 2**20} MiB; keep its first {MOST_ROWS:,} rows, which are enough")
    rows = Rows(data)
    skipped: Counter[str] = Counter()
    reader, requests = _understand(rows, skipped)
    kept, arrivals = _arrivals(rows, requests, skipped)
    prefixes = reader.prefixes
    share = prefixes.share()
    if not prefixes.tokens:
        share = sum(request.cached or 0 for request in kept) / sum(request.input for request in kept)
    if reader.by_characters:
        rows.notes.append("prefixes are whole messages, their tokens by their share of the characters")
    if prefixes.left_out:
        rows.notes.append(f"prefixes are those of the first {len(requests) - prefixes.left_out:,} requests")
    images = Counter(request.images for request in kept if request.images is not None).most_common(1)
    trace = Trace(
        format=reader.format.name,
        requests=len(kept),
        skipped=tuple(skipped.most_common()),
        input_tokens=tuple(request.input for request in kept),
        output_tokens=tuple(request.output for request in kept),
        arrivals_s=arrivals,
        prefix_tokens=prefixes.common(len(requests)),
        prefix_hit_share=share,
        images=images[0][0] or 0 if images else 0,
        each_images=tuple(request.images or 0 for request in kept),
        most_in_flight=_most_in_flight(kept) or rows.clients,
        summary=(),
        beginnings=tuple(request.beginning for request in kept),
    )
    return replace(trace, summary=tuple(_summary(trace, rows, bool(prefixes.tokens))))


# --- rows to requests


def _understand(rows: Rows, skipped: Counter[str]) -> tuple[Reader, list[Understood]]:
    """Return the requests of a file in its order; count what is none. Raises Unreadable where nothing is one."""
    reader: Reader | None = None
    requests: list[Understood] = []
    seen: dict[str, None] = {}
    remaining = iter(rows)
    for row in islice(remaining, MOST_ROWS):
        if isinstance(row, str):
            skipped[row] += 1
            continue
        if reader is None:
            form = RESULTS.get(rows.format) or format_of(row)
            reader = Reader(form) if form else None
            seen |= dict.fromkeys(row)
            if reader is None and skipped[NO_TOKENS] >= MOST_SEARCHES:
                break
        read = reader.read(row) if reader else NO_TOKENS
        if isinstance(read, str):
            skipped[read] += 1
        else:
            requests.append(read)
    beyond = rows.rest() + sum(1 for _ in remaining) if requests else 0
    skipped.update({"not read: more rows than needed": beyond} if beyond else {})
    if reader is None or not requests:
        raise Unreadable(_nothing(rows, reader, skipped, seen))
    return reader, requests


def _nothing(rows: Rows, reader: Reader | None, skipped: Counter[str], row_names: Iterable[str]) -> str:
    """Return what is wrong with a file without any request row, and how to fix it."""
    if reader:
        return f"no row is a request ({_counts(skipped.most_common(3))}); needed is {NEEDED}, up to {MOST_TOKENS:,}"
    hint = next((hint for name, hint in HINTS.items() if name in rows.spelled), "")
    if hint or rows.problem:
        return hint or rows.problem
    names = [masked(name[:40]) for name in rows.spelled.values()][:12]
    found = f"its fields are {', '.join(names)}" if names else "it has no fields"
    return f"{found if row_names else f'no rows; {found}'}; needed is {NEEDED}"


def _counts(reasons: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{number:,} {masked(reason)}" for reason, number in reasons)


def _arrivals(
    rows: Rows, requests: list[Understood], skipped: Counter[str]
) -> tuple[list[Understood], tuple[float, ...]]:
    """Return the requests in order of arrival, and their seconds since the first; none where times are no arrivals."""
    known = [request for request in requests if request.time is not None]
    dated = [request for request in known if abs(request.time or 0.0) >= LEAST_DATE]
    timed = (
        dated
        if 2 * len(dated) >= len(known)
        else [request for request in known if abs(request.time or 0.0) < LEAST_DATE]
    )
    if rows.no_arrivals or 2 * len(timed) < len(requests):
        if rows.no_arrivals:
            rows.notes.append(f"arrivals left out: {rows.no_arrivals}")
        elif timed:
            rows.notes.append(f"arrivals left out: {len(requests) - len(timed):,} requests have no time")
        elif unread := next((request.time_form for request in requests if request.time_form), ""):
            rows.notes.append(f"arrivals left out: {unread} is no time; write seconds or ISO 8601")
        return requests, ()
    reasons = ((BAD_TIME, len(requests) - len(known)), (OTHER_TIME, len(known) - len(timed)))
    skipped.update({reason: number for reason, number in reasons if number})
    forms = sorted({request.time_form for request in timed})
    if len(forms) > 1:
        rows.notes.append(f"times in several forms, each read by its size: {', '.join(forms)}")
    elif forms == [SINCE_START]:
        rows.notes.append("Reading times as seconds; for milliseconds name the column timestamp_ms")
    times = [request.time or 0.0 for request in timed]
    if any(later < sooner for sooner, later in pairwise(times)):
        rows.notes.append("rows were not in order of time: sorted")
        timed.sort(key=lambda request: request.time or 0.0)
        times.sort()
    return timed, tuple(time - times[0] for time in times)


def _most_in_flight(requests: Iterable[Understood]) -> int:
    """Return the most requests in flight at once, by those whose start and duration are known; 0 if none are."""
    known = [(each.time, each.latency) for each in requests if each.time is not None and each.latency is not None]
    events = [(start, 1) for start, _ in known] + [(start + duration, -1) for start, duration in known]
    # At equal times an end sorts before a start: its place is free.
    return max(accumulate(step for _, step in sorted(events)), default=0)


# --- a summary


def _summary(trace: Trace, rows: Rows, prefixes_known: bool) -> Iterator[str]:
    runs = f" of {rows.runs} runs" if rows.runs > 1 else ""
    yield f"{trace.format}: {count(trace.requests, 'request')}{runs}"
    for what, lengths in (("input", trace.input_tokens), ("output", trace.output_tokens)):
        ordered = sorted(lengths)
        shown = ", ".join(f"p{part} {_quantile(ordered, part / 100):,}" for part in (50, 90, 99))
        yield f"{what} tokens: {shown}, mean {statistics.fmean(lengths):,.0f}"
    yield f"arrivals: {_rate(trace.arrivals_s)}"
    if trace.most_in_flight:
        yield f"most in flight: {trace.most_in_flight:,}"
    if prefixes_known:
        first = f"first {trace.prefix_tokens:,} tokens" if trace.prefix_tokens else "none"
        prefix_share = f"a prefix cache finds up to {trace.prefix_hit_share:.0%} of the input"
        yield f"prefix that 90 % of the requests share: {first}; {prefix_share}"
    elif trace.prefix_hit_share:
        yield f"prefix cache: the server found {trace.prefix_hit_share:.0%} of the input in it"
    if trace.skipped:
        rest = f", {len(trace.skipped) - 4:,} other reasons" if len(trace.skipped) > 4 else ""
        yield f"not understood: {_counts(trace.skipped[:4])}{rest}"
    few = [FEW_NOTES[trace.requests > 1]] if trace.requests < FEW else []
    if notes := dict.fromkeys([*few, *rows.notes]):
        yield f"note: {'; '.join(notes)}"


def _rate(arrivals: Sequence[float]) -> str:
    span = arrivals[-1] - arrivals[0] if arrivals else 0.0
    if not arrivals:
        return "none known"
    if span <= 0:
        return "all at once"
    burstiness = burstiness_of(arrivals)
    shown = "" if burstiness is None else f", burstiness {burstiness:.2f} (1 is Poisson)"
    return f"{(len(arrivals) - 1) / span:,.3g} a second for {span:,.0f} s{shown}"


def burstiness_of(arrivals: Sequence[float]) -> float | None:
    """Return the coefficient of variation of the gaps between arrivals; None for fewer than three.

    With a clock so coarse that many requests arrive in the same tick, gaps say nothing. Then the root of the variance
    over the mean of the arrivals a tick takes its place, which is the same for a renewal process.
    """
    gaps = [later - sooner for sooner, later in pairwise(arrivals)]
    if len(gaps) < 2:
        return None
    positive = sorted(gap for gap in gaps if gap > 0)
    if len(positive) > (1 - TIED) * len(gaps):
        return statistics.pstdev(gaps) / statistics.fmean(gaps)
    tick = positive[len(positive) // 10]  # the shortest are jitter
    ticks = Counter(round(moment / tick) for moment in arrivals)
    mean = len(arrivals) / (round(arrivals[-1] / tick) + 1)
    square = sum(number**2 for number in ticks.values()) / (round(arrivals[-1] / tick) + 1)
    return math.sqrt((square - mean**2) / mean)
