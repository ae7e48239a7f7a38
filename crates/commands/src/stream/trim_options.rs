//! The options that XADD and XTRIM share: `MAXLEN|MINID [=|~] threshold [LIMIT count]`, and
//! `KEEPREF|DELREF|ACKED`.

use super::idempotency::Message;
use super::{ids, references};
use engine::{Args, Error};
use structs::stream::{References, Strategy, StreamId, Trim};

/// The ID that an XADD asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NewId {
    /// `*`.
    Auto,
    /// `ms-*`.
    AutoSequence(u64),
    /// `ms-seq` or `ms`.
    Exact(StreamId),
}

/// The options of a request.
#[derive(Debug)]
pub(super) struct TrimOptions<'a> {
    pub no_mkstream: bool,
    /// XADD's IDMP or IDMPAUTO.
    pub message: Option<Message<'a>>,
    pub trim: Option<Trim>,
    /// Where MAXLEN or MINID is, and the threshold.
    strategy_at: usize,
    threshold_at: usize,
    /// Where the value of LIMIT is.
    limit_at: Option<usize>,
    /// Where KEEPREF, DELREF or ACKED is.
    references_at: Option<usize>,
    /// XADD's ID, and where it is.
    pub id: NewId,
    pub id_at: usize,
}

/// What has been read of a trimming strategy.
struct Threshold {
    strategy: Strategy,
    is_approximate: bool,
    begins_at: usize,
    at: usize,
}

fn threshold(args: Args<'_>, at: usize) -> Result<Threshold, Error> {
    let has_operator = args.len() > at + 2 && (args.is(at + 1, "~") || args.is(at + 1, "="));
    let value_at = at + 1 + usize::from(has_operator);
    let strategy = if args.is(at, "maxlen") {
        let length = args.integer(value_at)?;
        let length = u64::try_from(length)
            .map_err(|_| Error::text("ERR The MAXLEN argument must be >= 0."))?;
        Strategy::MaxLength(length)
    } else {
        Strategy::MinId(ids::strict(args[value_at], 0)?)
    };
    let is_approximate = has_operator && args.is(at + 1, "~");
    Ok(Threshold { strategy, is_approximate, begins_at: at, at: value_at })
}

fn new_id(word: &[u8]) -> Result<NewId, Error> {
    match word {
        b"*" => Ok(NewId::Auto),
        [ms @ .., b'-', b'*'] if !ms.contains(&b'-') => {
            ids::strict(ms, 0).map(|id| NewId::AutoSequence(id.ms))
        }
        _ => ids::strict(word, 0).map(NewId::Exact),
    }
}

/// Reads the options of XADD (up to its ID) or XTRIM. `max_entries` is that of a block.
pub(super) fn parse(
    args: Args<'_>,
    is_add: bool,
    max_entries: usize,
) -> Result<TrimOptions<'_>, Error> {
    let mut chosen: Option<Threshold> = None;
    let mut limit: Option<u64> = None;
    let mut of_groups = None;
    let mut options = TrimOptions {
        no_mkstream: false,
        message: None,
        trim: None,
        strategy_at: 0,
        threshold_at: 0,
        limit_at: None,
        references_at: None,
        id: NewId::Auto,
        id_at: args.len(),
    };
    let mut at = 2;
    while at < args.len() {
        let has_more = at + 1 < args.len();
        if is_add && args[at] == b"*" {
            options.id_at = at;
            break;
        } else if has_more && (args.is(at, "maxlen") || args.is(at, "minid")) {
            if chosen.is_some() {
                return Err(Error::text(
                    "ERR syntax error, MAXLEN and MINID options at the same time are not \
                     compatible",
                ));
            }
            let threshold = threshold(args, at)?;
            at = threshold.at;
            chosen = Some(threshold);
        } else if has_more && args.is(at, "limit") {
            let given = args.integer(at + 1)?;
            limit = Some(
                u64::try_from(given)
                    .map_err(|_| Error::text("ERR The LIMIT argument must be >= 0."))?,
            );
            at += 1;
            options.limit_at = Some(at);
        } else if is_add && args.is(at, "nomkstream") {
            options.no_mkstream = true;
        } else if let Some(references) = references::named(args, at) {
            if of_groups.replace(references).is_some() {
                return Err(Error::Syntax);
            }
            options.references_at = Some(at);
        } else if is_add && let Some(message) = Message::parse(args, at)? {
            at += message.len();
            if options.message.replace(message).is_some() {
                return Err(Error::Syntax);
            }
        } else if is_add {
            options.id = new_id(args[at])?;
            options.id_at = at;
            break;
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    finish(&mut options, is_add, chosen, limit, of_groups.unwrap_or_default(), max_entries)?;
    Ok(options)
}

/// LIMIT would leave an exact trim undone.
const LIMIT_IS_EXACT: Error =
    Error::text("ERR syntax error, LIMIT cannot be used without the special ~ option");

fn finish(
    options: &mut TrimOptions<'_>,
    is_add: bool,
    chosen: Option<Threshold>,
    limit: Option<u64>,
    references: References,
    max_entries: usize,
) -> Result<(), Error> {
    /// Blocks that an approximate trim removes at most, unless LIMIT says otherwise.
    const BLOCKS: u64 = 100;
    let Some(Threshold { strategy, is_approximate, begins_at, at }) = chosen else {
        if limit.is_some_and(|limit| limit > 0) {
            return Err(Error::text(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        if !is_add {
            return Err(Error::text(
                "ERR syntax error, XTRIM must be called with a trimming strategy",
            ));
        }
        return if limit.is_some() { Err(LIMIT_IS_EXACT) } else { Ok(()) };
    };
    if limit.is_some() && !is_approximate {
        return Err(LIMIT_IS_EXACT);
    }
    let usual = match BLOCKS.saturating_mul(max_entries as u64) {
        0 => 10_000,
        entries => entries.min(1_000_000),
    };
    let limit = if is_approximate { limit.unwrap_or(usual) } else { 0 };
    options.trim = Some(Trim { strategy, is_approximate, limit, references });
    options.strategy_at = begins_at;
    options.threshold_at = at;
    Ok(())
}

impl TrimOptions<'_> {
    /// Whether KEEPREF, DELREF or ACKED is among the options.
    pub fn names_references(&self) -> bool {
        self.references_at.is_some()
    }

    /// Whether KEEPREF, DELREF or ACKED stands at this word.
    pub fn is_references(&self, at: usize) -> bool {
        self.references_at == Some(at)
    }

    /// Whether entries in the middle of the stream may be deleted.
    pub fn deletes_singly(&self) -> bool {
        self.trim.is_some_and(|trim| trim.references == References::Acknowledged)
    }

    /// The request with an exact threshold and ID, so that it does the same wherever it is
    /// repeated, and without options that old servers lack: without KEEPREF, DELREF and ACKED, and
    /// without a trim that deletes single entries. What stands at `id_at` becomes `id`.
    pub fn exact_words(
        &self,
        args: Args<'_>,
        threshold: Option<&[u8]>,
        id: Option<StreamId>,
    ) -> Vec<Vec<u8>> {
        let mut words: Vec<Vec<u8>> = Vec::with_capacity(args.len());
        for (at, word) in args.words().iter().enumerate() {
            let is_limit = self.limit_at.is_some_and(|limit| at == limit || at + 1 == limit);
            let is_trim =
                self.trim.is_some() && (self.strategy_at..=self.threshold_at).contains(&at);
            if self.is_references(at) || (self.deletes_singly() && (is_trim || is_limit)) {
                continue;
            }
            if let Some(made) = self.message.as_ref().and_then(|message| message.in_journal(at)) {
                words.extend(made.into_iter().map(<[u8]>::to_vec));
                continue;
            }
            match threshold {
                Some(_) if at + 1 == self.threshold_at => words.push(b"=".to_vec()),
                Some(threshold) if at == self.threshold_at => words.push(threshold.to_vec()),
                Some(_) if is_limit => {}
                _ if at == self.id_at && id.is_some() => {
                    words.extend(id.map(|id| id.with_text(<[u8]>::to_vec)));
                }
                _ => words.push(word.to_vec()),
            }
        }
        words
    }
}
