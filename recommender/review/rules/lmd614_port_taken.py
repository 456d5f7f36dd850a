"""Two servers on one port

Finds servers and proxies of one script that run beside each other on the same host with the same port, defaults
included, a loop that starts several with one port, and containers that publish the same port of the host.

A port has room for one listener. The second server loads the model, fills its part of the card, and ends when it
opens the port.

Mend it with a ``--server-port`` for each.

Bad:

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct &
    CUDA_VISIBLE_DEVICES=1 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct &
    wait

Good:

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23333 &
    CUDA_VISIBLE_DEVICES=1 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23334 &
    wait
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Script, Word

# A loop over at least two things that the text lists.
SEVERAL = re.compile(r"for\s+\w+\s+in\s+(?:[^\s;$`]+[ \t]+[^\s;]|\{\d+\.\.\d+\})")
LEAVES = re.compile(r"\b(?:wait|break|kill|pkill|ssh|continue|exit)\b")
PUBLISHED = re.compile(r"(?:(?:0\.0\.0\.0|127\.0\.0\.1):)?(\d+):\d+(?:/tcp)?")


def check(script: Script) -> Iterator[Said]:
    """Pairs on the host, then services of a compose file."""
    told = set()
    for earlier, later in around.beside(script, "api_server", "proxy"):
        port = around.port(later)
        if port is None or port != around.port(earlier) or later.place.start in told:
            continue
        told.add(later.place.start)
        option = around.option(later, "--server-port")
        yield Said(
            option.whole if option else later.place,
            f"Port {port} is taken already, by the {_kind(earlier.starts)} of line {earlier.place.line}.",
            "The second one loads the model and ends when it opens the port; give each a port of its own.",
        )
    yield from _in_loop(script)
    if script.kind == "compose":
        yield from _published(script)


def _in_loop(script: Script) -> Iterator[Said]:
    for launch in script.launches:
        option = around.option(launch, "--server-port")
        if not launch.background or launch.container or option is None or around.port(launch) is None:
            continue
        for loop in script.loops[: around.MOST]:
            text = around.code(script, loop.place.start, loop.place.end)
            inside = loop.place.start <= launch.place.start < loop.place.end
            if inside and not loop.endless and SEVERAL.match(text) and not LEAVES.search(text):
                yield Said(
                    option.whole,
                    f"Each server of this loop gets port {around.port(launch)}.",
                    "The first has it; each further one loads the model and ends when it opens the port.",
                )
                break


def _kind(starts: str) -> str:
    return "proxy" if starts == "proxy" else "server"


def _published(script: Script) -> Iterator[Said]:
    taken: dict[str, tuple[int, Word]] = {}
    for launch in script.launches:
        for word in launch.container.published if launch.container else ():
            match = PUBLISHED.fullmatch(word.value or "")
            if match is None:
                continue
            owner, first = taken.setdefault(match[1], (launch.place.start, word))
            if owner != launch.place.start and first.place.start != word.place.start:
                yield Said(
                    word.written or word.place,
                    f"Port {match[1]} of the host is published already, on line {first.place.line}.",
                    "The second container does not start; give each a port of its own.",
                )


RULE = Rule(
    id="LMD614",
    name="port-taken",
    family="operations",
    severity="error",
    sources=("flags/server-port", "constraints/port-not-the-proxys"),
    whole=check,
)
