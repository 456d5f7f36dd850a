"""``recommend plan``: how many cards of which kind hold a rate of arrivals."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from recommender.arguments import question_options
from recommender.fleet import FORMS
from recommender.request import MAX_COUNT, RequestError, parse_gpu, positive_float, positive_int

if TYPE_CHECKING:
    from recommender.fleet.sizing import Aim, Kind
    from recommender.request import Request
    from recommender.store import Store

NOTHING_FITS = 1
CORES_A_CARD = 16
SIZES = (1, 2, 4, 8)
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
--gpu L40S:4 is a host with four L40S. A server takes one card, or several
where one does not hold the model; --tp N says how many to look at. Arrivals are
Poisson, at --rps on average; the fleet holds --peak times that with --spare
hosts down. Without --p99 no server is busier than 80 %.

\b
Exit codes: 0 done; 1 no kind of card holds it; 2 the command line is wrong.
"""


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@partial(question_options, names=TAKEN)
@click.option("--gpu", "gpus", metavar="NAME[:COUNT]", multiple=True, help="A host: its card and how many. Several.")
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
    from recommender.fleet.sizing import Sized, layout, sized
    from recommender.store import load
    from recommender.terminal import show, show_json

    store = load()
    request = _request(options)
    aim = _aim(options, request)
    kinds, prices = _kinds(options, store), _prices(options["prices"], store)
    found = [sized(request, kind, aim, store) for kind in kinds]
    fleets = told.best_first([each for each in found if isinstance(each, Sized)], aim, prices)
    unfit = [each for each in found if not isinstance(each, Sized)]
    form = "json" if options["as_json"] else options["form"]
    if fleets and form in FORMS:
        folder(layout(fleets[0], store), form, options["output"])
    elif form == "json":
        show_json(told.as_json(fleets, unfit, aim, prices))
    else:
        show(told.lines(fleets, unfit, aim, prices))
    sys.exit(0 if fleets else NOTHING_FITS)


def _request(options: dict[str, Any]) -> Request:
    from recommender.arguments import asked

    if not options["gpus"]:
        raise RequestError("--gpu is needed, such as --gpu L40S:4; recommend plan --help shows examples")
    if not options["rps"]:
        raise RequestError("--rps is needed: the requests a second, on average, such as --rps 200")
    return asked({**options, "gpu": parse_gpu(options["gpus"][0])[0], "cpus": None})


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
        spare=0 if options["spare"].strip() == "0" else positive_int("--spare", options["spare"], 1000),
        network_gbps=positive_float("--network", options["network"], 10_000),
    )


def _kinds(options: dict[str, Any], store: Store) -> list[Kind]:
    """Each kind of host with each size of server that it can hold."""
    from recommender.facts import resolve_gpu
    from recommender.fleet.sizing import Kind

    sizes = sorted({positive_int("--tp", each, MAX_COUNT) for each in options["tp"]})
    for tp in sizes:
        if tp not in SIZES:
            raise RequestError(f"--tp {tp}: LMDeploy shares a model out over 1, 2, 4 or 8 cards; use one of these")
    kinds: list[Kind] = []
    for text in dict.fromkeys(options["gpus"]):
        name, count = parse_gpu(text)
        gpu, _ = resolve_gpu(store, name)
        cpus = positive_int("--cpus", options["cpus"], 4096) if options["cpus"] else CORES_A_CARD * count
        held = [tp for tp in sizes or SIZES if tp <= count and count % tp == 0]
        if not held:
            raise RequestError(f"--gpu {text}: a host of {count} cannot be shared out by --tp {_or(sizes)}")
        kinds += [Kind(gpu.id, count, tp, cpus) for tp in held]
    return kinds


def _or(sizes: Sequence[int]) -> str:
    return " or ".join(map(str, sizes))


def _prices(given: Sequence[str], store: Store) -> dict[str, float]:
    from recommender.facts import resolve_gpu

    found = {}
    for text in given:
        name, equals, amount = text.partition("=")
        if not equals:
            raise RequestError(f"--price {text!r}: write GPU=PRICE, such as --price L40S=1.2")
        found[resolve_gpu(store, name)[0].id] = positive_float(f"--price {name}", amount, 1_000_000)
    return found
