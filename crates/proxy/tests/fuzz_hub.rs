//! The fuzz target of a thread of the proxy on seeded mutations of what clients and servers say.

#[path = "../../../fuzz/entries/hub.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

const CONNECT: (u8, &[u8]) = (5, b"");

/// Composes an input of steps.
fn input(first: u8, steps: &[(u8, &[u8])]) -> Vec<u8> {
    let mut input = vec![first];
    for (what, bytes) in steps {
        for piece in bytes.chunks(255).chain(bytes.is_empty().then_some(&[][..])) {
            input.extend([*what, piece.len() as u8]);
            input.extend_from_slice(piece);
        }
    }
    input
}

#[test]
fn whatever_both_sides_say_clients_hear_resp() {
    let long = [b"$900\r\n", &[b'x'; 900][..], b"\r\n"].concat();
    let inputs = [
        input(0, &[(0, b"GET a\r\nGET b\r\nMGET a b c d\r\n"), CONNECT, (3, b"$1\r\n1\r\n*2\r\n+a\r\n:1\r\n")]),
        input(1, &[(0, b"SET a 1\r\n"), CONNECT, (3, b"-MOVED 5 10.0.0.1:2\r\n"), CONNECT, (11, b"+OK\r\n")]),
        input(1, &[(0, b"GET a\r\n"), CONNECT, (3, b"-ASK 5 10.0.0.1:2\r\n"), CONNECT, (11, b"+OK\r\n$1\r\na\r\n")]),
        input(2, &[(0, b"PING\r\nAUTH secret\r\nGET a\r\n"), CONNECT, (3, b"-LOADING wait\r\n")]),
        input(0, &[(0, b"MULTI\r\nSET {t}a 1\r\nEXEC\r\n"), CONNECT, (3, b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n")]),
        input(0, &[(0, b"SUBSCRIBE a b\r\n"), CONNECT, (3, b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"), (3, b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n")]),
        input(0, &[(0, b"HELLO 3\r\nCLIENT TRACKING on\r\nGET a\r\n"), CONNECT, (3, b"%1\r\n+a\r\n:1\r\n+OK\r\n$1\r\n1\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n")]),
        input(0, &[(0, b"BLPOP a 0\r\nXREAD BLOCK 0 STREAMS a $\r\n"), CONNECT, (6, &[0; 90]), (3, b"*-1\r\n")]),
        input(0, &[(0, b"GET a\r\n"), (8, b"GET a\r\n"), CONNECT, (3, &long), (3, &long), (7, b"")]),
        input(0, &[(0, b"MODULE.CMD a\r\n"), CONNECT, (3, b"*1\r\n*10\r\n+x\r\n:2\r\n*1\r\n+blocking\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n"), (3, b"+OK\r\n")]),
        input(0, &[(0, b"SCAN 0\r\nKEYS *\r\nINFO\r\nDBSIZE\r\n"), CONNECT, (3, b"*2\r\n$1\r\n7\r\n*0\r\n*0\r\n$0\r\n\r\n:1\r\n"), (11, b"*0\r\n$0\r\n\r\n:2\r\n")]),
        input(0, &[(0, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2000\r\n"), CONNECT, (0, &[b'x'; 2000]), (0, b"\r\n"), (3, b"+OK\r\n")]),
    ];
    let words: [&[u8]; 24] = [
        b"\r\n",
        b"*1\r\n",
        b"$1\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"_\r\n",
        b">2\r\n",
        b"%1\r\n",
        b"|1\r\n+a\r\n:1\r\n",
        b"$5000000\r\n",
        b"*99999\r\n",
        b"+QUEUED\r\n",
        b"-MOVED 1 10.0.0.1:2\r\n",
        b"-ASK 1 10.0.0.1:1\r\n",
        b"-TRYAGAIN x\r\n",
        b"MULTI\r\n",
        b"EXEC\r\n",
        b"DISCARD\r\n",
        b"WATCH a\r\n",
        b"RESET\r\n",
        b"QUIT\r\n",
        b"CLIENT REPLY SKIP\r\n",
        b"SELECT 1\r\n",
        b"UNSUBSCRIBE\r\n",
    ];
    mutate::run(&inputs, &words, entry::check);
}
