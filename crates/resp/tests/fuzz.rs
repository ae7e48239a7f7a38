//! The fuzz target of the parser on seeded mutations of requests.

#[path = "../../../fuzz/entries/resp.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

#[test]
fn requests_do_not_depend_on_the_pieces_they_come_in() {
    let inputs: Vec<Vec<u8>> = [
        &b"\x03\x00*2\r\n$3\r\nGET\r\n$0\r\n\r\n*0\r\n*-1\r\nset \"a b\" 'c'\r\nPING\n"[..],
        b"\x09\x01*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nhello\r\nworld\r\n*1\r\n$4\r\nPING\r\n",
        b"\x27\x00*1\r\n$40\r\n0123456789012345678901234567890123456789\r\n\r\n\r\n*1\r\n$0\r\n\r\n",
        b"\x01\x00SET \"\\x00\\n\\\"\" 'it''s' \"a\"b\r\n \t\r\nECHO 'a\\'b'\n\nquit\r\n",
        b"\x05\x01*11\r\n$16385\r\n*10\r\n$16384\r\n",
        b"\x07\x00*1048577\r\n*3000000000\r\n$5\r\n*+1\r\n$-1\r\n*01\r\n",
    ]
    .map(<[u8]>::to_vec)
    .into();
    let words: [&[u8]; 12] = [
        b"\r\n",
        b"*1\r\n",
        b"$1\r\n",
        b"*",
        b"$",
        b"\"",
        b"'",
        b"\\x",
        b"-1\r\n",
        b"\0",
        b"99999999999999999999\r\n",
        b"*2\r\n$1\r\na\r\n$1\r\nb\r\n",
    ];
    mutate::run(&inputs, &words, entry::check);
}
