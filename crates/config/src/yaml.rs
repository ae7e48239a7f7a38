//! Files of YAML, within limits.
//!
//! An alias stands for a copy of what its anchor names, so a file of a kilobyte can stand for
//! billions of values; and nesting is followed by recursion. The file is therefore measured, as it
//! would be with all copies made, before values are made of it.

use std::collections::HashMap;
pub use yaml_rust2::Yaml;
use yaml_rust2::YamlLoader;
use yaml_rust2::parser::{Event, Parser};

/// Most maps and lists inside each other.
const MAX_DEPTH: usize = 64;
/// What all values may take, copies by aliases included.
const MAX_BYTES: usize = 16 << 20;
/// What a value takes beside its text.
const OVERHEAD: usize = 32;

/// Reads the documents of a file.
///
/// # Errors
/// It is not YAML, or beyond the limits; the text is for the operator.
pub fn load(text: &str) -> Result<Vec<Yaml>, String> {
    measure(text)?;
    YamlLoader::load_from_str(text).map_err(|why| format!("not YAML: {why}"))
}

/// Refuses a file that is beyond the limits.
fn measure(text: &str) -> Result<(), String> {
    let mut parser = Parser::new_from_str(text);
    // The open maps and lists: the number of each one's anchor, and bytes of its values.
    let mut open: Vec<(usize, usize)> = vec![(0, 0)];
    let mut anchors: HashMap<usize, usize> = HashMap::new();
    loop {
        let (event, mark) = parser.next_token().map_err(|why| format!("not YAML: {why}"))?;
        let (anchor, bytes) = match event {
            Event::StreamEnd => return Ok(()),
            Event::Scalar(text, _, anchor, _) => (anchor, text.len()),
            Event::Alias(anchor) => (0, anchors.get(&anchor).copied().unwrap_or(0)),
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                if open.len() > MAX_DEPTH {
                    let line = mark.line();
                    return Err(format!("line {line}: more than {MAX_DEPTH} levels of nesting"));
                }
                open.push((anchor, 0));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().unwrap_or_default(),
            _ => continue,
        };
        let bytes = bytes + OVERHEAD;
        if anchor > 0 {
            anchors.insert(anchor, bytes);
        }
        let Some(around) = open.last_mut() else { continue };
        around.1 += bytes;
        if around.1 > MAX_BYTES {
            let (line, most) = (mark.line(), MAX_BYTES >> 20);
            return Err(format!(
                "line {line}: its values take more than {most} MB, those that aliases stand for included"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_stand_for_copies() {
        let found = load("a: &x [1, 2]\nb: *x\n").expect("valid");
        assert_eq!(found[0]["b"][1], Yaml::Integer(2));
        assert_eq!(load("a: &x [1, *x]\n").expect("valid")[0]["a"][1], Yaml::BadValue);
    }

    #[test]
    fn what_takes_too_much_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        assert!(load(&text).expect_err("10^10 values").contains("aliases"));
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), "*a, ".repeat(20));
        assert!(load(&long).expect_err("20 MB").contains("aliases"));
    }

    #[test]
    fn what_is_nested_too_deep_is_refused() {
        let nested = |levels: usize| format!("{}x", "- ".repeat(levels));
        assert!(load(&nested(MAX_DEPTH)).is_ok());
        for levels in [MAX_DEPTH + 1, 1_000_000] {
            assert!(load(&nested(levels)).expect_err("too deep").contains("levels"), "{levels}");
        }
        assert!(load(&"[".repeat(1_000_000)).is_err());
    }
}
