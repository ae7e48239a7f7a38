//! The texts of `--help` and `--version`.

use crate::flavor::Flavor;

/// What `--version` prints.
pub fn version(flavor: Flavor) -> String {
    format!("{} {}\n", flavor.program(), env!("CARGO_PKG_VERSION"))
}

/// What `--help` prints.
pub fn text(flavor: Flavor) -> String {
    let (program, variable) = (flavor.program(), flavor.password_variables()[0]);
    format!(
        "\
Sends commands to a server that speaks RESP

Usage: {program} [OPTION ...] [COMMAND [ARGUMENT ...]]

Without a command it asks for commands; 'help' there explains them.

Connection:
  -h HOST              name or address of the server (127.0.0.1)
  -p PORT              its port (6379)
  -s PATH              a Unix socket instead
  -u URI               redis://USER:PASSWORD@HOST:PORT/DATABASE; rediss:// for TLS; valkey://, valkeys://
  -t SECONDS           give up connecting after this time
  -4, -6               try IPv4 or IPv6 addresses first
  -a, --pass PASSWORD  password; others can see it, {variable} is safer
  --user NAME          user of the password
  --askpass            ask for the password
  --no-auth-warning    no warning about a password in the arguments
  -n NUMBER            database
  -2, -3               speak RESP2 or RESP3
  -c                   follow redirections of a cluster
  --cluster COMMAND    make, check and change a cluster; --cluster help lists the commands and their
                       options --cluster-…
  --tls                encrypt; with:
    --cacert FILE, --cacertdir DIR, --insecure, --sni HOST, --cert FILE, --key FILE,
    --tls-ciphers LIST, --tls-ciphersuites LIST

Commands:
  -r COUNT             send the command so often; -1 is forever
  -i SECONDS           pause between; also of --scan, --stat, --bigkeys and the like
  -x                   append standard input as the last argument
  -X TAG               replace the argument TAG by standard input
  --quoted-input       arguments are quoted strings: '\"a\\x00b\"'
  -e                   end with status 1 when the server answers with an error
  --eval FILE          run a Lua script: KEY ... , ARGUMENT ...

Output:
  --raw, --no-raw      bytes, or typed and quoted (default: for people on a terminal)
  --csv, --json        CSV, JSON
  --quoted-json        JSON of ASCII only
  -d TEXT, -D TEXT     between elements, and after replies, of raw output
  --show-pushes YES|NO whether to print pushes

Looking at a server:
  --stat               a line of figures each second
  --latency, --latency-history, --latency-dist
                       round trips, measured without end; once if the output is no terminal
  --intrinsic-latency SECONDS
                       how long this machine takes away a processor
  --scan               list keys; with --pattern PATTERN, --quoted-pattern, --count COUNT
  --bigkeys, --memkeys, --memkeys-samples COUNT, --keystats, --keystats-samples COUNT
                       the largest keys; with --top COUNT and --cursor CURSOR
  --hotkeys, --hotkeys-count COUNT
                       the keys used most, where the policy is an LFU one
  --replica            print the commands that a replica receives
  --lru-test KEYS      the hit ratio of a cache under a load of 80 to 20

Moving data:
  --pipe               send standard input, which is RESP, and count the replies
  --pipe-timeout SECONDS
                       how long to wait for them at the end (30; 0 is forever)
  --rdb FILE           take a snapshot over the network; - is standard output
  --functions-rdb FILE the same of the functions alone

  --verbose            say more
  --help, --version
"
    )
}
