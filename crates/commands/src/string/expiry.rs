//! The expiry options that SET, GETEX and their kin share.

use engine::db::SetExpiry;
use engine::{Args, Error, Millis};

/// What happens to the key's expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expiry {
    /// It goes.
    Clear,
    /// It stays.
    Keep,
    /// It becomes this.
    At(Millis),
}

impl From<Expiry> for SetExpiry {
    fn from(expiry: Expiry) -> SetExpiry {
        match expiry {
            Expiry::Clear => SetExpiry::Clear,
            Expiry::Keep => SetExpiry::Keep,
            Expiry::At(at) => SetExpiry::At(at),
        }
    }
}

/// Reads `EX s`, `PX ms`, `EXAT s` or `PXAT ms` at word `at`; `None` if it is none of these.
pub(crate) fn parse_expiry(
    args: Args<'_>,
    at: usize,
    now: Millis,
    command: &'static str,
) -> Result<Option<Expiry>, Error> {
    let units = [("ex", 1000, true), ("px", 1, true), ("exat", 1000, false), ("pxat", 1, false)];
    let Some((_, unit_ms, is_relative)) = units.into_iter().find(|(name, ..)| args.is(at, name))
    else {
        return Ok(None);
    };
    if at + 1 >= args.len() {
        return Err(Error::Syntax);
    }
    let base = if is_relative { now } else { Millis(0) };
    relative(args.integer(at + 1)?, unit_ms, base, command).map(|at| Some(Expiry::At(at)))
}

/// `number` units after `base`, checked.
pub(crate) fn relative(
    number: i64,
    unit_ms: i64,
    base: Millis,
    command: &'static str,
) -> Result<Millis, Error> {
    if number <= 0 {
        return Err(Error::InvalidExpire(command));
    }
    let ms = number.checked_mul(unit_ms).and_then(|ms| ms.checked_add(base.0));
    ms.map(Millis).ok_or(Error::InvalidExpire(command))
}
