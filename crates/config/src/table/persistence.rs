//! Snapshots and the append-only file.

use crate::checks;
use crate::choices::{AppendFsync, RdbVersionCheck, ReplicaRdbVersion, SanitizeDumpPayload};
use crate::spec::range::{ANY_INT, ANY_SIZE, COUNT, SIZE};
use crate::spec::{Kind, Spec, choice, flag, int, memory, special, text};

pub(super) const OPTIONS: &[Spec] = &[
    special(
        "save",
        Kind::Save,
        "3600 1 300 100 60 10000",
        "snapshot after so many seconds with so many changes",
    ),
    text("dbfilename", "dump.rdb", "name of the snapshot").checked(checks::dbfilename).protected(),
    flag("rdbcompression", "yes", "compress strings in DUMP payloads and snapshots"),
    flag("rdbchecksum", "yes", "end snapshots with a checksum").immutable(),
    choice(
        "rdb-version",
        ReplicaRdbVersion::CHOICES,
        "auto",
        "oldest RDB version that snapshots are written for; auto is 11, or Valkey's if fields expire",
    ),
    choice(
        "rdb-version-check",
        RdbVersionCheck::CHOICES,
        "strict",
        "whether newer snapshots are refused",
    ),
    flag(
        "rdb-skip-unknown-types",
        "no",
        "load snapshots without what has no type here, instead of not at all",
    ),
    flag("rdb-del-sync-files", "no", "delete snapshots made for replication").not_yet(),
    flag("rdb-save-incremental-fsync", "yes", "force snapshots to the disk bit by bit"),
    memory(
        "snapshot-buffer-limit",
        SIZE,
        "64mb",
        "bytes that writes may hand to a running snapshot before they wait for the disk",
    ),
    int(
        "snapshot-threads",
        (0, 255),
        "0",
        "threads that write a snapshot; 0 is as many as serve clients",
    ),
    text("tier-dir", "", "folder on flash for values that have gone cold; empty is none")
        .immutable(),
    memory(
        "tier-max-size",
        ANY_SIZE,
        "0",
        "bytes of the tier's files; 0 is what the disk has room for",
    ),
    memory("tier-segment-size", (1 << 20, 64 << 20), "64mb", "bytes of each of the tier's files")
        .immutable(),
    memory("tier-min-value-size", SIZE, "64", "smaller values stay in memory"),
    memory("tier-max-value-size", SIZE, "1mb", "larger values stay in memory"),
    int("rdb-key-save-delay", ANY_INT, "0", "microseconds to wait after each saved key, for tests")
        .hidden(),
    int("key-load-delay", ANY_INT, "0", "microseconds to wait after each loaded key, for tests")
        .hidden(),
    int(
        "loading-process-events-interval-bytes",
        (1024, i32::MAX as i64),
        "2097152",
        "bytes loaded between answers to clients",
    )
    .hidden()
    .not_yet(),
    flag("stop-writes-on-bgsave-error", "yes", "refuse writes while snapshots fail"),
    choice(
        "sanitize-dump-payload",
        SanitizeDumpPayload::CHOICES,
        "no",
        "whose payloads are checked in depth; Dunlin checks all",
    )
    .not_yet(),
    flag("appendonly", "no", "keep an append-only file").not_while_loading(),
    text("appendfilename", "appendonly.aof", "base name of the append-only files")
        .checked(checks::appendfilename)
        .immutable(),
    text("appenddirname", "appendonlydir", "directory of the append-only files")
        .checked(checks::appenddirname)
        .immutable(),
    choice(
        "appendfsync",
        AppendFsync::CHOICES,
        "everysec",
        "when the append-only file is forced to the disk",
    ),
    flag("no-appendfsync-on-rewrite", "no", "no fsync while files are rewritten"),
    int(
        "auto-aof-rewrite-percentage",
        COUNT,
        "100",
        "growth that starts a rewrite; 0 never starts one",
    ),
    memory("auto-aof-rewrite-min-size", SIZE, "64mb", "size below which no rewrite starts"),
    memory(
        "aof-preallocation-size",
        SIZE,
        "4mb",
        "room written ahead of the append-only file when it is forced for each write; 0 writes none",
    ),
    flag(
        "aof-load-truncated",
        "yes",
        "accept an append-only file that ends in the middle of a command",
    ),
    flag("aof-use-rdb-preamble", "yes", "begin append-only files with a snapshot"),
    flag("aof-timestamp-enabled", "no", "note the time in the append-only file"),
    flag("aof-rewrite-incremental-fsync", "yes", "force rewritten files to the disk bit by bit"),
    flag("aof-disable-auto-gc", "no", "keep old append-only files").hidden(),
];
