//! The expiry options that SET, GETEX and their kin share.

use engine::db::SetExpiry;
use engine::{Arg, ArgKind, Args, Cx, Error, Key, Millis, events};

const EX: Arg = Arg::new("seconds", ArgKind::Integer).after("EX");
const PX: Arg = Arg::new("milliseconds", ArgKind::Integer).after("PX");
const EXAT: Arg = Arg::new("unix-time-seconds", ArgKind::UnixTime).after("EXAT");
const PXAT: Arg = Arg::new("unix-time-milliseconds", ArgKind::UnixTime).after("PXAT");

/// The options of commands that read, as they are documented.
pub(crate) const EXPIRE_OR_PERSIST: Arg =
    Arg::one_of("expiration", &[EX, PX, EXAT, PXAT, Arg::token("persist", "PERSIST")]).optional();

/// The options of commands that write, as they are documented.
pub(crate) const EXPIRE_OR_KEEP: Arg =
    Arg::one_of("expiration", &[EX, PX, EXAT, PXAT, Arg::token("keepttl", "KEEPTTL")]).optional();

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

/// An expiry option as it was written. Its number is looked at only when all other words are
/// found to be right, since a syntax error comes before a wrong number.
#[derive(Clone, Copy, Debug)]
struct ExpiryOption {
    number_at: usize,
    unit_ms: i64,
    is_relative: bool,
}

impl ExpiryOption {
    /// Reads `EX s`, `PX ms`, `EXAT s` or `PXAT ms` at word `at`; `None` if it is none of these.
    fn parse(args: Args<'_>, at: usize) -> Option<ExpiryOption> {
        let units =
            [("ex", 1000, true), ("px", 1, true), ("exat", 1000, false), ("pxat", 1, false)];
        let (_, unit_ms, is_relative) = units.into_iter().find(|(name, ..)| args.is(at, name))?;
        (at + 1 < args.len()).then_some(ExpiryOption { number_at: at + 1, unit_ms, is_relative })
    }

    /// Whether it may stand behind one that was read before: an option may be given again, and the
    /// last one counts, but not together with another.
    fn may_follow(self, before: Option<ExpiryOption>) -> bool {
        before.is_none_or(|before| {
            (before.unit_ms, before.is_relative) == (self.unit_ms, self.is_relative)
        })
    }

    /// The point in time it stands for.
    fn resolve(self, args: Args<'_>, now: Millis, command: &'static str) -> Result<Expiry, Error> {
        let number = args.integer(self.number_at)?;
        relative(number, self.unit_ms, self.base(now), command).map(Expiry::At)
    }

    fn base(self, now: Millis) -> Millis {
        if self.is_relative { now } else { Millis(0) }
    }
}

/// A command's options about the expiry, collected word by word: one of the four times, or the
/// command's own word (KEEPTTL, PERSIST) in their place.
#[derive(Default)]
pub(crate) struct ExpiryOptions {
    option: Option<ExpiryOption>,
    has_word: bool,
}

impl ExpiryOptions {
    /// Takes the option at word `at`: how many words it has, or `None` if there is none or it
    /// cannot stand with those before it.
    pub(crate) fn take(&mut self, args: Args<'_>, at: usize, word: &str) -> Option<usize> {
        if args.is(at, word) && self.option.is_none() {
            self.has_word = true;
            return Some(1);
        }
        let found = ExpiryOption::parse(args, at)?;
        if self.has_word || !found.may_follow(self.option) {
            return None;
        }
        self.option = Some(found);
        Some(2)
    }

    /// What they ask for; `word` is what the command's own word means. `None` if there are none.
    pub(crate) fn resolve(
        self,
        args: Args<'_>,
        now: Millis,
        command: &'static str,
        word: Expiry,
    ) -> Result<Option<Expiry>, Error> {
        match self.option {
            Some(option) => option.resolve(args, now, command).map(Some),
            None => Ok(self.has_word.then_some(word)),
        }
    }
}

impl ExpiryOptions {
    /// As [`ExpiryOptions::resolve`], for fields of hashes, which may expire at once.
    pub(crate) fn resolve_for_fields(
        &self,
        args: Args<'_>,
        now: Millis,
        command: &'static str,
        word: Expiry,
    ) -> Result<Option<Expiry>, Error> {
        let Some(option) = self.option else { return Ok(self.has_word.then_some(word)) };
        let number = args.integer(option.number_at)?;
        from_now_on(number, option.unit_ms, option.base(now), command)
            .map(|at| Some(Expiry::At(at)))
    }
}

/// `number` units after `base`, checked.
pub(crate) fn from_now_on(
    number: i64,
    unit_ms: i64,
    base: Millis,
    command: &'static str,
) -> Result<Millis, Error> {
    let ms = number.checked_mul(unit_ms).and_then(|ms| ms.checked_add(base.0));
    ms.filter(|_| number >= 0).map(Millis).ok_or(Error::InvalidExpire(command))
}

/// The same, and not at once.
pub(crate) fn relative(
    number: i64,
    unit_ms: i64,
    base: Millis,
    command: &'static str,
) -> Result<Millis, Error> {
    if number == 0 {
        return Err(Error::InvalidExpire(command));
    }
    from_now_on(number, unit_ms, base, command)
}

/// Removes a key whose new expiry has passed already.
pub(crate) fn expire(cx: &mut Cx<'_>, key: Key<'_>) {
    if let Some(entry) = cx.db.take(key) {
        cx.db.discard(entry);
        cx.engine.stats.expired.add(1);
        cx.db.changed(key, events::EXPIRED);
        cx.db.propagate_as_deletion(key, cx.engine.config.lazyfree_lazy_expire());
    }
}
