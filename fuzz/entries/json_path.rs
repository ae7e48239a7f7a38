//! Paths: a text is compiled or refused, and what it finds in a document is at the locations that it
//! gives. Nothing panics.

use json::{Document, EvalError, Limits, Path, Targets};

/// Returns the documents that paths are tried on. They are made anew each time: what a static held
/// by their tagged addresses would be a leak to the sanitizer.
fn documents() -> [Document; 3] {
    let parse = |text: &str| Document::parse(text.as_bytes(), &Limits::default());
    let texts = [
        r#"{"a":1,"b":[1,2.5,"x",null,true,{"a":"y","b":[[],{}]}],"c":{"a":{"a":-1}},"é":"z"}"#,
        r#"[[1,2,3],[0.5,1.5],["a","b"],{"t":"a","p":8.95},{"t":"b","p":12,"r":"(?i)a"}]"#,
        "7",
    ];
    texts.map(|text| parse(text).expect("it is JSON"))
}

/// The text of a path.
pub fn check(input: &[u8]) {
    let Ok(path) = Path::parse(input) else { return };
    for document in &documents() {
        let Ok(found) = path.read(document) else { continue };
        let first = path.first(document).expect("it is a part of all");
        let show = |found: &json::Found<'_>| found.value().to_string();
        assert_eq!(first.as_ref().map(show), found.first().map(show));
        match path.locations(document) {
            Ok(locations) => {
                let at = |at: &json::Location| document.at(at).expect("it is there").to_string();
                let found: Vec<String> = found.iter().map(show).collect();
                assert_eq!(locations.iter().map(at).collect::<Vec<_>>(), found);
                if path.is_static() {
                    assert!(found.len() <= 1);
                }
                match path.targets(document).expect("it found its locations") {
                    Targets::Existing(existing) => assert_eq!(existing, locations),
                    Targets::New { objects, .. } => {
                        assert!(locations.is_empty() && objects.len() == 1 && path.is_static());
                    }
                    _ => assert!(locations.is_empty()),
                }
            }
            Err(error) => assert_eq!(error, EvalError::Projection),
        }
    }
}
