"""A variable that LMDeploy does not read

## What it does
Reports environment variables that look like LMDeploy's but are not: LMDEPLOY_LOG_LEVEL, which no release reads, and
typos such as OMP_NUM_THREAD. Variables that the script itself uses are not reported.

## Why
A wrong name causes no error, so the default stays in effect silently. `--log-level` sets the log level; TM_LOG_LEVEL
sets only TurboMind's.

## Bad

    export LMDEPLOY_LOG_LEVEL=ERROR

## Good
Use the correct name, or the option:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --log-level ERROR
"""

from collections.abc import Iterator

from recommender.review.rule import Diagnostic, Diagnostics, Fix, script_rule
from recommender.review.script.model import Script, Span

# From the Python files of the wheels and the C++ source (getenv, TM_ENV_VAR) of all covered releases.
LMDEPLOYS = """
BLOCKED_FP8_GEMM_BACKEND CONTROLLER_HEART_BEAT_EXPIRATION DISABLE_DSA_INDEXER_FUSION DIST_INIT_ADDR DIST_INIT_PORT
DIST_MASTER_ADDR DIST_MASTER_PORT DPINPUT_TIMEOUT DP_MASTER_ADDR DP_MASTER_PORT DSA_INDEXER_MAX_LOGITS_MB
ENABLE_CHECK_ENV ENABLE_DECODE_TORCH_COMPILE ENABLE_FLASHINFER_ALLREDUCE ENABLE_REQUEST_CACHE_USAGE_METRIC
ENABLE_SYMM_MEM_ALLREDUCE ENABLE_SYMM_MEM_LMHEAD EPLB_EXPERTS_STATISTIC_FILE EPLB_NUM_GROUPS
EPLB_NUM_REDUNDANT_EXPERTS EPLB_RANKS_PER_NODE EXECUTOR_BACKEND FAKE_CUDA_GRAPH_CAPTURE FAKE_EPLB FETCH_TIMEOUT
FP32_MAMBA_SSM_DTYPE FP8_MOE_ONLY HEALTH_POLL_INTERVAL HEALTH_PROBE_TIMEOUT HEALTH_UNHEALTHY_AFTER
HY3_SHARED_EXPERT_OVERLAP IMAGE_FETCH_TIMEOUT LOG_FILE LOG_PID MLA_FOLD MOE_STATIC_FP8_USE_COMPILED_QUANT
MULTIMODAL_SESSION_TRIM_COUNT PROFILE_CPU PROFILE_CUDA PROFILE_DELAY PROFILE_DURATION PROFILE_OUT_PREFIX
PROFILE_USE_GZIP PT_TTFT_AGING_SEC PT_TTFT_POLICY PT_TTFT_SHORT_TURNS PYTORCH_MODEL_PATH RANDOM_LOAD_WEIGHT
RAY_EXTERNAL_PG_BUNDLES RAY_NSYS_ENABLE RAY_NSYS_OUT_PREFIX RAY_TIMELINE_ENABLE RAY_TIMELINE_OUT_PATH
REPETITION_WINDOW_SIZE ROUTER_SINGLE_GROUP_FUSED SCALE_FMT SKIP_WARMUP SPARSE_MLA_BACKEND
STATIC_FP8_COMPILED_QUANT_TOKEN_COUNTS STATIC_FP8_USE_COMPILED_QUANT STATIC_FP8_USE_SCALED_MM SYMM_MEM_LMHEAD_MAX_MB
USE_ASYNC_MIGRATION USE_MODELSCOPE USE_OPENMIND_HUB USE_UNIQUE_KVTRANSFER_ENGINE VIDEO_BACKEND VIDEO_FETCH_TIMEOUT
W4A16_GEMM_BACKEND
"""
TURBOMINDS = """
ANOMALY_HANDLER CACHE_LOG_INTERVAL COMM_AG_COPY_THRESHOLD COMM_AG_USE_NVLS COMM_COPY_THRESHOLD COMM_EP_NIC_NAME
COMM_EP_NUM_QPS COMM_MAX_CTAS COMM_NVLS_ENABLE COMM_SL_IDX DEBUG_LEVEL FUSE_SILU_ACT GDN_BLOCK_CONFIG GDR_CP_LEVEL
GDR_FORCE_LEGACY GEMM_DEBUG_OCCUPANCY GEMM_EXPORT GEMM_IMPORT GEMM_TEST_POLICY GEMM_TUNE GEMM_TUNE_VERBOSE
GEMM_WARN_CACHE_MISS GEMM_WEIGHT_PACK LOG_ASYNC LOG_COLOR LOG_FIRST_RANK_ONLY LOG_LEVEL LOG_SIGNALS MOE_METHOD
SRC_FULL_PATH
"""
KNOWN = frozenset(
    [f"LMDEPLOY_{name}" for name in LMDEPLOYS.split()]
    + [f"TM_{name}" for name in TURBOMINDS.split()]
    + ["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM"]
)
UNREAD = {"LMDEPLOY_LOG_LEVEL": "Use --log-level; TM_LOG_LEVEL sets only TurboMind's level."}
FEW = 2
LONG = 9


@script_rule(
    "warning",
    sources=("environment/lmdeploy-log-level", "claims/log-level-variable-is-read", "environment/omp-num-threads"),
)
def rule(script: Script) -> Diagnostics:
    used = {use.name for use in script.uses}
    seen: set[tuple[str, Span]] = set()
    for name, place in _set(script):
        if (name, place) in seen or name in KNOWN or name in used:
            continue
        seen.add((name, place))
        if name in UNREAD:
            yield Diagnostic(place, f"No LMDeploy release reads {name}.", UNREAD[name])
            continue
        near = _near(name)
        if near:
            shown = script.text[place.start : place.start + len(name)] == name
            fix = Fix(((script.place(place.start, place.start + len(name)), near),), f"write {near}") if shown else None
            yield Diagnostic(
                place, f"LMDeploy does not read {name}: did you mean {near}?", "A wrong name causes no error.", fix
            )


def _set(script: Script) -> Iterator[tuple[str, Span]]:
    """Yield the variables that the script sets for its servers, with the place of each name."""
    if not script.launches:
        return
    assigned = [(assignment.name, assignment.place) for assignment in script.assignments]
    yield from assigned
    names = {name for name, _ in assigned}
    seen: set[tuple[str, Span]] = set()
    for launch in script.launches:
        for name, word in launch.environment.items():
            if name not in names and (name, word.place) not in seen:
                seen.add((name, word.place))
                start = word.place.start - len(name) - len("=")
                written = start >= 0 and script.text[start : word.place.start] == f"{name}="
                yield name, script.place(start, word.place.end) if written else word.place


def _near(name: str) -> str:
    """Return the one known name within two edits and with the same first letters; empty if there is none."""
    begins = name.partition("_")[0]
    near = [
        known
        for known in sorted(KNOWN)
        if known.partition("_")[0][:4] == begins[:4]
        and min(len(known), len(name)) >= LONG
        and _distance(name, known) <= FEW
    ]
    return near[0] if len(near) == 1 else ""


def _distance(first: str, second: str) -> int:
    """Return the edit distance of two names; FEW + 1 if their lengths differ by more than FEW."""
    if abs(len(first) - len(second)) > FEW:
        return FEW + 1
    row = list(range(len(second) + 1))
    for index, letter in enumerate(first, 1):
        above, row[0] = row[0], index
        for column, target in enumerate(second, 1):
            above, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, above + (letter != target))
    return row[-1]
