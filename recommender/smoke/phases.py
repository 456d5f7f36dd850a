"""Parse the loads of ``--phase``."""

from __future__ import annotations

import re
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from recommender.common.errors import RequestError
from recommender.request.command_line import parse_image, positive_int
from recommender.request.request import MAX_CONCURRENCY, Replayed
from recommender.smoke.result import Load

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation

TRACE = re.compile(r"(?:(?P<speed>\d{1,4}(?:\.\d{1,3})?)x)?trace", re.IGNORECASE)
LOAD = re.compile(r"(?P<count>\d+)(?P<open>rps)?(?:@(?P<image>text|mix|\d+x\d+(?:x\d+)?))?", re.IGNORECASE)


def parse_loads(texts: tuple[str, ...], recommendation: Recommendation, seconds: float = inf) -> tuple[Load, ...]:
    """Return the loads given, else one request at a time and the request's own load. A trace ends after ``seconds``."""
    resolved = recommendation.resolved
    own = Load(1, 0.0, resolved.images, resolved.image_width, resolved.image_height)
    own = replace(own, image_mix=resolved.request.image_mix if resolved.image_sizes else "")
    if not texts:
        rate = resolved.request.rps
        arriving = replace(own, concurrency=0, rps=rate, burstiness=resolved.burstiness)
        requested = arriving if rate else replace(own, concurrency=resolved.concurrency)
        return (own,) if requested == own else (own, requested)
    parsed = []
    for text in texts:
        if trace := TRACE.fullmatch(text.strip()):
            parsed.append(_replay(text, float(trace["speed"] or 1), recommendation, seconds))
            continue
        match = LOAD.fullmatch(text.strip())
        if not match:
            raise RequestError(
                f"--phase {text[:40]!r}: use N, Nrps, N@WIDTHxHEIGHT, N@text or trace, such as 16@1280x720"
            )
        load = own
        image = (match["image"] or "").lower()
        if image == "mix" and not own.image_mix:
            raise RequestError(f"--phase {text}: the request has no mix; give one: --images 448x448:0.7,1280x720:0.3")
        if image not in ("", "mix"):
            width, height, number = (0, 0, 0) if image == "text" else parse_image(image)
            load = replace(own, images=number, width=width, height=height, image_mix="")
        if load.images and not resolved.model.vision:
            raise RequestError(f"--phase {text}: {resolved.model.hub} is a text model; write {match['count']}@text")
        count = positive_int("--phase", match["count"], MAX_CONCURRENCY)
        arriving = replace(load, concurrency=0, rps=float(count), burstiness=resolved.burstiness)
        parsed.append(arriving if match["open"] else replace(load, concurrency=count))
    return tuple(parsed)


def _replay(text: str, speed: float, recommendation: Recommendation, seconds: float) -> Load:
    """Return the load of a trace's requests that leave within ``seconds``. Raises RequestError.

    A server refuses a request beyond its session, so its prompt is cut, then its answer; --max-context cuts, too.
    """
    resolved = recommendation.resolved
    request = resolved.request
    if not request.replay:
        missing = "pass --trace FILE, a file of requests with times"
        if request.trace_requests and request.rps:
            missing = "requests with images are not replayed; leave out options that replace what the trace says: "
            missing += "--rps, --burstiness, --image and lengths"
        elif request.trace_requests:
            missing = "the trace has no times, or all are the same; name one with times, and leave out options that "
            missing += "replace them, such as --load"
        raise RequestError(f"--phase {text}: nothing to replay: {missing}")
    if resolved.turns > 1 or speed <= 0:
        wrong = "a trace has no --turns; leave them out" if speed else "a trace cannot be 0 times as fast; use 1x"
        raise RequestError(f"--phase {text}: {wrong}")
    room = recommendation.config.session_len - replace(resolved, prompt_tokens=1).input_tokens()
    sent: list[Replayed] = []
    for replayed in request.replay:
        if (at := replayed.at / speed) >= seconds * 1e3:
            break
        output = min(replayed.output, room - 1)
        prompt = min(resolved.prompt_in_turn(replayed.prompt, output, 0), room - output)
        shared = min(replayed.shared, sent[replayed.of].prompt if sent else 0, prompt - 1)
        sent.append(replayed._replace(at=at, prompt=prompt, output=output, shared=shared))
    cut = sum(replayed[1:3] != asked[1:3] for replayed, asked in zip(sent, request.replay, strict=False))
    lasts = seconds
    if len(sent) == len(request.replay) and sent[-1].at:  # then it ends when on average the next would come
        lasts = min(seconds, sent[-1].at / 1e3 * len(sent) / (len(sent) - 1))
    return Load(
        concurrency=0, rps=len(sent) / lasts, images=0, width=0, height=0, burstiness=resolved.burstiness,
        replay=tuple(sent), speed=speed, left_out=request.trace_requests - len(sent), cut=cut,
    )  # fmt: skip
