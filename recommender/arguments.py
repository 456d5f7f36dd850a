"""The options that ask a question, as the main job and the smoke run take them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recommender.request import RequestError

if TYPE_CHECKING:
    from recommender.pipeline import Recommendation
    from recommender.request import Request

Command = TypeVar("Command", bound=Callable[..., Any])


def _one(_context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The only value of an option; None without one. Raises RequestError for several, of which one would be lost."""
    if len(given) > 1:
        raise RequestError(
            f"{option.opts[0]} is given {len(given)} times ({', '.join(given)[:80]}): a server's cards are alike; "
            "name one kind, or compare several with recommend plan"
        )
    return given[0] if given else None


QUESTION = {
    "gpu": click.option(
        "--gpu",
        metavar="NAME[:COUNT]",
        multiple=True,
        callback=_one,
        help="The card and how many of it, or auto for this machine's.",
    ),
    "model": click.option("--model", metavar="ID|FOLDER", help="A known checkpoint or a local one. [internvl3-8b-awq]"),
    "load": click.option("--load", metavar="NAME|N", help="single, low, medium, high, or requests in flight. [single]"),
    "rps": click.option("--rps", metavar="R", help="Requests a second that must be reached."),
    "image": click.option("--image", metavar="WxH[xN]", help="Images of one request. [448x448, one]"),
    "text_only": click.option("--text-only", is_flag=True, help="Requests carry no image."),
    "prompt_tokens": click.option("--prompt-tokens", metavar="N", help="Tokens of the request's text."),
    "output_tokens": click.option("--output-tokens", metavar="N", help="Tokens of the answer."),
    "goal": click.option("--goal", metavar="GOAL", help="latency, throughput, memory or balanced. [balanced]"),
    "p99": click.option("--p99", metavar="MS", help="99 % of the answers within so many ms."),
    "ttft": click.option("--ttft", metavar="MS", help="The first token within so many ms."),
    "vram": click.option("--vram", metavar="GIB", help="What is free for this server on a shared card."),
    "cpus": click.option("--cpus", metavar="N", help="CPU cores of the host. [16]"),
    "kv": click.option("--kv", metavar="TYPE", help="KV cache precision: auto, fp16, int8 or int4. [auto]"),
    "lmdeploy": click.option("--lmdeploy", metavar="VERSION", help="The LMDeploy release to write for. [0.18.0]"),
    "calibrate": click.option(
        "--calibrate",
        metavar="FILE",
        multiple=True,
        help="Fit the predicted speed to your own runs (smoke --save-evidence).",
    ),
}
FOLLOW = (
    click.option(
        "--follow",
        metavar="ADVISER",
        help="Render an adviser's configuration and what speaks against it; defaults: LMDeploy's own.",
    ),
    click.option(
        "--with",
        "added",
        metavar="OPTION=VALUE",
        multiple=True,
        help="With --follow: an option on top, such as trust-remote-code.",
    ),
    click.option("--without", "left_out", metavar="OPTION", multiple=True, help="With --follow: an option to drop."),
)


def question_options(command: Command, names: Collection[str] = ()) -> Command:
    """Gives a command the options that ask a question, or those of these names."""
    for name, option in reversed(QUESTION.items()):
        if name in names or not names:
            command = option(command)
    return command


def request_options(command: Command) -> Command:
    """Gives a command the options that ask a question, and those that follow somebody's answer."""
    for option in reversed(FOLLOW):
        command = option(command)
    return question_options(command)


def asked(options: dict[str, Any]) -> Request:
    """The request of the command line. Raises RequestError, UnknownName or NoGpu."""
    from recommender import request
    from recommender.store import load

    given = {name: value for name, value in options.items() if isinstance(value, str)}
    if given.get("gpu", "").casefold() == "auto":
        from recommender.detect import detect

        name, count = detect()
        given["gpu"] = f"{name}:{count}"
    made = request.read(given, text_only=options["text_only"], loads=load().loads)
    if not options.get("calibrate"):
        return made
    from recommender.smoke.calibrate import calibrated

    return calibrated(made, options["calibrate"], load())


def answer(options: dict[str, Any]) -> Recommendation:
    """The recommendation, or the configuration of whom the command line follows."""
    from recommender import pipeline

    request, follow = asked(options), options["follow"]
    if follow is None:
        if options["added"] or options["left_out"]:
            name = "--with" if options["added"] else "--without"
            raise RequestError(
                f"{name} changes what --follow gives; a script of your own takes its values from variables, see its top"
            )
        return pipeline.recommend(request)
    added = dict(each.partition("=")[::2] for each in options["added"])
    return pipeline.recommend_adviser(request, follow, added, options["left_out"])
