//! GROUPBY of TS.MRANGE and TS.MREVRANGE over several servers.
//!
//! A group may have series on several servers, and most reducers cannot be continued from what they
//! have made of a part. So each server is asked for the rows and the labels of its series, and they
//! are reduced where the replies meet.

use super::grouping;
use super::search::Found;
use engine::Args;
use engine::routing::Gather;
use resp::{Output, Protocol, Reply};
use route::raw;
use series::range::Rows;
use std::sync::Arc;
use structs::labels::Labels;
use structs::numbers::parse_f64;

/// How the requests are asked.
pub(super) static GROUPS: Gather = Gather { ask, join };

fn is_reverse(words: &[&[u8]]) -> bool {
    Args::new(words).is(0, "ts.mrevrange")
}

/// Returns the words that ask a server for the series of its groups, with their labels. `None`: it
/// is another request, or one that a server refuses.
fn ask(words: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    let (options, ..) = grouping::parse(Args::new(words), is_reverse(words)).ok()?;
    options.grouping?;
    let is_left = |at: &usize| !options.of_reply.iter().any(|range| range.contains(at));
    let left = (0..words.len()).filter(is_left).map(|at| words[at].to_vec());
    Some(left.chain([b"WITHLABELS".to_vec()]).collect())
}

/// Makes the groups of the series that the servers have.
fn join(words: &[&[u8]], replies: &[Vec<u8>], is_resp3: bool) -> Option<Vec<u8>> {
    let (options, _, count) = grouping::parse(Args::new(words), is_reverse(words)).ok()?;
    let mut all = Vec::new();
    for reply in replies {
        let elements = raw::elements(reply)?;
        if is_resp3 {
            for pair in elements.chunks_exact(2) {
                let [labels, _, rows] = raw::elements(pair[1])?[..] else { return None };
                all.push((found(pair[0], labels, is_resp3)?, self::rows(rows)?));
            }
        } else {
            for element in elements {
                let [key, labels, rows] = raw::elements(element)?[..] else { return None };
                all.push((found(key, labels, is_resp3)?, self::rows(rows)?));
            }
        }
    }
    all.sort_by(|(one, _), (other, _)| one.key.cmp(&other.key));
    let protocol = if is_resp3 { Protocol::Resp3 } else { Protocol::Resp2 };
    let mut out = Output::default();
    grouping::reply_groups(&mut Reply::new(&mut out, protocol), all, &options, count);
    Some(out.plain().to_vec())
}

/// Reads the key and the labels of a series.
fn found(key: &[u8], labels: &[u8], is_resp3: bool) -> Option<Found> {
    let elements = raw::elements(labels)?;
    let pairs: Vec<Vec<&[u8]>> = match is_resp3 {
        true => elements.chunks_exact(2).map(<[&[u8]]>::to_vec).collect(),
        false => elements.into_iter().map(raw::elements).collect::<Option<_>>()?,
    };
    let label = |pair: Vec<&[u8]>| {
        let [name, value] = pair[..] else { return None };
        Some((raw::text(name)?.into(), raw::text(value)?.into()))
    };
    let labels = Labels::new(pairs.into_iter().map(label).collect::<Option<_>>()?);
    Some(Found { key: raw::text(key)?.into(), labels: Arc::new(labels) })
}

/// Reads rows of one value each.
fn rows(reply: &[u8]) -> Option<Rows> {
    let mut rows = Rows::new(1);
    for row in raw::elements(reply)? {
        let [time, value] = raw::elements(row)?[..] else { return None };
        rows.push(u64::try_from(raw::integer(time)?).ok()?, [number(value)?]);
    }
    Some(rows)
}

/// Reads a double, or the simple string that stands for it in RESP2.
fn number(reply: &[u8]) -> Option<f64> {
    let text = match reply.strip_prefix(b",") {
        Some(rest) => rest.strip_suffix(b"\r\n")?,
        None => raw::text(reply)?,
    };
    if text.eq_ignore_ascii_case(b"nan") { Some(f64::NAN) } else { parse_f64(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&[u8]> {
        text.split(' ').map(str::as_bytes).collect()
    }

    fn asked(text: &str) -> Option<String> {
        let words = ask(&words(text))?;
        Some(words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn servers_are_asked_for_series_in_place_of_groups() {
        let request = "TS.MRANGE - + SELECTED_LABELS a b COUNT 1 AGGREGATION max 10 FILTER a=1 \
                       count=2 GROUPBY count REDUCE avg";
        let series = "TS.MRANGE - + AGGREGATION max 10 FILTER a=1 count=2 WITHLABELS";
        assert_eq!(asked(request).as_deref(), Some(series));
        for other in ["TS.MRANGE - + FILTER a=1", "TS.MRANGE - + GROUPBY a REDUCE max"] {
            assert_eq!(asked(other), None, "{other}");
        }
    }

    #[test]
    fn groups_are_made_of_the_series_of_all_servers() {
        let request = words("TS.MREVRANGE - + WITHLABELS COUNT 2 FILTER k=1 GROUPBY l REDUCE avg");
        let raw = |words: &str| words.replace(' ', "\r\n") + "\r\n";
        let label = "*1 *2 $1 l $1 x";
        let one = format!("*2 *3 $1 b {label} *2 *2 :2 +3 *2 :1 +1 *3 $1 d *0 *0");
        let other = format!("*1 *3 $1 a {label} *2 *2 :3 +NaN *2 :2 +0");
        let replies = [raw(&one).into_bytes(), raw(&other).into_bytes()];
        let expected = "*1 *3 $3 l=x *3 *2 $1 l $1 x *2 $11 __reducer__ $3 avg *2 $10 __source__ \
                        $3 a,b *2 *2 :3 +NaN *2 :2 +1.5";
        let joined = join(&request, &replies, false).expect("replies of servers");
        assert_eq!(String::from_utf8_lossy(&joined), raw(expected));
        assert_eq!(join(&request, &[b"+OK\r\n".to_vec()], false), None);
    }

    #[test]
    fn groups_of_resp3_are_made_as_well() {
        let request = words("TS.MRANGE - + FILTER k=1 GROUPBY l REDUCE sum");
        let of = |key: &str, value: &str| {
            let series = "*3 %1 $1 l $1 x %1 $11 aggregators *0 *1 *2 :2";
            (format!("%1 $1 {key} {series} ,{value}").replace(' ', "\r\n") + "\r\n").into_bytes()
        };
        let joined = join(&request, &[of("a", "1.5"), of("b", "2")], true).expect("replies");
        let joined = String::from_utf8_lossy(&joined);
        assert!(joined.starts_with("%1\r\n$3\r\nl=x\r\n*4\r\n"), "{joined}");
        assert!(joined.ends_with("*1\r\n*2\r\n:2\r\n,3.5\r\n"), "{joined}");
    }
}
