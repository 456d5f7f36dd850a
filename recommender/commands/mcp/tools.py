"""The tools that ``recommend mcp`` serves: their arguments, and answers in text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recommender import api
from recommender.choose.recommend import NothingFits, Recommendation
from recommender.common.errors import RequestError, UserError
from recommender.common.text import did_you_mean, masked, one_line, shorten
from recommender.options import build_request
from recommender.request.request import Request

OPTIONS = {"concurrency": "load", "input_tokens": "prompt_tokens"}
"""Arguments whose name differs from the command line's option."""
NOWHERE = "/dev/null/"
"""The folder of a text without a file, so that no file beside it is read."""

Gpu = Annotated[str, Field(description="Name, or NAME:COUNT for several, such as A100-80G or H100:2.")]
Model = Annotated[str, Field(description="Hub name or id such as qwen2.5-7b-instruct, or a checkpoint's folder.")]
Concurrency = Annotated[int | str, Field(description="Concurrent requests, or single, low, medium or high.")]
Tokens = Annotated[int | str, Field(description="A number, or median and p99 as 512:2048.")]
Time = Annotated[int | float | str, Field(description="ms, or a text such as 500ms, p99:2s.")]
Image = Annotated[str, Field(description="WIDTHxHEIGHT or WIDTHxHEIGHTxCOUNT, such as 1280x720.")]
Release = Annotated[str, Field(description="LMDeploy release, such as 0.18.0.")]
Full = Annotated[bool, Field(description="Everything that is known, not the short answer.")]


class ToolArguments(BaseModel):
    """Arguments of a tool: unknown names and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def answer(self) -> Iterable[str]:
        """Return the answer's lines. Raises UserError, NothingFits or OSError."""
        raise NotImplementedError


class LoadArguments(ToolArguments):
    """A load on a GPU. What is left out is assumed, and the answer says so."""

    gpu: Gpu
    model: Model | None = None
    workload: Literal["chat", "rag", "agent", "batch", "code", "text", "caption", "vision-json"] | None = None
    concurrency: Concurrency | None = None
    rps: Annotated[int | float | str | None, Field(description="Arriving requests/s, instead of concurrency.")] = None
    image: Image | None = None
    text_only: bool = False
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    prefix_tokens: int | None = None
    turns: int | None = None
    max_context: int | None = None
    ttft: Time | None = None
    tpot: Time | None = None
    latency: Time | None = None
    p99: Time | None = None
    vram: Annotated[int | float | str | None, Field(description="GiB of a shared GPU, or a text: 20GB.")] = None
    cpus: int | None = None
    lmdeploy: Release | None = None

    def options(self) -> dict[str, Any]:
        """Return what was given, as on the command line."""
        asked = set(QuestionArguments.model_fields) - {"text_only"}
        given = self.model_dump(include=asked, exclude_none=True)
        return {OPTIONS.get(name, name): str(value) for name, value in given.items()}

    def request(self) -> Request:
        """Return the request. Raises UserError."""
        return build_request(self.options() | {"text_only": self.text_only})


class QuestionArguments(LoadArguments):
    """A load on a GPU, and how to choose."""

    goal: Literal["latency", "throughput", "memory", "balanced"] | None = None
    kv: Literal["auto", "fp16", "int8", "int4"] | None = None


class RecommendArguments(QuestionArguments):
    """Choose the settings of an LMDeploy server for a GPU, model, load and goals, with prediction, reasons and sources.

    The answer starts with the launch command.
    """

    def answer(self) -> Iterator[str]:
        """Return the command, the prediction and the reasons."""
        from recommender.render.screen import brief

        found = api.recommend(self.request())
        yield api.render(found, "command")
        yield from brief(found, {*self.options(), *(["image"] if self.text_only else [])})
        yield from _reasons(found)


class EstimateArguments(LoadArguments):
    """Predict memory and speed of a configuration that you give; the rest is LMDeploy's default.

    Says what keeps it from running, too.
    """

    settings: Annotated[
        dict[str, str | bool | int | float],
        Field(description='By option or variable: {"--session-len": 4096, "OMP_NUM_THREADS": 4}; a switch is true.'),
    ] = {}

    def answer(self) -> Iterator[str]:
        """Return memory and speed part by part, and problems."""
        from recommender.render.report import estimate

        settings = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in self.settings.items()
        }
        yield estimate(api.estimate(self.request(), settings))


class CompareArguments(QuestionArguments):
    """Compare the recommended configuration with the advisers': which fit, what each predicts, and their values.

    ``option`` gives one option in full: reasons, sources and verdicts.
    """

    option: Annotated[str | None, Field(description="Show only this option's values, in full.")] = None
    full: Full = False

    def answer(self) -> Iterable[str]:
        """Return the predictions, and the values of the settings."""
        from recommender.knowledge.load import load
        from recommender.lookup import comparison_text, short_text
        from recommender.lookup.option import resolve_option

        wanted = resolve_option(load(), self.option).id if self.option else ""
        found = api.compare(self.request())
        if wanted:
            shown = (setting for setting in found.settings if setting.option == wanted)
            lines = (line for setting in shown for line in comparison_text.setting(setting, found.resolved.release.id))
            return (*comparison_text.head(found), "", *lines)
        failed = [str(found.nothing)] if found.nothing else []
        return (*comparison_text.lines(found), *failed) if self.full else short_text.compare(found)


class ReviewArguments(ToolArguments):
    """Find problems in a launch script of LMDeploy, each with its reason, source and repair. Nothing is run.

    Give ``text`` (and ``name``, which decides the kind of file), or ``path`` of a file on the server's machine.
    Some rules need gpu, model and concurrency.
    """

    text: Annotated[str | None, Field(description="Shell, Python, Dockerfile, compose, Kubernetes or systemd.")] = None
    name: Annotated[str, Field(description="The file's name.", pattern=r"^[\w.@-]{1,100}$")] = "serve.sh"
    path: Annotated[str | None, Field(description="A file to read instead of text.")] = None
    gpu: Gpu | None = None
    model: Model | None = None
    concurrency: Concurrency | None = None
    image: Image | None = None
    lmdeploy: Release | None = None

    def answer(self) -> Iterator[str]:
        """Return the findings."""
        from recommender.review.context import verify
        from recommender.review.output.text import text
        from recommender.review.script.source import read

        if (self.text is None) == (self.path is None):
            raise RequestError("give either text or path")
        source = self.text if self.path is None else read(self.path).text
        given = self.model_dump(exclude={"text", "name", "path"}, exclude_none=True)
        options = {OPTIONS.get(name, name): str(value) for name, value in given.items()}
        verify(options)
        review = api.review(source or "", self.path or NOWHERE + self.name, **options)
        for line in text([review]):
            yield line.replace(NOWHERE, "")


class ExplainArguments(ToolArguments):
    """Explain one option, environment variable or request field: default, effect, advice and verdicts, with sources."""

    option: Annotated[str, Field(description="Such as session-len, OMP_NUM_THREADS or max_tokens.")]
    lmdeploy: Release = ""
    full: Full = False

    def answer(self) -> Iterable[str]:
        """Return what is known of the option, or the essence of it."""
        from recommender.lookup import option_text, short_text

        info = api.explain(self.option, self.lmdeploy)
        return option_text.lines(info) if self.full else short_text.explain(info)


class DiffArguments(ToolArguments):
    """Show what changes for a launch script between two LMDeploy releases: options gone and changed, needs, rules."""

    old: Release
    new: Release
    full: Full = False

    def answer(self) -> Iterable[str]:
        """Return what changes; without ``full`` only what may break a script."""
        from recommender.knowledge.load import load
        from recommender.knowledge.names import resolve_release
        from recommender.lookup import release_diff_text, short_text
        from recommender.lookup.release_diff import diff
        from recommender.render.summary import cite

        store = load()
        found = diff(store, resolve_release(store, self.old), resolve_release(store, self.new))
        if not self.full:
            return short_text.diff(found)
        cited = [(option.name, cite(option.sources, option.caveat)) for option in found.removed]
        cited += [(option.name, cite(option.sources, option.caveat)) for option in found.changed]
        sources = (f"  {name}: {source}" for name, source in cited)
        return (*release_diff_text.lines(found), "", "SOURCES", *sources)


TOOLS: Mapping[str, type[ToolArguments]] = {
    "recommend": RecommendArguments,
    "estimate": EstimateArguments,
    "review": ReviewArguments,
    "explain": ExplainArguments,
    "compare": CompareArguments,
    "diff": DiffArguments,
}


def call(name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a tool's answer, and whether it is an error's message, which is one line."""
    if name not in TOOLS:
        return f"unknown tool {shorten(name)}{did_you_mean(name, TOOLS)}", True
    tool = TOOLS[name]
    try:
        text = "\n".join(tool.model_validate(arguments).answer()).rstrip("\n") + "\n"
        return text.encode("utf-8", "backslashreplace").decode("utf-8"), False
    except ValidationError as error:
        wrong: dict[tuple[str, str], list[str]] = {}
        for problem in error.errors():
            argument, what, value = _wrong(tool, dict(problem))
            wrong.setdefault((argument, value), []).append(what)
        return "; ".join(
            f"{argument}{' or '.join(dict.fromkeys(what))}{value}" for (argument, value), what in wrong.items()
        ), True
    except NothingFits as error:
        from recommender.render.report import explain_no_fit

        return explain_no_fit(error).replace("or: recommend plan", "or, in a shell: recommend plan"), False
    except UserError as error:
        return one_line(re.sub(r"--([a-z][a-z-]*)", lambda found: _argument(tool, found), str(error))), True
    except OSError as error:
        return f"cannot be read: {error.strerror or error}", True
    except Exception as error:  # our bug must not end the session
        return one_line(f"internal error: {type(error).__name__}: {error}; please report it"), True


def _reasons(recommendation: Recommendation) -> Iterator[str]:
    """Yield each setting with its reason and sources, then runs and pages near the prediction."""
    from recommender.common.terminal import wrap
    from recommender.render.summary import cite

    yield from ("", "SETTINGS")
    for option in recommendation.explanations:
        if option.emitted:
            value = "" if option.switch else f" {option.value}"
            yield from wrap(f"{option.name}{value}: {option.reason}", "  ", "    ")
            yield f"    [{cite(option.sources, option.caveat)}]"
    near = [f"evidence {run.run} ({run.gpu})" for run in recommendation.similar_runs]
    yield from ("", "NEAREST RUNS")
    yield from wrap(", ".join([*near, *(page.url for page in recommendation.published)]) or "none", "  ", "  ")


def _wrong(tool: type[ToolArguments], error: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return one argument, what is wrong with it and its value; an argument of several types has an error for each."""
    name, *inside = (str(part) for part in error["loc"] or ("arguments",))
    if error["type"] == "extra_forbidden":
        otherwise = {option: argument for argument, option in OPTIONS.items()}
        near = f": did you mean {otherwise[name]}?" if name in otherwise else did_you_mean(name, tool.model_fields)
        return f"unknown argument {shorten(name)}", near, ""
    if error["type"] == "missing":
        return name, " is missing", ""
    what = one_line(error["msg"]).replace("Input should be", "use")
    given = f", not {masked(json.dumps(error['input'])[:40])}"
    where = [shorten(part) for part in inside if part not in ("int", "str", "float", "bool")]
    return f"{name} ({where[0]}): " if where else f"{name}: ", what, given


def _argument(tool: type[ToolArguments], match: re.Match[str]) -> str:
    """Return the tool's argument for an option in a message; the option itself where there is none."""
    name = match[1].replace("-", "_")
    name = {"load": "concurrency"}.get(name, name)
    return name if name in tool.model_fields else match[0]
