//! The fuzz target of the append-only file's reader on seeded mutations of a log and a manifest.

#[path = "../../../fuzz/entries/aof.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

use replication::preallocation::{SECTOR, head_len, write_head, write_preallocation};

#[test]
fn damaged_logs_are_refused_or_read_alike() {
    // A batch of two commands behind one that was appended, and preallocated space.
    let batch = b"*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n";
    let mut in_place = b"*1\r\n$4\r\nPING\r\n".to_vec();
    let begin = in_place.len();
    in_place.resize(begin + head_len(begin as u64, batch.len()), 0);
    write_head(begin as u64, batch, &mut in_place[begin..]);
    in_place.extend_from_slice(batch);
    let end = in_place.len();
    in_place.resize(2 * SECTOR, 0);
    write_preallocation(end as u64, &mut in_place[end..]);
    let inputs = [
        in_place,
        b"#TS:1700000000\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*1\r\n$5\r\nMULTI\r\n\
          *3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n*1\r\n$4\r\nEXEC\r\n*1\r\n$4\r\nPING\r\n"
            .to_vec(),
        b"*5\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$12\r\nabcdefghijkl\r\n$2\r\n\r\n\r\n$0\r\n\r\n".to_vec(),
        b"file a.3.base.rdb seq 3 type b\nfile \"a b.2.base.rdb\" seq 2 type h\n# x\n\
          file a.5.incr.aof seq 5 type i\nfile a.6.incr.aof seq 6 type i more yes\n"
            .to_vec(),
    ];
    let words: [&[u8]; 15] = [
        b"#BATCH:00000001:",
        b"#\n",
        b"*1\r\n$5\r\nMULTI\r\n",
        b"*1\r\n$4\r\nEXEC\r\n",
        b"#TS:1\r\n",
        b"#REPL:0123456789012345678901234567890123456789 77\r\n",
        b"*2147483648\r\n",
        b"$1099511627776\r\n",
        b"$00000000000000000000\r\n",
        b"\r\n",
        b"file ",
        b" seq ",
        b" type i\n",
        b"\"\\x00\"",
        b"..",
    ];
    mutate::run(&inputs, &words, entry::check);
}
