//! The options that take one of a few words, as Rust enums.
//!
//! An enum's list of words is in the order in which an error message names them; where two words
//! mean the same, the first is the one `CONFIG GET` reports.

/// A word of an option and the number it is stored as.
pub type Choice = (&'static str, u64);

/// Declares an enum and the words that select its variants.
macro_rules! choices {
    ($($(#[$meta:meta])* $name:ident: $first:ident $(| $variant:ident)* =
        [$($text:literal => $target:ident),+ $(,)?];)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "the words below the name say what each variant is")]
        pub enum $name { $first $(, $variant)* }

        impl $name {
            /// The words of `redis.conf` and the variants they stand for.
            pub const CHOICES: &'static [Choice] = &[$(($text, $name::$target as u64)),+];

            /// The variant a stored number stands for.
            pub(crate) fn from_number(number: u64) -> $name {
                match number {
                    $(number if number == $name::$variant as u64 => $name::$variant,)*
                    _ => $name::$first,
                }
            }

            /// The word of `redis.conf` for this variant.
            pub fn name(self) -> &'static str {
                name_of(Self::CHOICES, self as u64)
            }
        }
    )+};
}

/// The first word that stands for a number.
pub(crate) fn name_of(choices: &'static [Choice], number: u64) -> &'static str {
    choices.iter().find(|(_, value)| *value == number).map_or("unknown", |(name, _)| name)
}

choices! {
    /// What to give up when `maxmemory` is reached.
    MaxmemoryPolicy: NoEviction | VolatileLru | VolatileLfu | VolatileRandom | VolatileTtl
        | AllkeysLru | AllkeysLfu | AllkeysRandom = [
        "volatile-lru" => VolatileLru, "volatile-lfu" => VolatileLfu,
        "volatile-random" => VolatileRandom, "volatile-ttl" => VolatileTtl,
        "allkeys-lru" => AllkeysLru, "allkeys-lfu" => AllkeysLfu,
        "allkeys-random" => AllkeysRandom, "noeviction" => NoEviction,
    ];
    /// When the append-only file is forced to the disk.
    AppendFsync: EverySec | Always | No =
        ["everysec" => EverySec, "always" => Always, "no" => No];
    /// The RDB version of snapshots for replicas that do not say which they read.
    ReplicaRdbVersion: Auto | V10 | V11 | V12 =
        ["auto" => Auto, "10" => V10, "11" => V11, "12" => V12];
    /// Which copies of a write must exist before its reply leaves.
    CommitMode: Memory | Fsync | Quorum =
        ["memory" => Memory, "fsync" => Fsync, "quorum" => Quorum];
    /// What is refused to `shed-users` and `shed-clients` while a thread is overloaded.
    ShedRequests: All | Writes = ["all" => All, "writes" => Writes];
    /// The least important message that is still logged.
    LogLevel: Debug | Verbose | Notice | Warning | Nothing = [
        "debug" => Debug, "verbose" => Verbose, "notice" => Notice, "warning" => Warning,
        "nothing" => Nothing,
    ];
    /// The layout of a log line.
    LogFormat: Legacy | Logfmt | Json =
        ["legacy" => Legacy, "logfmt" => Logfmt, "json" => Json];
    /// The time stamp of a log line.
    LogTimestampFormat: Legacy | Iso8601 | Milliseconds =
        ["legacy" => Legacy, "iso8601" => Iso8601, "milliseconds" => Milliseconds];
    /// Which supervisor is told that the server is up.
    Supervised: No | Upstart | Systemd | Auto =
        ["upstart" => Upstart, "systemd" => Systemd, "auto" => Auto, "no" => No];
    /// The syslog facility messages are sent to.
    SyslogFacility: User | Local0 | Local1 | Local2 | Local3 | Local4 | Local5 | Local6 | Local7 = [
        "user" => User, "local0" => Local0, "local1" => Local1, "local2" => Local2,
        "local3" => Local3, "local4" => Local4, "local5" => Local5, "local6" => Local6,
        "local7" => Local7,
    ];
    /// Whether the kernel's out-of-memory score is adjusted.
    OomScoreAdj: No | Relative | Absolute =
        ["no" => No, "yes" => Relative, "relative" => Relative, "absolute" => Absolute];
    /// The channels a new ACL user may use.
    AclPubsubDefault: ResetChannels | AllChannels =
        ["allchannels" => AllChannels, "resetchannels" => ResetChannels];
    /// Which clients may run a command, or change an option, that can harm the host.
    ProtectedAction: No | Yes | Local = ["no" => No, "yes" => Yes, "local" => Local];
    /// Whose RESTORE payloads are checked in depth.
    SanitizeDumpPayload: No | Yes | Clients = ["no" => No, "yes" => Yes, "clients" => Clients];
    /// How a replica loads a full synchronisation that comes over a socket.
    ReplDisklessLoad: Disabled | OnEmptyDb | SwapDb | FlushBeforeLoad = [
        "disabled" => Disabled, "on-empty-db" => OnEmptyDb, "swapdb" => SwapDb,
        "flush-before-load" => FlushBeforeLoad,
    ];
    /// What clients of a cluster are told to connect to.
    ClusterEndpointType: Ip | Hostname | UnknownEndpoint =
        ["ip" => Ip, "hostname" => Hostname, "unknown-endpoint" => UnknownEndpoint];
    /// Whether clients see a cluster, or one server that forwards.
    ClusterEndpoint: Cluster | Single = ["cluster" => Cluster, "single" => Single];
    /// What happens when the cluster's state file cannot be written.
    ClusterConfigSaveBehavior: Sync | BestEffort = ["sync" => Sync, "best-effort" => BestEffort];
    /// What happens when a replicated command fails.
    PropagationErrorBehavior: Ignore | Panic | PanicOnReplicas =
        ["ignore" => Ignore, "panic" => Panic, "panic-on-replicas" => PanicOnReplicas];
    /// Whether an RDB file of a newer version is loaded.
    RdbVersionCheck: Strict | Relaxed = ["strict" => Strict, "relaxed" => Relaxed];
    /// Whether TLS clients must show a certificate.
    TlsAuthClients: No | Yes | Optional = ["no" => No, "yes" => Yes, "optional" => Optional];
    /// The field of a client certificate that names the ACL user.
    TlsAuthClientsUser: Off | CommonName | Uri =
        ["CN" => CommonName, "URI" => Uri, "off" => Off];
    /// What a time series does with a second sample of a time.
    SeriesPolicy: Block | First | Last | Min | Max | Sum = [
        "block" => Block, "first" => First, "last" => Last, "min" => Min, "max" => Max,
        "sum" => Sum,
    ];
    /// How a time series keeps samples.
    SeriesEncoding: Compressed | Uncompressed =
        ["compressed" => Compressed, "uncompressed" => Uncompressed];
    /// How the reactors talk to the kernel.
    IoBackend: Auto | IoUring | Epoll =
        ["auto" => Auto, "io_uring" => IoUring, "epoll" => Epoll];
}

/// What a signal that stops the server does: the options of SHUTDOWN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ShutdownOptions(u64);

impl ShutdownOptions {
    const SAVE: u64 = 1;
    const NOSAVE: u64 = 2;
    const NOW: u64 = 4;
    const FORCE: u64 = 8;
    const SAFE: u64 = 16;
    const FAILOVER: u64 = 32;

    /// The words of `redis.conf`; `default` stands for none of the bits.
    pub const CHOICES: &'static [Choice] = &[
        ("default", 0),
        ("save", Self::SAVE),
        ("nosave", Self::NOSAVE),
        ("now", Self::NOW),
        ("force", Self::FORCE),
        ("safe", Self::SAFE),
        ("failover", Self::FAILOVER),
    ];

    pub(crate) fn from_number(number: u64) -> Self {
        ShutdownOptions(number)
    }

    /// Refuses the one combination that contradicts itself.
    pub(crate) fn check(number: u64) -> Result<(), &'static str> {
        if number & Self::SAVE != 0 && number & Self::NOSAVE != 0 {
            return Err("shutdown options SAVE and NOSAVE can't be used simultaneously");
        }
        Ok(())
    }

    /// Write a snapshot even if no save point asks for one.
    pub fn save(self) -> bool {
        self.0 & Self::SAVE != 0
    }

    /// Write no snapshot even if save points ask for one.
    pub fn nosave(self) -> bool {
        self.0 & Self::NOSAVE != 0
    }

    /// Do not wait for lagging replicas.
    pub fn now(self) -> bool {
        self.0 & Self::NOW != 0
    }

    /// Go down even if the snapshot failed.
    pub fn force(self) -> bool {
        self.0 & Self::FORCE != 0
    }

    /// Refuse to go down while a primary still owns slots.
    pub fn safe(self) -> bool {
        self.0 & Self::SAFE != 0
    }

    /// Hand over to a replica first.
    pub fn failover(self) -> bool {
        self.0 & Self::FAILOVER != 0
    }
}
