//! Sockets, connections and reactors.

use crate::checks;
use crate::choices::{IoBackend, ShedRequests};
use crate::spec::range::{ANY_SIZE, COUNT, PORT};
use crate::spec::{Kind, Spec, choice, flag, int, memory, optional, special};

pub(super) const OPTIONS: &[Spec] = &[
    special(
        "bind",
        Kind::Addresses,
        "* -::*",
        "addresses to listen on; - before one: do not mind if it fails",
    ),
    int("port", PORT, "6379", "TCP port; 0 opens none"),
    int("admin-port", PORT, "0", "HTTP port of console, API, metrics and health; 0 opens none")
        .immutable(),
    special(
        "admin-bind",
        Kind::Addresses,
        "127.0.0.1 -::1",
        "addresses that the admin port listens on; - before one: do not mind if it fails",
    )
    .immutable(),
    optional(
        "admin-hosts",
        "names under which the admin port is open to a default user without a password; .NAME is all names below NAME",
    )
    .checked(checks::host_names),
    optional(
        "alert-webhook",
        "URL that gets a POST with JSON when a problem begins or ends; needs admin-port",
    )
    .sensitive()
    .immutable(),
    optional("unixsocket", "path of the Unix socket").immutable(),
    special(
        "unixsocketperm",
        Kind::Octal { min: 0, max: 0o777 },
        "0",
        "mode of the Unix socket; 0 leaves it to the umask",
    )
    .immutable(),
    optional("unixsocketgroup", "group of the Unix socket").immutable(),
    optional("admin-socket", "path of the operators' Unix socket, which a thread of its own serves")
        .immutable(),
    int("tcp-backlog", COUNT, "511", "connections the kernel may hold before they are accepted")
        .immutable(),
    int("tcp-keepalive", COUNT, "300", "seconds of silence before a TCP keep-alive; 0 sends none"),
    int("timeout", COUNT, "0", "seconds before an idle client is closed; 0 never closes one"),
    flag("protected-mode", "yes", "refuse remote clients while the default user has no password"),
    flag(
        "protected-mode-private-networks",
        "no",
        "protected mode lets in clients of the private range that the server's own address is in",
    ),
    int("maxclients", (1, u32::MAX as i64), "10000", "connections that are served at a time"),
    int(
        "max-new-connections-per-cycle",
        (1, 1000),
        "10",
        "connections accepted from one listener in one turn of a reactor",
    ),
    int(
        "max-new-tls-connections-per-cycle",
        (1, 1000),
        "1",
        "TLS handshakes begun in one turn of a reactor",
    ),
    int(
        "max-waiting-tls-handshakes",
        (1, 1_000_000),
        "4096",
        "TLS handshakes of a reactor that may wait for their turn; further connections are closed",
    ),
    int(
        "shed-turn-usec",
        (0, 10_000_000),
        "0",
        "microseconds of an average turn above which a thread is overloaded; 0 is no limit",
    ),
    int(
        "shed-cpu-percent",
        (0, 95),
        "0",
        "per cent of a core that a thread takes, above which it is overloaded; at most 95; 0 is no \
         limit",
    ),
    memory(
        "shed-queued-bytes",
        ANY_SIZE,
        "0",
        "bytes of all clients' buffers above which all threads are overloaded; 0 is no limit",
    ),
    optional(
        "shed-users",
        "names of users, with blanks between them, whose requests are refused under overload",
    ),
    optional(
        "shed-clients",
        "name:PATTERN and lib:PATTERN: clients whose requests are refused under overload",
    )
    .checked(checks::shed_clients),
    choice(
        "shed-requests",
        ShedRequests::CHOICES,
        "all",
        "which of their requests are refused: all or writes",
    ),
    optional(
        "rate-limits",
        "groups of three words: user:NAME or address:NETWORK, requests and bytes a second; 0 is no \
         limit",
    )
    .checked(checks::rate_limits),
    int("io-threads", (0, 256), "0", "reactor threads; 0 is one for each usable core").immutable(),
    choice(
        "io-backend",
        IoBackend::CHOICES,
        "auto",
        "kernel interface of the reactors: auto, io_uring or epoll",
    )
    .immutable(),
    int(
        "io-coalesce-usec",
        (0, 10_000),
        "50",
        "microseconds that a busy reactor may wait for more requests; 0 is not at all",
    ),
    int(
        "io-busy-poll-usec",
        (0, 10_000),
        "0",
        "microseconds for which a reactor asks the network card for packets before it sleeps; 0 \
         leaves that to the card's interrupts",
    )
    .immutable(),
    flag("io-threads-always-active", "no", "keep I/O threads busy under any load")
        .hidden()
        .not_yet(),
    int("events-per-io-thread", COUNT, "2", "events that wake another I/O thread")
        .hidden()
        .not_yet(),
    int(
        "min-io-threads-avoid-copy-reply",
        COUNT,
        "7",
        "I/O threads from which big replies are not copied",
    )
    .hidden()
    .not_yet(),
    int(
        "min-string-size-avoid-copy-reply",
        COUNT,
        "16384",
        "string size from which replies are not copied",
    )
    .hidden()
    .not_yet(),
    int("min-string-size-avoid-copy-reply-threaded", COUNT, "65536", "the same with I/O threads")
        .hidden()
        .not_yet(),
    int("prefetch-batch-max-size", (0, 128), "16", "keys prefetched at a time").not_yet(),
    optional("server-cpulist", "cores the reactors are pinned to, such as 0-3 or 0-6:2")
        .alias(&["server_cpulist"])
        .immutable(),
    optional("bio-cpulist", "cores the background threads are pinned to")
        .alias(&["bio_cpulist"])
        .immutable(),
    optional("aof-rewrite-cpulist", "cores the AOF rewrite is pinned to")
        .alias(&["aof_rewrite_cpulist"])
        .immutable()
        .not_yet(),
    optional("bgsave-cpulist", "cores the snapshot is pinned to")
        .alias(&["bgsave_cpulist"])
        .immutable()
        .not_yet(),
    optional("bind-source-addr", "local address of the connection to a primary"),
    int("socket-mark-id", (0, u32::MAX as i64), "0", "SO_MARK of listening sockets; 0 sets none")
        .immutable()
        .not_yet(),
    flag("mptcp", "no", "accept multipath TCP").immutable().not_yet(),
    special("rdma-bind", Kind::Addresses, "", "RDMA addresses to listen on")
        .frozen(NO_RDMA)
        .not_yet(),
    int("rdma-port", PORT, "0", "RDMA port").frozen(NO_RDMA).not_yet(),
    int("rdma-rx-size", (64 << 10, 16 << 20), "1048576", "RDMA receive buffer")
        .immutable()
        .not_yet(),
    int("rdma-completion-vector", (-1, 1024), "-1", "RDMA completion vector").immutable().not_yet(),
    memory(
        "client-query-buffer-limit",
        (1 << 20, i64::MAX as u64),
        "1gb",
        "bytes of unread requests a client may pile up",
    ),
    special(
        "client-output-buffer-limit",
        Kind::OutputLimits,
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
        "bytes of unsent replies a client may pile up, by class",
    ),
    memory(
        "proto-max-bulk-len",
        (1 << 20, i64::MAX as u64),
        "512mb",
        "longest argument of a request",
    ),
    special(
        "maxmemory-clients",
        Kind::MemoryOrPercent,
        "0",
        "memory all clients may use together; 0 is no limit",
    ),
    memory("cluster-link-sendbuf-limit", (0, u64::MAX), "0", "unsent bytes of a cluster link")
        .not_yet(),
    int(
        "tracking-table-max-keys",
        (0, i64::MAX),
        "1000000",
        "keys remembered for client-side caching",
    ),
];

const NO_RDMA: &str = "No RDMA building support.";
