//! The arguments as they are written. What they mean together is decided in [`super::resolve`].

use clap::{ArgAction, Args, Parser};
use client::tls::TlsOptions;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Commands:
  dunlin bench [OPTIONS] [COMMAND ARG...]     measure; see below
  dunlin bench audit [OPTIONS] FILE           what did a server lose of a --ledger?
  dunlin bench experiment [OPTIONS] NAME      repeat a published experiment here

Examples:
  dunlin bench -q                                        all tests of redis-benchmark
  dunlin bench -t set,get -P 16 -r 1000000 -d 100        two of them, pipelined, on random keys
  dunlin bench -r 1000 HSET user:__rand_int__ f __data__ a command of your own
  dunlin bench --ratio 1:9 --key-pattern R:Z --test-time 30
                                                         a mix, reads zipfian
  dunlin bench --ratio 1:9 --rate 50000 --duration 30    latency at 50 000 requests a second
  dunlin bench -t get --sweep --report curve.html        latency over throughput, and the knee
  dunlin bench -t get -p 7001 --against redis://127.0.0.1:7002
                                                         two servers in alternation

The guide with an example of every feature: docs/bench.md";

/// Measure any server that speaks RESP.
#[derive(Parser, Debug)]
#[command(
    name = "dunlin bench",
    about = "Measures any server that speaks RESP: how fast is it, what does it cost, is it right?",
    disable_help_flag = true,
    override_usage = "dunlin bench [OPTIONS] [--] [COMMAND ARG...]",
    after_help = EXAMPLES,
    args_override_self = true
)]
pub struct BenchArgs {
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub load: LoadArgs,
    #[command(flatten)]
    pub work: WorkArgs,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub judge: JudgeArgs,
    #[command(flatten)]
    pub output: OutputArgs,

    /// Print this
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,

    /// A command to send instead of the tests; words may hold __rand_int__, __rand_1st__ to
    /// __rand_9th__, __rand_field__, __key__, __data__, and {tag} with --cluster. Several commands
    /// are divided by ';', and a number before a command repeats it.
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<String>,
}

/// Where the server is and how to enter.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// The server's host name or address
    #[arg(short = 'h', long, value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// The server's port
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 6379)]
    pub port: u16,
    /// A Unix socket instead of host and port
    #[arg(short = 's', long, value_name = "PATH", conflicts_with_all = ["host", "port"])]
    pub socket: Option<PathBuf>,
    /// redis://[user[:password]@]host[:port][/db]; valkey:// means the same, rediss:// and
    /// valkeys:// use TLS, unix:// names a socket
    #[arg(short = 'u', long, value_name = "URL", conflicts_with_all = ["host", "port", "socket"])]
    pub uri: Option<String>,
    /// The password
    #[arg(short = 'a', long = "pass", visible_alias = "authenticate", value_name = "PASSWORD")]
    pub password: Option<String>,
    /// The user name that goes with -a
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// The database to use
    #[arg(long, visible_alias = "select-db", value_name = "DB", default_value_t = 0)]
    pub dbnum: u32,
    /// Speak RESP3
    #[arg(short = '3')]
    pub resp3: bool,
    /// The server is a cluster: find its nodes, and send every request to the right one
    #[arg(long, visible_alias = "cluster-mode")]
    pub cluster: bool,
    /// Sentinels that know where the primary is, divided by commas; connections lead to the one
    /// that they name
    #[arg(long, value_name = "HOST[:PORT],…", conflicts_with_all = ["host", "port", "socket", "uri", "cluster"])]
    pub sentinel: Option<String>,
    /// The primary's name at the sentinels
    #[arg(long, value_name = "NAME", default_value = "mymaster", requires = "sentinel")]
    pub sentinel_name: String,
}

/// Encryption.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// Use TLS
    #[arg(long)]
    pub tls: bool,
    /// The server's name, if not that of -h
    #[arg(long, value_name = "HOST", requires = "tls")]
    pub sni: Option<String>,
    /// Certificate authorities to trust, PEM (default: the system's)
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub cacert: Option<PathBuf>,
    /// A directory of such files
    #[arg(long, value_name = "DIR", requires = "tls")]
    pub cacertdir: Option<PathBuf>,
    /// Do not check the server's certificate
    #[arg(long, visible_alias = "tls-skip-verify", requires = "tls", conflicts_with_all = ["cacert", "cacertdir"])]
    pub insecure: bool,
    /// A certificate to show, PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    pub cert: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls", "cert"])]
    pub key: Option<PathBuf>,
    /// Cipher suites up to TLS 1.2, in OpenSSL's names, divided by ':'
    #[arg(long, value_name = "LIST", requires = "tls")]
    pub tls_ciphers: Option<String>,
    /// Cipher suites of TLS 1.3, divided by ':'
    #[arg(long, value_name = "LIST", requires = "tls")]
    pub tls_ciphersuites: Option<String>,
}

impl TlsArgs {
    /// Returns what the rules of TLS are made of.
    pub fn options(&self) -> TlsOptions {
        TlsOptions {
            sni: self.sni.clone(),
            cacert: self.cacert.clone(),
            cacertdir: self.cacertdir.clone(),
            insecure: self.insecure,
            cert: self.cert.clone(),
            key: self.key.clone(),
            ciphers: self.tls_ciphers.clone(),
            ciphersuites: self.tls_ciphersuites.clone(),
        }
    }
}

/// How much, how fast, how long.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadArgs {
    /// Connections, all together
    #[arg(short = 'c', long, value_name = "COUNT", default_value_t = 50)]
    pub clients: usize,
    /// Requests, all together [default: 100000]
    #[arg(short = 'n', long, value_name = "COUNT", conflicts_with_all = ["duration", "sweep"])]
    pub requests: Option<u64>,
    /// Requests a connection sends before it waits for the replies
    #[arg(short = 'P', long, value_name = "COUNT", default_value_t = 1)]
    pub pipeline: usize,
    /// Threads of the generator
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub threads: usize,
    /// Seconds to run, instead of -n
    #[arg(long, visible_alias = "test-time", value_name = "SECONDS")]
    pub duration: Option<f64>,
    /// Seconds to run before anything is counted
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    pub warmup: f64,
    /// Open loop: requests a second, due on one schedule; latency counts from when a request was
    /// due
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, conflicts_with_all = ["rps", "rate_limiting", "sweep"])]
    pub rate: Option<f64>,
    /// Limits the requests a second, all together; latency counts from when a request was sent
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, conflicts_with_all = ["rate_limiting", "sweep"])]
    pub rps: Option<f64>,
    /// The same, for each connection
    #[arg(long, value_name = "RATE", allow_negative_numbers = true, conflicts_with = "sweep")]
    pub rate_limiting: Option<f64>,
    /// 0: a new connection for every batch of requests
    #[arg(short = 'k', value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub keep_alive: u8,
    /// A new connection after so many requests
    #[arg(long, value_name = "COUNT", conflicts_with = "keep_alive")]
    pub reconnect_interval: Option<u64>,
    /// Seconds without any connection, or without a whole reply, after which the run is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    pub give_up: f64,
    /// Do it all again so often; the table has each run and all together
    #[arg(
        short = 'x',
        long,
        value_name = "COUNT",
        default_value_t = 1,
        conflicts_with = "against"
    )]
    pub run_count: u32,
    /// Run the tests again and again until Ctrl-C
    #[arg(short = 'l', long = "loop", conflicts_with_all = ["run_count", "against", "sweep"])]
    pub forever: bool,
    /// Makes a run repeatable: everything random follows from it
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// A seed of its own for every run (the default)
    #[arg(long, conflicts_with = "seed")]
    pub randomize: bool,
    /// Different random numbers for every connection (always so; taken for memtier's sake)
    #[arg(long)]
    pub distinct_client_seed: bool,
}

/// What is sent.
#[derive(Args, Debug)]
#[command(next_help_heading = "Work")]
pub struct WorkArgs {
    /// Tests of redis-benchmark, divided by ',' [default: all]
    #[arg(short = 't', long, value_name = "TESTS", conflicts_with_all = ["ratio", "mix_command", "command"])]
    pub tests: Option<String>,
    /// A mix of SET and GET, such as 1:10
    #[arg(long, value_name = "SETS:GETS", conflicts_with_all = ["mix_command", "command"])]
    pub ratio: Option<String>,
    /// GETs of the mix are MGETs of so many keys
    #[arg(long, value_name = "KEYS", conflicts_with_all = ["tests", "mix_command", "command"])]
    pub multi_key_get: Option<u32>,
    /// A command of a mix; may be repeated. __key__ and __data__ are replaced
    #[arg(id = "mix_command", long = "command", value_name = "COMMAND")]
    pub mix_command: Vec<String>,
    /// How often the --command before it comes in a row
    #[arg(long, value_name = "COUNT", requires = "mix_command")]
    pub command_ratio: Vec<u64>,
    /// The key pattern of the --command before it
    #[arg(long, value_name = "S|R|P|G|Z", requires = "mix_command")]
    pub command_key_pattern: Vec<String>,
    /// Functions in the library of the tests function_load and fcall
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub num_functions: u32,
}

/// Which keys.
#[derive(Args, Debug)]
#[command(next_help_heading = "Keys")]
pub struct KeyArgs {
    /// Random keys: placeholders become numbers below this
    #[arg(short = 'r', long, value_name = "COUNT")]
    pub keyspace: Option<u64>,
    /// With -r: count instead of drawing
    #[arg(long, requires = "keyspace")]
    pub sequential: bool,
    /// __rand_field__ is below this
    #[arg(short = 'f', long, value_name = "COUNT", default_value_t = 100)]
    pub field_space: u64,
    /// What a mix's keys begin with [default: memtier-]
    #[arg(long, value_name = "TEXT")]
    pub key_prefix: Option<String>,
    /// The lowest number of a key [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub key_minimum: Option<u64>,
    /// The highest [default: 10000000]
    #[arg(long, value_name = "NUMBER", conflicts_with = "keyspace")]
    pub key_maximum: Option<u64>,
    /// Sequential, Random, Parallel, Gaussian or Zipfian, for SET and GET [default: R:R]
    #[arg(long, value_name = "SET:GET")]
    pub key_pattern: Option<String>,
    /// Standard deviation of a gaussian, in keys [default: a sixth of the range]
    #[arg(long, value_name = "KEYS")]
    pub key_stddev: Option<f64>,
    /// Median of a gaussian [default: the middle of the range]
    #[arg(long, value_name = "NUMBER")]
    pub key_median: Option<f64>,
    /// Exponent of a zipfian, above 0 and up to 5 [default: 1]
    #[arg(long, value_name = "EXPONENT")]
    pub key_zipf_exp: Option<f64>,
}

/// Which values.
#[derive(Args, Debug)]
#[command(next_help_heading = "Values")]
pub struct DataArgs {
    /// Bytes of a value [default: 3; 32 in a mix]
    #[arg(short = 'd', long, value_name = "BYTES", conflicts_with_all = ["data_size_range", "data_size_list"])]
    pub data_size: Option<u64>,
    /// Between two sizes
    #[arg(long, value_name = "LOW-HIGH", conflicts_with = "data_size_list")]
    pub data_size_range: Option<String>,
    /// Sizes and their weights, such as 100:8,4000:2
    #[arg(long, value_name = "SIZE:WEIGHT,...")]
    pub data_size_list: Option<String>,
    /// With a range: R draws a size, S lets it grow with the key [default: R]
    #[arg(long, value_name = "R|S", requires = "data_size_range")]
    pub data_size_pattern: Option<String>,
    /// Random bytes instead of x
    #[arg(long, short = 'R')]
    pub random_data: bool,
    /// Seconds after which a mix's values expire
    #[arg(long, value_name = "LOW-HIGH")]
    pub expiry_range: Option<String>,
}

/// What is compared and checked.
#[derive(Args, Debug)]
#[command(next_help_heading = "Comparing and checking")]
pub struct JudgeArgs {
    /// The same work on this server too, in alternation; may be repeated
    #[arg(long, value_name = "URL", conflicts_with = "sweep")]
    pub against: Vec<String>,
    /// Rounds of the alternation
    #[arg(long, value_name = "COUNT", default_value_t = 5, requires = "against")]
    pub rounds: u32,
    /// Walk the rate up until the server no longer keeps up
    #[arg(long)]
    pub sweep: bool,
    /// The rates of the sweep, FROM:TO:STEPS [default: 10 % to 120 % of the most there is, in 12]
    #[arg(long, value_name = "FROM:TO:STEPS", requires = "sweep")]
    pub sweep_rates: Option<String>,
    /// Write values that follow from their keys, compare all that is read, and read all back in
    /// the end
    #[arg(long, conflicts_with_all = ["random_data", "command", "ledger"])]
    pub verify: bool,
    /// Note every acknowledged write in this file, for dunlin bench audit
    #[arg(long, value_name = "FILE", conflicts_with_all = ["against", "sweep", "tests", "command", "mix_command", "expiry_range", "cluster"])]
    pub ledger: Option<PathBuf>,
    /// The server's process, for its CPU time and memory [default: the owner of the port]
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Count the server's processor cycles too, where processor and kernel allow it
    #[arg(long)]
    pub cycles: bool,
}

/// What is printed.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// One line a test
    #[arg(short = 'q', long, conflicts_with = "csv")]
    pub quiet: bool,
    /// CSV
    #[arg(long)]
    pub csv: bool,
    /// Digits after the point of latencies
    #[arg(long, value_name = "DIGITS", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=6))]
    pub precision: u8,
    /// Percentiles of the table
    #[arg(long, value_name = "LIST", default_value = "50,90,99,99.9,99.99")]
    pub print_percentiles: String,
    /// No latency distribution below the table
    #[arg(long)]
    pub hide_histogram: bool,
    /// Print into this file instead
    #[arg(short = 'o', long, value_name = "FILE")]
    pub out_file: Option<PathBuf>,
    /// Everything as JSON (docs/bench.md describes it)
    #[arg(long, value_name = "FILE")]
    pub json_out_file: Option<PathBuf>,
    /// Histograms in HdrHistogram's formats: PREFIX_NAME.txt and PREFIX_NAME.hlog
    #[arg(long, value_name = "PREFIX")]
    pub hdr_file_prefix: Option<String>,
    /// One page with pictures
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

/// Tells what a server lost of the writes that a run with `--ledger` noted.
#[derive(Parser, Debug)]
#[command(
    name = "dunlin bench audit",
    disable_help_flag = true,
    about = "Reads back what a run with --ledger wrote, and tells what was lost or reordered.\n\
             Ends with status 1 if anything was.",
    after_help = "The guide: docs/bench.md"
)]
pub struct AuditArgs {
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub tls: TlsArgs,
    /// The ledger
    pub file: PathBuf,
    /// The result as JSON
    #[arg(long, value_name = "FILE")]
    pub json_out_file: Option<PathBuf>,
    /// Print this
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// What only the experiment `scaling` is told.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Of the experiment scaling")]
pub struct ScalingArgs {
    /// Seconds of each measurement; a quarter more passes before it
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    pub seconds: f64,
    /// How often each is made; the published figures are medians of 31
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub trials: u32,
    /// The most threads of a server [default: the number of cores]
    #[arg(long, value_name = "COUNT")]
    pub most_threads: Option<usize>,
    /// Connections
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    pub clients: usize,
    /// Over TCP on the loopback instead of a Unix socket, which is what the published runs have
    #[arg(long)]
    pub tcp: bool,
    /// Another server: valkey, redis, keydb, pogocache, garnet or dragonfly with the path of its
    /// program, or any name with a command that has {port} and may have {threads}, {socket} and
    /// {dir}. May be repeated
    #[arg(long, value_name = "NAME=COMMAND")]
    pub peer: Vec<String>,
}

/// Repeats a published experiment.
#[derive(Parser, Debug)]
#[command(
    name = "dunlin bench experiment",
    disable_help_flag = true,
    about = "Repeats a published experiment on this machine, with servers of its own.",
    after_help = "Experiments:
  scale-out      8 Redis behind Twemproxy and HAProxy against one process (VMware, 2014/15)
  unbenchmark    one address over shards (Redis Labs, 2014)
  all-commands   every test of redis-benchmark, two servers side by side (OSv, 2014)
  proxy-hop      what a proxy in between costs (RedisHappy)
  deployments    natively, in containers, alone in a virtual machine (Unikraft)
  flash          more data than RAM: fill, prime, mixed load (Redis on Flash, Diamanti)
  scaling        1 to N threads: CPU and cycles per request beside others (Josh Baker)

The guide: docs/bench.md"
)]
pub struct ExperimentArgs {
    /// Which one
    #[arg(value_parser = ["scale-out", "unbenchmark", "all-commands", "proxy-hop", "flash", "deployments", "scaling"])]
    pub name: String,
    /// Sizes, as a share of the original's [default: what takes a 2-core machine a few minutes]
    #[arg(long, value_name = "SHARE")]
    pub scale: Option<f64>,
    /// One page with pictures
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Everything as JSON
    #[arg(long, visible_alias = "json", value_name = "FILE")]
    pub json_out_file: Option<PathBuf>,
    /// The first of the ports that the servers use
    #[arg(long, value_name = "PORT", default_value_t = 17600)]
    pub port: u16,
    /// A directory for what the servers write [default: the system's for temporary files]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// How the reference server is started [default: valkey-server, else redis-server]
    #[arg(long, value_name = "COMMAND")]
    pub reference: Option<String>,
    /// flash, scale-out, unbenchmark: through the one address of a database of a cluster of three machines, each a
    /// directory of this host
    #[arg(long)]
    pub cluster: bool,
    /// deployments: the container image [default: dunlin:latest]
    #[arg(long, value_name = "NAME")]
    pub image: Option<String>,
    /// deployments: what starts the machine image, given a port: 'deploy/machine/run FOLDER'. With CONTAINER=1 in its
    /// environment it is to start the server in a container of the machine
    #[arg(long, value_name = "COMMAND")]
    pub machine: Option<String>,
    #[command(flatten)]
    pub scaling: ScalingArgs,
    /// Print this
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}
