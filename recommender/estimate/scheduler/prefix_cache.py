"""What a prefix cache of limited size still finds when the requests of a trace come."""

from __future__ import annotations

from collections.abc import Sequence

from recommender.request.request import Replayed


def find_hits(replay: Sequence[Replayed], kv_tokens: int, servers: int = 1) -> list[int]:
    """Return for each request of the first of ``servers``, which take turns, the tokens of its prompt in the cache.

    The cache has ``kv_tokens`` (0: no limit) and drops what was used longest ago: a beginning is lost if it and what
    was written since its last use take more.
    """
    hits: list[int] = []
    written, used = 0, dict[int, int]()
    for place in range(0, len(replay), servers):
        request = replay[place]
        of, hit = request.of, request.shared
        while hit and of % servers:  # another server has it: look for what that request repeated
            of, hit = replay[of].of, min(hit, replay[of].shared)
        if hit and kv_tokens and hit + written - used[of] > kv_tokens:
            hit = 0
        hits.append(hit)
        written += request.prompt - hit + request.output
        used[place] = written
        while hit:  # mark the whole chain of repeated prompts as used now
            used[of] = written
            of, hit = replay[of].of, min(hit, replay[of].shared)
    return hits
