//! The fuzz target of replies on their way to clients on seeded mutations of them.

#[path = "../../../fuzz/entries/route.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

#[test]
fn replies_find_their_requests_and_join() {
    let inputs: Vec<Vec<u8>> = [
        &b"\x03+OK\r\n-MOVED 1 a:2\r\n:1\r\n$3\r\nabc\r\n$-1\r\n*-1\r\n*2\r\n:1\r\n:2\r\n"[..],
        b"\x01:1\r\n:-9223372036854775808\r\n:9223372036854775807\r\n",
        b"\x02*2\r\n$1\r\n7\r\n*1\r\n$1\r\na\r\n*2\r\n$1\r\n0\r\n*0\r\n",
        b"\x05$44\r\n# Keyspace\r\ndb0:keys=1,expires=0\r\nused_memory:5\r\n\r\n$3\r\na:1\r\n",
        b"\x04*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n>2\r\n+a\r\n+b\r\n",
        b"\x06*2\r\n$1\r\na\r\n:1\r\n*2\r\n$1\r\na\r\n:2\r\n%1\r\n+a\r\n~1\r\n#t\r\n_\r\n",
    ]
    .map(<[u8]>::to_vec)
    .into();
    let words: [&[u8]; 10] = [
        b"\r\n",
        b"*1\r\n",
        b"$1\r\n",
        b"$-1\r\n",
        b"_\r\n",
        b"-ASK 5 ::1:1\r\n",
        b"-",
        b"|1\r\n+a\r\n:1\r\n",
        b"99999999999999999999\r\n",
        b"!3\r\nERR\r\n",
    ];
    mutate::run(&inputs, &words, entry::check);
}
