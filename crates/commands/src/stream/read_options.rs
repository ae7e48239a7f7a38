//! The options that XREAD and XREADGROUP share, up to their keys and IDs.

use engine::blocking::parse_timeout_ms;
use engine::{Args, Cx, Error, Key, Millis};

/// The options of a request.
#[derive(Debug, Default)]
pub(super) struct StreamReadOptions<'a> {
    /// `BLOCK`; the inside is the deadline, if there is one.
    pub block: Option<Option<Millis>>,
    /// `COUNT`, 0 for no limit.
    pub count: usize,
    /// `MAXCOUNT`: entries of all streams together.
    pub most_entries: Option<usize>,
    /// `MAXSIZE`: bytes of fields and values of all streams together, but for the first entry.
    pub most_bytes: Option<usize>,
    /// The group and the consumer.
    pub group: Option<(&'a [u8], &'a [u8])>,
    pub no_ack: bool,
    /// `CLAIM`.
    pub claim_idle: Option<i64>,
    /// Where the first key is.
    pub keys_at: usize,
    /// Number of keys.
    pub keys: usize,
}

impl StreamReadOptions<'_> {
    /// The word with the ID that belongs to a key.
    pub fn id<'a>(&self, args: Args<'a>, index: usize) -> &'a [u8] {
        args[self.keys_at + self.keys + index]
    }

    pub fn key<'a>(&self, args: Args<'a>, index: usize) -> Key<'a> {
        args.key(self.keys_at + index)
    }

    /// Entries of one stream, at most.
    pub fn limit(&self) -> usize {
        if self.count == 0 { usize::MAX } else { self.count }
    }
}

/// Returns whether a request has the word BLOCK among its options.
pub(super) fn names_block(words: &[&[u8]]) -> bool {
    let mut options =
        words.iter().skip(1).take_while(|word| !word.eq_ignore_ascii_case(b"STREAMS"));
    options.any(|word| word.eq_ignore_ascii_case(b"BLOCK"))
}

/// Reads the options.
pub(super) fn parse<'a>(
    cx: &Cx<'_>,
    args: Args<'a>,
    is_group: bool,
) -> Result<StreamReadOptions<'a>, Error> {
    let mut options = StreamReadOptions::default();
    let mut at = 1;
    while at < args.len() {
        let more = args.len() - at - 1;
        if args.is(at, "block") && more > 0 {
            options.block = Some(parse_timeout_ms(args[at + 1], cx.now())?);
            at += 1;
        } else if args.is(at, "count") && more > 0 {
            options.count = usize::try_from(args.integer(at + 1)?).unwrap_or(0);
            at += 1;
        } else if !is_group && args.is(at, "maxcount") && more > 0 {
            let most = args.integer_in(at + 1, 1..=i64::MAX, "MAXCOUNT must be positive")?;
            options.most_entries = Some(usize::try_from(most).unwrap_or(usize::MAX));
            at += 1;
        } else if !is_group && args.is(at, "maxsize") && more > 0 {
            let most = args.integer_in(at + 1, 1..=i64::MAX, "MAXSIZE must be positive")?;
            options.most_bytes = Some(usize::try_from(most).unwrap_or(usize::MAX));
            at += 1;
        } else if args.is(at, "streams") && more > 0 {
            options.keys_at = at + 1;
            options.keys = more / 2;
            if more % 2 == 1 {
                return Err(unbalanced(is_group));
            }
            break;
        } else if args.is(at, "group") && more > 1 {
            if !is_group {
                return Err(Error::text(
                    "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            options.group = Some((args[at + 1], args[at + 2]));
            at += 2;
        } else if args.is(at, "noack") {
            if !is_group {
                return Err(Error::text(
                    "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                ));
            }
            options.no_ack = true;
        } else if is_group && args.is(at, "claim") && more > 0 {
            let idle = args.integer(at + 1).ok().filter(|&idle| idle >= 0);
            options.claim_idle = Some(
                idle.ok_or(Error::text("ERR min-idle-time is not an integer or out of range"))?,
            );
            at += 1;
        } else {
            return Err(Error::Syntax);
        }
        at += 1;
    }
    if options.keys_at == 0 {
        return Err(Error::Syntax);
    }
    if is_group && options.group.is_none() {
        return Err(Error::text("ERR Missing GROUP option for XREADGROUP"));
    }
    Ok(options)
}

fn unbalanced(is_group: bool) -> Error {
    let (name, symbol) = if is_group { ("xreadgroup", '>') } else { ("xread", '$') };
    Error::format(format!(
        "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' must be \
         specified."
    ))
}
