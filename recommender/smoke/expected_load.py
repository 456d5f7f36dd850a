"""Predict the shape of an artefact's requests and answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.calibration.predict import resolve_load
from recommender.common.text import count
from recommender.knowledge import records, run_figures
from recommender.request.lengths import pair_lengths
from recommender.request.request import read_mix
from recommender.smoke.client.conversation import Drawn

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.request.resolved_request import ResolvedRequest
    from recommender.smoke.result import Load


def follows_schema(recommendation: Recommendation) -> bool:
    """Return whether this release's engine can enforce a JSON schema."""
    from recommender.choose import constraints
    from recommender.choose.select import predict

    def against(structured: bool) -> set[str]:
        values = predict(recommendation.resolved, replace(recommendation.config, structured_output=structured)).values
        return {
            verdict.constraint
            for verdict in constraints.evaluate(constraints.parse_all(recommendation.resolved.store), values)
        }

    return against(True) <= against(False)


def wanted_tokens(recommendation: Recommendation, load: Load) -> int:
    """Return the predicted input tokens of one request of a load."""
    return _resolve(recommendation, load).input_tokens(recommendation.config.max_tiles)


def draw_load(recommendation: Recommendation, load: Load) -> records.DrawnLoad | None:
    """Return what a load's requests are drawn from; None if all are equal and arrivals Poisson."""
    resolved = _resolve(recommendation, load)
    if load.replay:
        return _draw_trace(load)
    varies = resolved.prompt_lengths or resolved.output_lengths or resolved.prefix_tokens or resolved.turns > 1
    if not (varies or load.image_mix or load.burstiness != 1):
        return None
    pairs = pair_lengths(resolved.prompts, resolved.outputs)
    return records.DrawnLoad(
        workload=resolved.request.workload,
        prompts=" ".join(str(prompt) for prompt, _ in pairs),
        outputs=" ".join(str(output) for _, output in pairs),
        prefix_tokens=resolved.prefix_tokens,
        turns=resolved.turns,
        max_context=resolved.max_context,
        image_mix=load.image_mix,
        burstiness=load.burstiness,
    )


def conversations_of(recommendation: Recommendation, load: Load, drawn: records.DrawnLoad) -> Drawn:
    """Return the conversations of a load, without the lengths of their texts."""
    resolved, prompts = _resolve(recommendation, load), run_figures.numbers(drawn.prompts)
    return Drawn(
        pairs=tuple(zip(prompts, run_figures.numbers(drawn.outputs), strict=True)),
        prefix=drawn.prefix_tokens,
        turns=drawn.turns,
        max_context=drawn.max_context,
        sizes=read_mix(drawn.image_mix),
        replay=load.replay,
        around=resolved.input_tokens(recommendation.config.max_tiles) - resolved.prompt_tokens,
    )


def _draw_trace(load: Load) -> records.DrawnLoad:
    at, prompts, outputs, shared_with, shared = map(run_figures.write_numbers, zip(*load.replay, strict=True))
    return records.DrawnLoad(
        prompts=prompts,
        outputs=outputs,
        burstiness=load.burstiness,
        trace_speed=load.speed,
        arrivals_ms=at,
        shared_with=shared_with,
        shared_tokens=shared,
        left_out=load.left_out,
        cut=load.cut,
    )


def describe_drawn(drawn: records.DrawnLoad) -> str:
    """Return in a few words how requests differ."""
    words = [drawn.workload] if drawn.workload else []
    for name, text in (("input", drawn.prompts), ("output", drawn.outputs)):
        lengths = run_figures.numbers(text)
        least, most = min(lengths), max(lengths)
        middle = run_figures.quantile(lengths, 0.5)
        name += " tokens of a first turn" if drawn.turns > 1 else " tokens"
        words.append(f"{name} {middle:,.0f}" + (f" ({least:,} to {most:,})" if least < most else ""))
    words += [f"{drawn.prefix_tokens:,} of them shared by all requests"] if drawn.prefix_tokens else []
    words += [f"{drawn.turns} turns"] if drawn.turns > 1 else []
    words += [f"cut to {drawn.max_context:,}"] if drawn.max_context else []
    if drawn.trace_speed:
        words[:0] = [f"{count(len(lengths), 'request')} of the trace"]
        repeated = run_figures.numbers(drawn.shared_tokens)
        words += [f"{sum(repeated):,} repeated from earlier requests"] if any(repeated) else []
        words += [f"{drawn.cut:,} cut to fit the session"] if drawn.cut else []
        words += [f"{drawn.left_out:,} left out"] if drawn.left_out else []
    return ", ".join(words)


def _resolve(recommendation: Recommendation, load: Load) -> ResolvedRequest:
    return resolve_load(recommendation, load.concurrency or 1, load.images, load.width, load.height)
