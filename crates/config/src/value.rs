//! The value of an option: from words, and back to words.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use structs::numbers::{parse_f64, parse_i64};

use crate::choices::{Choice, ShutdownOptions, name_of};
use crate::events::KeyspaceEvents;
use crate::limits::OutputLimits;
use crate::memory::{format_memory, parse_memory};
use crate::number::parse_lenient_i64;
use crate::spec::{Kind, Spec};
use structs::words::quote_word;

/// The most addresses `bind` takes.
const MAX_ADDRESSES: usize = 16;

/// A string of the configuration: any bytes, cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Text(Arc<[u8]>);

impl Text {
    /// The text as the path of a file.
    pub fn as_path(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.0))
    }

    /// The text with what is not UTF-8 replaced.
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl Deref for Text {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Text {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Text {
        Text(bytes.into())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.as_bytes().into())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string_lossy())
    }
}

/// One point of `save`: a snapshot is due after `seconds` if at least `changes` were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    /// Seconds since the last snapshot; at least 1.
    pub seconds: u64,
    /// Changes since the last snapshot.
    pub changes: u32,
}

/// Where a replica finds its primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    /// Host name or address.
    pub host: Text,
    /// TCP port.
    pub port: u16,
}

/// What an option is set to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Every option that fits an atomic; a negative number by its two's complement.
    Number(u64),
    Text(Text),
    Addresses(Arc<[Text]>),
    Save(Arc<[SavePoint]>),
    OutputLimits(OutputLimits),
    OomScores([i32; 3]),
    Percentiles(Arc<[f64]>),
    ReplicaOf(Option<Primary>),
}

/// Reads the words of an option. `current` is its value now, which the words of
/// `client-output-buffer-limit` change only in part. The error is Redis's reason.
pub(crate) fn parse(spec: &Spec, words: &[Vec<u8>], current: &Value) -> Result<Value, String> {
    if !spec.takes_many_words() && words.len() != 1 {
        return Err("wrong number of arguments".into());
    }
    let word = words.first().map(Vec::as_slice).unwrap_or_default();
    match spec.kind {
        Kind::Bool => parse_bool(word),
        Kind::Int { min, max } => parse_int(word, min, max),
        Kind::Octal { min, max } => parse_octal(word, min, max),
        Kind::Memory { min, max } => parse_size(word, min, max),
        Kind::MemoryOrPercent => parse_size_or_percent(word),
        Kind::Enum(choices) => parse_choices(&words[..1], choices),
        Kind::Shutdown => parse_shutdown(words),
        Kind::Text { check, .. } => {
            check(word)?;
            Ok(Value::Text(word.into()))
        }
        Kind::Directory if word.is_empty() => Err("dir can't be empty".into()),
        Kind::Directory => Ok(Value::Text(word.into())),
        Kind::Events => KeyspaceEvents::parse(word)
            .map(|events| Value::Number(events.number()))
            .ok_or_else(|| "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".into()),
        Kind::Save => parse_save(words),
        Kind::OutputLimits => {
            let Value::OutputLimits(limits) = current else {
                unreachable!("the option's value is output limits")
            };
            Ok(Value::OutputLimits(limits.with(words)?))
        }
        Kind::OomScores => parse_oom_scores(words),
        Kind::Percentiles => parse_percentiles(words),
        Kind::Addresses => parse_addresses(words),
        Kind::ReplicaOf => parse_replicaof(words),
    }
}

/// The words `CONFIG SET` is given: those of one argument, split at every single space.
pub(crate) fn words_of_argument(spec: &Spec, argument: &[u8]) -> Vec<Vec<u8>> {
    if !spec.takes_many_words() {
        vec![argument.to_vec()]
    } else if argument.is_empty() {
        Vec::new()
    } else {
        argument.split(|byte| *byte == b' ').map(<[u8]>::to_vec).collect()
    }
}

fn parse_bool(word: &[u8]) -> Result<Value, String> {
    if word.eq_ignore_ascii_case(b"yes") {
        Ok(Value::Number(1))
    } else if word.eq_ignore_ascii_case(b"no") {
        Ok(Value::Number(0))
    } else {
        Err("argument must be 'yes' or 'no'".into())
    }
}

fn parse_int(word: &[u8], min: i64, max: i64) -> Result<Value, String> {
    let number = parse_i64(word).ok_or("argument couldn't be parsed into an integer")?;
    if (min..=max).contains(&number) {
        Ok(Value::Number(number as u64))
    } else {
        Err(format!("argument must be between {min} and {max} inclusive"))
    }
}

fn parse_octal(word: &[u8], min: u64, max: u64) -> Result<Value, String> {
    const REASON: &str = "argument couldn't be parsed as an octal number";
    let digits = str::from_utf8(word).map_err(|_| REASON)?;
    let number = i64::from_str_radix(digits, 8).map_err(|_| REASON)?;
    match u64::try_from(number) {
        Ok(number) if (min..=max).contains(&number) => Ok(Value::Number(number)),
        _ => Err(format!("argument must be between {min:o} and {max:o} inclusive")),
    }
}

fn parse_size(word: &[u8], min: i64, max: u64) -> Result<Value, String> {
    let out_of_range = || format!("argument must be between {min} and {max} inclusive");
    if let Some(bytes) = parse_memory(word) {
        let within = bytes <= max && i128::from(bytes) >= i128::from(min);
        return within.then_some(Value::Number(bytes)).ok_or_else(out_of_range);
    }
    match parse_i64(word) {
        Some(number) if min < 0 && number >= min => Ok(Value::Number(number as u64)),
        Some(_) if min < 0 => Err(out_of_range()),
        _ => Err("argument must be a memory value".into()),
    }
}

/// A percentage is stored as its negative, which is how it is told from a size.
fn parse_size_or_percent(word: &[u8]) -> Result<Value, String> {
    if let Some(bytes) = parse_memory(word) {
        if i64::try_from(bytes).is_ok() {
            return Ok(Value::Number(bytes));
        }
        return Err("percentage argument must be less or equal to 100".into());
    }
    match word.strip_suffix(b"%").and_then(parse_i64) {
        Some(percent) if percent > 100 => {
            Err("percentage argument must be less or equal to 100".into())
        }
        Some(percent) if percent >= 0 => Ok(Value::Number((-percent) as u64)),
        _ => Err("argument must be a memory or percent value".into()),
    }
}

fn parse_choices(words: &[Vec<u8>], choices: &[Choice]) -> Result<Value, String> {
    let find = |word: &Vec<u8>| {
        choices.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word))
    };
    let numbers: Option<Vec<u64>> = words.iter().map(|word| Some(find(word)?.1)).collect();
    match numbers {
        Some(numbers) if !numbers.is_empty() => {
            Ok(Value::Number(numbers.into_iter().fold(0, |all, one| all | one)))
        }
        _ => {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            Err(format!("argument(s) must be one of the following: {}", names.join(", ")))
        }
    }
}

fn parse_shutdown(words: &[Vec<u8>]) -> Result<Value, String> {
    let value = parse_choices(words, ShutdownOptions::CHOICES)?;
    if let Value::Number(number) = value {
        ShutdownOptions::check(number)?;
    }
    Ok(value)
}

fn parse_save(words: &[Vec<u8>]) -> Result<Value, String> {
    const REASON: &str = "Invalid save parameters";
    if let [word] = words
        && word.is_empty()
    {
        return Ok(Value::Save(Arc::default()));
    }
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(REASON.into());
    }
    let point = |[seconds, changes]: &[Vec<u8>; 2]| {
        let seconds = parse_lenient_i64(seconds).filter(|seconds| *seconds >= 1)?;
        let changes = parse_lenient_i64(changes).filter(|changes| *changes >= 0)?;
        Some(SavePoint {
            seconds: seconds.unsigned_abs(),
            changes: u32::try_from(changes).unwrap_or(u32::MAX),
        })
    };
    let points: Option<Arc<[SavePoint]>> = pairs.iter().map(point).collect();
    points.map(Value::Save).ok_or_else(|| REASON.into())
}

fn parse_oom_scores(words: &[Vec<u8>]) -> Result<Value, String> {
    let words: &[Vec<u8>; 3] = words.try_into().map_err(|_| "wrong number of arguments")?;
    let mut scores = [0; 3];
    for (score, word) in scores.iter_mut().zip(words) {
        *score = parse_lenient_i64(word)
            .filter(|score| (-2000..=2000).contains(score))
            .and_then(|score| i32::try_from(score).ok())
            .ok_or("Invalid oom-score-adj-values, elements must be between -2000 and 2000.")?;
    }
    Ok(Value::OomScores(scores))
}

fn parse_percentiles(words: &[Vec<u8>]) -> Result<Value, String> {
    if let [word] = words
        && word.is_empty()
    {
        return Ok(Value::Percentiles(Arc::default()));
    }
    let mut percentiles = Vec::with_capacity(words.len());
    for word in words {
        let percentile = parse_f64(word)
            .filter(|percentile| !percentile.is_nan())
            .ok_or("Invalid latency-tracking-info-percentiles parameters")?;
        if !(0.0..=100.0).contains(&percentile) {
            return Err(
                "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
                    .into(),
            );
        }
        percentiles.push(percentile);
    }
    Ok(Value::Percentiles(percentiles.into()))
}

fn parse_addresses(words: &[Vec<u8>]) -> Result<Value, String> {
    if words.len() > MAX_ADDRESSES {
        return Err("Too many bind addresses specified.".into());
    }
    if let [word] = words
        && word.is_empty()
    {
        return Ok(Value::Addresses(Arc::default()));
    }
    Ok(Value::Addresses(words.iter().map(|word| word.as_slice().into()).collect()))
}

fn parse_replicaof(words: &[Vec<u8>]) -> Result<Value, String> {
    let [host, port] = words else { return Err("wrong number of arguments".into()) };
    if host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one") {
        return Ok(Value::ReplicaOf(None));
    }
    let port = parse_lenient_i64(port)
        .and_then(|port| u16::try_from(port).ok())
        .ok_or("Invalid primary port")?;
    Ok(Value::ReplicaOf(Some(Primary { host: host.as_slice().into(), port })))
}

/// The value as `CONFIG GET` reports it.
pub(crate) fn render(spec: &Spec, value: &Value) -> Vec<u8> {
    match (spec.kind, value) {
        (Kind::Bool, Value::Number(0)) => "no".into(),
        (Kind::Bool, Value::Number(_)) => "yes".into(),
        (Kind::Octal { .. }, Value::Number(number)) => format!("{number:o}").into(),
        (Kind::Memory { min: 0.., .. }, Value::Number(number)) => number.to_string().into(),
        (Kind::MemoryOrPercent, Value::Number(number)) if (*number as i64) < 0 => {
            format!("{}%", (*number as i64).unsigned_abs()).into()
        }
        (Kind::Enum(choices), Value::Number(number)) => name_of(choices, *number).into(),
        (Kind::Shutdown, Value::Number(number)) => shutdown_names(*number).into(),
        (Kind::Events, Value::Number(number)) => {
            KeyspaceEvents::from_number(*number).letters().into()
        }
        (_, Value::Number(number)) => (*number as i64).to_string().into(),
        (_, Value::Text(text)) => text.to_vec(),
        (_, Value::Addresses(addresses)) => addresses.join(&b' '),
        (_, Value::Save(points)) => {
            let points: Vec<String> =
                points.iter().map(|p| format!("{} {}", p.seconds, p.changes)).collect();
            points.join(" ").into()
        }
        (_, Value::OutputLimits(limits)) => limits.to_string().into(),
        (_, Value::OomScores([primary, replica, child])) => {
            format!("{primary} {replica} {child}").into()
        }
        (_, Value::Percentiles(percentiles)) => {
            let percentiles: Vec<String> = percentiles.iter().map(|p| trimmed(*p)).collect();
            percentiles.join(" ").into()
        }
        (_, Value::ReplicaOf(None)) => Vec::new(),
        (_, Value::ReplicaOf(Some(primary))) => {
            [&primary.host[..], b" ", primary.port.to_string().as_bytes()].concat()
        }
    }
}

fn shutdown_names(number: u64) -> String {
    if number == 0 {
        return name_of(ShutdownOptions::CHOICES, 0).into();
    }
    let selected = ShutdownOptions::CHOICES.iter().filter(|(_, bit)| number & bit != 0);
    selected.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
}

/// Six decimals, without the zeros at the end.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// The value as `CONFIG REWRITE` writes it after the name of the option; one line for each group
/// of `client-output-buffer-limit`, one for everything else.
pub(crate) fn render_for_file(spec: &Spec, value: &Value) -> Vec<u8> {
    match (spec.kind, value) {
        (Kind::Memory { .. } | Kind::MemoryOrPercent, Value::Number(number))
            if *number as i64 >= 0 =>
        {
            format_memory(*number).into()
        }
        (Kind::Text { .. } | Kind::Directory | Kind::Events, _) => quote_word(&render(spec, value)),
        (_, Value::Addresses(addresses)) if !addresses.is_empty() => {
            addresses.iter().map(|word| quote_if_needed(word)).collect::<Vec<_>>().join(&b' ')
        }
        (_, Value::ReplicaOf(Some(primary))) => {
            [quote_if_needed(&primary.host), format!(" {}", primary.port).into()].concat()
        }
        _ => {
            let text = render(spec, value);
            if text.is_empty() { b"\"\"".to_vec() } else { text }
        }
    }
}

/// Addresses look better bare, but one with a line break in it must not become a directive.
fn quote_if_needed(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"'\\".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) { word.to_vec() } else { quote_word(word) }
}
