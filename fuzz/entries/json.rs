//! Documents: a text that is read is written as the same document again, changes keep the count of
//! bytes, and payloads of RDB files are read or refused. Nothing panics.

use json::{Document, Limits, Number, Path, location};

/// A text, and the payload of a tree.
pub fn check(input: &[u8]) {
    let mut decoder = rdb::Decoder::new(input);
    let mut reader = rdb::module::Reader::new(&mut decoder);
    if let Ok(document) = Document::load(&mut reader, json::rdb::TREE) {
        survives(&document);
    }
    if let Ok(document) = Document::parse(input, &Limits::default()) {
        survives(&document);
        if input.len() < 4096 {
            change(document);
        }
    }
}

fn survives(document: &Document) {
    let mut text = Vec::new();
    document.write(&mut text);
    let again = Document::parse(&text, &Limits::default()).expect("what is written is read");
    assert_eq!(document, &again);
    let mut text_again = Vec::new();
    again.write(&mut text_again);
    assert_eq!(text.escape_ascii().to_string(), text_again.escape_ascii().to_string());
}

/// Makes changes everywhere, then takes everything out.
fn change(mut document: Document) {
    let everything = Path::parse(b"$..*").expect("it is a path");
    let locations = everything.locations(&document).expect("the document is small");
    let more = Document::parse(b"[1,2.5,{\"a\":[\"x\"]}]", &Limits::default()).expect("it is JSON");
    let patch = Document::parse(b"{\"a\":{\"a\":null,\"b\":1}}", &Limits::default());
    let patch = patch.expect("it is JSON");
    for at in location::update_order(&locations) {
        // What is of the wrong type or too deep is refused; that is not the question here.
        let at = &locations[at];
        let _ = document.array_insert(at, -1, &[more.root()]);
        let _ = document.insert_member(at, "a", more.root());
        let _ = document.multiply(at, Number::Double(1e300));
        let _ = document.append_string(at, "more");
        let _ = document.array_pop(at, 0);
        let _ = document.merge(at, patch.root());
    }
    survives(&document);
    let copy = document.clone();
    assert_eq!(document, copy);
    let mut locations = everything.locations(&document).expect("the document is small");
    location::outermost(&mut locations);
    for at in locations.iter().rev() {
        assert!(document.remove(at));
    }
    document.replace(&json::Location::root(), Document::null().root()).expect("null fits");
    let kept = document.memory_used();
    assert!(kept < 4096 || kept < 2 * copy.memory_used(), "{kept} bytes are left");
}
