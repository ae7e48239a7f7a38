//! The fuzz target of a hostile primary on seeded mutations of a few sessions.

#[path = "../../../fuzz/entries/primary.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

#[test]
fn a_hostile_primary_confuses_nothing() {
    // Digits are ASCII, so `4` happens as 52 % 8 = 4: the clock; `5`: connected, `6`: loaded, `7`:
    // stream.
    let inputs = [
        b"4\n5\n0+PONG\n0+OK\n0+OK\n0+OK\n0+FULLRESYNC 0123456789012345678901234567890123456789 7\n0\n\
          0$EOF:0123456789012345678901234567890123456789\n6\n7*1\n7$4\n7PING\n4"
            .to_vec(),
        b"4\n5\n0-NOAUTH\n0+OK\n0+OK\n0-ERR\n0+CONTINUE 0123456789012345678901234567890123456789\n\
          7*1\n7$5\n7MULTI\n7*2\n7$4\n7INCR\n7$1\n7k\n7*1\n7$4\n7EXEC\n7garbage\n4\n4"
            .to_vec(),
        b"4\n5\n0+PONG\n0+OK\n0+OK\n0+OK\n0-ERR unknown command\n0$18\n6\n4\n4\n3\n4\n5\n0-LOADING\n4".to_vec(),
    ];
    let words: [&[u8]; 12] = [
        b"\n4zzzzzzzzzzzzzzz\n",
        b"\n5\n0+PONG\n0+OK\n0+OK\n0+OK\n",
        b"\n6\n",
        b"\n0\n",
        b"\n0$18446744073709551615\n",
        b"\n0$-1\n",
        b"\n0$EOF:",
        b"\n0+CONTINUE\n",
        b"\n0+FULLRESYNC 0123456789012345678901234567890123456789 36028797018963968\n",
        b"0123456789012345678901234567890123456789",
        b"\n7*2147483648\n",
        b"\n7$1099511627776\n",
    ];
    mutate::run(&inputs, &words, entry::check);
}
