"""Options that several commands take: those of a request, and of a run that starts servers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recommender.common.errors import RequestError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from recommender.choose.recommend import Recommendation
    from recommender.request.request import Request

Command = TypeVar("Command", bound=Callable[..., Any])


def _single(_context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> str | None:
    """Return the only value of an option; None without one. Raises RequestError for several."""
    if len(values) > 1:
        raise RequestError(
            f"{option.opts[0]} is given {len(values)} times ({', '.join(values)[:80]}): all GPUs of a server "
            "must be the same model; name one, or compare several with recommend plan"
        )
    return values[0] if values else None


Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def names(kind: str, *more: str) -> Complete:
    """Return the completion by the names of a kind of record, read from the compiled index, and ``more``."""

    def complete(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from recommender.knowledge.load import load

        if kind == "models" and incomplete.startswith((".", "/", "~")):
            return [CompletionItem(incomplete, type="dir")]
        completions = set(more)
        for name, record in getattr(load(), kind).items() if kind else ():
            completions |= {name, *getattr(record, "aliases", ()), getattr(record, "hub", name)}
        fitting = (name for name in sorted(completions) if name.casefold().startswith(incomplete.casefold()))
        return [CompletionItem(name) for name in fitting if " " not in name]  # bash would take each word for one

    return complete


def files(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete by the names of files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


class RequestOption:
    """An option of a request, as a decorator of every command that takes it."""

    def __init__(self, *names: str, **settings: Any) -> None:
        """Take what ``click.option`` takes."""
        self.names, self.settings = names, settings

    def __call__(self, command: Command) -> Command:
        """Add the option to a command."""
        return click.option(*self.names, **self.settings)(command)

    def but(self, *names: str, **settings: Any) -> RequestOption:
        """Return the option with other settings, such as the help of one command; it is completed as before."""
        return RequestOption(*(names or self.names), **self.settings | settings)


QUESTION = {
    "gpu": RequestOption(
        "--gpu",
        metavar="NAME[:COUNT]",
        multiple=True,
        callback=_single,
        shell_complete=names("gpus", "auto"),
        help="GPU and count, or auto for this machine's.",
    ),
    "model": RequestOption(
        "--model",
        metavar="ID|FOLDER",
        help="Model ID or checkpoint folder. [internvl3-8b-awq]",
        shell_complete=names("models"),
    ),
    "revision": RequestOption("--revision", metavar="COMMIT", help="Commit, tag or branch of the model's repository."),
    "workload": RequestOption(
        "--workload",
        metavar="NAME",
        shell_complete=names("workloads"),
        help="Kind of requests, such as chat, rag, code or text. One of chat, rag, agent, batch, code, text, caption "
        "and vision-json; other options override it.",
    ),
    "trace": RequestOption(
        "--trace",
        metavar="FILE",
        shell_complete=files,
        help="Learn the load from a file of requests: a trace, an access log or benchmark results.",
    ),
    "load": RequestOption(
        "--concurrency",
        "--load",
        "load",
        metavar="NAME|N",
        shell_complete=names("loads"),
        help="Concurrent requests, or low, medium or high. [single]",
    ),
    "rps": RequestOption("--rps", metavar="R", help="Arrival rate to serve, in requests per second, or as 30/min."),
    "burstiness": RequestOption(
        "--burstiness",
        metavar="CV",
        help="Coefficient of variation of the gaps between arrivals; above 1 is bursty. [1: Poisson]",
    ),
    "image": RequestOption(
        "--image",
        "--images",
        "image",
        metavar="WxH[xN]",
        help="Size and number of a request's images, or shares of sizes, as 448x448:0.7,1280x720:0.3. [448x448]",
    ),
    "text_only": RequestOption("--text-only", is_flag=True, help="Requests have no images."),
    "prompt_tokens": RequestOption(
        "--input-tokens",
        "--isl",
        "--prompt-tokens",
        "prompt_tokens",
        metavar="N|P50:P99",
        help="Tokens of a prompt's text, or their median and p99.",
    ),
    "output_tokens": RequestOption(
        "--output-tokens",
        "--osl",
        "output_tokens",
        metavar="N|P50:P99",
        help="Tokens of an answer, or their median and p99.",
    ),
    "prefix_tokens": RequestOption(
        "--prefix-tokens", metavar="N", help="Tokens that every prompt begins with; part of --input-tokens."
    ),
    "turns": RequestOption(
        "--turns", metavar="N", help="Requests per conversation; each prompt repeats the conversation so far. [1]"
    ),
    "max_context": RequestOption(
        "--max-context", metavar="N", help="Most tokens of prompt and answer together; longer prompts are cut."
    ),
    "prompt": RequestOption("--prompt", metavar="TEXT", help="Prompt that the client and the smoke run send."),
    "schema": RequestOption(
        "--schema",
        metavar="FILE",
        shell_complete=files,
        help="JSON schema of the answer, for the client and the smoke run.",
    ),
    "goal": RequestOption(
        "--goal",
        metavar="GOAL",
        help="latency, throughput, memory or balanced. [balanced]",
        shell_complete=names("", "latency", "throughput", "memory", "balanced"),
    ),
    "ttft": RequestOption(
        "--ttft", metavar="[Q:]TIME", help="Goal for the time to first token: 500ms for the mean, p99:2s for the p99."
    ),
    "tpot": RequestOption(
        "--tpot", metavar="[Q:]TIME", help="Goal for the time per output token after the first, as --ttft."
    ),
    "latency": RequestOption("--latency", metavar="[Q:]TIME", help="Goal for the time of a whole request, as --ttft."),
    "p99": RequestOption("--p99", metavar="TIME", help="Time within which 99 % of requests must finish."),
    "headroom": RequestOption(
        "--headroom", metavar="F|%", help="Plan for more load than given: 1.2 or 20% adds a fifth. [1]"
    ),
    "vram": RequestOption(
        "--vram", metavar="SIZE", help="GPU memory for this server on a shared GPU, as 20, 20GB or 20GiB."
    ),
    "cpus": RequestOption("--cpus", metavar="N", help="CPU cores of the host. [16]"),
    "kv": RequestOption(
        "--kv",
        metavar="TYPE",
        help="KV cache precision: auto, fp16, int8 or int4. [auto]",
        shell_complete=names("", "auto", "fp16", "int8", "int4"),
    ),
    "lmdeploy": RequestOption(
        "--lmdeploy", metavar="VERSION", help="Target LMDeploy release. [0.18.0]", shell_complete=names("releases")
    ),
    "backend": RequestOption(
        "--backend",
        metavar="ENGINE",
        help="auto, turbomind or pytorch; auto takes TurboMind where it serves the model. [auto]",
        shell_complete=names("", "auto", "turbomind", "pytorch"),
    ),
    "calibrate": RequestOption(
        "--calibrate",
        metavar="FILE",
        multiple=True,
        shell_complete=files,
        help="Calibrate the prediction with your own runs (smoke --save-evidence).",
    ),
}
GROUPS = {
    "Serve": "gpu model revision backend vram cpus kv lmdeploy",
    "Load": "workload trace load rps burstiness image text_only prompt_tokens output_tokens prefix_tokens turns "
    "max_context headroom prompt schema",
    "Goals": "goal ttft tpot latency p99",
    "Advice": "follow added left_out calibrate",
}
"""Options by what they are about, for the help."""
FOLLOW = (
    click.option(
        "--follow",
        metavar="ADVISER",
        shell_complete=names("advisers", "defaults"),
        help="Render an adviser's configuration and its problems; defaults: LMDeploy's own.",
    ),
    click.option(
        "--with",
        "added",
        metavar="OPTION=VALUE",
        multiple=True,
        shell_complete=names("flags"),
        help="With --follow: add an option, such as trust-remote-code.",
    ),
    click.option(
        "--without",
        "left_out",
        metavar="OPTION",
        multiple=True,
        shell_complete=names("flags"),
        help="With --follow: drop an option.",
    ),
)
# Options of the commands that start servers.
PATH = click.Path(path_type=Path)
WEIGHTS = RequestOption(
    "--weights",
    metavar="random",
    type=click.Choice(["random"]),
    help="Use random weights of the model's shapes; no download.",
)
WEIGHTS_DIR = RequestOption(
    "--weights-dir", metavar="DIR", type=PATH, help="Folder for random checkpoints. [the user's cache]"
)
SEED = RequestOption(
    "--seed", metavar="N", default=0, type=click.IntRange(0, 2**31), help="Seed of the random weights. [0]"
)
PATIENCE = RequestOption(
    "--patience",
    metavar="S",
    default=120.0,
    type=click.FloatRange(1, 3600),
    help="Seconds to wait for a log line or an answer. [120]",
)
TIME_LIMIT = RequestOption(
    "--time-limit",
    metavar="S",
    default=1800.0,
    type=click.FloatRange(1, 86400),
    help="Seconds the whole run may take. [1800]",
)


CHOICES = ("goal", "kv")
"""Options that steer our choice; without meaning for a given configuration."""


def question_options(command: Command, names: Collection[str] = ()) -> Command:
    """Add to a command the options of a request, or those of these names."""
    for name, option in reversed(QUESTION.items()):
        if name in names or not names:
            command = option(command)
    return command


def request_options(command: Command) -> Command:
    """Add to a command the options of a request, and those that follow an adviser."""
    for option in reversed(FOLLOW):
        command = option(command)
    return question_options(command)


def build_request(options: dict[str, Any], *, fleet: bool = False) -> Request:
    """Return the request of the command line, of one server or a ``fleet``. Raises RequestError or NoGpu."""
    from recommender.knowledge.load import load
    from recommender.request import command_line

    given = {name: value for name, value in options.items() if isinstance(value, str)}
    arriving = {"rps", "trace"} & given.keys() or any("rps" in phase for phase in options.get("phases", ()))
    if "burstiness" in given and not arriving:
        raise RequestError("--burstiness: only arrivals have gaps between them; add --rps, or leave it out")
    if {"burstiness", "rps", "load"} <= given.keys():
        raise RequestError("--burstiness: with --concurrency, --rps is a goal and sets no arrivals; remove one")
    store = load()
    built = command_line.read(given, text_only=options["text_only"], loads=store.loads, workloads=store.workloads)
    if path := given.get("trace"):
        from recommender.request.trace_load import learn_load

        built, summary = learn_load(built, Path(path), fleet=fleet)
        for line in summary:
            click.echo(f"trace: {line}", err=True)
    if not options.get("calibrate"):
        return built
    from recommender.calibration.calibrate import calibrate

    return calibrate(built, options["calibrate"], store)


def build_recommendation(options: dict[str, Any]) -> Recommendation:
    """Return the recommendation, or the configuration of the adviser that the command line follows."""
    from recommender.choose import recommend

    request, follow = build_request(options), options["follow"]
    if follow and (steering := [name for name in CHOICES if options[name]]):
        raise RequestError(f"--{steering[0]} steers our own choice, but --follow uses an adviser's; remove one")
    if follow is None:
        if options["added"] or options["left_out"]:
            name = "--with" if options["added"] else "--without"
            raise RequestError(f"{name} needs --follow; to change a generated script, set the variables at its top")
        return recommend.recommend(request)
    added = dict(option.partition("=")[::2] for option in options["added"])
    return recommend.recommend_adviser(request, follow, added, options["left_out"])
