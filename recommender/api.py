"""The public functions, as commands, the site and other programs call them.

They read no clock, no network and no file but the knowledge: the same request gives the same answer. Each imports
what it needs on its first call. Every mistake of the caller is a ``UserError``; its message is one line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.fleet.sizing import FleetPlan
    from recommender.knowledge.store import Store
    from recommender.lookup.comparison import Comparison
    from recommender.lookup.option import OptionInfo
    from recommender.request.request import Request
    from recommender.review.engine import Review


def recommend(request: Request, store: Store | None = None) -> Recommendation:
    """Choose the configuration for a request: every setting with its reason, predicted memory (bytes) and speed (ms).

    Raises RequestError, UnknownName or CheckpointError for what cannot be understood, and NothingFits where no
    configuration passes every constraint; it names the constraint that binds and the nearest change that fits.

    >>> from recommender import Request, recommend
    >>> recommendation = recommend(Request(gpu="H100-80G", load="single"))
    >>> recommendation.config.tp, recommendation.config.servers
    (1, 1)
    """
    from recommender.choose.recommend import recommend

    return recommend(request, store)


def follow(
    request: Request,
    adviser: str,
    settings: Mapping[str, str] | None = None,
    left_out: Collection[str] = (),
    store: Store | None = None,
) -> Recommendation:
    """Take an adviser's configuration as given, with what speaks against it; ``defaults`` is LMDeploy's own.

    ``settings`` are values by option on top of it, ``left_out`` options to drop. Raises as ``estimate`` does.

    >>> from recommender import Request, follow
    >>> follow(Request(gpu="A100-80G"), "gemini").config.max_batch_size
    16
    """
    from recommender.choose.recommend import recommend_adviser

    return recommend_adviser(request, adviser, _by_id(settings or {}, store), left_out, store)


def estimate(request: Request, settings: Mapping[str, str] | None = None, store: Store | None = None) -> Recommendation:
    """Predict memory and speed of a configuration of your own; what ``settings`` leaves out is LMDeploy's default.

    ``settings`` are texts by option or variable, as on the command line. Raises RequestError, UnknownName or
    CheckpointError. What keeps the configuration from running is in ``findings``, with severity ``reject``.

    >>> from recommender import Request, estimate
    >>> eight_bit = estimate(Request(gpu="L4"), {"--quant-policy": "8", "OMP_NUM_THREADS": "4"})
    >>> eight_bit.config.kv_bits, eight_bit.config.omp_threads
    (8, 4)
    """
    return follow(request, "defaults", settings, (), store)


def compare(request: Request, store: Store | None = None) -> Comparison:
    """Compare the advisers' configurations with the recommended one, setting by setting, with verdicts.

    Raises RequestError, UnknownName or CheckpointError. Where nothing fits, ``ours`` is None.

    >>> from recommender import Request, compare
    >>> [recommendation.adviser for recommendation in compare(Request(gpu="A100-80G")).advised][:2]
    ['baseline', 'chatgpt']
    """
    from recommender.knowledge.load import load
    from recommender.lookup.comparison import compare

    return compare(request, store or load())


def explain(option: str, lmdeploy: str = "", store: Store | None = None) -> OptionInfo:
    """Return everything known of an option, a variable or a request field, for a release (default: the newest).

    Raises UnknownName with near matches.

    >>> from recommender import explain
    >>> explain("session-len").name
    '--session-len'
    """
    from recommender.knowledge.conditions import version
    from recommender.knowledge.load import load
    from recommender.knowledge.names import resolve_release
    from recommender.lookup.option import option_info, resolve_option

    store = store or load()
    newest = max(store.releases, key=version)
    return option_info(store, resolve_option(store, option), resolve_release(store, lmdeploy or newest))


def review(text: str, path: str = "serve.sh", **options: str) -> Review:
    """Review a launch script: shell, Python, Dockerfile, compose, Kubernetes or systemd, by name and content.

    Nothing is run. ``options`` are those of ``recommend review``, such as gpu, model, load and lmdeploy. Raises
    RequestError or UnknownName for an option, and Unreadable for a text that takes too long (only the main thread has
    that timer); what else cannot be read in the text is a finding.

    >>> from recommender import review
    >>> findings = review("lmdeploy serve api_server m --cache-max-entry-count 0").findings
    >>> "LMD106" in {finding.rule.id for finding in findings}
    True
    """
    from recommender.common.cpu_budget import cpu_budget
    from recommender.common.errors import UnknownName
    from recommender.common.text import did_you_mean, shorten
    from recommender.review.context import ANSWERS
    from recommender.review.engine import review

    for name in options.keys() - ANSWERS.keys():
        raise UnknownName(f"unknown option {shorten(name)}{did_you_mean(name, ANSWERS)}")
    with cpu_budget():
        return review(path, text, options)


def plan(
    request: Request,
    hosts: Sequence[str],
    *,
    peak: float = 1.5,
    burst: float = 1.0,
    spare: int = 1,
    network_gbps: float = 10.0,
    sizes: Sequence[int] = (),
    store: Store | None = None,
) -> FleetPlan:
    """Size a fleet for ``request.rps`` requests a second and for its goals, if any.

    ``hosts`` are GPUs with a count, such as ``L40S:4``. The fleet holds ``peak`` times the rate, ``burst`` requests at
    a time, with ``spare`` hosts down. ``sizes``: GPUs that a server takes. Raises RequestError, UnknownName or
    CheckpointError. A host that cannot hold the load is in ``unfit``, with its reason.

    >>> from recommender import Request, plan
    >>> plan(Request(gpu="L40S", rps=50), ["L40S:4"]).fleets[0].hosts
    2
    """
    from recommender.common.errors import RequestError
    from recommender.fleet.aim import Aim
    from recommender.fleet.plan import plan_fleet, read_hosts
    from recommender.knowledge.load import load

    if not request.rps:
        raise RequestError("rps is needed: the requests a second, on average")
    store = store or load()
    aim = Aim.of(request, peak, burst, spare, network_gbps)
    return plan_fleet(request, read_hosts(hosts, store), aim, store, sizes)


def render(recommendation: Recommendation, form: str = "bash", comments: str = "short") -> str:
    """Write a recommendation as bash, command, python, client, env, docker, json or report, ending in a line break.

    ``comments`` of bash: short, full or none.
    """
    from recommender.render.formats import render

    return render(recommendation, form, comments)


def report(recommendation: Recommendation, full: bool = True) -> str:
    """Write the report of 80 columns; without ``full``, options left at their default are only counted."""
    from recommender.render.report import report

    return report(recommendation, full)


def _by_id(settings: Mapping[str, str], store: Store | None) -> dict[str, str]:
    """Key the settings by the id of the option's record. Raises UnknownName, and RequestError for what is no text."""
    from recommender.common.field_types import FieldType, check_type
    from recommender.knowledge.load import load
    from recommender.lookup.option import resolve_option

    for name, text in settings.items():
        check_type(f"settings: {name}", text, FieldType(str))
    return {resolve_option(store or load(), name).id: text for name, text in settings.items()}
