"""``recommend plan``: size a fleet for a rate of arrivals."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from recommender.commands.output import write_folder
from recommender.commands.short_help import ShortCommand
from recommender.common.errors import RequestError
from recommender.common.exit_codes import CLEAN, NEGATIVE
from recommender.fleet import FORMS
from recommender.options import QUESTION, files, question_options
from recommender.request.command_line import positive_float, positive_int
from recommender.request.request import MAX_COUNT

if TYPE_CHECKING:
    from recommender.fleet.aim import Aim
    from recommender.fleet.sizing import FleetPlan
    from recommender.knowledge.store import Store
    from recommender.request.request import Request

TAKEN = (
    *("model", "workload", "trace", "rps", "burstiness", "image", "text_only", "prompt_tokens", "output_tokens"),
    *("prefix_tokens", "turns", "max_context", "ttft", "tpot", "latency", "p99", "backend", "kv", "lmdeploy"),
    *("revision", "calibrate"),
)
"""Options of the main job with the same meaning here."""
FIXED = {"trace": "--trace", "prompt_tokens": "--input-tokens", "output_tokens": "--output-tokens",
         "prefix_tokens": "--prefix-tokens", "turns": "--turns", "text_only": "--text-only"}  # fmt: skip
"""Options that mean nothing for a mix of workloads."""

FORMAT_HELP = "Write the plan, or the best fleet's files for compose, systemd or k8s. [text]"
EXAMPLES = """\b
Examples:
  recommend plan --rps 200 --p99 800 --gpu L40S:4 --gpu H100:8
  recommend plan --rps 40 --gpu L4 --gpu A10 --price L4=0.7 --price A10=0.9
  recommend plan --rps 5 --p99 6000 --gpu A100-80G:8 --model internvl3-38b
  recommend plan --rps 200 --p99 800 --gpu H100:8 --peak 2 --spare 2 --json
  recommend plan --rps 50 --workload chat:0.7,rag:0.3 --ttft p99:500ms \\
      --gpu H100:8 --model llama-3.1-8b-instruct
  recommend plan --rps 200 --p99 800 --gpu H100:8 --format k8s -o fleet

\b
--workload chat:0.7,rag:0.3 mixes workloads by share of requests. --trace
keeps each request's own input, output and images, so a file can hold any mix.
--gpu L40S:4 is a host with four L40S; --gpu auto detects this machine's GPUs.
A server takes one GPU, or several if one cannot hold the model; --tp N sets
the numbers to try. Arrivals are Poisson, at --rps on average. The fleet
sustains --peak times that with --spare hosts down. No server is busier than
80 %, or 95 % with a goal for times (90 % of fewer than four servers).

\b
Exit codes: 0 done; 1 no kind of host meets the goal, and the plan shows what
would; 2 bad command line; 3 this machine lacks something (a GPU for
--gpu auto, a writable folder).
"""


@click.command("plan", cls=ShortCommand, epilog=EXAMPLES)
@partial(question_options, names=TAKEN)
@QUESTION["gpu"].but("--gpu", "gpus", callback=None, help="A host's GPU and their number, or auto; repeatable.")
@click.option("--tp", metavar="N", multiple=True, help="GPUs per server. [1, 2, 4 and 8, up to the host's]")
@click.option("--peak", metavar="X", default="1.5", help="Peak load as a multiple of --rps. [1.5]")
@click.option("--burst", metavar="N", default="1", help="Mean number of requests that arrive together. [1]")
@click.option("--spare", metavar="N", default="1", help="Hosts that may be down at the peak. [1]")
@click.option(
    "--confidence",
    metavar="P",
    default="0.5",
    help="Chance that the servers are as fast as planned; 0.9 plans for slower ones. [0.5]",
)
@click.option("--cpus", metavar="N", help="CPU cores per host. [16 per GPU]")
@click.option("--network", metavar="GBPS", default="10", help="Network bandwidth per host, in Gbit/s. [10]")
@click.option("--price", "prices", metavar="GPU=PRICE", multiple=True, help="Price per GPU and hour, in any currency.")
@click.option("--format", "form", type=click.Choice(["text", "json", *FORMS]), help=FORMAT_HELP)
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    default="",
    shell_complete=files,
    help="Folder for --format compose, systemd or k8s.",
)
@click.option("--force", is_flag=True, help="With -o: overwrite files that were edited by hand.")
def command(**options: Any) -> None:
    """Size a fleet: GPUs, hosts and servers for a request rate."""
    from recommender.common.terminal import show, show_json, wrap, write
    from recommender.fleet import report
    from recommender.fleet.json_output import json_form
    from recommender.fleet.layout import lay_out
    from recommender.render.next_steps import fleet_steps

    if options["as_json"] and options["form"] not in (None, "json"):
        raise RequestError(f"--json and --format {options['form']} exclude each other; remove one")
    form = options["form"] or ("json" if options["as_json"] else "text")
    if options["output"] and form not in FORMS:
        raise RequestError(f"-o {options['output']}: add what to write there: --format compose, systemd or k8s")
    if options["force"] and not options["output"]:
        raise RequestError("--force overwrites files; name their folder with -o, or leave --force out")
    plan = _plan(options)
    if plan.fleets and form in FORMS:
        layout = lay_out(plan.fleets[0], plan)
        write_folder(layout, form, options["output"], force=options["force"])
        steps = fleet_steps(layout.recommendation, options["output"], form)
        write("\n".join([*wrap(layout.describe()), "", *steps]) + "\n", sys.stderr)
    elif form == "json":
        show_json(json_form(plan))
    else:
        show(report.lines(plan))
    sys.exit(CLEAN if plan.fleets else NEGATIVE)


def _plan(options: dict[str, Any]) -> FleetPlan:
    """Answer a command line. Raises RequestError, UnknownName or NoGpu."""
    from recommender.fleet.plan import plan_fleet, read_hosts
    from recommender.knowledge.load import load

    store = load()
    hosts = read_hosts(options["gpus"], store)
    request = _request(options, next(iter(hosts))[0])
    sizes = [positive_int("--tp", text, MAX_COUNT) for text in options["tp"]]
    cpus = positive_int("--cpus", options["cpus"], 4096) if options["cpus"] else 0
    prices = _prices(options["prices"], {gpu for gpu, _ in hosts}, store)
    return plan_fleet(request, hosts, _aim(options, request), store, sizes, cpus, prices)


def _request(options: dict[str, Any], gpu: str) -> Request:
    from recommender.options import build_request

    if not (options["rps"] or options["trace"]):
        raise RequestError("--rps is needed: mean requests/s, such as --rps 200")
    mixed = ":" in (options["workload"] or "")
    request = build_request({**options, "gpu": gpu, "cpus": None} | ({"workload": None} if mixed else {}), fleet=True)
    if mixed:
        request = _mix(options, request)
    if not request.rps:
        raise RequestError("--rps is needed: the trace has no arrival times; add mean requests/s, such as --rps 200")
    return request


def _mix(options: dict[str, Any], request: Request) -> Request:
    """Return the request with those of several workloads."""
    from recommender.knowledge.load import load
    from recommender.request.mix import mix_workloads

    if given := next((option for name, option in FIXED.items() if options[name]), ""):
        raise RequestError(f"{given}: a mix of workloads has its own; remove {given}, or name one workload")
    return mix_workloads(request, options["workload"], load().workloads)


def _aim(options: dict[str, Any], request: Request) -> Aim:
    from recommender.fleet.aim import LEAST_CONFIDENCE, MOST_CONFIDENCE, MOST_GBPS, MOST_SPARE, MOST_TIMES, Aim

    peak, burst = (positive_float(f"--{name}", options[name], MOST_TIMES, 1) for name in ("peak", "burst"))
    spare = positive_int("--spare", options["spare"], MOST_SPARE, low=0)
    network = positive_float("--network", options["network"], MOST_GBPS)
    confidence = positive_float("--confidence", options["confidence"], MOST_CONFIDENCE, LEAST_CONFIDENCE)
    return Aim.of(request, peak, burst, spare, network, confidence)


def _prices(texts: Sequence[str], gpus: Collection[str], store: Store) -> dict[str, float]:
    """Return prices per GPU and hour, by GPU."""
    from recommender.common.text import shorten
    from recommender.knowledge.names import resolve_gpu

    prices: dict[str, float] = {}
    for text in texts:
        name, equals, amount = text.rpartition("=")
        if not equals or not name.strip() or ":" in name:
            raise RequestError(f"--price {shorten(text)}: write GPU=PRICE for one GPU, such as --price L40S=1.2")
        gpu = resolve_gpu(store, name, "--price")[0].id
        price = positive_float(f"--price {shorten(name)[1:-1]}", amount, 1_000_000)
        if gpu not in gpus:
            raise RequestError(
                f"--price {shorten(text)}: {gpu} is not among the --gpu hosts; add it there or leave this out"
            )
        if prices.setdefault(gpu, price) != price:
            raise RequestError(f"--price {shorten(text)}: {gpu} has another price already; leave one out")
    return prices
