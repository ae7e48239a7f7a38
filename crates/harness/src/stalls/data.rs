//! What the phases work on.

use super::commander::Commander;
use crate::client::encode;
use std::io;
use std::time::Duration;

/// How big everything is.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Keys that the readers ask for.
    pub keys: usize,
    /// A thousandth of what the big values hold; 1000 for the sizes of the issue.
    pub scale: usize,
}

impl Sizes {
    /// So many elements, at this scale.
    pub(super) fn elements(self, thousands: usize) -> usize {
        thousands * self.scale
    }
}

/// The name of a key that the load is about.
pub fn key(number: usize) -> String {
    format!("key:{number:012}")
}

pub(super) fn nothing(_: &mut Commander, _: &Sizes) -> io::Result<()> {
    Ok(())
}

/// Writes the keys that the load is about.
pub fn reader_keys(commander: &mut Commander, sizes: &Sizes) -> io::Result<()> {
    for start in (0..sizes.keys).step_by(1000) {
        let mut words = vec!["MSET".to_owned()];
        for number in start..sizes.keys.min(start + 1000) {
            words.extend([key(number), "value:0123456789".to_owned()]);
        }
        commander.run(&words)?;
    }
    Ok(())
}

pub(super) fn string_keys(
    commander: &mut Commander,
    prefix: &str,
    from: usize,
    to: usize,
    expiry: Option<Duration>,
) -> io::Result<()> {
    for start in (from..to).step_by(500) {
        let mut requests = Vec::new();
        for number in start..to.min(start + 500) {
            let key = format!("{prefix}{number}");
            match expiry {
                Some(at) => {
                    let at = at.as_millis().to_string();
                    requests.extend(encode(&["SET", &key, "value", "PXAT", &at]));
                }
                None => requests.extend(encode(&["SET", &key, "value"])),
            }
        }
        commander.run_encoded(&requests)?;
    }
    Ok(())
}

pub(super) fn big_list(commander: &mut Commander, sizes: &Sizes) -> io::Result<()> {
    let count = sizes.elements(1000);
    commander.run(&["DEL", "big:list"])?;
    commander.fill("RPUSH", "big:list", count, |n| vec![(n * 7919 % count).to_string()])
}

pub(super) fn big_sets(commander: &mut Commander, sizes: &Sizes) -> io::Result<()> {
    let count = sizes.elements(1000);
    commander.fill("SADD", "big:set", count, |n| vec![format!("member:{n}")])?;
    commander.fill("SADD", "big:set2", count, |n| vec![format!("other:{n}")])
}

pub(super) fn big_hash(commander: &mut Commander, sizes: &Sizes) -> io::Result<()> {
    let count = sizes.elements(1000);
    commander.fill("HSET", "big:hash", count, |n| vec![format!("field:{n}"), n.to_string()])
}

pub(super) fn huge_hash(commander: &mut Commander, sizes: &Sizes) -> io::Result<()> {
    fields(commander, 0, sizes.elements(5000), 1000)
}

/// Sets fields of `huge:hash`, so many at a time.
pub(super) fn fields(
    commander: &mut Commander,
    from: usize,
    to: usize,
    step: usize,
) -> io::Result<()> {
    let value = "x".repeat(60);
    for start in (from..to).step_by(step) {
        let mut words = vec!["HSET".to_owned(), "huge:hash".to_owned()];
        for number in start..to.min(start + step) {
            words.extend([format!("field:{number:012}"), value.clone()]);
        }
        commander.run(&words)?;
    }
    Ok(())
}

pub(super) fn huge_set(commander: &mut Commander, sizes: &Sizes) -> io::Result<()> {
    let count = sizes.elements(5000);
    commander.fill("SADD", "huge:set", count, |n| vec![format!("member:{n}")])
}
