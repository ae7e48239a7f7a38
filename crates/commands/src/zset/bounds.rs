//! Reading the bounds of ranges of scores and members.

use engine::Error;
use std::ops::Bound;
use structs::zset::{LexBound, LexRange, ScoreRange};

/// `1.5`, `(1.5`, `-inf`, `+inf`.
pub(crate) fn parse_score_range(min: &[u8], max: &[u8]) -> Result<ScoreRange, Error> {
    Ok(ScoreRange { min: parse_score(min)?, max: parse_score(max)? })
}

fn parse_score(word: &[u8]) -> Result<Bound<f64>, Error> {
    let number = |text| {
        structs::numbers::parse_f64(text).ok_or(Error::text("ERR min or max is not a float"))
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
