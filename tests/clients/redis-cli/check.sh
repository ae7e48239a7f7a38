#!/usr/bin/env bash
# What a person does with redis-cli: commands, its scanning and measuring modes, every way to
# connect.
set -euo pipefail

cli() { $REDIS_CLI -p "$PORT" "$@"; }

check() { # NAME GIVEN EXPECTED
  if [[ $2 != "$3" ]]; then
    printf '%s:\n%s\nis not\n%s\n' "$1" "$2" "$3" >&2
    exit 1
  fi
  echo "ok redis-cli $1"
}

# A mode that prints a report has printed this line of it.
reports() { # NAME LINE [ARGUMENT…]
  local report
  report=$(cli "${@:3}" 2>&1) || { printf '%s failed:\n%s\n' "$1" "$report" >&2; exit 1; }
  grep -q -- "$2" <<<"$report" || { printf '%s: no "%s" in\n%s\n' "$1" "$2" "$report" >&2; exit 1; }
  echo "ok redis-cli $1"
}

check ping "$(cli ping)" PONG
cli flushall >/dev/null
check set "$(cli set greeting hello)" OK
check get "$(cli get greeting)" hello
check formatted "$(cli --no-raw get greeting)" '"hello"'
check json "$(cli --json lrange none 0 -1)" '[]'
check 'standard input' "$(printf 'incr n\nincr n\n' | cli)" $'1\n2'
check resp3 "$(cli -3 --no-raw hgetall none)" '(empty hash)'
check 'a double of RESP3' "$(printf 'zadd board 2.5 a\nzscore board a\n' | cli -3 --no-raw)" \
  $'(integer) 1\n(double) 2.5'
check transaction "$(printf 'multi\nset a 1\nget a\nexec\n' | cli)" $'OK\nQUEUED\nQUEUED\nOK\n1'
check 'watch of a key that changed' \
  "$(printf 'watch a\nset a 2\nmulti\nget a\nexec\n' | cli --no-raw | tail -n 1)" '(nil)'
check 'library name' \
  "$(printf 'client setinfo lib-name check\nclient info\n' | cli | grep -o 'lib-name=[a-z]*')" \
  lib-name=check
check 'value from standard input' "$(printf 'x\ny' | cli -x set lines)" OK
check 'another database' "$(cli -n 3 dbsize)" 0
check 'exit status' "$(cli -e lpush greeting x >/dev/null 2>&1 || echo failed)" failed
check 'repeated command' "$(cli -r 3 incr repeated | tail -n 1)" 3
check 'help of a command' "$(printf 'command docs get\n' | cli | grep -c -x summary)" 1

check pipe "$(printf 'SET p%d 1\r\n' {1..500} | cli --pipe | tail -n 1)" 'errors: 0, replies: 500'
check 'pipe of replies that are errors' \
  "$(printf 'LPUSH greeting %d\r\n' 1 2 | cli --pipe 2>/dev/null | tail -n 1 || true)" \
  'errors: 2, replies: 2'
check scan "$(cli --scan --pattern 'p*' | sort -u | wc -l)" 500
cli rpush list 1 2 3 >/dev/null
reports 'biggest keys' 'Biggest *string found .* has 5 bytes' --bigkeys
reports 'keys by memory' 'Biggest *list found .*list' --memkeys
cli config set maxmemory-policy allkeys-lfu >/dev/null
for _ in {1..30}; do cli get greeting; done >/dev/null
reports 'hot keys' 'hot key found with counter: .*greeting' --hotkeys
cli config set maxmemory-policy noeviction >/dev/null
check 'hot keys need LFU' "$(cli --hotkeys 2>&1 | grep -c 'An LFU maxmemory policy is not selected')" 1
check latency "$(timeout 60 $REDIS_CLI -p "$PORT" --latency --raw -i 1 | wc -w)" 4
# It writes to a pipe in blocks, so that many lines come before the first is seen.
check statistics \
  "$( (timeout 60 $REDIS_CLI -p "$PORT" --stat -i 0.01 || true) | grep -m 1 -c '^5[0-9][0-9] .* (+')" 1
# Only when it has something to write does it notice that nobody reads any longer.
check subscribe "$( (timeout 60 $REDIS_CLI -p "$PORT" subscribe news | sed -n '4,6p;6q') &
  until [[ $(cli publish news hello) == 1 ]]; do sleep 0.05; done
  until [[ $(cli publish news hello) == 0 ]]; do sleep 0.05; done; wait)" $'message\nnews\nhello'
check 'blocking pop' "$( (cli blpop queue 5) & sleep 0.1; cli rpush queue job >/dev/null; wait)" $'queue\njob'
check monitor "$( (timeout 60 $REDIS_CLI -p "$PORT" monitor | grep -m 1 -o '"echo" "watched"') &
  while kill -0 $! 2>/dev/null; do cli echo watched >/dev/null; done; wait)" '"echo" "watched"'

# Snapshots by a replica's handshake: all of the data, and only its functions.
snapshots=$(mktemp -d)
trap 'rm -rf "$snapshots"' EXIT
cli function load replace $'#!lua name=stored\nredis.register_function("stored", function() return 1 end)' >/dev/null
cli --rdb "$snapshots/all" >/dev/null
cli --functions-rdb "$snapshots/functions" >/dev/null
contents() { grep -a -o -e REDIS0 -e name=stored -e greeting "$snapshots/$1" | sort -u | xargs; }
check 'a snapshot' "$(contents all)" 'REDIS0 greeting name=stored'
check 'a snapshot of the functions' "$(contents functions)" 'REDIS0 name=stored'
cli function delete stored >/dev/null

check 'unix socket' "$($REDIS_CLI -s "$SOCKET" get greeting)" hello
tls() { $REDIS_CLI -p "$TLS_PORT" --tls --cacert "$CA" "$@"; }
check tls "$(tls --cert "$CERT" --key "$KEY" get greeting)" hello
check 'tls wants a certificate' "$(tls get greeting 2>&1 | grep -c hello || true)" 0

# Each of these workloads prints one line of figures; an error would print another.
workloads=ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset
check benchmark \
  "$($REDIS_BENCHMARK -p "$PORT" -t $workloads -n 500 -P 4 -r 100 -q 2>&1 | tr '\r' '\n' |
    grep -c 'requests per second\|[Ee]rror')" 17

# The first command meets the closed connection, the next one opens another.
check 'reconnects after a restart' "$( (
  echo ping
  cli shutdown nosave >/dev/null || true
  until cli ping >/dev/null 2>&1; do sleep 0.05; done
  echo ping
  echo ping
) | cli 2>/dev/null)" $'PONG\nPONG'
