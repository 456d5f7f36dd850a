"""Two servers on one port

## What it does
Reports servers and proxies of one script that run at the same time on one host with the same port, defaults included.
Also reports a loop that starts several servers on one port, and containers that publish the same host port.

## Why
Only one process can listen on a port. The second server loads the model, fills its part of the GPU, and fails when it
opens the port.

## Bad

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct &
    CUDA_VISIBLE_DEVICES=1 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct &
    wait

## Good
Give each server its own `--server-port`:

    CUDA_VISIBLE_DEVICES=0 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23333 &
    CUDA_VISIBLE_DEVICES=1 lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-port 23334 &
    wait
"""

from collections.abc import Sequence

from recommender.common.pattern import pattern
from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Launch, Script, Word

# A loop over at least two listed values, over an array, or over numbers.
SEVERAL = pattern(
    r"for\s+\w+\s+in\s+(?:[^\s;$`]+[ \t]+[^\s;]|\{\d+\.\.\d+\}|\"\$\{!?\w+\[@\]\}\"|\$\(seq\s|`seq\s)|for\s*\(\("
)
LEAVES = pattern(r"\b(?:wait|break|kill|pkill|ssh|continue|exit)\b")
PUBLISHED = pattern(r"(?:(?:0\.0\.0\.0|127\.0\.0\.1):)?(\d+):\d+(?:/tcp)?")


@script_rule("error", sources=("flags/server-port", "constraints/port-not-the-proxys"))
def rule(script: Script) -> Diagnostics:
    reported = set()
    alike = {launch.place for launch in script.launches if surroundings.port(launch) is not None}
    for earlier, later in surroundings.concurrent_pairs(script, "api_server", "proxy", turns=True):
        port = surroundings.port(later)
        if earlier.place == later.place and earlier.called == later.called and later.place in alike:
            continue  # a loop whose servers all have one port, see below
        if port is None or port != surroundings.port(earlier) or later.place.start in reported:
            continue
        reported.add(later.place.start)
        option = surroundings.option(later, "--server-port")
        kind = "proxy" if earlier.starts == "proxy" else "server"
        yield Diagnostic(
            option.whole if option else later.place,
            f"The {kind} on line {(earlier.called or earlier.place).line} already uses port {port}.",
            "The second one loads the model and fails when it opens the port; give each its own port.",
        )
    yield from _in_loop(script)
    if script.kind == "compose":
        yield from _published(script.launches)
    for earlier, later in surroundings.concurrent_pairs(script, "api_server", "proxy", containers=True):
        yield from _published([earlier, later])


def _in_loop(script: Script) -> Diagnostics:
    for launch in script.launches:
        option = surroundings.option(launch, "--server-port")
        if not launch.background or launch.container or option is None or surroundings.port(launch) is None:
            continue
        for loop in script.loops[: surroundings.MOST_SERVERS]:
            text = surroundings.code(script, loop.place.start, loop.place.end)
            inside = loop.place.start <= launch.place.start < loop.place.end
            if inside and not loop.endless and SEVERAL.match(text) and not LEAVES.search(text):
                yield Diagnostic(
                    option.whole,
                    f"Each server of this loop gets port {surroundings.port(launch)}.",
                    "The first one takes it; every other one loads the model and fails when it opens the port.",
                )
                break


def _published(launches: Sequence[Launch]) -> Diagnostics:
    """Compare the published ports of containers that run at the same time."""
    owners: dict[str, tuple[int, Word]] = {}
    for number, launch in enumerate(launches):
        for word in launch.container.published if launch.container else ():
            match = PUBLISHED.fullmatch(word.value or "")
            if match is None:
                continue
            owner, first = owners.setdefault(match[1], (number, word))
            if owner == number:
                continue
            if first.place != word.place:
                message = f"Line {first.place.line} already publishes port {match[1]} of the host."
            elif launch.called is not None:
                message = f"Each container of this function publishes port {match[1]} of the host."
            else:
                continue
            yield Diagnostic(
                word.literal or word.place, message, "The second container does not start; give each its own port."
            )
