//! The process, its log, its users and what it watches.

use crate::checks;
use crate::choices::{
    AclPubsubDefault, LogFormat, LogLevel, LogTimestampFormat, OomScoreAdj, ProtectedAction,
    Supervised, SyslogFacility,
};
use crate::spec::range::{COUNT, LONG, POSITIVE};
use crate::spec::{Kind, Spec, choice, flag, int, on_signal, optional, special, text};

const THRESHOLD: (i64, i64) = (-1, i64::MAX);

pub(super) const OPTIONS: &[Spec] = &[
    flag("daemonize", "no", "run in the background").immutable(),
    choice(
        "supervised",
        Supervised::CHOICES,
        "no",
        "supervisor that is told when the server is up",
    )
    .immutable(),
    optional("pidfile", "file the process id is written to").immutable(),
    special("dir", Kind::Directory, ".", "working directory").protected().not_while_loading(),
    int("databases", POSITIVE, "16", "number of databases").immutable(),
    choice("loglevel", LogLevel::CHOICES, "notice", "least important message that is logged"),
    text("logfile", "", "log file; empty logs to standard output").immutable(),
    text("audit-log", "", "file for a line of JSON for each change of the server; empty is none")
        .immutable(),
    choice("log-format", LogFormat::CHOICES, "legacy", "layout of a log line"),
    choice(
        "log-timestamp-format",
        LogTimestampFormat::CHOICES,
        "legacy",
        "time stamp of a log line",
    ),
    flag("hide-user-data-from-log", "yes", "keep keys and values out of logs and crash reports"),
    flag("syslog-enabled", "no", "log to syslog as well").immutable(),
    text("syslog-ident", "dunlin", "identity in syslog").immutable(),
    choice("syslog-facility", SyslogFacility::CHOICES, "local0", "facility in syslog").immutable(),
    flag("always-show-logo", "no", "show the banner even where the log is not a terminal")
        .immutable(),
    flag("set-proc-title", "yes", "show address and mode in the process list").immutable(),
    text(
        "proc-title-template",
        "{title} {listen-addr} {server-mode}",
        "what the process list shows",
    )
    .checked(checks::proc_title_template),
    text("locale-collate", "", "locale that SORT ALPHA compares by")
        .checked(checks::locale)
        .not_yet(),
    text("ignore-warnings", "", "start-up warnings to leave out").not_yet(),
    flag("crash-log-enabled", "yes", "write a report when the server crashes"),
    flag("crash-memcheck-enabled", "yes", "test the memory after a crash").not_yet(),
    flag("use-exit-on-panic", "no", "exit rather than abort").hidden().not_yet(),
    int("watchdog-period", COUNT, "0", "milliseconds after which a stuck server is reported")
        .hidden()
        .not_yet(),
    text("debug-context", "", "free text shown in crash reports").hidden().not_yet(),
    flag("enable-debug-assert", "no", "costly self-checks").hidden().immutable().not_yet(),
    on_signal("shutdown-on-sigint", "what SIGINT does: default, or options of SHUTDOWN"),
    on_signal("shutdown-on-sigterm", "what SIGTERM does: default, or options of SHUTDOWN"),
    int("shutdown-timeout", COUNT, "10", "seconds a shutdown waits for lagging replicas"),
    choice(
        "oom-score-adj",
        OomScoreAdj::CHOICES,
        "no",
        "tell the kernel which process to kill first when memory runs out",
    ),
    special(
        "oom-score-adj-values",
        Kind::OomScores,
        "0 200 800",
        "scores of primary, replica and background child",
    ),
    flag("disable-thp", "yes", "small pages where the kernel gives large ones unasked").immutable(),
    int("hz", COUNT, "10", "background turns a second, kept between 1 and 500"),
    flag("dynamic-hz", "yes", "raise hz with the number of clients").not_yet(),
    flag("activerehashing", "yes", "spend idle time on growing tables").not_yet(),
    text(
        "hash-seed",
        "",
        "seed of the hash function, for servers whose SCAN cursors are to mean the same; empty chooses one at \
         random",
    )
    .immutable()
    .checked(checks::hash_seed),
    int(
        "busy-reply-threshold",
        LONG,
        "5000",
        "milliseconds before a running script is reported as busy",
    )
    .alias(&["lua-time-limit"]),
    flag("lua-enable-deprecated-api", "no", "scripts may use deprecated functions")
        .hidden()
        .protected()
        .not_yet(),
    flag("lua-enable-insecure-api", "no", "scripts may use insecure functions")
        .hidden()
        .protected()
        .not_yet(),
    optional("requirepass", "password of the default user").sensitive(),
    text("aclfile", "", "file that holds the users").immutable(),
    int("acllog-max-len", LONG, "128", "entries of ACL LOG"),
    choice(
        "acl-pubsub-default",
        AclPubsubDefault::CHOICES,
        "resetchannels",
        "channels a new user may use",
    ),
    choice(
        "enable-protected-configs",
        ProtectedAction::CHOICES,
        "no",
        "whether protected options may be set",
    )
    .immutable(),
    choice("enable-debug-command", ProtectedAction::CHOICES, "no", "whether DEBUG may be used")
        .immutable(),
    choice("enable-module-command", ProtectedAction::CHOICES, "no", "whether MODULE may be used")
        .immutable(),
    int(
        "commandlog-execution-slower-than",
        THRESHOLD,
        "10000",
        "microseconds from which a command is slow; -1 logs none",
    )
    .alias(&["slowlog-log-slower-than"]),
    int("commandlog-slow-execution-max-len", LONG, "128", "entries of the log of slow commands")
        .alias(&["slowlog-max-len"]),
    int(
        "commandlog-request-larger-than",
        THRESHOLD,
        "1048576",
        "bytes from which a request is large; -1 logs none",
    ),
    int("commandlog-large-request-max-len", LONG, "128", "entries of the log of large requests"),
    int(
        "commandlog-reply-larger-than",
        THRESHOLD,
        "1048576",
        "bytes from which a reply is large; -1 logs none",
    ),
    int("commandlog-large-reply-max-len", LONG, "128", "entries of the log of large replies"),
    int(
        "latency-monitor-threshold",
        LONG,
        "0",
        "milliseconds from which an event is recorded; 0 records none",
    ),
    flag("latency-tracking", "yes", "keep latency percentiles of every command"),
    flag("size-tracking", "no", "keep histograms of the sizes of requests and replies"),
    special(
        "latency-tracking-info-percentiles",
        Kind::Percentiles,
        "50 99 99.9",
        "percentiles INFO reports",
    ),
    special("notify-keyspace-events", Kind::Events, "", "keyspace events to publish; `S`, `T`, `I` and `V` are for events of a hash's fields"),
    flag("extended-redis-compatibility", "no", "claim to be Redis where a client might look")
        .not_yet(),
    text("availability-zone", "", "zone reported by INFO and to a cluster"),
];
