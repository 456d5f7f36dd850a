"""Make up the engine's passes as the PyTorch engine's scheduler does: prompts and decoding take turns.

Waiting prompts get a pass where fewer than half of the batch runs, where they fill the budget, or after so many passes
of decoding; else who runs decodes (0.18.0 lmdeploy/pytorch/engine/inputs_maker.py:1286-1319). A pass holds whole
prompts up to the budget; a longer prompt takes passes of its own, with a pass of decoding between two of them
(inputs_maker.py:441-458). As with TurboMind, a pass is put together while the one before it runs.

Blocks of the KV cache are reserved for a request's whole length. The engine takes them as it needs them, and computes
a request again where they run out.
"""

from __future__ import annotations

from dataclasses import dataclass

from recommender.estimate.scheduler.passes import Passes, Prompted, Simulation

HALF = 0.5
MOST_HELD = 0.95
"""The most of a pass that a thread loses. Assumed: the lock changes hands every 5 ms (sys.getswitchinterval)."""


@dataclass
class AlternatingSimulation(Simulation):
    """The state of one server; ``decoded`` passes ran since waiting prompts had one, ``cut`` if it was a part."""

    decoded: int = 0
    cut: bool = False

    def count_alike(self) -> int:
        """Return how many decoding passes run the same requests, until one ends or arrives; 1 for a pass of prompts."""
        if self.waiting and self._is_prompts_turn():
            return 1
        full = len(self.running) + len(self.waiting) >= self.server.batch
        count = 1 if self.cut else self.quiet_passes(self.running[0][0] - self.steps, full)
        return min(count, max(self.server.rounds - self.decoded, 1)) if self.waiting else count

    def next_passes(self) -> Passes:
        """Return the chosen passes: one of prompts, or alike ones of decoding."""
        if self.waiting and self._is_prompts_turn():
            self.decoded = 0
            return self._prefill_pass()
        self.cut = False
        self.decoded = self.decoded + self.count if self.waiting else 0
        if self.server.lock_per_token:
            share = min(self.server.lock_per_token * len(self.running) / self.step, MOST_HELD)
            self.host.hold(self.now, self.now + self.count * self.step, share)
        return self.count, self.step, self.count, len(self.running), []

    def _is_prompts_turn(self) -> bool:
        if not self.running:
            return True
        if self.cut:
            return False
        if self.prefilled:  # begun, and who runs had a pass
            return True
        if not self.has_blocks(self.waiting[0][3]):
            return False
        if self.decoded >= self.server.rounds or len(self.running) < HALF * self.server.batch:
            return True
        return sum(request.new_tokens for *_, request, _ in self.waiting) >= self.server.budget

    def _prefill_pass(self) -> Passes:
        """Return a pass of whole prompts, or of a part of the first."""
        left, spent = self.server.budget, 0.0
        ended: list[Prompted] = []
        while self.waiting:
            _, number, sent, request, _ = self.waiting[0]
            begun, rest = self.prefilled, request.new_tokens - self.prefilled
            if ended and rest > left:
                break
            if not begun:
                if not self.has_blocks(request):
                    break
                self.held_blocks += request.blocks
            tokens = min(left, rest)
            spent += request.prefill * tokens / request.new_tokens
            left -= tokens
            if tokens < rest:
                self.prefilled += tokens
                self.cut = True
                break
            self.prefilled = 0
            self.waiting.popleft()
            ended.append((number, sent, request))
            if begun:
                break
        times = self.server.times
        length = max(spent + times.expert_pass, times.prompt_floor, times.step(1))
        return 1, length, 0, len(ended), ended
