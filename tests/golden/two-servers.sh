#!/usr/bin/env bash
# Made by lmdeploy-recommender 0.1.0.
# request: {"goal": "throughput", "gpu": "h100-sxm-80g", "gpu_count": 2, "load": "high"}
# rendered: bash 4c2d92990c6b89b7722f9ebd6e2695ea339600cf2e3bb4be390966f602e7cf1960736bdeb37f7a584edef5bfe2763ee559fbffc592a2a8c299
#
# OpenGVLab/InternVL3-8B-AWQ on 2 x NVIDIA H100 80GB SXM, LMDeploy 0.18.0,
# TurboMind.
# 64 concurrent requests: 1 image of 448x448, 330 input and 16 output tokens.
# Predicted: 10.1 GiB per GPU (10.0 to 10.1), 490 ms per request (435 to 552),
# 130.7 requests/s (115.5 to 147.2); modelled from measurements on the same GPU.
#
# Set REVISION before the start: the model runs code of its own, so name a
# commit of https://huggingface.co/OpenGVLab/InternVL3-8B-AWQ/commits/main
#
# To override a value below, set the environment variable of the same name; an empty one means the default.
#   ./serve.sh                        serve in the foreground
#   RESTART=5 ./serve.sh              restart after a crash, with back-off, at most 5 times an hour
#   API_KEYS_FILE=keys.txt ./serve.sh require one of the keys in that file
#   PREFLIGHT=no ./serve.sh           skip the checks before launch
set -euo pipefail

# The model: a hub name or a local folder.
MODEL=${MODEL:-OpenGVLab/InternVL3-8B-AWQ}

# Required: the commit to load; main accepts whatever is there today.
REVISION=${REVISION:-}

# 4 of 16 CPU cores
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

# Predictions hold for this engine
BACKEND=${BACKEND:-turbomind}

# 27,072 tokens of KV cache
CACHE_MAX_ENTRY_COUNT=${CACHE_MAX_ENTRY_COUNT:-0.021}

# Clients need no docs page
DISABLE_FASTAPI_DOCS=${DISABLE_FASTAPI_DOCS:-true}

# Concurrent requests: 32
MAX_BATCH_SIZE=${MAX_BATCH_SIZE:-32}

# A prompt has 330 tokens
MAX_PREFILL_TOKEN_NUM=${MAX_PREFILL_TOKEN_NUM:-4096}

# One address for 2 servers
PROXY_URL=${PROXY_URL:-http://127.0.0.1:8000}

# 16-bit KV cache
QUANT_POLICY=${QUANT_POLICY:-0}

# Local only: it has no API key
SERVER_NAME=${SERVER_NAME:-127.0.0.1}

# A new default cannot move it
SERVER_PORT=${SERVER_PORT:-23333}

# Up to 346 tokens a request
SESSION_LEN=${SESSION_LEN:-4096}

# The model brings its own code
TRUST_REMOTE_CODE=${TRUST_REMOTE_CODE:-true}

# No settings below: this reads keys, checks the machine and starts the server.
die() {
  echo "${0##*/}: $*" >&2
  exit 3
}

# API keys come from API_KEYS or from the file API_KEYS_FILE; API_KEYS wins if both are set. Blanks, commas and line
# ends separate keys in API_KEYS; in the file, each line is a key. Lines that begin with # are comments. A key is
# printable ASCII and does not begin with - or #. Set without a usable key, nothing starts.
read_keys() {
  local LC_ALL=C keys_from text line number=0 words key
  keys=()
  if [[ -n ${API_KEYS+set} ]]; then
    keys_from=API_KEYS
    text=$API_KEYS
    if [[ -n ${API_KEYS_FILE+set} ]]; then echo "API_KEYS and API_KEYS_FILE are both set: using API_KEYS" >&2; fi
  elif [[ -n ${API_KEYS_FILE+set} ]]; then
    keys_from="API_KEYS_FILE=${API_KEYS_FILE@Q}"
    { text=$(head -c 65537 <"$API_KEYS_FILE" | tr '\0' '\1'); } 2>/dev/null || die "cannot read $keys_from"
    ((${#text} <= 65536)) || die "$keys_from is larger than 64 KiB"
  else
    return 0
  fi
  text=${text#$'\xef\xbb\xbf'} # a byte-order mark
  while IFS= read -r line; do
    number=$((number + 1))
    line=${line%$'\r'}
    line=${line#"${line%%[![:blank:]]*}"}
    line=${line%"${line##*[![:blank:]]}"}
    if [[ -z $line || $line == '#'* ]]; then continue; fi
    words=("$line")
    if [[ $keys_from == API_KEYS ]]; then IFS=$', \t' read -ra words <<<"${line//,/ }"; fi
    for key in ${words[@]+"${words[@]}"}; do
      if [[ $key == [-#]* || $key == *[[:blank:]]'#'* || $key == *[!\ -~]* ]]; then
        die "$keys_from, line $number: a key is printable ASCII and does not begin with - or #; a comment needs its own line"
      fi
      keys+=("$key")
    done
  done <<<"$text"
  ((${#keys[@]})) || die "no key in $keys_from"
}
read_keys

# A signal stops everything that this script started; it then exits with 128 plus the signal's number. The servers get
# TERM, because programs in the background ignore INT. As a container's first process, bash heeds only trapped signals.
# shellcheck disable=SC2317 # called by the traps
stop() {
  trap '' HUP INT QUIT TERM
  trap - EXIT
  local started
  mapfile -t started < <(jobs -pr)
  ((${#started[@]} == 0)) || kill -TERM "${started[@]}" 2>/dev/null || :
  wait
  exit "$1"
}
trap 'stop 129' HUP
trap 'stop 130' INT
trap 'stop 131' QUIT
trap 'stop 143' TERM
trap 'stop $?' EXIT

# Whether only this host can reach an address.
loopback() { [[ ${1,,} =~ ^\[?(localhost|(::ffff:)?127(\.[0-9]{1,3}){1,3}|[0:]*:0{0,3}1)\]?$ ]]; }

# The interpreter with LMDeploy: $PYTHON, else that of the lmdeploy command, else python3.
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
  local found driver free used listed index id known named indices=() uuids=() cards=()
  command -v "$PYTHON" >/dev/null || die "$PYTHON not found; install Python 3.10 or later, or set PYTHON"
  "$PYTHON" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 15))' ||
    die "$PYTHON is too old or too new; LMDeploy 0.18.0 needs Python >=3.10,<3.15"
  found=$("$PYTHON" -c 'import importlib.metadata as m; print(m.version("lmdeploy"))' 2>/dev/null) ||
    die "LMDeploy is not installed for $PYTHON; run: $PYTHON -m pip install lmdeploy==0.18.0"
  found=${found%%+*} # builds for another CUDA append it after a plus sign
  [[ $found == 0.18.0 || $found == 0.18.0.post* ]] ||
    die "LMDeploy $found is installed; this script is for 0.18.0: run recommend --lmdeploy $found, or set PREFLIGHT=no"
  command -v nvidia-smi >/dev/null || die "no nvidia-smi found; install an NVIDIA driver for CUDA 12"
  listed=$(nvidia-smi 2>&1) || die "nvidia-smi fails; is the NVIDIA driver loaded? ${listed%%$'\n'*}"
  driver=$(sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9]*\).*/\1/p' <<<"$listed" | head -1)
  [[ -z $listed || -n $driver ]] || die "nvidia-smi shows no driver for CUDA: ${listed%%$'\n'*}"
  ((${driver:-99} >= 12)) || die "the driver supports CUDA $driver; LMDeploy 0.18.0 needs CUDA 12"
  listed=$(nvidia-smi --query-gpu=index,uuid --format=csv,noheader 2>&1) ||
    die "nvidia-smi cannot list the GPUs; is the NVIDIA driver loaded? ${listed%%$'\n'*}"
  while IFS=, read -r index id; do
    if [[ $index =~ ^[0-9]+$ ]]; then indices+=("$index") uuids+=("${id# }"); fi
  done <<<"$listed"
  ((${#indices[@]})) || die "nvidia-smi lists no GPU; is the NVIDIA driver loaded? ${listed%%$'\n'*}"
  if [[ -n ${CUDA_VISIBLE_DEVICES+set} ]]; then
    IFS=, read -ra named <<<"${CUDA_VISIBLE_DEVICES// /}"
    for id in ${named[@]+"${named[@]}"}; do
      if [[ $id =~ ^GPU-. ]]; then known=" ${uuids[*]}"; else known=" ${indices[*]} "; fi
      [[ $id =~ ^MIG-. || $id =~ ^GPU-. && $known == *" $id"* || $known == *" $id "* ]] ||
        die "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES names GPU '$id'; nvidia-smi lists ${indices[*]}"
      [[ " ${cards[*]-} " != *" $id "* ]] || die "CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES names GPU $id twice"
      cards+=("$id")
    done
  else
    cards=("${indices[@]}")
  fi
  ((${#cards[@]} >= 2)) || die "${#cards[@]} GPU(s) found; 2 needed (CUDA_VISIBLE_DEVICES is ${CUDA_VISIBLE_DEVICES-not set})"
  used=$(IFS=,; echo "${cards[*]:0:2}")
  free=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits -i "$used" 2>/dev/null | sort -n | head -1) || free=
  if [[ $free =~ ^[0-9]+$ ]]; then
    ((free >= 11413)) || die "$free MiB free on GPU $used; 11413 MiB may be needed: stop other processes there"
  else
    echo "${0##*/}: nvidia-smi does not report the free memory of GPU $used; 11413 MiB may be needed" >&2
  fi
  if (exec 3<>"/dev/tcp/$SERVER_NAME/$SERVER_PORT") 2>/dev/null; then
    die "something listens on port $SERVER_PORT already; set SERVER_PORT"
  fi
  model_there || die "$MODEL is not a folder with config.json, is not in the cache, and cannot be downloaded (HF_HUB_OFFLINE is set, or less than 7 GiB free)"
}

model_there() {
  local offline cache=${HF_HUB_CACHE:-${HF_HOME:-${XDG_CACHE_HOME:-~/.cache}/huggingface}/hub}
  [[ -f $MODEL/config.json || -d $cache/models--${MODEL//\//--}/snapshots ]] && return
  offline=${HF_HUB_OFFLINE:-${TRANSFORMERS_OFFLINE:-0}}
  [[ ! ${offline^^} =~ ^(1|ON|TRUE|YES)$ ]] || return 1
  while [[ ! -d $cache ]]; do cache=$(dirname "$cache"); done
  (($(df -Pk "$cache" | awk 'END {print int($4 / 1048576)}') >= 7))
}

: "${PREFLIGHT:=yes}"
switches=(PREFLIGHT DISABLE_FASTAPI_DOCS TRUST_REMOTE_CODE)
for name in "${switches[@]}"; do
  case ${!name,,} in
    1 | on | true | yes) printf -v "$name" true ;;
    0 | off | false | no) printf -v "$name" false ;;
    *) die "$name=${!name@Q} is neither true nor false" ;;
  esac
done
[[ $MODEL != -* ]] || die "MODEL=$MODEL is an option, not a model; write a folder as ./$MODEL"
# LMDeploy takes an IPv6 address without brackets.
if [[ $SERVER_NAME =~ ^\[.*]$ ]]; then SERVER_NAME=${SERVER_NAME:1:-1}; fi

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
if [[ $PREFLIGHT == true && ($MODEL =~ ^\.{0,2}/ || -d $MODEL) && ! -f $MODEL/config.json ]]; then
  die "MODEL=$MODEL: no config.json in that folder"
fi
if [[ -z $REVISION && ! -d $MODEL ]]; then
  echo "${0##*/}: REVISION is not set: $MODEL runs code from its repository;" \
    "set it to a commit of https://huggingface.co/$MODEL/commits/main, or to main for the current version" >&2
  exit 2
fi
if [[ -n ${REVISION:-} && ! -d $MODEL ]]; then args+=(--revision "$REVISION"); fi

if [[ $PREFLIGHT == true ]]; then preflight; fi

: "${RESTART:=0}"
[[ $RESTART =~ ^(0|[1-9][0-9]{0,5})$ ]] || die "RESTART=${RESTART@Q} is not a whole number below a million"
# With RESTART, this script supervises itself: everything it starts is restarted together.
launch=(env RESTART=0 PREFLIGHT=no bash "${BASH_SOURCE[0]}")

# Restart after a crash, waiting 5, 10, 20 ... 300 seconds. Give up after
# RESTART crashes within an hour.
supervise() {
  local code pause now at crashes=() recent
  while :; do
    code=0
    "${launch[@]}" &
    wait "$!" || code=$?
    if ((code == 0 || RESTART == 0)); then exit "$code"; fi
    now=$SECONDS
    recent=()
    for at in ${crashes[@]+"${crashes[@]}"}; do if ((now - at < 3600)); then recent+=("$at"); fi; done
    crashes=(${recent[@]+"${recent[@]}"} "$now")
    if ((${#crashes[@]} > RESTART)); then die "crashed ${#crashes[@]} times within an hour, last with status $code; giving up"; fi
    pause=$((5 * 2 ** (${#crashes[@]} - 1)))
    if ((pause > 300)); then pause=300; fi
    echo "${0##*/}: server exited with status $code; restarting in $pause s" >&2
    sleep "$pause" &
    wait "$!" || :
  done
}
if [[ $RESTART != 0 ]]; then supervise; fi

# 2 servers, each on 1 card(s) of its own, behind LMDeploy's proxy. The proxy
# starts first, because a server registers only once and does not retry.
# If one process stops, all stop.
proxy=${PROXY_URL#*://}
proxy=${proxy%%/*}
proxy_port=${proxy##*:}
front=("${lmdeploy[@]}" serve proxy --server-name "${PROXY_HOST:-127.0.0.1}" --server-port "$proxy_port" --disable-cache-status)
if ((${#keys[@]})); then front+=(--api-keys "${keys[@]}"); fi
if ! loopback "${PROXY_HOST:-127.0.0.1}" && ((${#keys[@]} == 0)); then
  echo "${0##*/}: the proxy listens on $PROXY_HOST without API keys: anyone who can reach it can use it" >&2
fi
# The servers register over HTTP, which must bypass any proxy set in the environment.
export no_proxy=${no_proxy:-${NO_PROXY:-}},${proxy%:*}
IFS=, read -ra cards <<<"${CUDA_VISIBLE_DEVICES:-0,1}"
if (exec 3<>"/dev/tcp/${proxy%:*}/$proxy_port") 2>/dev/null; then die "something listens at $proxy already"; fi
"${front[@]}" &
children=($!)
for ((second = 0; second < 120; second++)); do
  if (exec 3<>"/dev/tcp/${proxy%:*}/$proxy_port") 2>/dev/null; then break; fi
  kill -0 "${children[0]}" 2>/dev/null || die "the proxy exited before it was listening"
  sleep 1
done
((second < 120)) || die "the proxy is not listening at $proxy"
for ((server = 0; server < 2; server++)); do
  own=$(IFS=,; echo "${cards[*]:server*1:1}")
  CUDA_VISIBLE_DEVICES=$own "${lmdeploy[@]}" serve api_server "$MODEL" "${args[@]}" \
    --server-port $((SERVER_PORT + server)) &
  children+=($!)
done
code=0
wait -n || code=$?
die "a server or the proxy exited with status $code; all stopped"
