#!/usr/bin/env bash
# Made by lmdeploy-recommender 0.1.0.
# request: {"gpu": "l4", "lmdeploy": "0.9.2", "load": "low", "model": "qwen2.5-7b-instruct-awq"}
# rendered: bash 8fec934547213e49a86433daea339600cf2ef191b139096662e36dcf1960b37f7a584edef5bfe2763ee5c592a2
#
# Qwen/Qwen2.5-7B-Instruct-AWQ on 1 x NVIDIA L4, LMDeploy 0.9.2, TurboMind.
# 4 requests in flight: 1053 tokens in, 128 out.
# Predicted: 8.51 GiB a card (7.79 to 9.08), 3,235 ms a request (1,787 to
# 5,853), 1.2 requests/s (0.7 to 2.2); extrapolated from datasheets.
#
# Each value below can be overridden by an environment variable of its name.
#   ./serve.sh                        serve in the foreground
#   RESTART=5 ./serve.sh              restart after a crash, with back-off, 5 times an hour at most
#   API_KEYS_FILE=keys.txt ./serve.sh ask clients for one of the keys in that file
#   PREFLIGHT=no ./serve.sh           skip the checks before the launch
set -euo pipefail

# The model: a name on the hub or a local folder.
MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct-AWQ}

# 4 of 16 CPU cores for the CPU tensor operations of each server; text requests
# use little of it.
# [unverified]
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

# TurboMind serves Qwen2ForCausalLM in LMDeploy 0.9.2, and the estimates here
# are made for it. Written out although it is the default. If the log says that
# it falls back to the PyTorch engine, the plan does not hold.
# [0.18.0 lmdeploy/archs.py:42; 0.18.0 lmdeploy/archs.py:38]
BACKEND=${BACKEND:-turbomind}

# Of the 14.488 GiB free after the weights this takes 0.536 GiB: 9984 tokens of
# cache, where 4864 are needed for the load or for one full session, whichever
# is more. The rest is head-room: this release cuts the session length to what
# the cache holds.
# [0.9.2 src/turbomind/models/llama/LlamaBatch.cc:894]
CACHE_MAX_ENTRY_COUNT=${CACHE_MAX_ENTRY_COUNT:-0.037}

# Production has no need of the docs pages: they list every route, management
# routes included, and from 0.12.2 the page at / asks for a key anyway when keys
# are set. Clients do not use them.
# [0.18.0 lmdeploy/serve/openai/api_server.py:389; 0.18.0 lmdeploy/serve/utils/server_utils.py:103]
DISABLE_FASTAPI_DOCS=${DISABLE_FASTAPI_DOCS:-true}

# The 4 requests in flight that were asked for, so that what was predicted is
# also the limit; more would only wait.
# [0.16.0 src/turbomind/engine/engine.cc:794]
MAX_BATCH_SIZE=${MAX_BATCH_SIZE:-4}

# 4096 prompt tokens a pass hold a prompt of 1053 whole; with one token for each
# running request a pass may have 4100, which sizes the workspaces and the
# warm-up.
# [0.16.0 src/turbomind/turbomind.cc:173; 0.16.0 src/turbomind/engine/engine.cc:463]
MAX_PREFILL_TOKEN_NUM=${MAX_PREFILL_TOKEN_NUM:-4096}

# 16 bits: the cache holds 9984 tokens where 4864 are needed, so there is no
# cause to give up accuracy.
# [0.16.0 src/turbomind/models/llama/unified_attention_layer.cc:151]
QUANT_POLICY=${QUANT_POLICY:-0}

# Bound to 127.0.0.1: there is no API key by default, so an open address would
# hand the model and the management routes to anyone who reaches the port. Set
# SERVER_NAME in the environment to open it on purpose.
# [0.18.0 lmdeploy/serve/openai/api_server.py:438; 0.18.0 lmdeploy/serve/openai/endpoints/management.py:55]
SERVER_NAME=${SERVER_NAME:-127.0.0.1}

# Written out although it is the usual port: the command then says where the
# server listens, and a later change of the default cannot move it.
# [0.18.0 lmdeploy/cli/serve.py:332]
SERVER_PORT=${SERVER_PORT:-23333}

# A prompt of 1053 tokens and an answer of 128 are planned. 4096 is one full
# prefill pass: only prompts whose lengths add up to the session length are
# prefilled together. The engine refuses a longer prompt.
# [0.15.0 src/turbomind/engine/engine.cc:381; 0.16.0 src/turbomind/engine/engine.cc:464]
SESSION_LEN=${SESSION_LEN:-4096}

args=(
  --backend "$BACKEND"
  --cache-max-entry-count "$CACHE_MAX_ENTRY_COUNT"
  --max-batch-size "$MAX_BATCH_SIZE"
  --max-prefill-token-num "$MAX_PREFILL_TOKEN_NUM"
  --quant-policy "$QUANT_POLICY"
  --server-name "$SERVER_NAME"
  --server-port "$SERVER_PORT"
  --session-len "$SESSION_LEN"
)
if [[ $DISABLE_FASTAPI_DOCS == true ]]; then args+=(--disable-fastapi-docs); fi
if [[ ${PREFLIGHT:-yes} != no && $MODEL =~ ^\.{0,2}/ && ! -f $MODEL/config.json ]]; then
  echo "serve.sh: MODEL is $MODEL, and there is no config.json in that folder" >&2
  exit 3
fi
if [[ -n ${REVISION:-} && ! -d $MODEL ]]; then args+=(--revision "$REVISION"); fi

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
  command -v "$PYTHON" >/dev/null || die "no $PYTHON; install Python 3.9 or later, or set PYTHON"
  "$PYTHON" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] < (3, 14))' ||
    die "$PYTHON is too old or too new; LMDeploy 0.9.2 needs Python >=3.9,<3.14"
  found=$("$PYTHON" -c 'import importlib.metadata as m; print(m.version("lmdeploy"))' 2>/dev/null) ||
    die "LMDeploy is not installed for $PYTHON; run: $PYTHON -m pip install lmdeploy==0.9.2"
  found=${found%%+*} # a build for another CUDA names it behind a plus sign
  [[ $found == 0.9.2 || $found == 0.9.2.post* ]] ||
    die "LMDeploy $found is installed; this script is for 0.9.2: run recommend --lmdeploy $found, or set PREFLIGHT=no"
  command -v nvidia-smi >/dev/null || die "no nvidia-smi; an NVIDIA driver for CUDA 12 is needed"
  driver=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9]*\).*/\1/p' | head -1) || driver=
  ((${driver:-99} >= 12)) || die "the driver is for CUDA $driver; LMDeploy 0.9.2 needs CUDA 12"
  if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    IFS=, read -ra cards <<<"${CUDA_VISIBLE_DEVICES// /}"
  else
    mapfile -t cards < <(nvidia-smi --query-gpu=index --format=csv,noheader)
  fi
  ((${#cards[@]} >= 1)) || die "${#cards[@]} GPU(s) found; 1 needed (CUDA_VISIBLE_DEVICES is ${CUDA_VISIBLE_DEVICES-not set})"
  used=$(IFS=,; echo "${cards[*]:0:1}")
  free=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits -i "$used" 2>/dev/null | sort -n | head -1) || free=
  if [[ $free =~ ^[0-9]+$ ]]; then
    ((free >= 10837)) || die "$free MiB free on GPU $used; 10837 MiB may be needed: stop what else runs there"
  else
    echo "serve.sh: nvidia-smi does not tell the free memory of GPU $used; 10837 MiB may be needed" >&2
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
if ((${#keys[@]})); then args+=(--api-keys "${keys[@]}"); fi
host=${SERVER_NAME:-127.0.0.1}
if [[ $host != 127.0.0.1 && ${#keys[@]} -eq 0 ]]; then
  echo "serve.sh: listening on $host without API keys: anyone who reaches it may use it" >&2
fi

launch=("${lmdeploy[@]}" serve api_server "$MODEL" "${args[@]}")
[[ ${RESTART:-0} =~ ^(0|[1-9][0-9]*)$ ]] || die "RESTART is $RESTART; use a whole number"
if [[ ${RESTART:-0} == 0 ]]; then exec "${launch[@]}"; fi

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
