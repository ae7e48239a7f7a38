//! The fuzz target of the reader of replies on seeded mutations of them.

#[path = "../../../fuzz/entries/reply.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

#[test]
fn replies_do_not_depend_on_the_pieces_they_come_in() {
    let inputs: Vec<Vec<u8>> = [
        &b"\x03\x00+OK\r\n-ERR no\r\n:1\r\n$3\r\nabc\r\n$-1\r\n*-1\r\n*2\r\n:1\r\n*0\r\n"[..],
        b"\x01\x01%1\r\n+a\r\n*3\r\n,1.5\r\n#t\r\n_\r\n~1\r\n(12\r\n>2\r\n+x\r\n!3\r\nERR\r\n",
        b"\x07\x01|1\r\n+ttl\r\n:3\r\n*1\r\n=6\r\ntxt:ab\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        b"\x00\x00*2147483647\r\n$536870912\r\na",
    ]
    .map(<[u8]>::to_vec)
    .into();
    let words: [&[u8]; 12] = [
        b"\r\n",
        b"*1\r\n",
        b"|0\r\n",
        b"%2\r\n",
        b"$1\r\n",
        b"$-1\r\n",
        b"_\r\n",
        b"-1",
        b",nan\r\n",
        b"\0",
        b"99999999999999999999\r\n",
        b"+a\r\n:2\r\n",
    ];
    mutate::run(&inputs, &words, entry::check);
}
