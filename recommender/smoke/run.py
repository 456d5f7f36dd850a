"""Run an artefact from launch to stop."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from recommender.common.leftovers import work_folder
from recommender.smoke.failures import Failure
from recommender.smoke.fleet_session import FleetSession
from recommender.smoke.offline_session import OfflineSession
from recommender.smoke.process import host
from recommender.smoke.process.gpu import Gpus, MemoryWatch, wait_for_memory
from recommender.smoke.process.process_guard import Guard
from recommender.smoke.result import RunRequest, RunResult, Say
from recommender.smoke.session import Session

GRACE_S = 10.0


def run(request: RunRequest, say: Say, make_session: Callable[..., Session] | None = None) -> RunResult:
    """Run an artefact; the result holds any failure, and no process is left behind.

    ``make_session`` replaces the session that checks the answers and drives the loads.
    """
    start = make_session or {"bash": Session, "python": OfflineSession}.get(request.artefact.kind, FleetSession)
    cards = Gpus(request.recommendation.config.cards, request.variables)
    result = RunResult(cards.host(), cards.used_mib())
    host.leave_cores(request.pin)
    watch = MemoryWatch(cards)
    with work_folder("smoke") as logs:
        try:
            with Guard() as guard:
                session = start(request, result, watch, guard, logs, say)
                try:
                    session.run()
                except Failure as failure:
                    result.failure = session.add_tail(failure)
                finally:
                    say("stopping")
                    guard.stop(GRACE_S)
            result.memory_back = wait_for_memory(cards, result.idle_mib)
        finally:
            watch.close()
        result.log_sha256 = _logs_sha256(logs)
    return result


def _logs_sha256(folder: Path) -> str:
    state = hashlib.sha256()
    for path in sorted(folder.glob("*.log")):
        state.update(path.read_bytes())
    return state.hexdigest()
