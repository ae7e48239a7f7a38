//! The cluster.

use crate::checks;
use crate::choices::{ClusterConfigSaveBehavior, ClusterEndpoint, ClusterEndpointType};
use crate::spec::range::{COUNT, LEASE, LONG, PORT, POSITIVE};
use crate::spec::{Spec, choice, flag, int, memory, optional, text};

pub(super) const OPTIONS: &[Spec] = &[
    flag("cluster-enabled", "no", "be a node of a cluster").immutable(),
    text("cluster-coordinator", "", "where the cluster's etcd is: etcd://host:port,…, or https://")
        .checked(checks::cluster_coordinator)
        .immutable(),
    optional(
        "cluster-coordinator-ca-cert-file",
        "authorities that etcd's certificate must come from (PEM)",
    )
    .immutable(),
    optional("cluster-coordinator-cert-file", "certificate that is shown to etcd (PEM)")
        .immutable(),
    optional("cluster-coordinator-key-file", "private key of that certificate (PEM)").immutable(),
    optional("cluster-coordinator-user", "user of etcd").immutable(),
    optional("cluster-coordinator-password", "password of that user").sensitive().immutable(),
    text("cluster-name", "dunlin", "name of the cluster at its coordinator")
        .checked(checks::cluster_name)
        .immutable(),
    int(
        "cluster-lease",
        LEASE,
        "4",
        "seconds after which another copy takes the place of a primary that is gone",
    )
    .immutable(),
    choice(
        "cluster-endpoint",
        ClusterEndpoint::CHOICES,
        "cluster",
        "what clients see: a cluster, or single: one server that forwards",
    ),
    flag(
        "cluster-share-users",
        "no",
        "keep users at the coordinator: ACL SETUSER and DELUSER on one node are for all",
    )
    .immutable(),
    text("cluster-config-file", "nodes.conf", "file the node keeps its view of the cluster in")
        .checked(checks::cluster_config_file)
        .immutable(),
    choice(
        "cluster-config-save-behavior",
        ClusterConfigSaveBehavior::CHOICES,
        "sync",
        "what to do when that file cannot be written",
    )
    .not_yet(),
    int("cluster-databases", POSITIVE, "1", "number of databases in a cluster").immutable(),
    int("cluster-node-timeout", LONG, "15000", "milliseconds after which a node counts as failing")
        .not_yet(),
    int(
        "cluster-port",
        PORT,
        "0",
        "port for other nodes alone, by TLS, if there are certificates; 0 is the port plus 10000",
    )
    .immutable(),
    optional("cluster-bus-cert-file", "certificate that nodes show each other (PEM)").immutable(),
    optional("cluster-bus-key-file", "private key of that certificate (PEM)").immutable(),
    optional(
        "cluster-bus-ca-cert-file",
        "authorities that other nodes' certificates must come from (PEM)",
    )
    .immutable(),
    int(
        "cluster-migration-barrier",
        COUNT,
        "1",
        "replicas a primary keeps before it gives one away",
    )
    .not_yet(),
    flag("cluster-allow-replica-migration", "yes", "let replicas move to primaries that have none")
        .not_yet(),
    int(
        "cluster-replica-validity-factor",
        COUNT,
        "10",
        "how many times cluster-lease a replica may be silent and still be promoted; 0 is any time",
    )
    .alias(&["cluster-slave-validity-factor"]),
    flag("cluster-replica-no-failover", "no", "never promote this replica")
        .alias(&["cluster-slave-no-failover"]),
    flag("cluster-require-full-coverage", "yes", "refuse queries while a slot has no node"),
    flag("cluster-allow-reads-when-down", "no", "answer reads while the cluster is down"),
    flag(
        "cluster-allow-pubsubshard-when-down",
        "yes",
        "allow sharded pub/sub while the cluster is down",
    ),
    int(
        "cluster-manual-failover-timeout",
        POSITIVE,
        "5000",
        "milliseconds a manual fail-over may take",
    )
    .not_yet(),
    optional("cluster-announce-ip", "address told to the cluster").checked(checks::announced_ip),
    int("cluster-announce-port", PORT, "0", "port told to the cluster"),
    int("cluster-announce-tls-port", PORT, "0", "TLS port told to the cluster"),
    int("cluster-announce-bus-port", PORT, "0", "bus port that CLUSTER NODES shows"),
    optional("cluster-announce-client-ipv4", "host told to clients that came by IPv4")
        .checked(checks::ipv4),
    optional("cluster-announce-client-ipv6", "host told to clients that came by IPv6")
        .checked(checks::ipv6),
    int("cluster-announce-client-port", PORT, "0", "port told to clients"),
    int("cluster-announce-client-tls-port", PORT, "0", "TLS port told to clients"),
    optional("cluster-announce-hostname", "host name told to clients")
        .checked(checks::announced_hostname),
    optional("cluster-announce-human-nodename", "name of the node in logs")
        .checked(checks::announced_nodename)
        .not_yet(),
    choice(
        "cluster-preferred-endpoint-type",
        ClusterEndpointType::CHOICES,
        "ip",
        "what clients are told to connect to",
    ),
    int(
        "cluster-blacklist-ttl",
        (i64::MIN, i64::MAX),
        "60",
        "seconds a forgotten node stays forgotten",
    )
    .not_yet(),
    int("cluster-ping-interval", LONG, "0", "milliseconds between pings of the bus")
        .hidden()
        .not_yet(),
    int("cluster-message-gossip-perc", (1, 100), "10", "percentage of nodes in a gossip message")
        .hidden()
        .not_yet(),
    int(
        "cluster-slot-migration-log-max-len",
        LONG,
        "1000",
        "moves of slots that are over and still listed",
    ),
    flag("cluster-slot-stats-enabled", "no", "count what each slot uses"),
    int(
        "cluster-compatibility-sample-ratio",
        (0, 100),
        "0",
        "percentage of commands checked for cluster compatibility",
    )
    .not_yet(),
    memory(
        "slot-migration-max-failover-repl-bytes",
        (-1, i64::MAX as u64),
        "0",
        "bytes behind at which a slot changes hands; -1 waits for none",
    )
    .not_yet(),
];
