#!/usr/bin/env bash
# What a person does with redis-cli.
set -euo pipefail

cli() { $REDIS_CLI -p "$PORT" "$@"; }

check() { # NAME GIVEN EXPECTED
  if [[ $2 != "$3" ]]; then
    printf '%s:\n%s\nis not\n%s\n' "$1" "$2" "$3" >&2
    exit 1
  fi
  echo "ok redis-cli $1"
}

check ping "$(cli ping)" PONG
cli flushall >/dev/null
check set "$(cli set greeting hello)" OK
check get "$(cli get greeting)" hello
check formatted "$(cli --no-raw get greeting)" '"hello"'
check 'standard input' "$(printf 'incr n\nincr n\n' | cli)" $'1\n2'
check resp3 "$(cli -3 --no-raw hgetall none)" '(empty hash)'
check transaction "$(printf 'multi\nset a 1\nget a\nexec\n' | cli)" $'OK\nQUEUED\nQUEUED\nOK\n1'
check pipe "$(printf 'SET p%d 1\r\n' {1..500} | cli --pipe | tail -n 1)" 'errors: 0, replies: 500'
check scan "$(cli --scan --pattern 'p*' | wc -l)" 500
check bigkeys "$(cli --bigkeys | grep -o -m 1 'Biggest string')" 'Biggest string'
check 'value from standard input' "$(printf 'x\ny' | cli -x set lines)" OK
check 'another database' "$(cli -n 3 dbsize)" 0
check 'exit status' "$(cli -e lpush greeting x >/dev/null 2>&1 || echo failed)" failed
check latency "$(timeout 5 $REDIS_CLI -p "$PORT" --latency --raw -i 1 | wc -w)" 4
check subscribe "$( (timeout 10 $REDIS_CLI -p "$PORT" subscribe news | sed -n '4,6p;6q') &
  until [[ $(cli publish news hello) == 1 ]]; do sleep 0.05; done; wait)" $'message\nnews\nhello'
check 'blocking pop' "$( (cli blpop queue 5) & sleep 0.1; cli rpush queue job >/dev/null; wait)" $'queue\njob'
check tls "$($REDIS_CLI -p "$TLS_PORT" --tls --cacert "$CA" ping)" PONG
