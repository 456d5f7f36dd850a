"""What was predicted for a load, to stand beside what was measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recommender import speed
from recommender.facts import MIB

if TYPE_CHECKING:
    from recommender import records as r
    from recommender.configuration import Configuration
    from recommender.facts import Facts
    from recommender.pipeline import Recommendation
    from recommender.smoke.taken import Load


def facts_of(found: Recommendation, concurrency: int, images: int, width: int, height: int, cpus: int = 0) -> Facts:
    """The facts of a recommendation under another load, on a host of so many cores."""
    request = replace(found.facts.request, cpus=cpus) if cpus else found.facts.request
    return replace(
        found.facts,
        request=request,
        concurrency=concurrency,
        images=images,
        image_width=width if images else 0,
        image_height=height if images else 0,
    )


def met(facts: Facts, run: r.SmokeRun) -> Facts:
    """The facts with what was free on a run's cards when it began, of which the KV cache is a share.

    A request with ``--vram`` plans for a card that others fill; that of a run may have had more free.
    """
    free = (run.memory_mib - run.idle_mib) * MIB
    return replace(facts, available_bytes=free) if facts.request.vram_gib else facts


def arranged(run: r.SmokeRun, config: Configuration) -> Configuration:
    """A run's configuration with what its command does not say: how many servers, and on how many cards."""
    if run.copies > 1:
        return replace(config, servers=run.copies, share=run.copies)
    if run.servers:
        return replace(config, servers=run.servers, share=run.share, max_tiles=run.max_tiles)
    servers = run.gpu_count // config.tp if config.proxy_url else 1
    return replace(config, servers=max(servers, 1))


def foretold(run: r.SmokeRun) -> bool:
    """Whether the estimates cover a run: one server, or one to a card, or several to a card under CUDA MPS.

    Cards that were to be kept from reaching each other are left out: whether NCCL does that depends on its version.
    """
    apart = {"NCCL_P2P_DISABLE=1", "NCCL_WIN_ENABLE=0"} & set(run.environment)
    return run.kind != "python" and (run.copies == 1 or run.mps) and not apart


def predicted(found: Recommendation, run: r.SmokeRun, phase: r.Phase) -> speed.Speed:
    """The speed of what ran under the closed-loop load of a phase."""
    width, height = (int(side) for side in phase.image.split("x")) if phase.image else (0, 0)
    facts = facts_of(found, phase.concurrency, phase.images, width, height, run.cores)
    return speed.estimate(met(facts, run), arranged(run, found.config))


def follows_schema(found: Recommendation) -> bool:
    """Whether the release's engine can hold an answer to a JSON schema: no constraint speaks against it."""
    from recommender import constraints
    from recommender.choose import measure

    def against(structured: bool) -> set[str]:
        values = measure(found.facts, replace(found.config, structured_output=structured)).values
        return {each.constraint for each in constraints.evaluate(constraints.rules(found.facts.store), values)}

    return against(True) <= against(False)


def wanted_tokens(found: Recommendation, asked: Load) -> int:
    """Input tokens of one request of a load, as they were predicted."""
    return facts_of(found, asked.concurrency or 1, asked.images, asked.width, asked.height).input_tokens(
        found.config.max_tiles
    )
