"""Generate the parts of hand-written pages that come from the knowledge."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import cache

from click.testing import CliRunner

from recommender.cli import root
from recommender.common.leftovers import work_folder
from recommender.common.units import GIB
from recommender.estimate import model_shape, vision_shape
from recommender.knowledge.load import data_root
from recommender.lookup.option import option_info
from recommender.request import image_tokens
from recommender.site import markup
from recommender.site.api import api
from recommender.site.charts.prediction_errors import scatter_plots
from recommender.site.configurator import configurator
from recommender.site.pages import error_table, measured_table, workload_table
from recommender.site.pages.options import eras
from recommender.site.pages.problems import known_issues
from recommender.site.pages.published_table import published_table
from recommender.site.site_data import SiteData
from recommender.site.tools import checker, finder

USUAL = ("internvl3-8b", "internvl3-8b-awq", "internvl3-38b-awq", "qwen2.5-7b-instruct", "llama-3.1-8b-instruct")
"""Models of the examples."""
LENGTH = 4096
SIZES = ((448, 448), (800, 600), (1280, 720), (1920, 1080), (4000, 3000))


def coverage(data: SiteData, _: str) -> Iterator[str]:
    """Return the number of records of each kind."""
    store = data.store
    yield data.t(
        "[{gpus} GPUs](/gpus/index.md), [{models} models](/models/index.md), [{options} options](/flags/index.md) over "
        "[{releases} releases](/releases/index.md) of LMDeploy ({first} to {last}), "
        "[{claims} claims with verdicts](/claims.md) by [{advisers} advisers](/advisers/index.md) and others, and "
        "[{runs} measured runs](/runs.md)."
    ).format(
        gpus=len(store.gpus),
        models=len(store.models),
        options=len(store.flags),
        releases=len(data.releases),
        first=data.releases[0].id,
        last=data.newest.id,
        claims=len(store.claims),
        advisers=len(store.advisers),
        runs=len(data.runs),
    )


def kv_bytes(data: SiteData, _: str) -> Iterator[str]:
    """Return KV-cache bytes per token by precision, and of a whole sequence."""
    rows = []
    for name in USUAL:
        model = data.store.models[name]
        full, *smaller = (model_shape.kv_bytes_per_token(model, bits) for bits in (16, 8, 4))
        shares = [f"{size:,} ({size / full:.1%})" for size in smaller]
        rows.append((markup.model_link(model), f"{full:,}", *shares, f"{LENGTH * full / GIB:.2f}"))
    head = [data.t("Model"), *(data.t("{0} bits").format(bits) for bits in (16, 8, 4))]
    yield from markup.table([*head, "GiB"], rows)
    yield data.t("GiB: for {0} tokens at 16 bits.").format(f"{LENGTH:,}") + "\n"


def image_token_table(data: SiteData, name: str) -> Iterator[str]:
    """Return tiles and tokens by image size, for a model that tiles images."""
    vision = data.store.models[name].vision[0]
    rows = (
        (
            f"{size[0]}x{size[1]}",
            str(image_tokens.tiles(vision, *size)),
            f"{image_tokens.image_tokens(vision, *size):,}",
        )
        for size in SIZES
    )
    yield from markup.table(data.labels("Image", "Tiles, with thumbnail", "Tokens"), rows)


def weights(data: SiteData, names: str) -> Iterator[str]:
    """Return checkpoint sizes, with the image encoder, which stays unquantised."""
    rows = []
    for name in names.split():
        model = data.store.models[name]
        kind = model.quantization[0].method if model.quantization else model.text.dtype
        parts = (model_shape.weight_bytes, model_shape.text_weight_bytes, vision_shape.vision_weight_bytes)
        rows.append((markup.model_link(model), kind, *(f"{size(model) / GIB:,.2f}" for size in parts)))
    yield from markup.table(data.labels("Checkpoint", "Weights", "GiB", "language model", "image encoder"), rows)


def split(data: SiteData, name: str) -> Iterator[str]:
    """Return weights and KV-cache bytes per GPU by tensor-parallel size."""
    model = data.store.models[name]
    rows = (
        (
            str(tp),
            f"{model_shape.weight_bytes_per_rank(model, tp) / GIB:,.2f}",
            f"{model_shape.kv_bytes_per_token(model, 16, tp):,}",
        )
        for tp in (1, 2, 4, 8)
    )
    title = data.t("{model}, which has {heads} key/value heads:")
    yield title.format(model=markup.model_link(model), heads=model.text.kv_heads) + "\n"
    yield from markup.table(data.labels("GPU count", "GiB of weights per GPU", "KV bytes per token and GPU"), rows)


def option_eras(data: SiteData, option: str) -> Iterator[str]:
    """Return the eras of an option."""
    yield data.t("{option} by release:").format(option=markup.named_option(data.store, option)) + "\n"
    yield from eras(data, option_info(data.store, data.store.flags[option], data.newest))


def claim_with_verdict(data: SiteData, name: str) -> Iterator[str]:
    """Return a claim with its verdict and reason."""
    claim = data.store.claims[name]
    statement = markup.claim(claim.verdict, claim.statement, name, data.say)
    yield f"{statement} {markup.reason(data.store, name, claim.because, data.say)}"


def source_file(_: SiteData, words: str) -> Iterator[str]:
    """Return a file of the checkout. ``words``: its path and language."""
    path, language = words.split()
    yield f"```{language}\n{(data_root() / path).read_text('utf-8').rstrip()}\n```"


def command_output(_: SiteData, words: str) -> Iterator[str]:
    """Run a command and return it with its output; ``-o`` writes to a temporary folder."""
    yield f"```sh\nrecommend {words}\n```\n\n```text\n{_run(words)}\n```"


def report_part(_: SiteData, words: str) -> Iterator[str]:
    """Return one part of a command's report. ``words``: the part's first word, and the command's options."""
    title, options = words.split(" ", 1)
    parts = _run(f"{options} --format report").split("\n\n")
    part = next((part for part in parts if part.startswith(f"{title} ")), "")
    if not part:
        raise ValueError(f"recommend {options}: the report has no part {title}")
    yield f"```sh\nrecommend {options} --format report\n```\n\n```text\n{part}\n```"


# Pages in all languages show the same commands.
@cache
def _run(words: str) -> str:
    with work_folder("site") as folder:
        arguments = shlex.split(words)
        for place, before in enumerate(arguments[:-1], 1):
            if before == "-o":
                arguments[place] = f"{folder}/{arguments[place]}"
        result = CliRunner().invoke(root, arguments, prog_name="recommend")
    if result.exit_code:
        raise ValueError(f"recommend {words}: exit code {result.exit_code}, {result.output or result.exception!r}")
    return result.stdout.replace(f"{folder}/", "").rstrip()


SNIPPETS: Mapping[str, Callable[[SiteData, str], Iterator[str]]] = {
    "api-kinds": api.kinds_table,
    "checker": checker,
    "claim": claim_with_verdict,
    "configurator": configurator,
    "covered": coverage,
    "file": source_file,
    "finder": finder,
    "image-tokens": image_token_table,
    "kv-bytes": kv_bytes,
    "known-issues": known_issues,
    "life": option_eras,
    "load-options": lambda data, _: workload_table.load_options(data),
    "printed": command_output,
    "measured": lambda data, _: measured_table.measured_table(data),
    "published": lambda data, _: published_table(data),
    "report-part": report_part,
    "residuals": lambda data, _: error_table.error_table(data, {name: name for name in data.store.residuals}),
    "scatter-plots": lambda data, _: scatter_plots(data),
    "split": split,
    "text-load-errors": lambda data, _: error_table.text_load_errors(data),
    "weights": weights,
    "workload-sources": lambda data, _: workload_table.workload_sources(data),
    "workloads": lambda data, _: workload_table.workload_table(data),
}
"""Snippets by NAME of ``<!-- generated: NAME WORDS -->``; each is called with its WORDS."""
