"""Plan a fleet: size every kind of host that was named, and put those that hold the load first."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from recommender.common.errors import RequestError
from recommender.fleet.aim import Aim
from recommender.fleet.alternatives import SIZES
from recommender.fleet.report import name_of
from recommender.fleet.sizing import FleetPlan, HostKind, SizedFleet, Unfit, best_first, size_fleet
from recommender.knowledge.names import PART, resolve_gpu
from recommender.knowledge.store import Store
from recommender.render.summary import given_up, notes_of_request
from recommender.request.command_line import parse_gpu
from recommender.request.request import Request
from recommender.request.resolved_request import check_context, resolve_with_checkpoint

CORES_A_CARD = 16
NONE: Mapping[str, float] = MappingProxyType({})


def plan_fleet(
    request: Request,
    hosts: Mapping[tuple[str, int], str],
    aim: Aim,
    store: Store,
    sizes: Iterable[int] = (),
    cpus: int = 0,
    prices: Mapping[str, float] = NONE,
) -> FleetPlan:
    """Size a fleet of each host (GPU id, number; see ``read_hosts``) and each number of GPUs a server takes.

    ``sizes`` empty: 1, 2, 4 and 8, as far as they divide a host. ``cpus`` 0: 16 a GPU. ``prices`` are per GPU and hour,
    by GPU id. Raises RequestError, UnknownName or CheckpointError.
    """
    resolved = resolve_with_checkpoint(request, store)
    check_context(resolved)
    kinds, unfit = _list_kinds(hosts, sorted(set(sizes)), cpus)
    outcomes = [size_fleet(request, kind, aim, store) for kind in kinds]
    fleets = best_first((fleet for fleet in outcomes if isinstance(fleet, SizedFleet)), prices)
    unfit += [misfit for misfit in outcomes if isinstance(misfit, Unfit)]
    notes = dict.fromkeys(note for name in hosts.values() for note in resolve_gpu(store, name)[1])
    notes |= dict.fromkeys(notes_of_request(resolved))
    return FleetPlan(resolved, aim, prices, tuple(fleets), tuple(unfit), (*notes, *_warnings(fleets)))


def _warnings(fleets: Collection[SizedFleet]) -> Iterator[str]:
    """Yield what speaks against the fleets' servers, with the kinds of hosts if that is not all."""
    kinds: dict[str, list[HostKind]] = {}
    for fleet in fleets:
        lost = given_up(fleet.config)
        costs = [f"accuracy: {lost} may change answers"] if lost else []
        for text in (*(f"warning: {text}" for text in fleet.warnings), *costs):
            kinds.setdefault(text, []).append(fleet.kind)
    for text, those in kinds.items():
        yield text if len(those) == len(fleets) else f"{', '.join(map(name_of, those))}: {text}"


def read_hosts(texts: Sequence[str], store: Store) -> dict[tuple[str, int], str]:
    """Return each host, such as ``L40S:4`` or ``auto``, as (GPU id, number), with the name it was given by.

    Raises RequestError for none, UnknownName, and NoGpu for ``auto`` on a machine without one.
    """
    if not texts:
        raise RequestError("--gpu is missing; name a host, such as --gpu L40S:4 (recommend plan --help shows examples)")
    hosts = {}
    for text in texts:
        name, count = parse_gpu(text)
        hosts[resolve_gpu(store, name)[0].id, count] = name
    return hosts


def _list_kinds(
    hosts: Iterable[tuple[str, int]], sizes: Sequence[int], cpus: int
) -> tuple[list[HostKind], list[Unfit]]:
    """Return each host with each size of server that divides it, and those of ``sizes`` that do not."""
    for tp in sizes:
        if tp not in SIZES:
            raise RequestError(f"--tp {tp}: LMDeploy splits a model over 1, 2, 4 or 8 GPUs; use one of these")
    kinds: list[HostKind] = []
    unfit: list[Unfit] = []
    for gpu, count in hosts:
        for tp in sizes or SIZES:
            kind = HostKind(gpu, count, tp, cpus or CORES_A_CARD * count)
            if count % tp == 0 and (tp == 1 or PART not in gpu):
                kinds.append(kind)
            elif sizes:
                unfit.append(Unfit(kind, *_misfit(kind, PART in gpu)))
    return kinds, unfit


def _misfit(kind: HostKind, part: bool) -> tuple[str, str]:
    """Return why servers of this size do not divide a host, and what would do."""
    if part:
        return "a process sees only one slice of a GPU", "--tp 1"
    if kind.cards < kind.tp:
        return f"a server of {kind.tp} GPUs does not fit a host of {kind.cards}", f"--gpu {kind.gpu}:{kind.tp}"
    whole = kind.cards // kind.tp * kind.tp
    return (
        f"a host of {kind.cards} GPUs cannot be divided into servers of {kind.tp}",
        f"--gpu {kind.gpu}:{whole} or {kind.gpu}:{whole + kind.tp}",
    )
