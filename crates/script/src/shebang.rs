//! The first line of a script or library: `#!lua name=… flags=…`.

use structs::words::split_words;

/// What a script says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScriptFlags(u8);

/// The flags' names, in the order of their bits.
pub const FLAG_NAMES: [&str; 5] =
    ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

impl ScriptFlags {
    /// It does not write.
    pub const NO_WRITES: ScriptFlags = ScriptFlags(1);
    /// It may run when memory is over its limit.
    pub const ALLOW_OOM: ScriptFlags = ScriptFlags(2);
    /// It may run on a replica with stale data.
    pub const ALLOW_STALE: ScriptFlags = ScriptFlags(4);
    /// It must not run in a cluster.
    pub const NO_CLUSTER: ScriptFlags = ScriptFlags(8);
    /// It may touch keys of different slots.
    pub const ALLOW_CROSS_SLOT_KEYS: ScriptFlags = ScriptFlags(16);

    /// Whether all of `other` is in the set.
    pub fn has(self, other: ScriptFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds the flag of this name; `false` if there is none.
    pub fn add(&mut self, name: &[u8]) -> bool {
        let place = FLAG_NAMES.iter().position(|flag| flag.as_bytes() == name);
        if let Some(place) = place {
            self.0 |= 1 << place;
        }
        place.is_some()
    }

    /// The names of the flags in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        FLAG_NAMES
            .into_iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 >> bit & 1 != 0)
            .map(|f| f.1)
    }
}

/// A script of EVAL, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source<'s> {
    /// What it says; `None` if there is no first line of this kind, and old rules hold.
    pub flags: Option<ScriptFlags>,
    /// What is compiled: begins with the end of the first line, so that lines keep their numbers.
    pub code: &'s [u8],
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A text whose first line begins with `#!`.
struct Parts<'t> {
    engine: Vec<u8>,
    /// The other words of the line.
    words: Vec<Vec<u8>>,
    code: &'t [u8],
}

/// Takes such a text apart; `None` if the line does not end, or its quotes are not balanced.
fn split(text: &[u8]) -> Option<Parts<'_>> {
    let end = text.iter().position(|&byte| byte == b'\n')?;
    let mut words = split_words(&text[..end])?;
    let rest = words.split_off(1);
    Some(Parts { engine: words.pop()?.split_off(2), words: rest, code: &text[end..] })
}

/// Reads the first line of a script.
///
/// # Errors
/// What is wrong with it, without a code.
pub fn parse_script(text: &[u8]) -> Result<Source<'_>, String> {
    if !text.starts_with(b"#!") {
        return Ok(Source { flags: None, code: text });
    }
    let Parts { engine, words, code } = split(text).ok_or("Invalid script shebang")?;
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(format!("Could not find scripting engine '{}'", shown(&engine)));
    }
    let mut flags = ScriptFlags::default();
    for word in words {
        let list = word
            .strip_prefix(b"flags=")
            .ok_or_else(|| format!("Unknown lua shebang option: {}", shown(&word)))?;
        for name in list.split(|&byte| byte == b',').filter(|name| !name.is_empty()) {
            if !flags.add(name) {
                return Err(format!("Unexpected flag in script shebang: {}", shown(name)));
            }
        }
    }
    Ok(Source { flags: Some(flags), code })
}

/// Reads the first line of a library: its name, and its code.
///
/// # Errors
/// What is wrong with it, without a code.
pub fn parse_library(text: &[u8]) -> Result<(String, &[u8]), String> {
    if !text.starts_with(b"#!") {
        return Err("Missing library metadata".into());
    }
    let Parts { engine, words, code } = split(text).ok_or("Invalid library metadata")?;
    let mut name = None;
    for word in words {
        let value = word
            .strip_prefix(b"name=")
            .map(<[u8]>::to_vec)
            .ok_or_else(|| format!("Invalid metadata value given: {}", shown(&word)))?;
        if name.replace(value).is_some() {
            return Err("Invalid metadata value, name argument was given multiple times".into());
        }
    }
    let name = name.ok_or("Library name was not given")?;
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(format!("Engine '{}' not found", shown(&engine)));
    }
    if !is_name(&name) {
        return Err("Library names can only contain letters, numbers, or underscores(_) and must \
                    be at least one character long"
            .into());
    }
    Ok((shown(&name), code))
}

/// Whether a library or function may be called so.
pub fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
