//! Reading the bounds of ranges of scores and members.

use engine::Error;
use std::ops::Bound;
use structs::zset::{LexBound, LexRange, ScoreRange};

/// `1.5`, `(1.5`, `-inf`, `+inf`; no number at all counts as zero.
pub(crate) fn parse_score_range(min: &[u8], max: &[u8]) -> Result<ScoreRange, Error> {
    Ok(ScoreRange { min: parse_score(min)?, max: parse_score(max)? })
}

/// A bound may be a number that no double can hold: it then is infinite, or zero.
fn out_of_range(text: &[u8]) -> Option<f64> {
    let digits = text.iter().any(u8::is_ascii_digit);
    let number = std::str::from_utf8(text).ok()?.parse::<f64>().ok()?;
    (digits && !number.is_nan()).then_some(number)
}

/// A bound is read as C reads a number: up to a NUL, and nothing at all is zero.
fn parse_score(word: &[u8]) -> Result<Bound<f64>, Error> {
    let number = |text: &[u8]| {
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        if text.is_empty() {
            return Ok(0.0);
        }
        structs::numbers::parse_f64(text)
            .or_else(|| out_of_range(text))
            .ok_or(Error::text("ERR min or max is not a float"))
    };
    match word.strip_prefix(b"(") {
        Some(text) => number(text).map(Bound::Excluded),
        None => number(word).map(Bound::Included),
    }
}

/// `-`, `+`, `[member`, `(member`.
pub(crate) fn parse_lex_range<'a>(min: &'a [u8], max: &'a [u8]) -> Result<LexRange<'a>, Error> {
    Ok(LexRange { min: parse_lex(min)?, max: parse_lex(max)? })
}

fn parse_lex(word: &[u8]) -> Result<LexBound<'_>, Error> {
    match word {
        b"-" => Ok(LexBound::Lowest),
        b"+" => Ok(LexBound::Highest),
        [b'[', member @ ..] => Ok(LexBound::Included(member)),
        [b'(', member @ ..] => Ok(LexBound::Excluded(member)),
        _ => Err(Error::text("ERR min or max not valid string range item")),
    }
}
