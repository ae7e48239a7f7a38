//! The parts of replies: numbers, samples, labels.

use super::query::Shown;
use resp::Reply;
use series::Sample;
use series::range::Rows;
use structs::labels::Labels;
use structs::numbers;

/// Writes a value: a double, or a simple string in RESP2.
pub(super) fn number(reply: &mut Reply<'_>, value: f64) {
    if reply.is_resp3() {
        return reply.double(value);
    }
    if value.is_nan() {
        return reply.simple("NaN");
    }
    let mut text = Vec::with_capacity(32);
    numbers::push_f64(&mut text, value);
    reply.simple(&String::from_utf8_lossy(&text));
}

/// Writes a sample, or an empty array.
pub(super) fn sample(reply: &mut Reply<'_>, sample: Option<Sample>) {
    match sample {
        None => reply.array(0),
        Some(sample) => {
            reply.array(2);
            reply.integer(sample.time.cast_signed());
            number(reply, sample.value);
        }
    }
}

/// Writes rows: the time of each and its values.
pub(super) fn rows(reply: &mut Reply<'_>, rows: &Rows) {
    reply.array(rows.len());
    for (time, values) in rows.iter() {
        reply.array(1 + values.len());
        reply.integer(time.cast_signed());
        values.iter().for_each(|&value| number(reply, value));
    }
}

/// Writes the labels that are asked for: a map, or an array of pairs in RESP2.
pub(super) fn labels(reply: &mut Reply<'_>, labels: &Labels, shown: &Shown) {
    let shown: Vec<(&[u8], Option<&[u8]>)> = match shown {
        Shown::None => Vec::new(),
        Shown::All => labels.iter().map(|(name, value)| (name, Some(value))).collect(),
        Shown::Selected(names) => names.iter().map(|name| (&**name, labels.get(name))).collect(),
    };
    pairs(reply, &shown);
}

/// Writes names and values: a map, or an array of pairs in RESP2.
pub(super) fn pairs(reply: &mut Reply<'_>, pairs: &[(&[u8], Option<&[u8]>)]) {
    if reply.is_resp3() {
        reply.map(pairs.len());
    } else {
        reply.array(pairs.len());
    }
    for (name, value) in pairs {
        if !reply.is_resp3() {
            reply.array(2);
        }
        reply.bulk(name);
        reply.bulk_or_null(*value);
    }
}
