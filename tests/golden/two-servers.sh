#!/usr/bin/env bash
# Made by lmdeploy-recommender 0.1.0.
# request: {"goal": "throughput", "gpu": "h100-sxm-80g", "gpu_count": 2, "load": "high"}
# rendered: bash 91e1d4e0a01589b7722f9ebdea339600cf2e3bb4be390966f602e7cf1960736bdeb37f7a584edef5bfe2763ee559fbff6e2695c592a2a8c299
#
# OpenGVLab/InternVL3-8B-AWQ on 2 x NVIDIA H100 80GB SXM, LMDeploy 0.18.0,
# TurboMind.
# 64 requests in flight: 1 image of 448x448, 330 tokens in, 16 out.
# Predicted: 10.1 GiB a card (10.0 to 10.2), 488 ms a request (431 to 552),
# 131.1 requests/s (116.3 to 147.9); modelled from measurements on the same GPU.
#
# Each value below can be overridden by an environment variable of its name.
#   ./serve.sh                        serve in the foreground
#   RESTART=5 ./serve.sh              restart after a crash, with back-off, 5 times an hour at most
#   API_KEYS_FILE=keys.txt ./serve.sh ask clients for one of the keys in that file
#   PREFLIGHT=no ./serve.sh           skip the checks before the launch
set -euo pipefail

# The model: a name on the hub or a local folder.
MODEL=${MODEL:-OpenGVLab/InternVL3-8B-AWQ}

# 4 of 16 CPU cores for the image preprocessing of each server. One thread of
# the server prepares all images; without a limit its tensor operations spread
# over every core and get in each other's way under load.
# [0.18.0 lmdeploy/vl/engine.py:96; evidence h100-2026-11-21-omp-unset]
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

# TurboMind serves InternVLChatModel in LMDeploy 0.18.0, and the estimates here
# are made for it. Written out although it is the default. If the log says that
# it falls back to the PyTorch engine, the plan does not hold.
# [0.18.0 lmdeploy/archs.py:42; 0.18.0 lmdeploy/archs.py:38]
BACKEND=${BACKEND:-turbomind}

# Of the 71.033 GiB free after the weights this takes 1.492 GiB: 27,072 tokens
# of cache, where 12,288 are needed for the load, for one full session or for
# the warm-up's longest prompt (4096), whichever is most. The rest is head-room:
# a region too small for the warm-up hangs the start without a word.
# [0.16.0 src/turbomind/turbomind.cc:403; 0.16.0 src/turbomind/engine/engine.cc:579]
CACHE_MAX_ENTRY_COUNT=${CACHE_MAX_ENTRY_COUNT:-0.021}

# Production has no need of the docs pages: they list every route, management
# routes included, and from 0.12.2 the page at / asks for a key anyway when keys
# are set. Clients do not use them.
# [0.18.0 lmdeploy/serve/openai/api_server.py:389; 0.18.0 lmdeploy/serve/utils/server_utils.py:103]
DISABLE_FASTAPI_DOCS=${DISABLE_FASTAPI_DOCS:-true}

# 2 servers share the load of 64 in flight; each takes up to 32 at once, and
# what comes on top waits.
# [0.18.0 lmdeploy/cli/serve.py:235]
MAX_BATCH_SIZE=${MAX_BATCH_SIZE:-32}

# 4096 prompt tokens a pass hold a prompt of 330 whole; with one token for each
# running request a pass may have 4128, which sizes the workspaces and the
# warm-up.
# [0.16.0 src/turbomind/turbomind.cc:173; 0.16.0 src/turbomind/engine/engine.cc:463]
MAX_PREFILL_TOKEN_NUM=${MAX_PREFILL_TOKEN_NUM:-4096}

# 2 servers share the load behind http://127.0.0.1:8000. Each registers once, at
# its start: the proxy must be up first, and when it restarts without its list
# the servers must restart too.
# [0.18.0 lmdeploy/serve/openai/api_server.py:139; 0.18.0 lmdeploy/serve/proxy/proxy.py:205]
PROXY_URL=${PROXY_URL:-http://127.0.0.1:8000}

# 16 bits: the cache holds 27,072 tokens where 12,288 are needed, so there is no
# cause to give up accuracy.
# [0.16.0 src/turbomind/models/llama/unified_attention_layer.cc:151]
QUANT_POLICY=${QUANT_POLICY:-0}

# Bound to 127.0.0.1: the proxy runs on the same host, and each server registers
# itself under this address, which 0.0.0.0 would make useless to others. Clients
# talk to the proxy.
# [0.18.0 lmdeploy/serve/openai/api_server.py:431]
SERVER_NAME=${SERVER_NAME:-127.0.0.1}

# The port of the first of the 2 servers. Each further one on this host takes
# the next port; clients use the proxy's.
# [0.18.0 lmdeploy/serve/openai/api_server.py:439]
SERVER_PORT=${SERVER_PORT:-23333}

# This request takes 346 tokens: 256 of image in a prompt of 330, and 16 of
# answer. 4096 is one full prefill pass, which also holds an image of any size:
# only prompts whose lengths add up to the session length are prefilled
# together. A prompt that reaches the limit is answered with HTTP 400.
# [0.18.0 lmdeploy/serve/core/async_engine.py:549; 0.16.0 src/turbomind/engine/engine.cc:464]
SESSION_LEN=${SESSION_LEN:-4096}

# Needed: the configuration class of OpenGVLab/InternVL3-8B-AWQ is a Python file
# in its repository. Without the option the loader falls back to a generic
# configuration whose inner parts are plain dictionaries, and the start fails
# when their fields are read. It runs code of the publisher, so pin the
# revision.
# [0.18.0 lmdeploy/hf_configs/__init__.py:42; 0.18.0 lmdeploy/archs.py:142]
TRUST_REMOTE_CODE=${TRUST_REMOTE_CODE:-true}

args=(
  --backend "$BACKEND"
  --cache-max-entry-count "$CACHE_MAX_ENTRY_COUNT"
  --max-batch-size "$MAX_BATCH_SIZE"
  --max-prefill-token-num "$MAX_PREFILL_TOKEN_NUM"
  --proxy-url "$PROXY_URL"
  --quant-policy "$QUANT_POLICY"
  --server-name "$SERVER_NAME"
  --server-port "$SERVER_PORT"
  --session-len "$SESSION_LEN"
)
if [[ $DISABLE_FASTAPI_DOCS == true ]]; then args+=(--disable-fastapi-docs); fi
if [[ $TRUST_REMOTE_CODE == true ]]; then args+=(--trust-remote-code); fi
if [[ ${PREFLIGHT:-yes} != no && $MODEL =~ ^\.{0,2}/ && ! -f $MODEL/config.json ]]; then
  echo "serve.sh: MODEL is $MODEL, and there is no config.json in that folder" >&2
  exit 3
fi

# This model's configuration runs code from its repository, so the script wants a
# commit to hold it to. REVISION=main accepts whatever is there today.
REVISION=${REVISION:-}
if [[ ! -d $MODEL ]]; then
  if [[ -z $REVISION ]]; then
    echo "serve.sh: REVISION is not set: $MODEL runs code from its repository;" \
      "set REVISION to a commit hash from its page, or to main to accept today's" >&2
    exit 2
  fi
  args+=(--revision "$REVISION")
fi

die() {
  echo "serve.sh: $*" >&2
  exit 3
}

# The interpreter that has LMDeploy: PYTHON, else the one of the lmdeploy command, else python3.
PYTHON=${PYTHON:-}
lmdeploy=(lmdeploy)
if [[ -z $PYTHON ]]; then
  PYTHON=python3
  if command -v lmdeploy >/dev/null; then
    launcher=$(readlink -f "$(command -v lmdeploy)")
    read -r first <"$launcher" || first=
    if [[ $first == '#!'*python* && -x ${first#\#!} ]]; then
      PYTHON=${first#\#!}
    elif [[ -x ${launcher%/*}/python3 ]]; then
      PYTHON=${launcher%/*}/python3
    fi
  else
    lmdeploy=("$PYTHON" -m lmdeploy)
  fi
else
  lmdeploy=("$PYTHON" -m lmdeploy)
fi

preflight() {
  local found driver free used port cards
  command -v "$PYTHON" >/dev/null || die "no $PYTHON; install Python 3.10 or later, or set PYTHON"
  "$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 15))' ||
    die "$PYTHON is too old or too new; LMDeploy 0.18.0 needs Python >=3.10,<3.15"
  found=$("$PYTHON" -c 'import importlib.metadata as m; print(m.version("lmdeploy"))' 2>/dev/null) ||
    die "LMDeploy is not installed for $PYTHON; run: $PYTHON -m pip install lmdeploy==0.18.0"
  found=${found%%+*} # a build for another CUDA names it behind a plus sign
  [[ $found == 0.18.0 || $found == 0.18.0.post* ]] ||
    die "LMDeploy $found is installed; this script is for 0.18.0: run recommend --lmdeploy $found, or set PREFLIGHT=no"
  command -v nvidia-smi >/dev/null || die "no nvidia-smi; an NVIDIA driver for CUDA 12 is needed"
  driver=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9]*\).*/\1/p' | head -1) || driver=
  ((${driver:-99} >= 12)) || die "the driver is for CUDA $driver; LMDeploy 0.18.0 needs CUDA 12"
  if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    IFS=, read -ra cards <<<"${CUDA_VISIBLE_DEVICES// /}"
  else
    mapfile -t cards < <(nvidia-smi --query-gpu=index --format=csv,noheader)
  fi
  ((${#cards[@]} >= 2)) || die "${#cards[@]} GPU(s) found; 2 needed (CUDA_VISIBLE_DEVICES is ${CUDA_VISIBLE_DEVICES-not set})"
  used=$(IFS=,; echo "${cards[*]:0:2}")
  free=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits -i "$used" 2>/dev/null | sort -n | head -1) || free=
  if [[ $free =~ ^[0-9]+$ ]]; then
    ((free >= 11452)) || die "$free MiB free on GPU $used; 11452 MiB may be needed: stop what else runs there"
  else
    echo "serve.sh: nvidia-smi does not tell the free memory of GPU $used; 11452 MiB may be needed" >&2
  fi
  port=${SERVER_PORT:-23333}
  if (exec 3<>"/dev/tcp/${SERVER_NAME:-127.0.0.1}/$port") 2>/dev/null; then
    die "something listens on port $port already; set SERVER_PORT"
  fi
  model_there || die "$MODEL is not a folder with config.json, not in the cache, and cannot be fetched (HF_HUB_OFFLINE is set, or less than 7 GiB free)"
}

model_there() {
  local offline cache=${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-~/.cache}/huggingface}/hub}
  [[ -f $MODEL/config.json || -d $cache/models--${MODEL//\//--}/snapshots ]] && return
  offline=${HF_HUB_OFFLINE:-${TRANSFORMERS_OFFLINE:-0}}
  [[ ! ${offline^^} =~ ^(1|ON|TRUE|YES)$ ]] || return 1
  while [[ ! -d $cache ]]; do cache=$(dirname "$cache"); done
  (($(df -Pk "$cache" | awk 'END {print int($4 / 1048576)}') >= 7))
}

if [[ ${PREFLIGHT:-yes} != no ]]; then preflight; fi

# Keys come from the environment or a file, never from this text. LMDeploy takes
# them as arguments, so users of this host can read them in ps.
keys=()
if [[ -n ${API_KEYS_FILE:-} ]]; then
  mapfile -t keys < <(tr -d '\r' <"$API_KEYS_FILE" | grep -v '^[[:blank:]]*$')
  ((${#keys[@]})) || die "no key in $API_KEYS_FILE"
fi
if [[ -n ${API_KEYS:-} ]]; then read -ra keys <<<"$API_KEYS"; fi
[[ ${RESTART:-0} =~ ^(0|[1-9][0-9]*)$ ]] || die "RESTART is $RESTART; use a whole number"
# With RESTART this script watches itself: all of what it starts comes and goes together.
launch=(env RESTART=0 PREFLIGHT=no bash "${BASH_SOURCE[0]}")

# Restarts after a crash, waiting 5, 10, 20 ... 300 seconds; gives up after
# RESTART crashes within an hour. Signals go to the server.
if [[ ${RESTART:-0} != 0 ]]; then
  child=
  trap 'trap - TERM INT; [[ -z $child ]] || kill -TERM "$child" 2>/dev/null; wait; exit 143' TERM INT
  crashes=()
  while :; do
    code=0
    "${launch[@]}" &
    child=$!
    wait "$child" || code=$?
    ((code)) || exit 0
    now=$SECONDS
    recent=()
    for at in ${crashes[@]+"${crashes[@]}"}; do if ((now - at < 3600)); then recent+=("$at"); fi; done
    crashes=(${recent[@]+"${recent[@]}"} "$now")
    if ((${#crashes[@]} > RESTART)); then die "crashed ${#crashes[@]} times within an hour, last with status $code; giving up"; fi
    pause=$((5 * 2 ** (${#crashes[@]} - 1)))
    if ((pause > 300)); then pause=300; fi
    echo "serve.sh: server ended with status $code; starting again in $pause s" >&2
    sleep "$pause" &
    child=$!
    wait "$child" || :
  done
fi

# 2 servers, each on 1 card(s) of its own, behind LMDeploy's proxy. The proxy is
# up first because a server registers with it once and does not try again.
# Everything stops when one of them does.
proxy=${PROXY_URL#*://}
proxy=${proxy%%/*}
proxy_port=${proxy##*:}
front=("${lmdeploy[@]}" serve proxy --server-name "${PROXY_HOST:-127.0.0.1}" --server-port "$proxy_port" --disable-cache-status)
if ((${#keys[@]})); then front+=(--api-keys "${keys[@]}"); fi
if [[ ${PROXY_HOST:-127.0.0.1} != 127.0.0.1 && ${#keys[@]} -eq 0 ]]; then
  echo "serve.sh: the proxy listens on $PROXY_HOST without API keys: anyone who reaches it may use it" >&2
fi
# The servers register by HTTP, which a proxy of the environment must not catch.
export no_proxy=${no_proxy:-${NO_PROXY:-}},${proxy%:*}
IFS=, read -ra cards <<<"${CUDA_VISIBLE_DEVICES:-0,1}"
children=()
# shellcheck disable=SC2317 # the traps call it
stop() {
  trap - TERM INT EXIT
  for child in ${children[@]+"${children[@]}"}; do kill -TERM "$child" 2>/dev/null || :; done
  wait
}
trap 'stop; exit 143' TERM INT
trap stop EXIT
if (exec 3<>"/dev/tcp/${proxy%:*}/$proxy_port") 2>/dev/null; then die "something listens at $proxy already"; fi
"${front[@]}" &
children+=($!)
for ((second = 0; second < 120; second++)); do
  if (exec 3<>"/dev/tcp/${proxy%:*}/$proxy_port") 2>/dev/null; then break; fi
  kill -0 "${children[0]}" 2>/dev/null || die "the proxy ended before it listened"
  sleep 1
done
((second < 120)) || die "the proxy does not listen at $proxy"
for ((server = 0; server < 2; server++)); do
  own=$(IFS=,; echo "${cards[*]:server*1:1}")
  CUDA_VISIBLE_DEVICES=$own "${lmdeploy[@]}" serve api_server "$MODEL" "${args[@]}" \
    --server-port $((SERVER_PORT + server)) &
  children+=($!)
done
code=0
wait -n || code=$?
die "a server or the proxy ended with status $code; all stopped"
