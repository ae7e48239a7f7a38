//! The configuration file's parser: it does not panic, and what it accepts says the same after
//! CONFIG REWRITE, which a second one leaves as it is.

use config::{load_text, split_words};

/// Directives that read or make other files, which a fuzzer is not to do.
const REACHING_OUT: [&[u8]; 2] = [b"include", b"logfile"];

/// The text of a configuration file.
pub fn check(text: &[u8]) {
    let reaches_out = text.split(|&byte| byte == b'\n').any(|line| {
        let name = split_words(line.trim_ascii()).and_then(|words| words.into_iter().next());
        name.is_some_and(|name| REACHING_OUT.iter().any(|other| name.eq_ignore_ascii_case(other)))
    });
    if reaches_out {
        return;
    }
    let Ok(loaded) = load_text(text) else { return };
    let rewritten = loaded.config.rewrite(text, None);
    let again = load_text(&rewritten).unwrap_or_else(|error| {
        panic!("what is written is not read: {error}\n{}", rewritten.escape_ascii())
    });
    let everything: [&[u8]; 1] = [b"*"];
    let (before, after) = (loaded.config.get(&everything), again.config.get(&everything));
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        let show = |text: &[u8]| text.escape_ascii().to_string();
        assert_eq!(show(before), show(after), "{}: in {}", show(name), show(&rewritten));
    }
    assert_eq!(before.len(), after.len());
    let twice = again.config.rewrite(&rewritten, None);
    assert_eq!(rewritten.escape_ascii().to_string(), twice.escape_ascii().to_string());
}
