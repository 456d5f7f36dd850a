"""Make the search index of a language: pages and sections with as much of their text as finds them.

The search of mkdocs-material knows no synonyms, and its index holds the whole text of every page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from recommender.common.text import one_line

FILE = "assets/search.json"
HEADINGS = {"h1", "h2", "h3"}
NAMES = {"th", "strong"}
BLOCKS = {"p", "li", "tr", "th", "td", "div", "blockquote", "dt", "dd", "br"}
SILENT = {"script", "style", "svg", "pre", "noscript", "template", "form", "details"}
"""Elements whose text is not searched: code, pictures, controls and what is folded away."""


@dataclass(frozen=True)
class Kind:
    """Pages of a kind: what a result calls them, how much they count, and what is kept of their text."""

    name: str
    weight: float
    characters: int
    sections: bool = False
    opening: bool = True
    """Whether what is above the first section belongs to it."""


KINDS: Mapping[str, Kind] = {
    "how-to/": Kind("Guide", 1.6, 420, True),
    "concepts/": Kind("Guide", 1.5, 320, True),
    "flags/": Kind("Option", 1.5, 420),
    "threads": Kind("Known issue", 1.5, 260, True),
    "rules/": Kind("Rule", 0.6, 360, opening=False),
    "claims": Kind("Claim", 0.5, 0, True),
    "constraints": Kind("Constraint", 0.7, 140, True),
    "models/": Kind("Model", 1.0, 0),
    "gpus/": Kind("GPU", 1.0, 0),
    "releases/": Kind("Release", 1.6, 160),
    "advisers/": Kind("Adviser", 0.6, 120),
    "reference/": Kind("Reference", 0.8, 100, True),
    "": Kind("Page", 1.2, 300),
}
"""Kinds by the beginning of the address."""
SYNONYMS = {
    "oom": "out of memory",
    "ttft": "first token",
    "first token": "ttft",
    "tpot": "per token",
    "throughput": "requests second load",
    "rps": "requests second",
    "int8": "8 bit",
    "int4": "4 bit",
    "hang": "hangs never ends waits treo",
    "hangs": "hang never ends treo",
    "at start": "startup khởi động treo",
    "slow": "speed latency",
    "crash": "crashes aborts dies",
    "multi gpu": "tensor parallelism tp",
    "quantization": "quantisation w4a16",
    "upgrade": "releases changed",
    "docker": "container",
    "vram": "memory",
    "pytorch engine": "backend",
    "turbomind pytorch": "backend",
    "context length": "session len",
    "gpu memory utilization": "cache max entry count",
    "max model len": "session len length",
    "max num seqs": "max batch size",
    "max num batched tokens": "max prefill token num",
    "chunked prefill": "max prefill token num",
    "preemption": "kv cache concurrency",
    "monitoring": "metrics",
    "prometheus": "metrics",
    "autoscaling": "fleet",
    "replicas": "fleet",
    "how many": "fleet size goal hosts",
    "requests s": "fleet requests rate",
}
"""Words that are searched too, at half weight, by the words or phrases that ask for them."""
TAGS: Mapping[str, str] = {
    "flags/adapters.html": "LoRA",
    "flags/api-keys.html": "API key, authentication, khóa API, xác thực",
    "flags/cache-max-entry-count.html": "GPU memory share, KV cache size, tỷ lệ cache",
    "flags/cudagraph-capture-batch-sizes.html": "CUDA graph, CUDA graphs",
    "flags/download-dir.html": "model download, offline, tải model",
    "flags/eager-mode.html": "CUDA graph, CUDA graphs",
    "flags/enable-metrics.html": "monitoring, grafana, giám sát",
    "flags/enable-prefix-caching.html": "bộ nhớ đệm tiền tố, prompt caching",
    "flags/max-batch-size.html": "kích thước batch, số request đồng thời, concurrent requests",
    "flags/max-concurrent-requests.html": "rate limit, giới hạn request, concurrent requests",
    "flags/quant-policy.html": "KV cache quantization, fp8 KV cache, lượng tử hóa KV cache",
    "flags/response-format.html": "JSON mode, JSON schema, structured output, guided decoding, đầu ra JSON",
    "flags/session-len.html": "context length, max length, độ dài ngữ cảnh, độ dài prompt",
    "flags/ssl.html": "TLS, HTTPS, certificate, chứng chỉ",
    "flags/log-level.html": "logs, verbose, mức log, nhật ký",
    "flags/tp.html": "multi GPU, number of GPUs, nhiều GPU, song song tensor",
    "index.html": "which GPU do I need, which settings, chọn cấu hình, chọn GPU nào",
    "releases/index.html": "new version, latest version, upgrade, changelog, phiên bản mới, phiên bản nào, nâng cấp",
    "releases/compare.html": "compare versions, upgrade, changelog, so sánh phiên bản, nâng cấp",
    "threads.html#answer-cut-off": "truncated, stops early, bị cắt",
    "threads.html#health-says-ok-while-dead": "server stuck, no response, sập server, server chết, không trả lời",
    "threads.html#int4-kv-zero-accuracy": "wrong answers, garbled output, nonsense, trả lời sai",
    "threads.html#nccl-2-27-leaks": "memory leak, rò rỉ bộ nhớ",
    "threads.html#nccl-error-in-pod": "shared memory, shm size, /dev/shm",
    "threads.html#out-of-memory-at-start": "tràn bộ nhớ",
    "threads.html#out-of-memory-under-load": "tràn bộ nhớ",
    "threads.html#turbomind-vlm-first-token-slower": "time to first token, slow first token, độ trễ token đầu",
}
"""Words that find a generated page or a section first, in both languages: a hand-written page has its own tags."""


@dataclass
class Sections(HTMLParser):
    """The sections of a page: the heading's id and title, and the text up to the next heading."""

    sections: list[tuple[str, str, list[str]]] = field(default_factory=list)
    heading: bool = False
    silent: int = 0
    last: str = ""

    def __post_init__(self) -> None:
        """Prepare the parser."""
        super().__init__()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Begin a section at a heading."""
        if tag in HEADINGS:
            self.heading = True
            self.sections.append((dict(attrs).get("id") or "", "", []))
        elif tag in SILENT:
            self.silent += 1
        elif tag in BLOCKS and self.sections:
            # A cell after a name says what it is.
            self.sections[-1][2].append(": " if tag == "td" and self.last in NAMES else " ")
        self.last = tag

    def handle_endtag(self, tag: str) -> None:
        """End a heading."""
        if tag in HEADINGS:
            self.heading = False
        elif tag in SILENT:
            self.silent -= 1

    def handle_data(self, data: str) -> None:
        """Collect text."""
        if self.silent or not self.sections:
            return
        identifier, title, text = self.sections[-1]
        if self.heading:
            self.sections[-1] = (identifier, title + data, text)
        else:
            text.append(data)


def entries(address: str, html: str, tags: Sequence[str]) -> Iterator[list[Any]]:
    """Yield the entries of a page: address, title, kind, text, further words."""
    kind = next(kind for start, kind in KINDS.items() if address.startswith(start))
    # An index page repeats its pages' texts, so it is not searched itself.
    characters = 0 if address.endswith("/index.html") and address != "how-to/index.html" else kind.characters
    parser = Sections()
    # Parsing a page takes as long as rendering it, so it ends at the title if nothing else is kept.
    parser.feed(html if characters or kind.sections else html[: html.find("</h1>") + len("</h1>")])
    first = parser.sections[0][1].strip() if parser.sections else ""
    page: list[str] = []
    for identifier, title, text in parser.sections:
        words = one_line("".join(text))
        if kind.sections and identifier and title.strip() != first:
            place = f"{address}#{identifier}"
            yield [place, title.strip(), kind.name, words[: kind.characters], f"{first} {TAGS.get(place, '')}".strip()]
        elif kind.opening or title.strip() != first:
            page.append(words)
    yield [address, first, kind.name, " ".join(page)[:characters], " ".join((*tags, TAGS.get(address, ""))).strip()]


def write_index(index_entries: Sequence[Sequence[Any]], names: Mapping[str, str]) -> str:
    """Return the index: entries, and for each kind its name in the language and its weight."""
    kinds = {kind.name: [names.get(kind.name, kind.name), kind.weight] for kind in KINDS.values()}
    return json.dumps(
        {"kinds": kinds, "synonyms": SYNONYMS, "entries": index_entries}, ensure_ascii=False, separators=(",", ":")
    )
