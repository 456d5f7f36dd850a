"""A variable that nobody reads

Finds environment variables that look like LMDeploy's and are not: LMDEPLOY_LOG_LEVEL, which no release reads, and
names that miss a known one by a letter or two, such as OMP_NUM_THREAD.

A wrong name is no error anywhere, so the default stays and nothing says so. The log level is set by `--log-level`;
TM_LOG_LEVEL is TurboMind's own. A variable that the script itself uses is left alone.

Write the name that is read, or use the option.

Bad:

    export LMDEPLOY_LOG_LEVEL=ERROR

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --log-level ERROR
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review.rule import Fix, Rule, Said
from recommender.review.script import Place, Script

# Read in the Python files of the wheels and in the C++ source (getenv, TM_ENV_VAR), any covered release.
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
    [f"LMDEPLOY_{each}" for each in LMDEPLOYS.split()]
    + [f"TM_{each}" for each in TURBOMINDS.split()]
    + ["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM"]
)
UNREAD = {"LMDEPLOY_LOG_LEVEL": "--log-level is the option; TurboMind alone reads TM_LOG_LEVEL."}
FEW = 2
LONG = 9


def _whole(script: Script) -> Iterator[Said]:
    used = {each.name for each in script.uses}
    seen: set[tuple[str, Place]] = set()
    for name, place in _set(script):
        if (name, place) in seen or name in KNOWN or name in used:
            continue
        seen.add((name, place))
        if name in UNREAD:
            yield Said(place, f"No release of LMDeploy reads {name}.", UNREAD[name])
            continue
        near = _near(name)
        if near:
            shown = script.text[place.start : place.start + len(name)] == name
            fix = Fix(((script.place(place.start, place.start + len(name)), near),), f"write {near}") if shown else None
            yield Said(place, f"Nobody reads {name}: did you mean {near}?", "A name nobody reads is no error.", fix)


def _set(script: Script) -> Iterator[tuple[str, Place]]:
    """The variables that the script sets for its servers, with the place that names them."""
    if not script.launches:
        return
    assigned = [(each.name, each.place) for each in script.assignments]
    yield from assigned
    names = {name for name, _ in assigned}
    for launch in script.launches:
        for name, word in launch.environment.items():
            if name not in names:
                start = word.place.start - len(name) - len("=")
                written = start >= 0 and script.text[start : word.place.start] == f"{name}="
                yield name, script.place(start, word.place.end) if written else word.place


def _near(name: str) -> str:
    """The known name that this one misses by a letter or two; names that begin otherwise are somebody else's."""
    begins = name.partition("_")[0]
    near = [
        each
        for each in sorted(KNOWN)
        if each.partition("_")[0][:4] == begins[:4] and min(len(each), len(name)) >= LONG and _apart(name, each) <= FEW
    ]
    return near[0] if len(near) == 1 else ""


def _apart(one: str, other: str) -> int:
    """How many letters must be put in, taken out or changed to make one of the other."""
    if abs(len(one) - len(other)) > FEW:
        return FEW + 1
    row = list(range(len(other) + 1))
    for index, letter in enumerate(one, 1):
        above, row[0] = row[0], index
        for column, second in enumerate(other, 1):
            above, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, above + (letter != second))
    return row[-1]


RULE = Rule(
    id="LMD311",
    name="variable-that-nobody-reads",
    family="nothing",
    severity="warning",
    sources=("environment/lmdeploy-log-level", "claims/log-level-variable-is-read", "environment/omp-num-threads"),
    whole=_whole,
)
