"""Facts about a launch's environment: who can reach it, whether it is long-running, what runs at the same time."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.knowledge.load import load
from recommender.review.engine_support import TURBOMIND, engine
from recommender.review.same_as_recommended import recommended

if TYPE_CHECKING:
    from recommender.choose.select import Candidate
    from recommender.estimate.configuration import Configuration
    from recommender.review.rule import Case
    from recommender.review.script.model import GivenOption, Launch, Script, Span, Word

MOST_SERVERS = 40
"""How many servers of a file are compared with each other: a hostile file has thousands."""

# If one of these is between two servers, the second may run instead of the first, or after it.
APART = pattern(r"\b(?:else|elif|esac|wait|kill|pkill|killall|exit|return|exec)\b|;;|^[^\S\n]*\}|\(\)", re.MULTILINE)
REMOVED = pattern(rf"{APART.pattern}|\b(?:stop|rm|down|else)\b", re.MULTILINE)
"""The same between two containers."""
LEAVES = pattern(r"\b(?:break|continue)\b")
TRAP = pattern(r"\btrap[ \t]+(?:'[^'\n]*'|\"[^\"\n]*\"|\w+)")
ANOTHER_HOST = pattern(r"\b(?:ssh|pdsh|clush|srun|sbatch|mpirun|mpiexec|kubectl|oc|gcloud|ansible|ray|salloc)\b")
PAUSES = pattern(r"\b(?:sleep|until|while|wait|curl|wget|nc|read|timeout)\b|/dev/tcp/")
REST = pattern(r"(?:[^\\\n]|\\.|\\\n)*")
LOCAL_NAMES = ("localhost", "ip6-localhost")
URL = pattern(r"(?:\w+://)?(\[[^\]/]+\]|[^:/\s]+)(?::(\d{1,5}))?(?:/.*)?")
ELSEWHERE = pattern(r"--env-file|\benv_file\b|\benvFrom\b")
UNIT_FILE = pattern(r"^[ \t]*EnvironmentFile[ \t]*=[ \t]*\S", re.MULTILINE)


def is_loopback(address: str) -> bool:
    """Return whether only this host can reach an address."""
    return address in LOCAL_NAMES or _is(address, "is_loopback")


def is_any_address(address: str) -> bool:
    """Return whether an address means every address of the host."""
    return not address or _is(address, "is_unspecified")


def _is(address: str, attribute: str) -> bool:
    from ipaddress import ip_address

    try:
        return bool(getattr(ip_address(address.strip("[]")), attribute))
    except ValueError:
        return False


def is_this_host(host: str) -> bool:
    """Return whether the host of an address is the local one."""
    return bool(host) and (is_loopback(host) or is_any_address(host))


def split_url(url: str) -> tuple[str, int | None]:
    """Return host and port of a URL; an empty host if it is invalid."""
    match = URL.fullmatch(url.strip())
    if match is None:
        return "", None
    return match[1].strip("[]"), int(match[2]) if match[2] else None


def address(case: Case) -> str | None:
    """Return the address an api_server listens on, by default too; None if unknown."""
    replicas, era = case.settings.get("dp"), case.resolved.options.get("dp")
    one = engine(case) == TURBOMIND and era is not None and TURBOMIND in era.read_by
    if replicas is not None and replicas.text != "1" and not one:  # a server for each, at the host's own address
        return None
    name = case.effective("server-name")
    # An environment file of a unit may leave the address empty for the administrator to fill in.
    return None if case.script.kind == "systemd" and not name else name


def reachable(case: Case) -> bool:
    """Return whether other hosts can reach the server, as far as the script shows."""
    listens = address(case)
    return listens is not None and not is_loopback(listens)


def is_long_running(case: Case) -> bool:
    """Return whether the script keeps the server running: it restarts or probes it, or sets keys or a proxy."""
    launch, container = case.launch, case.launch.container
    if launch.loop is not None and launch.loop.endless:
        return True
    if {"api-keys", "proxy-url"} & case.settings.keys():
        return True
    if case.script.kind == "kubernetes":
        return True
    if container is None:
        return False
    restart = (container.restart.value or "") if container.restart else ""
    return bool(container.probes) or restart not in ("", "no", "never", "Never")


def expects_concurrency(case: Case) -> bool:
    """Return whether the script itself plans for concurrent requests."""
    at_once = (case.number(name) or 0 for name in ("max-batch-size", "max-concurrent-requests"))
    return "proxy-url" in case.settings or any(number > 1 for number in at_once)


def sized_launch(case: Case) -> Candidate | None:
    """Return the launch's estimate; None if a value is unknown or impossible."""
    try:
        return case.candidate
    except (ValueError, ArithmeticError):
        return None


def recommended_config(case: Case) -> Configuration | None:
    """Return what ``recommend`` chooses for this GPU, model and load; None if one is unknown or nothing fits.

    A rule that judges a value by degree compares it with this: the recommender's own choice is not a problem.
    """
    return recommended(case.resolved.request, case.resolved.store) if all_known(case) else None


def all_known(case: Case) -> bool:
    """Return whether GPU, model and load are known."""
    return case.gpu_known and case.model_known and case.load_known


@lru_cache(maxsize=8)
def sets_elsewhere(script: Script) -> bool:
    """Return whether a file may set variables; activating a virtual environment sets none of LMDeploy's."""
    if ELSEWHERE.search(script.text):
        return True
    if script.kind == "systemd":  # variables of a readable file have their place in the unit
        read = {word.place.start for launch in script.launches for word in launch.environment.values()}
        return any(match.end() - 1 not in read for match in UNIT_FILE.finditer(script.text))
    for call in script.calls:
        words = [word.value or "" for word in call.words]
        if words and words[0] in (".", "source") and not (words[1:] and words[1].endswith("activate")):
            return True
    return False


@lru_cache(maxsize=8)
def mentions(script: Script, word: str) -> bool:
    """Return whether the text contains a word, in upper or lower case."""
    return word in script.text.casefold()


def code(script: Script, start: int, end: int) -> str:
    """Return a range of the text with its comments replaced by blanks."""
    return _code(script)[start:end]


@lru_cache(maxsize=8)
def _code(script: Script) -> str:
    pieces, done = [], 0
    for comment in sorted(script.comments, key=lambda comment: comment.place.start):
        first, last = max(comment.place.start, done), comment.place.end
        if last > first:
            pieces += [script.text[done:first], " " * (last - first)]
            done = last
    return "".join([*pieces, script.text[done:]])


def rest_of_line(script: Script, launch: Launch) -> str:
    """Return the text after a launch up to the end of its command, such as a redirection."""
    rest = REST.match(script.text, launch.place.end)
    return code(script, *rest.span()) if rest else ""


def option(launch: Launch, name: str) -> GivenOption | None:
    """Return a launch's last option of this name, with dashes or underscores."""
    return next((option for option in reversed(launch.options) if option.name.replace("_", "-") == name), None)


def value(launch: Launch, name: str) -> str | None:
    """Return the single value of an option; None if there is none or it is unknown."""
    given = option(launch, name)
    return given.values[0].value if given and len(given.values) == 1 else None


def default(flag: str) -> str:
    """Return a flag's newest recorded default."""
    return next((era.default for era in reversed(load().flags[flag].eras) if era.default), "")


def port(launch: Launch) -> int | None:
    """Return the port of a server or a proxy, by default too; None if unknown."""
    if launch.starts == "pipeline" or option(launch, "--dp") is not None:
        return None
    given = option(launch, "--server-port")
    if given is None:
        text = "" if launch.unsure else proxy_port() if launch.starts == "proxy" else default("server-port")
    else:
        text = value(launch, "--server-port") or ""
    return int(text) if re.fullmatch(r"\d{1,5}", text) else None


def proxy_port() -> str:
    """Return the proxy's default port, from the constraint that forbids it for servers."""
    return load().constraints["port-not-the-proxys"].require[0].split()[-1]


def concurrent_pairs(
    script: Script, *starts: str, containers: bool = False, turns: bool = False
) -> Iterator[tuple[Launch, Launch]]:
    """Yield pairs of launches that certainly run on one host at the same time, the earlier first.

    ``containers``: the launches in containers instead of those outside. ``turns``: those of each turn of a loop.
    """
    sign = REMOVED if containers else APART
    here = [launch for launch in script.launches if launch.starts in starts and _on_this_host(script, launch)]
    here = [launch for launch in here if (launch.container is not None) == containers and not launch.instead]
    every = [(launch, one) for launch in here for one in (in_turn(script, launch, sign) if turns else (launch,))]
    for index, (later, one) in enumerate(every[:MOST_SERVERS]):
        for earlier, other in every[:index]:
            stretch = _stretch(earlier, later) if earlier.background else None
            if (earlier is later and earlier.background) or (stretch and not is_apart(script, *stretch, sign)):
                yield other, one


def _loop_around(script: Script, launch: Launch) -> Span | None:
    """Return the innermost loop around a launch, or around the call of the function that makes it."""
    place = launch.called or launch.place
    return max((loop.place for loop in script.loops if loop.place.start <= place.start < loop.place.end), default=None)


def in_turn(script: Script, launch: Launch, sign: re.Pattern[str] = APART) -> tuple[Launch, ...]:
    """Return what each turn of the loop around a launch starts beside the others; the launch itself if none does."""
    place, loop = launch.called or launch.place, _loop_around(script, launch)
    if not (launch.turns and launch.background and loop and _on_this_host(script, launch)):
        return (launch,)
    rest = code(script, loop.start, place.start), code(script, place.end, loop.end)
    apart = is_apart(script, loop.start, place.start, sign) or is_apart(script, place.end, loop.end, sign)
    left = any(LEAVES.search(text) or ANOTHER_HOST.search(text) for text in rest)
    return (launch,) if apart or left else launch.turns


def turns_on_one_gpu(script: Script, launch: Launch) -> int:
    """Return how many servers the loop around a launch starts beside each other on one GPU; 1 outside such a loop."""
    first, *others = in_turn(script, launch)
    return 1 + sum(share_gpu(script, first, each) for each in others)


def service_pairs(script: Script) -> Iterator[tuple[Launch, Launch]]:
    """Yield pairs of a compose file's servers, unless profiles choose among them."""
    servers = [launch for launch in script.launches if launch.starts == "api_server" and launch.container]
    if script.kind == "compose" and "profiles:" not in script.text:
        yield from combinations(servers[:MOST_SERVERS], 2)


def is_apart(script: Script, start: int, end: int, sign: re.Pattern[str] = APART) -> bool:
    """Return whether what is before a range of the code may have ended behind it; what a trap does comes later."""
    found = _signs(script, sign)
    first = bisect_left(found, (start, start))
    if first < len(found) and found[first][1] <= end:
        return True
    return sign.match(code(script, start, end)) is not None  # as if a line began there


@lru_cache(maxsize=8)
def _signs(script: Script, sign: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return where a pattern is in the code, once for all pairs of servers; what a trap does is left out."""
    text = TRAP.sub(lambda trap: " " * len(trap[0]), code(script, 0, len(script.text)))
    return [match.span() for match in sign.finditer(text)]


def between(script: Script, earlier: Launch, later: Launch) -> str | None:
    """Return the text between two launches, or between the calls of their functions; None if it does not order them."""
    stretch = _stretch(earlier, later)
    return code(script, *stretch) if stretch else None


def between_starts(script: Script, earlier: Launch, later: Launch) -> str:
    """Return the text between the starts of two servers; of two turns of a loop, the rest of its body."""
    if earlier.place != later.place or earlier.called != later.called:
        return between(script, earlier, later) or ""
    place, loop = later.called or later.place, _loop_around(script, later)
    if loop is None:
        return ""
    head = re.compile(r"\bdo\b|\{").search(script.text, loop.start, place.start)
    return code(script, head.end() if head else loop.start, place.start) + code(script, place.end, loop.end)


def _stretch(earlier: Launch, later: Launch) -> tuple[int, int] | None:
    first, second = earlier.called or earlier.place, later.called or later.place
    if first == second:
        first, second = earlier.place, later.place
    return (first.end, second.start) if first.end <= second.start else None


def _on_this_host(script: Script, launch: Launch) -> bool:
    """Return whether a launch certainly runs on the script's own host."""
    start = script.text.rfind("\n", 0, launch.place.start) + 1
    return not ANOTHER_HOST.search(script.text[start : launch.place.start])


def share_gpu(script: Script, *servers: Launch) -> bool:
    """Return whether two servers certainly share a GPU."""
    if any(server.container is not None for server in servers):
        first, second = (_gpus_of_host(server) for server in servers)
        return bool(first & second)
    one, other = (server.environment.get("CUDA_VISIBLE_DEVICES") for server in servers)
    if one is None and other is None:  # both use the first GPUs of the host
        return "CUDA_VISIBLE_DEVICES" not in script.text and not sets_elsewhere(script)
    return bool(visible_gpus(one) & visible_gpus(other))


def _gpus_of_host(server: Launch) -> set[str]:
    """Return the GPUs of the host that a server in a container uses; none if unknown."""
    container, word = server.container, server.environment.get("CUDA_VISIBLE_DEVICES")
    size = value(server, "--tp") if option(server, "--tp") else "1"
    passed = server.environment.get("NVIDIA_VISIBLE_DEVICES")
    if container is None or server.unsure or not (size or "").isdecimal() or passed is not None:
        return set()
    listed = (
        [text.strip() for text in (word.value or "").split(",")] if word else [str(at) for at in range(int(size or 1))]
    )
    if not all(text.isdecimal() for text in listed) or not all(text.isdecimal() for text in container.devices):
        return set()
    given = container.devices or [str(at) for at in range(container.gpus or MOST_SERVERS)]  # docker counts from 0
    return {given[int(text)] for text in listed if int(text) < len(given)}


def visible_gpus(word: Word | None) -> set[str]:
    """Return the GPUs that a value of CUDA_VISIBLE_DEVICES lists; none if unknown."""
    return {gpu.strip() for gpu in ((word.value if word else None) or "").split(",") if gpu.strip()}
