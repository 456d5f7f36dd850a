"""What stands around a launch: who can reach it, whether it is meant to last, what runs beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from recommender.review.agreed import recommended
from recommender.review.case import effective, estimate
from recommender.store import load

if TYPE_CHECKING:
    from recommender.choose import Candidate
    from recommender.configuration import Configuration
    from recommender.review.rule import Case
    from recommender.review.script import Assignment, Launch, Option, Script, Word

T = TypeVar("T")

MOST = 40
"""So many servers of a file are compared with each other: a hostile file has thousands."""

# Between two servers these mean that the second may run instead of the first, or after its end.
APART = re.compile(r"\b(?:else|elif|esac|wait|kill|pkill|killall|exit|return|exec)\b|;;|^\s*\}|\(\)", re.MULTILINE)
ANOTHER_HOST = re.compile(r"\b(?:ssh|pdsh|clush|srun|sbatch|mpirun|mpiexec|kubectl|oc|gcloud|ansible|ray|salloc)\b")
PAUSES = re.compile(r"\b(?:sleep|until|while|wait|curl|wget|nc|read|timeout)\b|/dev/tcp/")
LOCAL_NAMES = ("localhost", "ip6-localhost")
URL = re.compile(r"(?:\w+://)?(\[[^\]/]+\]|[^:/\s]+)(?::(\d{1,5}))?(?:/.*)?")
ELSEWHERE = re.compile(r"--env-file|\benv_file\b|\benvFrom\b")
UNIT_FILE = re.compile(r"^[ \t]*EnvironmentFile[ \t]*=[ \t]*\S", re.MULTILINE)


def loopback(address: str) -> bool:
    """Whether only this host reaches what listens there."""
    return address in LOCAL_NAMES or _is(address, "is_loopback")


def everywhere(address: str) -> bool:
    """Whether an address stands for all of the host."""
    return not address or _is(address, "is_unspecified")


def _is(address: str, what: str) -> bool:
    from ipaddress import ip_address

    try:
        return bool(getattr(ip_address(address.strip("[]")), what))
    except ValueError:
        return False


def this_host(host: str) -> bool:
    """Whether a host in an address is the one that asks."""
    return bool(host) and (loopback(host) or everywhere(host))


def parts(url: str) -> tuple[str, int | None]:
    """Host and port of an address; an empty host where it is none."""
    match = URL.fullmatch(url.strip())
    if match is None:
        return "", None
    return match[1].strip("[]"), int(match[2]) if match[2] else None


def address(case: Case) -> str | None:
    """Where an api_server listens, its default included; None where that cannot be known."""
    data_parallel = case.settings.get("dp")
    if data_parallel is not None and data_parallel.text != "1":  # the launcher then takes the host's own address
        return None
    found = effective(case, "server-name")
    # A unit's environment file leaves empty what whoever installs it is to write.
    return None if case.script.kind == "systemd" and not found else found


def reachable(case: Case) -> bool:
    """Whether others than this host may reach the server, as far as the script tells."""
    found = address(case)
    return found is not None and not loopback(found)


def lasts(case: Case) -> bool:
    """Whether the script means the server to stay up and be used: it restarts, is probed, has keys or a proxy."""
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


def several(case: Case) -> bool:
    """Whether the script itself plans for several requests at once."""
    at_once = (case.number(name) or 0 for name in ("max-batch-size", "max-concurrent-requests"))
    return "proxy-url" in case.settings or any(number > 1 for number in at_once)


def sized(case: Case) -> Candidate | None:
    """The launch's estimate; None where something is not known, or is a value that no estimate can be made of."""
    try:
        return estimate(case)
    except (ValueError, ArithmeticError):
        return None


def chosen(case: Case) -> Configuration | None:
    """What ``recommend`` chooses for this GPU, model and load; None where one is not told or nothing fits.

    A rule of degree holds a value against this: what the recommender would do too is no fault.
    """
    return recommended(case.facts.request, case.facts.store) if told_all(case) else None


def told_all(case: Case) -> bool:
    """Whether enough was told for ``chosen`` to answer."""
    return case.gpu_known and case.model_known and case.load_known


def kept(script: Script, name: str, make: Callable[[], T]) -> T:
    """What is worked out once for a script, however many launches ask: a hostile file has thousands."""
    memo: dict[str, Any] = vars(script)  # as functools.cached_property does
    if name not in memo:
        memo[name] = make()
    found: T = memo[name]
    return found


def sets_elsewhere(script: Script) -> bool:
    """Whether variables may come from a file that the script reads; activating an environment sets none of ours."""
    return kept(script, "_sets_elsewhere", lambda: _sets_elsewhere(script))


def _sets_elsewhere(script: Script) -> bool:
    if ELSEWHERE.search(script.text):
        return True
    if script.kind == "systemd":  # variables of a file that could be read stand where the unit names it
        read = {word.place.start for each in script.launches for word in each.environment.values()}
        return any(found.end() - 1 not in read for found in UNIT_FILE.finditer(script.text))
    for call in script.calls:
        words = [word.value or "" for word in call.words]
        if words and words[0] in (".", "source") and not (words[1:] and words[1].endswith("activate")):
            return True
    return False


def mentions(script: Script, word: str) -> bool:
    """Whether a word stands anywhere in the text, in capitals or not."""
    return word in kept(script, "_lower", script.text.casefold)


def assigned(script: Script) -> Mapping[str, list[Assignment]]:
    """The script's assignments by name."""

    def make() -> dict[str, list[Assignment]]:
        found: dict[str, list[Assignment]] = {}
        for each in script.assignments:
            found.setdefault(each.name, []).append(each)
        return found

    return kept(script, "_assigned", make)


def named(script: Script) -> Mapping[str, list[int]]:
    """Where each word of the text stands, comments left out."""

    def make() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for match in re.finditer(r"\w+", code(script, 0, len(script.text))):
            found.setdefault(match[0], []).append(match.start())
        return found

    return kept(script, "_named", make)


def only_assigned(script: Script, name: str) -> bool:
    """Whether a name stands nowhere but in its own assignments."""
    own = [each.place for each in assigned(script).get(name, ())][:MOST]
    starts = named(script).get(name, [])
    if len(starts) > 2 * MOST:
        return False
    return all(any(place.start <= start < place.end for place in own) for start in starts)


def code(script: Script, start: int, end: int) -> str:
    """A stretch of the text, its comments blanked out."""
    return kept(script, "_code", lambda: _code(script))[start:end]


def _code(script: Script) -> str:
    pieces, done = [], 0
    for comment in sorted(script.comments, key=lambda each: each.place.start):
        first, last = max(comment.place.start, done), comment.place.end
        if last > first:
            pieces += [script.text[done:first], " " * (last - first)]
            done = last
    return "".join([*pieces, script.text[done:]])


def rest_of_line(script: Script, launch: Launch) -> str:
    """What stands behind a launch up to the end of its command, such as a redirection."""
    text, end = script.text, launch.place.end
    stop = end
    while True:
        stop = text.find("\n", stop)
        if stop < 0:
            return code(script, end, len(text))
        if text[end:stop].rstrip(" \t").endswith("\\"):
            stop += 1
            continue
        return code(script, end, stop)


def option(launch: Launch, name: str) -> Option | None:
    """The last of a launch's options of this name, however it writes the dashes."""
    found = [each for each in launch.options if each.name.replace("_", "-") == name]
    return found[-1] if found else None


def value(launch: Launch, name: str) -> str | None:
    """The one value of an option, None where there is none or it cannot be known."""
    found = option(launch, name)
    return found.values[0].value if found and len(found.values) == 1 else None


def default(flag: str) -> str:
    """A flag's default as its record's last era that has one gives it."""
    return next((era.default for era in reversed(load().flags[flag].eras) if era.default), "")


def port(launch: Launch) -> int | None:
    """The port of a server or a proxy, its default included; None where that cannot be known."""
    if launch.starts == "pipeline" or option(launch, "--dp") is not None:
        return None
    given = option(launch, "--server-port")
    if given is None:
        text = "" if launch.unsure else proxy_port() if launch.starts == "proxy" else default("server-port")
    else:
        text = value(launch, "--server-port") or ""
    return int(text) if re.fullmatch(r"\d{1,5}", text) else None


def proxy_port() -> str:
    """The proxy's default port, as the constraint that keeps servers off it has it."""
    return load().constraints["port-not-the-proxys"].require[0].split()[-1]


def beside(script: Script, *starts: str) -> Iterator[tuple[Launch, Launch]]:
    """Pairs of launches on one host that surely run at the same time, the earlier first."""
    found = [each for each in script.launches if each.starts in starts and _here(script, each)][:MOST]
    for index, later in enumerate(found):
        for earlier in found[:index]:
            between = code(script, earlier.place.end, later.place.start)
            if earlier.background and earlier.place.end <= later.place.start and not APART.search(between):
                yield earlier, later


def _here(script: Script, launch: Launch) -> bool:
    """Whether a launch surely runs on the script's own host, outside a container."""
    start = script.text.rfind("\n", 0, launch.place.start) + 1
    return launch.container is None and not ANOTHER_HOST.search(script.text[start : launch.place.start])


def share_card(script: Script, one: Launch, other: Launch) -> bool:
    """Whether two servers surely use a same card."""
    first, second = (each.environment.get("CUDA_VISIBLE_DEVICES") for each in (one, other))
    if first is None and second is None:  # both take the first cards of the host
        return "CUDA_VISIBLE_DEVICES" not in script.text and not sets_elsewhere(script)
    return bool(cards_of(first) & cards_of(second))


def cards_of(word: Word | None) -> set[str]:
    """The cards that a value of CUDA_VISIBLE_DEVICES lists; none where it cannot be known."""
    return {each.strip() for each in ((word.value if word else None) or "").split(",") if each.strip()}
