"""A layout of GPUs that the engine refuses

## What it does
Reports `--tp`, `--dp`, `--ep`, `--cp` and `--nnodes` that fit no layout of GPUs. Examples: a `--cp` that does not
divide `--tp`, `--ep` alone on TurboMind, `--dp` alone on the PyTorch engine, several hosts without
`--dist-init-addr`, and the executor uni for several processes.

## Why
Both engines derive one layout from these numbers, over the same GPUs for attention and experts. They stop at an
assertion if there is none. On TurboMind, attention runs on dp x cp times a divisor of tp GPUs, and as many must hold
the ep parts of the experts. On the PyTorch engine, dp must divide ep, or tp if ep is 1.

## Bad

    lmdeploy serve api_server Qwen/Qwen3-30B-A3B --ep 8

## Good
Give the other numbers too:

    lmdeploy serve api_server Qwen/Qwen3-30B-A3B --tp 8 --ep 8
"""

from collections.abc import Mapping
from math import gcd

from packaging.version import Version

from recommender.review import checks
from recommender.review.known_values import SIZES
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

DERIVED_SINCE = Version("0.15.0")
"""The first release whose TurboMind derives a layout with experts (turbomind/parallel_config.py)."""
SPLIT_SINCE = Version("0.11.0")
"""The first release whose PyTorch engine splits attention and experts otherwise (pytorch/config.py)."""
EXPERTS_OVER_HOSTS = Version("0.17.0")
"""The first release whose TurboMind spreads experts over several hosts."""
SPREAD = ("tp", "dp", "ep", "cp")
MOST = 1024
"""A number above it is not judged: each divisor is tried."""
STOPS = "LMDeploy stops before it loads the weights."


@launch_rule(
    "error",
    sources=(
        "flags/ep",
        "flags/cp",
        "flags/dp",
        "flags/nnodes",
        "flags/dist-init-addr",
        "flags/distributed-executor-backend",
    ),
)
def rule(case: Case) -> Diagnostics:
    launch, engine = case.launch, checks.engine(case)
    if launch.starts not in ("api_server", "pipeline") or launch.instead or launch.unsure or launch.unread:
        return
    if any(SIZES.fullmatch(each.name) or each.name.endswith("devices") for each in launch.options):
        return  # these make the layout
    sizes = _sizes(case, engine, *SPREAD)
    if engine == checks.TURBOMIND:
        if sizes is not None:
            yield from _on_turbomind(case, sizes)
        yield from _over_hosts(case)
    elif sizes is not None and (checks.wanted_engine(case) == engine == checks.PYTORCH or checks.falls_back(case)):
        yield from _on_pytorch(case, sizes)


def _sizes(case: Case, engine: str, *names: str) -> dict[str, int] | None:
    """Return how many parts each option makes; 1 where the engine does not read it, None if one is unknown."""
    sizes = {}
    for name in names:
        era = case.resolved.options.get(name)
        reads = era is not None and {engine, "server"} & set(era.read_by)
        size = checks.number(case, name) if name in case.settings and reads else 1
        if size is None or not 1 <= size <= MOST:
            return None
        sizes[name] = size
    return sizes


def _first(sizes: Mapping[str, int], *names: str) -> str:
    """Return the first of these options that is above 1."""
    return next((name for name in names if sizes[name] > 1), "tp")


def _given(sizes: Mapping[str, int]) -> str:
    """Return the numbers in words, such as ``tp 1, ep 8``."""
    return ", ".join(f"{name} {size}" for name, size in sizes.items() if size > 1 or name == "tp")


# --- TurboMind


def _on_turbomind(case: Case, sizes: Mapping[str, int]) -> Diagnostics:
    """Report numbers for which there is no layout, or none on the GPUs that the server sees."""
    hosts, visible, at = _sizes(case, checks.TURBOMIND, "nnodes"), case.visible_gpus, _first(sizes, "cp", "ep", "dp")
    place, source, given = checks.place(case, at), (f"flags/{at}",), _given(sizes)
    if case.resolved.version < DERIVED_SINCE:
        if sizes["tp"] % sizes["cp"]:
            yield Diagnostic(place, f"TurboMind has no layout for {given}: cp must divide tp.", STOPS, sources=source)
        return
    layouts, seen = _layouts(**sizes), visible * hosts["nnodes"] if visible and hosts else 0
    if not layouts:
        yield Diagnostic(place, f"TurboMind has no layout for {given}.", STOPS, sources=source)
    elif sizes["tp"] <= seen < min(layouts):
        message = f"{given} needs at least {min(layouts)} GPUs, but the server sees {seen}."
        yield Diagnostic(place, message, STOPS, sources=source)


def _layouts(tp: int, dp: int, ep: int, cp: int) -> list[int]:
    """Return the numbers of GPUs for which there is a layout (0.18.0 turbomind/parallel_config.py:45-79)."""
    most = dp * tp * gcd(cp, ep)
    counts = (dp * cp * attention for attention in range(1, tp + 1) if tp % attention == 0)
    return [count for count in counts if most % count == 0 and _holds_experts(count, tp, dp, ep, cp)]


def _holds_experts(count: int, tp: int, dp: int, ep: int, cp: int) -> bool:
    """Return whether this many GPUs hold replicas of the experts, each in ep parts that tensors split further."""
    for replicas in (number for number in range(1, dp + 1) if dp % number == 0):
        split, rest = divmod(count, replicas * ep)
        if not rest and split and tp % split == 0 and tp in (split, count // (dp * cp)):
            return True
    return False


def _over_hosts(case: Case) -> Diagnostics:
    """Report several hosts that cannot find each other, or that would share experts too early."""
    setting, hosts = case.settings.get("nnodes"), _sizes(case, checks.TURBOMIND, "nnodes", "ep")
    era = case.resolved.options.get("nnodes")
    if setting is None or hosts is None or hosts["nnodes"] == 1 or era is None or checks.TURBOMIND not in era.read_by:
        return
    place, source = checks.at(setting), ("flags/nnodes",)
    if "dist-init-addr" not in case.settings:
        address = checks.spelled(case, "dist-init-addr")
        message = f"{setting.option.name} {setting.text} needs {address}: host and port of the first host."
        yield Diagnostic(place, message, STOPS, sources=("flags/dist-init-addr",))
    elif hosts["ep"] > 1 and case.resolved.version < EXPERTS_OVER_HOSTS:
        message = f"TurboMind of {checks.release(case)} spreads experts over the GPUs of one host only."
        yield Diagnostic(place, message, STOPS, sources=source)


# --- PyTorch


def _on_pytorch(case: Case, sizes: Mapping[str, int]) -> Diagnostics:
    """Report numbers that the engine, or what starts its replicas, refuses."""
    tp, dp, ep = sizes["tp"], sizes["dp"], sizes["ep"]
    era = case.resolved.options.get("dp")
    at, given = _first(sizes, "dp", "ep"), _given(sizes)
    place, source = checks.place(case, at), (f"flags/{at}",)
    if dp > 1 and tp == ep == 1:
        if case.launch.starts == "api_server" and era is not None and "server" in era.read_by:
            message = f"The PyTorch engine starts replicas only with tp or ep above 1, not for {given}."
            yield Diagnostic(place, message, STOPS, sources=source)
        return
    if case.resolved.version < SPLIT_SINCE:
        return
    processes = ep if ep > 1 else tp
    attention = processes // dp
    if processes % dp:
        message = f"The PyTorch engine has no layout for {given}: dp must divide its {processes} processes."
        yield Diagnostic(place, message, STOPS, sources=source)
    elif processes % tp or (tp > 1 and tp % attention):
        message = (
            f"The PyTorch engine has no layout for {given}:"
            f" tp must divide {processes} and be a multiple of {attention}."
        )
        yield Diagnostic(place, message, STOPS, sources=source)
    else:
        yield from _executor(case, processes, dp)


def _executor(case: Case, processes: int, dp: int) -> Diagnostics:
    """Report an executor that does not run as many processes."""
    setting = case.settings.get("distributed-executor-backend")
    era = case.resolved.options.get("distributed-executor-backend")
    if setting is None or era is None or checks.PYTORCH not in era.read_by:
        return
    source = ("flags/distributed-executor-backend",)
    if setting.text == "uni" and processes > 1:
        message = f"The executor uni is one process, but this layout needs {processes}."
        yield Diagnostic(checks.at(setting), message, STOPS, sources=source)
    elif setting.text == "mp" and dp > 1:
        message = f"The executor mp has no replicas, but dp is {dp}; use ray."
        yield Diagnostic(checks.at(setting), message, STOPS, sources=source)
