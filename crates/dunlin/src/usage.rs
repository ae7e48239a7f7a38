//! The texts of `dunlin help` and its kin.

use process::facts;
use structs::misspelling;

/// What can be asked for.
pub const COMMANDS: [&str; 12] = [
    "server",
    "cli",
    "check",
    "cluster",
    "node",
    "proxy",
    "container",
    "console",
    "bench",
    "completions",
    "help",
    "version",
];

/// What `dunlin help` prints.
pub fn program() -> String {
    "\
A Redis-compatible data store that uses every core, and the tools around it

Usage: dunlin COMMAND [ARGUMENT ...]

Commands:
  server       run the data store; takes what redis-server takes
  cli          send commands to any server that speaks RESP; takes what redis-cli takes
  check        check files: dunlin check rdb dump.rdb
  cluster      databases over several machines: dunlin cluster up, create-db, status
  node         run the node of a machine, with an etcd that is there already
  proxy        one address in front of servers; takes a nutcracker.yml
  container    the entry point of the container image
  console      a web console for any server that speaks RESP
  bench        put load on any server that speaks RESP, and measure
  completions  print what a shell completes: dunlin completions bash, zsh or fish
  help         print this, or the help of a command: dunlin help cluster up
  version      print the version, and the commit of a release; so does COMMAND --version

Called through a link named redis-server or valkey-server, dunlin is the server; through one named
redis-cli, redis-benchmark, redis-check-rdb or redis-check-aof (or valkey-…), it is that tool.

The guide: docs/quickstart.md
"
    .to_owned()
}

/// What is said about a command that does not exist.
pub fn unknown_command(command: &str) -> String {
    if command.starts_with("--") || command.ends_with(".conf") {
        // redis-server takes this without a subcommand.
        return format!("dunlin: did you mean 'dunlin server {command}'?\n");
    }
    match misspelling::closest(command.as_bytes(), COMMANDS) {
        Some(known) => {
            format!("dunlin: there is no command '{command}'; did you mean 'dunlin {known}'?\n")
        }
        None => format!("dunlin: there is no command '{command}'; 'dunlin help' lists them all\n"),
    }
}

/// What is said to a start in Sentinel mode.
pub fn sentinel() -> String {
    "dunlin: there is no Sentinel mode; redis-sentinel and valkey-sentinel watch Dunlin servers too\n"
        .to_owned()
}

/// What `dunlin server --help` prints, for a server started as `called`.
pub fn server(called: &str) -> String {
    format!(
        "\
Runs the data store

Usage: {called} [CONFIG] [--DIRECTIVE VALUE ...] [-]
       {called} -             read the configuration from standard input
       {called} -v | --version
       {called} -h | --help

CONFIG is a redis.conf or valkey.conf. Directives given as arguments come after it, so they win.
Without arguments the server runs with the default configuration on port 6379.

Directives that are asked for most:
       --port N --bind ADDRESS          where it listens
       --requirepass PASSWORD           without it only this machine may connect
       --dir FOLDER                     where its files are
       --save '3600 1' --appendonly yes what survives a restart
       --maxmemory 4gb                  with --maxmemory-policy allkeys-lru it is a cache
       --tier-dir FOLDER                cold values go to a file there
       --replicaof 'HOST PORT'          a copy of another server
       --admin-port N                   metrics, health and the web console
All of them, with their values and defaults: docs/configuration.md, or CONFIG GET * of a server
that runs.

Examples:
       {called}
       {called} /etc/dunlin.conf
       {called} --port 7777 --io-threads 4
       {called} /etc/dunlin.conf --loglevel verbose -
       echo 'maxmemory 128mb' | {called} -

The guide: docs/operations.md
"
    )
}

/// What `dunlin container --help` prints.
pub fn container() -> String {
    "\
Starts what a container of the image runs: the server, or the command that is named

Usage: dunlin container [redis-server] [CONFIG] [--DIRECTIVE VALUE ...]
       dunlin container COMMAND [ARGUMENT ...]
       dunlin container --healthcheck     status 0 if the server has loaded and answers

As root it gives /data to the user 999 and runs the server as that user. The server's directives
are those of dunlin server.

Variables of the environment:
       REDIS_PASSWORD, VALKEY_PASSWORD  the password; with _FILE behind it the file that has it
       REDIS_ARGS, VALKEY_ARGS          more directives; also REDIS_EXTRA_FLAGS and
                                        VALKEY_EXTRA_FLAGS
       ALLOW_EMPTY_PASSWORD             without a password: yes answers every address, no refuses
                                        to start
       DUNLIN_CLOSED=1                  without a password: answer this container alone, and not
                                        its private network
       DUNLIN_HEALTH_PORT               the port that the health check asks (6379)
       SKIP_FIX_PERMS=1                 leave the owner of /data
       SKIP_DROP_PRIVS=1                stay root

The guide: docs/deploy.md
"
    .to_owned()
}

/// What `dunlin server --version` prints: the shape that scripts know from redis-server. They take
/// the version in it for one of Redis, so it is INFO's `redis_version`; our own comes last.
pub fn server_version() -> String {
    let (sha, version, own) = (facts::GIT_SHA1, server::REDIS_VERSION, facts::VERSION);
    let (allocator, bits) = (facts::ALLOCATOR, facts::ARCH_BITS);
    format!("Dunlin server v={version} sha={sha}:0 malloc={allocator} bits={bits} dunlin={own}\n")
}
