"""A file of requests as rows: JSON, JSON lines and CSV, with the results of benchmarks unfolded."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice, zip_longest
from typing import Any

from recommender.common.parse import parse_json
from recommender.common.text import count, normal, shorten
from recommender.common.timestamps import number
from recommender.common.user_file import Unreadable

MOST_ROWS = 100_000
MOST_TEXT = 12 * 2**20
"""Characters of lines that are read; more rows than these hold would change no quantile."""
MOST_ENTRIES = 3_000_000
"""Entries of one JSON text: 10,000 requests with the times of 300 tokens each."""
SHORT_LINE = 65_536
"""JSON of up to this many characters takes little time and memory, whatever it is."""
LONGEST_LINE = 2**20
"""Characters of a table's line."""
Row = Mapping[str, Any]
"""One request as written, its fields under the names that ``plain_name`` gives."""
MOST_NAMES = 20
"""Fields' names that are kept for an error."""
NOT_JSON = "not valid JSON"
NO_OBJECT = "not a JSON object"
COLUMNS = "other number of columns than the header"
CLOSED = ("synchronous", "concurrent", "throughput")
"""GuideLLM's strategies whose arrivals follow the server."""

plain_name = lru_cache(4096)(normal)


class Rows:
    """The rows of one file, read once, and what the file says beside them."""

    def __init__(self, data: bytes) -> None:
        """Take a file's bytes. Raises Unreadable."""
        if data[:2] == b"\x1f\x8b":
            raise Unreadable("compressed; unpack it first: gunzip")
        if b"\0" in data:
            raise Unreadable("a binary file (or UTF-16), not text; save it as UTF-8")
        self.format = ""
        """Format, where the file's form says it; else the rows' fields do."""
        self.runs = 0
        """Runs of a benchmark in the file."""
        self.clients = 0
        """Most requests in flight that a result file names; 0 if none."""
        self.no_arrivals = ""
        """Why the times of the rows are no arrivals; empty if they are."""
        self.notes: list[str] = []
        self.spelled: dict[str, str] = {}
        """Some fields' names as the file writes them, by their plain names."""
        self.problem = ""
        """Why the file as a whole is no table or JSON."""
        self._data = data
        self._lines = self._each_line()
        self._read = 0
        self._left = 0

    def __iter__(self) -> Iterator[Row | str]:
        """Yield each row, or the reason why one cannot be read. Raises Unreadable."""
        try:
            first = next(self._lines, "")
            yield from self._json(first) if first.lstrip()[:1] in ("{", "[") else self._csv(first)
        except UnicodeDecodeError:
            raise Unreadable("not UTF-8; save it as UTF-8") from None

    def rest(self) -> int:
        """Stop reading; return the number of rows beyond the limit, which are not read."""
        self._lines.close()
        return self._left + max(0, self._data.rstrip().count(b"\n") + 1 - self._read)

    def _each_line(self) -> Generator[str, None, None]:
        """Yield each line that is not blank, up to a limit."""
        size = 0
        for line in io.TextIOWrapper(io.BytesIO(self._data), "utf-8-sig"):
            self._read += 1
            if line.strip():
                yield line
                size += len(line)
                if size > MOST_TEXT:
                    return

    def _short(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            if len(line) > LONGEST_LINE:
                raise Unreadable(f"line {self._read:,} has over {LONGEST_LINE:,} characters; cut it into rows")
            yield line

    def _first(self, values: Any) -> list[Any]:
        """Return the entries of a list that are read; no entries of what is no list."""
        known = values if isinstance(values, list) else []
        self._left += max(0, len(known) - MOST_ROWS)
        return known[:MOST_ROWS]

    def _csv(self, first: str) -> Iterator[Row | str]:
        delimiter = max(",;\t|", key=first.count)
        lines = csv.reader(self._short(chain([first], self._lines)), delimiter=delimiter)
        header: list[str] = []
        while True:
            try:
                cells = next(lines, None)
            except csv.Error:
                yield "not valid CSV"
                continue
            if cells is None:
                return
            if not header:
                header = [plain_name(name) for name in cells]
                self.spelled = dict(zip(header[:MOST_NAMES], cells, strict=False))
                double = next((name for name, times in Counter(header).items() if name and times > 1), "")
                if double:
                    name = shorten(self.spelled.get(double, double))
                    self.problem = f"its header has the column {name} twice; remove one"
                    return
            elif len(cells) == len(header):
                yield dict(zip(header, cells, strict=True))
            elif any(cells):
                yield COLUMNS

    def _json(self, first: str) -> Iterator[Row | str]:
        try:
            document = _parse(first)
        except Unreadable:  # more lines belong to it, or it is a bad row
            try:
                document = parse_json(self._data.decode("utf-8-sig"), MOST_ENTRIES)
                self._read = self._data.count(b"\n") + 1
                self._lines.close()
            except Unreadable as error:
                self.problem = str(error)
                document = None
        yield from [NOT_JSON] if self.problem else self._unfold(document)
        for line in self._lines:
            try:
                value = _parse(line)
            except Unreadable:
                yield NOT_JSON
            else:
                yield from self._unfold(value)

    def _unfold(self, value: Any) -> Iterator[Row | str]:
        """Yield the rows of a JSON value: a list's entries, a result's requests, or the one that it is."""
        for entry in self._first(value) if isinstance(value, list) else [value]:
            if not isinstance(entry, dict):
                yield NO_OBJECT
            elif isinstance(entry.get("benchmarks"), list):
                for run in entry["benchmarks"]:
                    yield from self._guidellm(run) if isinstance(run, dict) else ()
            elif "input_lens" in entry or {"completed", "total_input_tokens"} <= entry.keys():
                yield from self._vllm(entry)
            else:
                yield self._plain(entry)

    def _plain(self, entry: dict[str, Any]) -> Row:
        if len(self.spelled) < MOST_NAMES:
            self.spelled |= {plain_name(name): name for name in islice(entry, MOST_NAMES)}
        return {plain_name(name): value for name, value in entry.items()}

    def _guidellm(self, run: dict[str, Any]) -> Iterator[Row | str]:
        """Yield the requests of one benchmark; no others than the successful ones have true lengths.

        The form of reports: src/guidellm/benchmark/benchmark.py at v0.2.1, src/guidellm/schemas/request_stats.py and
        src/guidellm/benchmark/schemas at v0.4.0 to v0.7.3.
        """
        self._begin("GuideLLM results")
        requests = run.get("requests")
        by_status = requests if isinstance(requests, dict) else {"successful": requests}
        for status in ("errored", "incomplete"):
            yield from [f"failed: {status}"] * len(self._first(by_status.get(status)))
        good = self._first(by_status.get("successful"))
        strategy = inner(run, "config", "strategy", "type_") or inner(run, "args", "strategy", "type_")
        if strategy in CLOSED:
            self.no_arrivals = f"the strategy {strategy} sends requests when others end"
        successes = inner(run, "metrics", "request_totals", "successful")
        successes = (
            number(successes if successes is not None else inner(run, "run_stats", "requests_made", "successful")) or 0
        )
        if successes > len(good):
            self.no_arrivals = f"the report keeps {len(good):,} of {successes:,.0f} requests"
        for request in good:
            yield self._plain(request) if isinstance(request, dict) else NO_OBJECT

    def _vllm(self, run: dict[str, Any]) -> Iterator[Row | str]:
        """Yield the requests of one run of ``vllm bench serve``. [vllm/benchmarks/serve.py, benchmark]"""
        self._begin("vllm bench results")
        clients, rate = number(run.get("max_concurrency")) or 0, run.get("request_rate")
        self.clients = max(self.clients, int(number(run.get("max_concurrent_requests")) or clients))
        if rate in ("inf", float("inf")):
            self.no_arrivals = f"{count(int(clients), 'client')} in a closed loop" if clients else "all sent at once"
        inputs, outputs = self._first(run.get("input_lens")), _list(run.get("output_lens"))
        if not inputs and not outputs:
            yield from self._totals(run)
        latencies = _list(run.get("latencies"))
        if len(latencies) != len(inputs):
            times = zip(_list(run.get("ttfts")), _list(run.get("itls")), strict=False)
            latencies = [_sum(first, _list(others)) for first, others in times]
        starts, errors = _list(run.get("start_times")), _list(run.get("errors"))
        columns = (inputs, outputs, starts, latencies, errors)
        for tokens, made, start, latency, error in zip_longest(*(column[:MOST_ROWS] for column in columns)):
            yield {"inputlen": tokens, "outputlen": made, "starttime": start, "latencys": latency, "error": error}

    def _totals(self, run: dict[str, Any]) -> Iterator[Row | str]:
        """Yield rows of mean length, for a result that holds nothing but totals."""
        names = ("completed", "total_input_tokens", "total_output_tokens")
        done, tokens, made = (number(run.get(name)) or 0 for name in names)
        yield from ["failed"] * min(MOST_ROWS, max(0, int(number(run.get("failed")) or 0)))
        if done >= 1:
            self.notes.append("only totals: each length is the mean; run the benchmark with --save-detailed")
            row = {"inputlen": round(tokens / done), "outputlen": round(made / done)}
            yield from (row for _ in range(min(MOST_ROWS, int(done))))

    def _begin(self, form: str) -> None:
        self.format = form
        self.runs += 1
        if self.runs > 1:
            self.no_arrivals = "the file has several runs"


def _parse(line: str) -> Any:
    """Return the value of one line of JSON. Raise Unreadable."""
    if len(line) > SHORT_LINE:
        return parse_json(line, MOST_ENTRIES)
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise Unreadable(NOT_JSON) from None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def inner(value: Any, *names: str) -> Any:
    """Return what is in objects within objects under these names; None where there is nothing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _sum(first: Any, others: list[Any]) -> float | None:
    """Return the sum of numbers; None where one is none."""
    if not isinstance(first, int | float):
        return None  # lists have sums too, in quadratic time
    try:
        return float(sum(others, first))
    except (TypeError, ValueError, OverflowError):
        return None
