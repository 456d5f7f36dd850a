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
        each = replay[place]
        of, found = each.of, each.shared
        while found and of % servers:  # another server has it; this one may have what that repeated
            of, found = replay[of].of, min(found, replay[of].shared)
        if found and kv_tokens and found + written - used[of] > kv_tokens:
            found = 0
        hits.append(found)
        written += each.prompt - found + each.output
        used[place] = written
        while found:  # what it repeats was used now, and so was what that repeats
            used[of] = written
            of, found = replay[of].of, min(found, replay[of].shared)
    return hits
