"""The main job: turn a request into a generated file and a report."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from recommender.commands.output import write_file, write_folder
from recommender.commands.short_help import exclude
from recommender.common import terminal
from recommender.common.errors import RequestError
from recommender.fleet import FORMS
from recommender.options import build_recommendation
from recommender.render.formats import render
from recommender.render.template import COMMENTS

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation


def run(options: dict[str, Any]) -> None:
    """Write the recommendation, and the report to stderr."""
    _check_output(options)
    options["form"] = options["form"] or ("json" if options["as_json"] else "bash")
    recommendation = _recommend(options)
    if options["form"] in FORMS:
        from recommender.fleet.layout import Layout

        write_folder(Layout(recommendation), options["form"], options["output"] or "", force=options["force"])
    else:
        _write(render(recommendation, options["form"], options["comments"] or COMMENTS[0]), options)
    if options["quiet"] or options["form"] == "report":
        return
    if options["verbose"]:
        from recommender.render.report import report

        terminal.write(report(recommendation, full=False), sys.stderr)
    else:
        from recommender.render.screen import screen

        told = {name for name, value in options.items() if value}
        text = screen(
            recommendation,
            told,
            sys.argv[1:],
            "" if options["output"] in (None, "-") else options["output"],
            terminal.is_drawn(sys.stderr),
            options["form"],
            terminal.columns(sys.stderr),
        )
        terminal.write(text, sys.stderr)


def _recommend(options: dict[str, Any]) -> Recommendation:
    """Return the recommendation. Where nothing fits, a program that reads JSON from stdout gets the reason there."""
    from recommender.choose.recommend import NothingFits

    try:
        return build_recommendation(options)
    except NothingFits as error:
        if options["form"] == "json" and options["output"] in (None, "-"):
            from recommender.render.no_fit_json import to_json

            terminal.utf8(sys.stdout).write(to_json(error))
        raise


def _write(text: str, options: dict[str, Any]) -> None:
    if options["output"] and options["output"] != "-":
        executable = options["form"] in ("bash", "python", "client", "docker")
        write_file(options["output"], text, executable=executable, force=options["force"])
    else:
        terminal.utf8(sys.stdout).write(text)


def _check_output(options: dict[str, Any]) -> None:
    """Raise RequestError for options of the output that contradict each other."""
    exclude(click.get_current_context(), "-v", "-q")
    if options["as_json"] and options["form"] not in (None, "json"):
        raise RequestError(f"--json and --format {options['form']} exclude each other; remove one")
    if options["comments"] and (options["as_json"] or options["form"] not in (None, "bash")):
        raise RequestError(f"--comments {options['comments']}: only --format bash has them; remove one")
    if options["force"] and options["output"] in (None, "-"):
        raise RequestError("--force overwrites a file; name it with -o, or leave --force out")
    if options["output"] == "":
        raise RequestError("-o: the name is empty; name a file, or - for stdout")
