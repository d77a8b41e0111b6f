# shellcheck shell=bash
# Sourced by .ci/run and .ci/nightly: runs named parts in order, all of them even when one fails, and says which failed.
export PYTHONUNBUFFERED=1
# Some images set it. Then each worker of pytest compiles all tests anew: 11 s of a core.
unset PYTHONDONTWRITEBYTECODE
# A test that needs a second try is to be mended. Five in 9,000 leave room for a machine that others use, where real browsers and
# agents start late; more are a defect of the product or of the tests.
MAX_RERUNS=5

outputs="$(mktemp -d)"
# tests/support/second_try.py writes here which tests of all parts passed at their second try.
export SHIM_RERUNS="$outputs/reruns"
: >"$SHIM_RERUNS"
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$outputs"' EXIT

failed=()
times=()

part() { # name, command...
  local began=$SECONDS
  printf '\n== %s\n' "$1"
  "${@:2}" || failed+=("$1")
  times+=("$(printf '%-8s %5d s' "$1" $((SECONDS - began)))")
}

tests() { # ARGS, command...: a target of make that runs pytest. What fails is run once more, alone
  local failures="$outputs/failed-$BASHPID" # where second_try.py writes which tests failed
  : >"$failures"
  SHIM_FAILED="$failures" "${@:2}" ARGS="$1" && return
  [[ -s $failures ]] || return 1
  printf '\n== once more\n'
  cat "$failures"
  SHIM_FAILED="$failures" SHIM_SECOND_TRY=1 "${@:2}" ARGS="$1 -n 0"
}

background() { # name, command...: runs beside the parts that follow, until `collect`
  ("${@:2}") >"$outputs/$1" 2>&1 &
  printf -v "pid_${1//-/_}" %s $!
}

collect() { # name: waits for a `background` and prints what it wrote
  local pid="pid_${1//-/_}"
  local code=0
  wait "${!pid}" || code=$?
  cat "$outputs/$1"
  return "$code"
}

finish() { # prints the times, the reruns and the parts that failed; exits with 1 if one has
  printf '\n== times\n'
  printf '%s\n' "${times[@]}"
  local reruns
  reruns=$(wc -l <"$SHIM_RERUNS")
  if ((reruns)); then
    printf '\npassed only when run again: %d, %d are allowed\n' "$reruns" "$MAX_RERUNS"
    sort "$SHIM_RERUNS"
    ((reruns <= MAX_RERUNS)) || failed+=(reruns)
  fi
  if ((${#failed[@]})); then
    printf '\nfailed: %s\n' "${failed[*]}"
    exit 1
  fi
}
