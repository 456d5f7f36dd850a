"""``recommend plan``: how many cards of which kind hold a rate of arrivals."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from recommender.arguments import question_options
from recommender.fleet import FORMS
from recommender.request import MAX_COUNT, RequestError, parse_gpu, positive_float, positive_int

if TYPE_CHECKING:
    from recommender.fleet.sizing import Aim, Kind, Plan, Unfit
    from recommender.request import Request
    from recommender.store import Store

NOTHING_FITS = 1
CORES_A_CARD = 16
MOST_SPARE = 100
TAKEN = ("model", "rps", "image", "text_only", "prompt_tokens", "output_tokens", "p99", "kv", "lmdeploy", "calibrate")
"""Options of the main job that have the same meaning here."""

FORMAT_HELP = "What to write: the plan, or the first fleet's files for compose, systemd or k8s. [text]"
EXAMPLES = """\b
Examples:
  recommend plan --rps 200 --p99 800 --gpu L40S:4 --gpu H100:8
  recommend plan --rps 40 --gpu L4 --gpu A10 --price L4=0.7 --price A10=0.9
  recommend plan --rps 5 --p99 6000 --gpu A100-80G:8 --model internvl3-38b
  recommend plan --rps 200 --p99 800 --gpu H100:8 --peak 2 --spare 2 --json
  recommend plan --rps 200 --p99 800 --gpu H100:8 --format k8s -o fleet

\b
--gpu L40S:4 is a host with four L40S; --gpu auto one like this machine. A
server takes one card, or several where one does not hold the model; --tp N
says how many to look at. Arrivals are Poisson, at --rps on average; the fleet
holds --peak times that with --spare hosts down. Without --p99 no server is
busier than 80 %.

\b
Exit codes: 0 done; 1 no kind of host holds it, and the plan says what would
do; 2 the command line is wrong; 3 this machine lacks something (a GPU for
--gpu auto, a writable folder).
"""


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@partial(question_options, names=TAKEN)
@click.option(
    "--gpu", "gpus", metavar="NAME[:COUNT]", multiple=True, help="A host: its card and how many, or auto. Several."
)
@click.option("--tp", metavar="N", multiple=True, help="Cards of a server. [1, 2, 4 and 8, as far as a host has them]")
@click.option("--peak", metavar="X", default="1.5", help="Times --rps that must be held for a while. [1.5]")
@click.option("--burst", metavar="N", default="1", help="Requests that arrive together, on average. [1]")
@click.option("--spare", metavar="N", default="1", help="Hosts that may be down at the peak. [1]")
@click.option("--cpus", metavar="N", help="CPU cores of a host. [16 a card]")
@click.option("--network", metavar="GBPS", default="10", help="Network of a host, Gbit/s. [10]")
@click.option("--price", "prices", metavar="GPU=PRICE", multiple=True, help="Of a card and hour, in any currency.")
@click.option("--format", "form", type=click.Choice(["text", "json", *FORMS]), default="text", help=FORMAT_HELP)
@click.option("--json", "as_json", is_flag=True, help="As --format json.")
@click.option("-o", "--output", metavar="DIR", default="", help="The folder for --format compose, systemd and k8s.")
def plan(**options: Any) -> None:
    """Size a fleet: which cards, how many hosts and servers hold so many requests a second."""
    from recommender.cli import folder
    from recommender.fleet import told
    from recommender.fleet.published import published
    from recommender.fleet.sizing import layout
    from recommender.terminal import show, show_json

    if options["as_json"] and options["form"] in FORMS:
        raise RequestError(f"--json: --format {options['form']} writes files, and not JSON; leave one of them out")
    form = "json" if options["as_json"] else options["form"]
    if options["output"] and form not in FORMS:
        raise RequestError(f"-o {options['output']}: say what to write there: --format compose, systemd or k8s")
    made = _plan(options)
    if made.fleets and form in FORMS:
        folder(layout(made.fleets[0], made.facts.store), form, options["output"])
    elif form == "json":
        show_json(published(made))
    else:
        show(told.lines(made))
    sys.exit(0 if made.fleets else NOTHING_FITS)


def _plan(options: dict[str, Any]) -> Plan:
    """The answer to a command line. Raises RequestError, UnknownName or NoGpu."""
    from recommender.facts import resolve_gpu
    from recommender.fleet import told
    from recommender.fleet.sizing import Plan, Sized, sized
    from recommender.pipeline import understand
    from recommender.store import load

    store = load()
    hosts = _hosts(options["gpus"], store)
    request = _request(options, next(iter(hosts))[0])
    aim = _aim(options, request)
    kinds, unfit = _kinds(options, hosts)
    prices = _prices(options["prices"], {gpu for gpu, _ in hosts}, store)
    found = [sized(request, kind, aim, store) for kind in kinds]
    fleets = told.best_first([each for each in found if isinstance(each, Sized)], aim.rps, prices)
    unfit += [each for each in found if not isinstance(each, Sized)]
    notes = dict.fromkeys(note for name in hosts.values() for note in resolve_gpu(store, name)[1])
    return Plan(understand(request, store), aim, prices, tuple(fleets), tuple(unfit), tuple(notes))


def _hosts(given: Sequence[str], store: Store) -> dict[tuple[str, int], str]:
    """Each host of ``--gpu`` as GPU and cards, with the name it was called by."""
    from recommender.facts import resolve_gpu

    if not given:
        raise RequestError("--gpu is needed, such as --gpu L40S:4; recommend plan --help shows examples")
    hosts = {}
    for text in given:
        if text.strip().casefold() == "auto":
            from recommender.detect import detect

            name, count = detect()
        else:
            name, count = parse_gpu(text)
        hosts[resolve_gpu(store, name)[0].id, count] = name
    return hosts


def _request(options: dict[str, Any], gpu: str) -> Request:
    from recommender.arguments import asked

    if not options["rps"]:
        raise RequestError("--rps is needed: the requests a second, on average, such as --rps 200")
    return asked({**options, "gpu": gpu, "cpus": None})


def _aim(options: dict[str, Any], request: Request) -> Aim:
    from recommender.fleet.sizing import Aim

    peak, burst = (positive_float(f"--{name}", options[name], 1000) for name in ("peak", "burst"))
    for name, value in (("peak", peak), ("burst", burst)):
        if value < 1:
            raise RequestError(f"--{name} {value:g}: use a number from 1 on")
    return Aim(
        rps=request.rps,
        p99_ms=request.p99_ms,
        peak=peak,
        burst=burst,
        spare=positive_int("--spare", options["spare"], MOST_SPARE, low=0),
        network_gbps=positive_float("--network", options["network"], 10_000),
    )


def _kinds(options: dict[str, Any], hosts: Mapping[tuple[str, int], str]) -> tuple[list[Kind], list[Unfit]]:
    """Each host with each size of server that it can be shared out to, and those of ``--tp`` that it cannot."""
    from recommender.fleet.remedy import SIZES
    from recommender.fleet.sizing import Kind, Unfit
    from recommender.store import PART

    sizes = sorted({positive_int("--tp", each, MAX_COUNT) for each in options["tp"]})
    for tp in sizes:
        if tp not in SIZES:
            raise RequestError(f"--tp {tp}: LMDeploy shares a model out over 1, 2, 4 or 8 cards; use one of these")
    cpus = positive_int("--cpus", options["cpus"], 4096) if options["cpus"] else 0
    kinds: list[Kind] = []
    unfit: list[Unfit] = []
    for gpu, count in hosts:
        for tp in sizes or SIZES:
            kind = Kind(gpu, count, tp, cpus or CORES_A_CARD * count)
            if count % tp == 0 and (tp == 1 or PART not in gpu):
                kinds.append(kind)
            elif sizes:
                unfit.append(Unfit(kind, *_unshared(kind, PART in gpu)))
    return kinds, unfit


def _unshared(kind: Kind, part: bool) -> tuple[str, str]:
    """Why a host cannot be shared out to servers of so many cards, and what would do."""
    if part:
        return "a process sees one slice of a card only", "--tp 1"
    if kind.cards < kind.tp:
        return f"a server of {kind.tp} cards does not fit a host of {kind.cards}", f"--gpu {kind.gpu}:{kind.tp}"
    whole = kind.cards // kind.tp * kind.tp
    return (
        f"{kind.cards} cards of a host cannot be shared out evenly to servers of {kind.tp}",
        f"--gpu {kind.gpu}:{whole} or {kind.gpu}:{whole + kind.tp}",
    )


def _prices(given: Sequence[str], gpus: Collection[str], store: Store) -> dict[str, float]:
    """Prices of a card and hour by GPU."""
    from recommender.facts import resolve_gpu
    from recommender.store import shorten

    found: dict[str, float] = {}
    for text in given:
        name, equals, amount = text.rpartition("=")
        if not equals or not name.strip() or ":" in name:
            raise RequestError(f"--price {shorten(text)}: write GPU=PRICE, of one card, such as --price L40S=1.2")
        gpu = resolve_gpu(store, name)[0].id
        price = positive_float(f"--price {shorten(name)[1:-1]}", amount, 1_000_000)
        if gpu not in gpus:
            raise RequestError(f"--price {shorten(text)}: {gpu} is not among the --gpu; add it there or leave this out")
        if found.setdefault(gpu, price) != price:
            raise RequestError(f"--price {shorten(text)}: {gpu} has another price already; leave one out")
    return found
