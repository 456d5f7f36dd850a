#!/usr/bin/env bash
# Made by lmdeploy-recommender 0.1.0.
# request: {"gpu": "l4", "lmdeploy": "0.9.2", "load": "low", "model": "qwen2.5-7b-instruct-awq"}
# rendered: bash 5363c3e432783e49a86433daea339600cf2eeaddc83909666ee53eeea784b37f7a584edef5bfe29e97e7c592a2
#
# Qwen/Qwen2.5-7B-Instruct-AWQ on 1 x NVIDIA L4, LMDeploy 0.9.2, TurboMind.
# 4 concurrent requests: 1,053 input and 128 output tokens.
# Predicted: 8.83 GiB per GPU (8.08 to 9.61), 3,295 ms per request (1,823 to
# 5,956), 1.2 requests/s (0.7 to 2.2); extrapolated from datasheets.
#
# To override a value below, set the environment variable of the same name; an empty one means the default.
#   ./serve.sh                        serve in the foreground
#   RESTART=5 ./serve.sh              restart after a crash, with back-off, at most 5 times an hour
#   API_KEYS_FILE=keys.txt ./serve.sh require one of the keys in that file
#   PREFLIGHT=no ./serve.sh           skip the checks before launch
set -euo pipefail

# The model: a hub name or a local folder.
MODEL=${MODEL:-Qwen/Qwen2.5-7B-Instruct-AWQ}

# 4 of 16 CPU cores
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

# Predictions hold for this engine
BACKEND=${BACKEND:-turbomind}

# 10,880 tokens of KV cache
CACHE_MAX_ENTRY_COUNT=${CACHE_MAX_ENTRY_COUNT:-0.04}

# Clients need no docs page
DISABLE_FASTAPI_DOCS=${DISABLE_FASTAPI_DOCS:-true}

# 4 planned, room for more
MAX_BATCH_SIZE=${MAX_BATCH_SIZE:-8}

# A prompt has 1053 tokens
MAX_PREFILL_TOKEN_NUM=${MAX_PREFILL_TOKEN_NUM:-8192}

# 16-bit KV cache
QUANT_POLICY=${QUANT_POLICY:-0}

# Local only: it has no API key
SERVER_NAME=${SERVER_NAME:-127.0.0.1}

# A new default cannot move it
SERVER_PORT=${SERVER_PORT:-23333}

# Up to 1181 tokens a request
SESSION_LEN=${SESSION_LEN:-9472}

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
  command -v "$PYTHON" >/dev/null || die "$PYTHON not found; install Python 3.9 or later, or set PYTHON"
  "$PYTHON" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] < (3, 14))' ||
    die "$PYTHON is too old or too new; LMDeploy 0.9.2 needs Python >=3.9,<3.14"
  found=$("$PYTHON" -c 'import importlib.metadata as m; print(m.version("lmdeploy"))' 2>/dev/null) ||
    die "LMDeploy is not installed for $PYTHON; run: $PYTHON -m pip install lmdeploy==0.9.2"
  found=${found%%+*} # builds for another CUDA append it after a plus sign
  [[ $found == 0.9.2 || $found == 0.9.2.post* ]] ||
    die "LMDeploy $found is installed; this script is for 0.9.2: run recommend --lmdeploy $found, or set PREFLIGHT=no"
  command -v nvidia-smi >/dev/null || die "no nvidia-smi found; install an NVIDIA driver for CUDA 12"
  listed=$(nvidia-smi 2>&1) || die "nvidia-smi fails; is the NVIDIA driver loaded? ${listed%%$'\n'*}"
  driver=$(sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9]*\).*/\1/p' <<<"$listed" | head -1)
  [[ -z $listed || -n $driver ]] || die "nvidia-smi shows no driver for CUDA: ${listed%%$'\n'*}"
  ((${driver:-99} >= 12)) || die "the driver supports CUDA $driver; LMDeploy 0.9.2 needs CUDA 12"
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
  ((${#cards[@]} >= 1)) || die "${#cards[@]} GPU(s) found; 1 needed (CUDA_VISIBLE_DEVICES is ${CUDA_VISIBLE_DEVICES-not set})"
  used=$(IFS=,; echo "${cards[*]:0:1}")
  free=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits -i "$used" 2>/dev/null | sort -n | head -1) || free=
  if [[ $free =~ ^[0-9]+$ ]]; then
    ((free >= 10794)) || die "$free MiB free on GPU $used; 10794 MiB may be needed: stop other processes there"
  else
    echo "${0##*/}: nvidia-smi does not report the free memory of GPU $used; 10794 MiB may be needed" >&2
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
switches=(PREFLIGHT DISABLE_FASTAPI_DOCS)
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
  --quant-policy "$QUANT_POLICY"
  --server-name "$SERVER_NAME"
  --server-port "$SERVER_PORT"
  --session-len "$SESSION_LEN"
)
if [[ $DISABLE_FASTAPI_DOCS == true ]]; then args+=(--disable-fastapi-docs); fi
if [[ $PREFLIGHT == true && ($MODEL =~ ^\.{0,2}/ || -d $MODEL) && ! -f $MODEL/config.json ]]; then
  die "MODEL=$MODEL: no config.json in that folder"
fi
if [[ -n ${REVISION:-} && ! -d $MODEL ]]; then args+=(--revision "$REVISION"); fi

if [[ $PREFLIGHT == true ]]; then preflight; fi

: "${RESTART:=0}"
[[ $RESTART =~ ^(0|[1-9][0-9]{0,5})$ ]] || die "RESTART=${RESTART@Q} is not a whole number below a million"
# LMDeploy takes keys as arguments, so users of this host can read them in ps.
if ((${#keys[@]})); then args+=(--api-keys "${keys[@]}"); fi
if ! loopback "$SERVER_NAME" && ((${#keys[@]} == 0)); then
  echo "${0##*/}: listening on $SERVER_NAME without API keys: anyone who can reach it can use it" >&2
fi

launch=("${lmdeploy[@]}" serve api_server "$MODEL" "${args[@]}")
# The server takes this script's place, so that signals reach it, unless that is a container's first process.
if [[ $RESTART == 0 && $$ != 1 ]]; then exec "${launch[@]}"; fi

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
supervise
