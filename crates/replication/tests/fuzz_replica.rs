//! The fuzz target of a hostile replica on seeded mutations of a few sessions.

#[path = "../../../fuzz/entries/replica.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

#[test]
fn a_hostile_replica_confuses_nothing() {
    // Digits are ASCII, so `0` happens as 48 % 8 = 0, and client `1` is 49 % 8 = 1.
    let inputs = [
        b"01listening-port 7000\n01capa eof\n01version 9.1.0\n21? -1\n7z\n51\n317\n31900\n41".to_vec(),
        b"22\x30123456789012345678901234567890123456789 500\n32600\n7z\n7z\n42\n21? -1\n7z\n61\n7z\n51"
            .to_vec(),
        b"09capa rdb-channel-repl\n29? -1\n02rdb-channel 1\n02main-ch-client-id 1\n22? -1\n7z\n39500\n41"
            .to_vec(),
        b"01capa dual-channel\n21? -1\n02rdb-channel 1\n22? -1\n7z\n01set-rdb-client-id 2\n\
          210123456789012345678901234567890123456789 501\n42\n7z"
            .to_vec(),
        b"01rdb-only 1\n21? -1\n22? -1\n7z\n41\n51\n7z\n42".to_vec(),
    ];
    let words: [&[u8]; 9] = [
        b"\n21? -1\n",
        b"\n7z\n",
        b"\n51\n",
        b"\n61\n",
        b"\n41\n",
        b"\n319223372036854775807\n",
        b"\n31-1\n",
        b"0123456789012345678901234567890123456789",
        b"$EOF:",
    ];
    mutate::run(&inputs, &words, entry::check);
}
