//! What creates or alters a series: `[RETENTION milliseconds] [ENCODING COMPRESSED|UNCOMPRESSED]
//! [CHUNK_SIZE bytes] [DUPLICATE_POLICY policy] [ON_DUPLICATE policy] [IGNORE milliseconds value]
//! [LABELS [name value …]]`, in any order

use super::whole;
use crate::typed;
use config::Config;
use engine::{Arg, ArgKind, Args, Cx, Error, Key};
use series::{Encoding, Ignore, Policy, Series, Settings};
use structs::labels::Labels;
use structs::numbers::{parse_f64, push_f64};

/// The arguments, for COMMAND DOCS.
pub(super) const RETENTION: Arg =
    Arg::new("retentionPeriod", ArgKind::Integer).after("RETENTION").optional();
pub(super) const ENCODING: Arg = Arg::new("encoding", ArgKind::String).after("ENCODING").optional();
pub(super) const CHUNK_SIZE: Arg =
    Arg::new("size", ArgKind::Integer).after("CHUNK_SIZE").optional();
pub(super) const DUPLICATE_POLICY: Arg =
    Arg::new("policy", ArgKind::String).after("DUPLICATE_POLICY").optional();
pub(super) const ON_DUPLICATE: Arg =
    Arg::new("policy_ovr", ArgKind::String).after("ON_DUPLICATE").optional();
pub(super) const IGNORE: Arg = Arg::block(
    "ignore",
    &[
        Arg::new("ignoreMaxTimediff", ArgKind::Integer),
        Arg::new("ignoreMaxValDiff", ArgKind::Double),
    ],
)
.after("IGNORE")
.optional();
pub(super) const LABELS: Arg =
    Arg::block("labels", &[Arg::new("label", ArgKind::String), Arg::new("value", ArgKind::String)])
        .after("LABELS")
        .optional()
        .multiple();

const KEYWORDS: [&[u8]; 10] = [
    b"RETENTION",
    b"ENCODING",
    b"COMPRESSED",
    b"UNCOMPRESSED",
    b"CHUNK_SIZE",
    b"DUPLICATE_POLICY",
    b"ON_DUPLICATE",
    b"IGNORE",
    b"LABELS",
    b"TIMESTAMP",
];

/// Bytes of a chunk where none are named.
const CHUNK_BYTES: usize = 4096;

/// What a request says; nothing where it says nothing.
#[derive(Default)]
pub(super) struct SeriesOptions {
    retention: Option<u64>,
    encoding: Option<Encoding>,
    chunk_size: Option<usize>,
    policy: Option<Policy>,
    ignore: Option<Ignore>,
    labels: Option<Labels>,
    /// The policy of this request alone.
    pub on_duplicate: Option<Policy>,
    /// The time of TS.INCRBY, if it is not now.
    pub time: Option<u64>,
}

impl SeriesOptions {
    /// Reads the words of a request from a place on.
    pub fn parse(args: Args<'_>, from: usize) -> Result<SeriesOptions, Error> {
        let mut options = SeriesOptions::default();
        let mut at = from;
        while at < args.len() {
            at = options.take(args, at)?;
        }
        Ok(options)
    }

    /// Reads one option. Returns where the next one is.
    fn take(&mut self, args: Args<'_>, at: usize) -> Result<usize, Error> {
        let word = args.get(at + 1);
        if args.is(at, "retention") {
            let unreadable = Error::text("ERR TSDB: Couldn't parse RETENTION");
            self.retention = Some(word.and_then(whole).ok_or(unreadable)?);
        } else if args.is(at, "encoding") {
            self.encoding = Some(encoding(word.unwrap_or_default())?);
        } else if args.is(at, "compressed") || args.is(at, "uncompressed") {
            self.encoding = Some(encoding(args[at])?);
            return Ok(at + 1);
        } else if args.is(at, "chunk_size") {
            self.chunk_size = Some(chunk_size(word)?);
        } else if args.is(at, "duplicate_policy") {
            self.policy = Some(policy(word, "ERR TSDB: Unknown DUPLICATE_POLICY")?);
        } else if args.is(at, "on_duplicate") {
            self.on_duplicate = Some(policy(word, "ERR TSDB: Unknown ON_DUPLICATE")?);
        } else if args.is(at, "timestamp") {
            let is_now = word == Some(b"*");
            self.time = match word.and_then(whole) {
                None if is_now => None,
                None => return Err(Error::text("ERR TSDB: invalid timestamp")),
                time => time,
            };
        } else if args.is(at, "ignore") {
            let ignore = Ignore {
                max_time: word.and_then(whole).ok_or(BAD_IGNORE)?,
                max_value: args
                    .get(at + 2)
                    .and_then(parse_f64)
                    .filter(|value| value.is_finite() && *value >= 0.0)
                    .ok_or(BAD_IGNORE)?,
            };
            self.ignore = Some(ignore);
            return Ok(at + 3);
        } else if args.is(at, "labels") {
            return self.take_labels(args, at + 1);
        } else {
            return Err(Error::Syntax);
        }
        Ok(at + 2)
    }

    fn take_labels(&mut self, args: Args<'_>, from: usize) -> Result<usize, Error> {
        let unreadable = Error::text("ERR TSDB: Couldn't parse LABELS");
        let mut labels = Vec::new();
        let mut at = from;
        // redis-py writes IGNORE behind the labels.
        while at < args.len() && !KEYWORDS.contains(&args[at]) {
            let (name, value) = (args[at], args.get(at + 1).unwrap_or_default());
            let is_bad = |byte: &u8| matches!(byte, b'(' | b')' | b',');
            if name.is_empty() || value.is_empty() || value.iter().any(is_bad) {
                return Err(unreadable);
            }
            labels.push((name.into(), value.into()));
            at += 2;
        }
        self.labels = Some(Labels::new(labels));
        Ok(at)
    }

    /// Returns a new series, and by what it is created.
    pub fn create(self, cx: &Cx<'_>) -> Result<(Series, typed::TypedOptions<Settings>), Error> {
        let read = |usual: Settings| Ok(self.settings(&usual));
        let settings = typed::TypedOptions::read(cx, configured, built_in(), read)?;
        let labels = self.labels.unwrap_or_default();
        Ok((Series::new(settings.chosen.clone(), labels), settings))
    }

    /// Returns settings of which those that the request does not say are the usual ones.
    fn settings(&self, usual: &Settings) -> Settings {
        Settings {
            retention: self.retention.unwrap_or(usual.retention),
            encoding: self.encoding.unwrap_or(usual.encoding),
            chunk_size: self.chunk_size.unwrap_or(usual.chunk_size),
            policy: self.policy.unwrap_or(usual.policy),
            ignore: self.ignore.unwrap_or(usual.ignore),
        }
    }

    /// Changes a series. Returns whether its labels were.
    pub fn alter(self, series: &mut Series) -> bool {
        let encoding = series.settings().encoding;
        *series.settings_mut() = Settings { encoding, ..self.settings(series.settings()) };
        let Some(labels) = self.labels else { return false };
        series.set_labels(labels);
        true
    }
}

/// What a series has that a request creates without saying more.
fn built_in() -> Settings {
    Settings {
        retention: 0,
        encoding: Encoding::Compressed,
        chunk_size: CHUNK_BYTES,
        policy: Policy::Block,
        ignore: Ignore::default(),
    }
}

/// The same by the configuration. As in Redis, `ts-encoding` is for the series of rules alone.
pub(super) fn configured(config: &Config) -> Settings {
    let policy = Policy::named(config.ts_duplicate_policy().name().as_bytes());
    Settings {
        retention: config.ts_retention_policy(),
        encoding: Encoding::Compressed,
        chunk_size: config.ts_chunk_size_bytes() / 8 * 8,
        policy: policy.unwrap_or(Policy::Block),
        ignore: Ignore {
            max_time: config.ts_ignore_max_time_diff(),
            max_value: config.ts_ignore_max_val_diff(),
        },
    }
}

/// Returns the command that creates a series as it is, without samples.
pub(super) fn creation(key: Key<'_>, series: &Series) -> Vec<Vec<u8>> {
    let Settings { retention, encoding, chunk_size, policy, ignore } = series.settings();
    let mut max_value = Vec::new();
    push_f64(&mut max_value, ignore.max_value);
    let encoding: &[u8] = match encoding {
        Encoding::Compressed => b"COMPRESSED",
        Encoding::Uncompressed => b"UNCOMPRESSED",
    };
    let (retention, chunk_size) = (typed::word(retention), typed::word(chunk_size));
    let max_time = typed::word(ignore.max_time);
    let mut words: Vec<&[u8]> = vec![b"TS.CREATE", key.bytes, b"RETENTION", &retention];
    words.extend([&b"ENCODING"[..], encoding, b"CHUNK_SIZE", &chunk_size]);
    words.extend([&b"DUPLICATE_POLICY"[..], policy.name().as_bytes()]);
    words.extend([&b"IGNORE"[..], &max_time, &max_value, b"LABELS"]);
    words.extend(series.labels().iter().flat_map(|(name, value)| [name, value]));
    words.iter().map(|word| word.to_vec()).collect()
}

const BAD_IGNORE: Error = Error::text("ERR TSDB: Couldn't parse IGNORE");

fn encoding(word: &[u8]) -> Result<Encoding, Error> {
    match word {
        _ if word.eq_ignore_ascii_case(b"compressed") => Ok(Encoding::Compressed),
        _ if word.eq_ignore_ascii_case(b"uncompressed") => Ok(Encoding::Uncompressed),
        _ => Err(Error::text("ERR TSDB: unknown ENCODING parameter")),
    }
}

fn chunk_size(word: Option<&[u8]>) -> Result<usize, Error> {
    let size = word.and_then(whole).ok_or(Error::text("ERR TSDB: Couldn't parse CHUNK_SIZE"))?;
    let is_right = (48..=1 << 20).contains(&size) && size.is_multiple_of(8);
    is_right.then_some(size as usize).ok_or(Error::text(
        "ERR TSDB: CHUNK_SIZE value must be a multiple of 8 in the range [48 .. 1048576]",
    ))
}

fn policy(word: Option<&[u8]>, unknown: &'static str) -> Result<Policy, Error> {
    word.and_then(Policy::named).ok_or(Error::text(unknown))
}
