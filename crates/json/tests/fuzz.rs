//! The fuzz target of documents on seeded mutations of texts and payloads.

#[path = "../../../fuzz/entries/json.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

/// Writes the payload of a tree with one of each type.
fn tree() -> Vec<u8> {
    let mut encoder = rdb::Encoder::new(rdb::Compression::Off);
    let mut to = rdb::module::Writer::new(&mut encoder);
    to.unsigned(0x20);
    to.unsigned(1);
    to.unsigned(0x80);
    to.string(b"a");
    to.unsigned(0x40);
    to.unsigned(5);
    to.unsigned(1);
    to.unsigned(2);
    to.string(b"text");
    to.unsigned(4);
    to.double(1.5);
    to.unsigned(8);
    to.signed(-7);
    to.unsigned(0x10);
    to.string(b"1");
    encoder.into_bytes()
}

#[test]
fn documents_survive_changes() {
    let inputs: Vec<Vec<u8>> = [
        &br#"{"a":[1,2,300],"b":[0.5,1.25],"c":{"a":"text","d":null},"e":true}"#[..],
        br#"[[1.5,"x",{"a":{"b":{"c":[[]]}}}],"a longer string \u00e9\n",-0.0,1e308,12345678901]"#,
        br#"{"a":{"a":1,"a":2},"":[19.99,0.1],"bb":9223372036854775808}"#,
        &tree(),
    ]
    .map(<[u8]>::to_vec)
    .into();
    let words: [&[u8]; 20] = [
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b":",
        b"\"",
        b"\\",
        b"\\u0000",
        b"\\ud83d\\ude00",
        b"1",
        b"-",
        b".5",
        b"e9",
        b"null",
        b"true",
        b"\"a\":",
        b"[1,2]",
        b"{\"a\":1}",
        b"300",
    ];
    mutate::run(&inputs, &words, entry::check);
}
