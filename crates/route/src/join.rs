//! One reply out of many.
//!
//! A request that went to several servers has a [`Joining`]: it collects the replies, in any order
//! of arrival, and makes one of them when the last is there. An error of any server is the answer,
//! unless the rule says otherwise.

use crate::code;
use crate::raw;
use resp::Protocol;
use resp::bulk::{push_bulk, push_header};
use spec::{Gather, Merge};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Collects the replies of one request.
#[derive(Debug)]
pub struct Joining {
    merge: Merge,
    /// For [`Merge::Gather`]: what the client has asked.
    request: Vec<u8>,
    missing: usize,
    parts: Vec<Vec<u8>>,
    /// For [`Merge::Places`]: for each part, where its elements go.
    places: Vec<Vec<u32>>,
    /// Servers that do not answer are left out.
    is_lenient: bool,
    /// Parts that were split again.
    divided: Vec<Divided>,
    /// The number of the next part, if one is split again.
    next: usize,
}

/// A part whose reply is made of several replies.
#[derive(Debug)]
struct Divided {
    /// The number of the part.
    of: usize,
    /// The number of the first reply.
    first: usize,
    joining: Joining,
}

/// The number of one of these by chance: the replies are random themselves, and a count makes a
/// difference where they are always the same.
fn chance(values: &[&Vec<u8>]) -> usize {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Relaxed).to_le_bytes();
    let bytes = values.iter().flat_map(|value| value.iter()).chain(&count);
    // FNV-1a, and the upper half of it, which every byte has changed.
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, mix) >> 32;
    usize::try_from(hash).unwrap_or(0) % values.len().max(1)
}

impl Joining {
    /// For so many replies.
    pub fn new(merge: Merge, parts: usize) -> Joining {
        let (places, divided) = (Vec::new(), Vec::new());
        Joining {
            merge,
            request: Vec::new(),
            missing: parts,
            parts: vec![Vec::new(); parts],
            places,
            is_lenient: false,
            divided,
            next: parts,
        }
    }

    /// For so many replies, of which the reply to this request is made.
    pub fn gathering(gather: &'static Gather, request: Vec<u8>, parts: usize) -> Joining {
        Joining { request, ..Joining::new(Merge::Gather(gather), parts) }
    }

    /// For replies whose elements have places.
    pub fn with_places(places: Vec<Vec<u32>>) -> Joining {
        Joining { places, ..Joining::new(Merge::Places, 0) }.sized()
    }

    /// The same, but the reply is that of the servers that answer. If these have not found what the
    /// request is about, the others may have it, and their error is the reply.
    pub fn lenient(self) -> Joining {
        Joining { is_lenient: true, ..self }
    }

    fn sized(mut self) -> Joining {
        (self.missing, self.next) = (self.places.len(), self.places.len());
        self.parts = vec![Vec::new(); self.missing];
        self
    }

    /// Has the reply of a part made of several: its keys have turned out to be on several servers.
    /// Returns the number of the first of these replies, for [`put`](Joining::put).
    pub fn divide(&mut self, part: usize, joining: Joining) -> usize {
        let first = self.next;
        self.next += joining.missing;
        self.divided.push(Divided { of: part, first, joining });
        first
    }

    /// Takes the reply of one part. Returns whether it was the last.
    ///
    /// # Panics
    /// When the part has a reply already: replies would be out of step.
    pub fn put(&mut self, part: usize, reply: Vec<u8>) -> bool {
        if part >= self.parts.len() {
            return self.put_divided(part, reply);
        }
        assert!(self.parts[part].is_empty(), "a part has two replies");
        self.parts[part] = reply;
        self.missing -= 1;
        self.missing == 0
    }

    fn put_divided(&mut self, part: usize, reply: Vec<u8>) -> bool {
        let is_of = |it: &Divided| (it.first..it.first + it.joining.parts.len()).contains(&part);
        let at = self.divided.iter().position(is_of).expect("a reply to a part that was not made");
        let it = &mut self.divided[at];
        if !it.joining.put(part - it.first, reply) {
            return false;
        }
        let Divided { of, joining, .. } = self.divided.swap_remove(at);
        // Replies of requests that are split look the same in both protocols.
        self.put(of, joining.finish(Protocol::Resp2))
    }

    /// Bytes of the replies that it holds.
    pub fn bytes(&self) -> usize {
        let of_parts: usize = self.parts.iter().map(Vec::len).sum();
        of_parts + self.divided.iter().map(|it| it.joining.bytes()).sum::<usize>()
    }

    /// The one reply.
    pub fn finish(&self, protocol: Protocol) -> Vec<u8> {
        debug_assert_eq!(self.missing, 0);
        let reply = self.joined(protocol);
        if self.is_lenient { code::for_client(reply) } else { reply }
    }

    fn joined(&self, protocol: Protocol) -> Vec<u8> {
        if self.is_lenient
            && let Some(reply) = self.without_missing(protocol)
        {
            return reply;
        }
        if !matches!(self.merge, Merge::AnyGood | Merge::AnyValue)
            && let Some(error) = self.parts.iter().find(|part| raw::is_error(part))
        {
            return error.clone();
        }
        self.merged(protocol).unwrap_or_else(|| {
            raw::error("ERR the servers behind the proxy answered in different ways")
        })
    }

    /// The reply of those that can say something, if there are others: servers that do not answer, and
    /// servers that do not know the user whose clients the request is about, and so have none.
    fn without_missing(&self, protocol: Protocol) -> Option<Vec<u8>> {
        let is_silent = |part: &&Vec<u8>| code::has(part, code::NO_REPLY);
        let is_missing = |part: &&Vec<u8>| is_silent(part) || code::has(part, code::NO_USER);
        let parts: Vec<Vec<u8>> =
            self.parts.iter().filter(|part| !is_missing(part)).cloned().collect();
        let missing = self.parts.iter().find(is_missing)?;
        let silent = self.parts.iter().find(is_silent);
        if parts.is_empty() {
            return Some(silent.unwrap_or(missing).clone());
        }
        let rest = Joining { parts, ..Joining::new(self.merge, 0) }.finish(protocol);
        let has_found_none = rest == b":0\r\n" || code::has(&rest, code::NO_CLIENT);
        Some(silent.filter(|_| has_found_none).cloned().unwrap_or(rest))
    }

    fn integers(&self) -> Option<Vec<i64>> {
        self.parts.iter().map(|part| raw::integer(part)).collect()
    }

    fn merged(&self, protocol: Protocol) -> Option<Vec<u8>> {
        let first = self.parts.first()?;
        let mut out = Vec::new();
        match self.merge {
            Merge::First => return Some(first.clone()),
            Merge::Sum => {
                let sum = self.integers()?.iter().fold(0i64, |sum, n| sum.saturating_add(*n));
                raw::push_integer(&mut out, sum);
            }
            Merge::Min => return self.extreme(i64::min),
            Merge::Max => return self.extreme(i64::max),
            Merge::Concat => {
                push_elements(&mut out, first[0], &self.all_elements()?);
            }
            Merge::Union => {
                let mut all = self.all_elements().filter(|_| first[0] != b'%')?;
                all.sort_unstable();
                all.dedup();
                push_elements(&mut out, first[0], &all);
            }
            Merge::Gather(gather) => {
                let words = raw::words(&self.request)?;
                return (gather.join)(&words, &self.parts, protocol == Protocol::Resp3);
            }
            Merge::Places => return self.in_places(),
            Merge::SumPairs => return self.sum_pairs(),
            Merge::AnyValue => {
                let is_value = |part: &&Vec<u8>| !raw::is_null(part) && !raw::is_error(part);
                let values: Vec<&Vec<u8>> = self.parts.iter().filter(is_value).collect();
                let value = values.get(chance(&values)).copied();
                let value = value.or_else(|| self.parts.iter().find(|part| raw::is_error(part)));
                return Some(value.unwrap_or(first).clone());
            }
            Merge::AnyGood => {
                return self.parts.iter().min_by_key(|part| rank_of_kill(part)).cloned();
            }
            Merge::Text => {
                let texts: Option<Vec<&[u8]>> =
                    self.parts.iter().map(|part| raw::text(part)).collect();
                push_text(&mut out, &texts?.concat(), protocol);
            }
            Merge::Info => return self.info(protocol),
        }
        Some(out)
    }

    fn all_elements(&self) -> Option<Vec<&[u8]>> {
        let mut all = Vec::new();
        let is_map = |part: &Vec<u8>| part.first() == Some(&b'%');
        for part in &self.parts {
            if is_map(part) != is_map(&self.parts[0]) {
                return None;
            }
            all.append(&mut raw::elements(part)?);
        }
        Some(all)
    }

    fn in_places(&self) -> Option<Vec<u8>> {
        let count = self.places.iter().map(Vec::len).sum();
        let mut all: Vec<&[u8]> = vec![&[]; count];
        for (part, places) in self.parts.iter().zip(&self.places) {
            let elements = raw::elements(part)?;
            if elements.len() != places.len() {
                return None;
            }
            for (element, &place) in elements.iter().zip(places) {
                *all.get_mut(place as usize)? = element;
            }
        }
        let mut out = Vec::with_capacity(self.bytes() + 16);
        push_elements(&mut out, b'*', &all);
        Some(out)
    }

    /// The smallest or largest integer; of arrays that at each place.
    fn extreme(&self, choose: fn(i64, i64) -> i64) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        if let Some(integers) = self.integers() {
            raw::push_integer(&mut out, integers.into_iter().reduce(choose)?);
            return Some(out);
        }
        let integers = |part: &Vec<u8>| -> Option<Vec<i64>> {
            raw::elements(part)?.iter().map(|element| raw::integer(element)).collect()
        };
        let mut chosen = integers(self.parts.first()?)?;
        for part in &self.parts[1..] {
            let others = integers(part)?;
            if others.len() != chosen.len() {
                return None;
            }
            chosen.iter_mut().zip(others).for_each(|(one, other)| *one = choose(*one, other));
        }
        push_header(&mut out, b'*', chosen.len());
        chosen.iter().for_each(|number| raw::push_integer(&mut out, *number));
        Some(out)
    }

    fn sum_pairs(&self) -> Option<Vec<u8>> {
        let first = raw::elements(&self.parts[0])?;
        let mut sums: Vec<i64> = vec![0; first.len() / 2];
        for part in &self.parts {
            let elements = raw::elements(part)?;
            if elements.len() != first.len() || elements.len() % 2 != 0 {
                return None;
            }
            for (sum, pair) in sums.iter_mut().zip(elements.chunks_exact(2)) {
                *sum = sum.saturating_add(raw::integer(pair[1])?);
            }
        }
        let mut out = Vec::new();
        out.extend_from_slice(&self.parts[0][..header_len(&self.parts[0])?]);
        for (name, sum) in first.chunks_exact(2).zip(sums) {
            out.extend_from_slice(name[0]);
            raw::push_integer(&mut out, sum);
        }
        Some(out)
    }

    fn info(&self, protocol: Protocol) -> Option<Vec<u8>> {
        let texts: Option<Vec<&[u8]>> = self.parts.iter().map(|part| raw::text(part)).collect();
        let merged = merge_info(&texts?);
        let mut out = Vec::with_capacity(merged.len() + 32);
        push_text(&mut out, &merged, protocol);
        Some(out)
    }
}

fn header_len(reply: &[u8]) -> Option<usize> {
    reply.iter().position(|&byte| byte == b'\n').map(|at| at + 1)
}

/// Appends a text for readers, as INFO is.
pub fn push_text(out: &mut Vec<u8>, text: &[u8], protocol: Protocol) {
    match protocol {
        Protocol::Resp2 => push_bulk(out, text),
        Protocol::Resp3 => {
            push_header(out, b'=', text.len() + 4);
            out.extend_from_slice(b"txt:");
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Orders the replies to SCRIPT KILL: that a server runs no script is said only if none does.
fn rank_of_kill(reply: &[u8]) -> u8 {
    match reply {
        [b'-', rest @ ..] if rest.starts_with(b"UNKILLABLE") => 1,
        [b'-', rest @ ..] if rest.starts_with(b"NOTBUSY") => 3,
        [b'-', ..] => 2,
        _ => 0,
    }
}

fn push_elements(out: &mut Vec<u8>, kind: u8, elements: &[&[u8]]) {
    // A map's elements are names and values in turn.
    push_header(out, kind, if kind == b'%' { elements.len() / 2 } else { elements.len() });
    elements.iter().for_each(|element| out.extend_from_slice(element));
}

/// Fields of INFO that are sums over servers, in alphabetical order: they are looked up by halves.
/// All others are the first server's.
static SUMMED: &[&str] = &[
    "blocked_clients",
    "connected_clients",
    "evicted_keys",
    "expired_keys",
    "instantaneous_ops_per_sec",
    "keyspace_hits",
    "keyspace_misses",
    "maxmemory",
    "rejected_connections",
    "shed_requests",
    "total_commands_processed",
    "total_connections_received",
    "total_error_replies",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "total_system_memory",
    "used_memory",
    "used_memory_dataset",
    "used_memory_rss",
];

/// The first text, with the sums of all in the fields that are counters, and with all databases. They
/// are one server to clients, whatever they are to each other.
fn merge_info(texts: &[&[u8]]) -> Vec<u8> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let mut databases: BTreeMap<u64, [u64; 2]> = BTreeMap::new();
    for text in texts {
        for (name, value) in fields(text) {
            if let Ok(at) = SUMMED.binary_search(&name) {
                *sums.entry(SUMMED[at]).or_default() += value.parse::<u64>().unwrap_or(0);
            } else if let Some(index) = name.strip_prefix("db").and_then(|n| n.parse().ok()) {
                let sum = databases.entry(index).or_default();
                sum[0] += database_count(value, "keys=");
                sum[1] += database_count(value, "expires=");
            }
        }
    }
    let mut out = String::new();
    let first = String::from_utf8_lossy(texts.first().copied().unwrap_or_default());
    for line in first.lines() {
        let name = line.split(':').next().unwrap_or_default();
        let is_database = name.strip_prefix("db").is_some_and(|n| n.parse::<u64>().is_ok());
        if is_database {
            continue;
        }
        match (sums.get(name), name) {
            (Some(sum), _) => out.push_str(&format!("{name}:{sum}")),
            // HELLO says the same. Clients that take the servers for a cluster ask for slots.
            (None, "redis_mode" | "server_mode") => out.push_str(&format!("{name}:standalone")),
            (None, "cluster_enabled") => out.push_str("cluster_enabled:0"),
            (None, _) => out.push_str(line),
        }
        out.push_str("\r\n");
        if line == "# Keyspace" {
            for (index, [keys, expires]) in &databases {
                out.push_str(&format!("db{index}:keys={keys},expires={expires},avg_ttl=0\r\n"));
            }
        }
    }
    out.into_bytes()
}

fn fields(text: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    std::str::from_utf8(text).unwrap_or_default().lines().filter_map(|line| line.split_once(':'))
}

fn database_count(value: &str, field: &str) -> u64 {
    let found = value.split(',').find_map(|part| part.strip_prefix(field));
    found.and_then(|count| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn joined(merge: Merge, parts: &[&str]) -> String {
        let mut joining = Joining::new(merge, parts.len());
        // The order of arrival does not matter.
        for (at, part) in parts.iter().enumerate().rev() {
            assert_eq!(joining.put(at, part.as_bytes().to_vec()), at == 0);
        }
        String::from_utf8(joining.finish(Protocol::Resp2)).expect("text")
    }

    #[test]
    fn servers_that_do_not_answer_are_left_out_unless_only_they_may_know() {
        let silent = b"-NOREPLY server a: it did not answer in time\r\n";
        let joined = |merge, parts: &[&[u8]]| {
            let mut joining = Joining::new(merge, parts.len()).lenient();
            for (at, part) in parts.iter().enumerate() {
                joining.put(at, part.to_vec());
            }
            joining.finish(Protocol::Resp2)
        };
        assert_eq!(joined(Merge::Sum, &[b":1\r\n", silent, b":2\r\n"]), b":3\r\n");
        assert_eq!(joined(Merge::Sum, &[b":0\r\n", silent]), silent);
        assert_eq!(joined(Merge::Sum, &[b":0\r\n", b":0\r\n"]), b":0\r\n");
        assert_eq!(joined(Merge::Text, &[b"$1\r\na\r\n", silent]), b"$1\r\na\r\n");
        let not_busy = b"-NOTBUSY No scripts in execution right now.\r\n";
        assert_eq!(joined(Merge::AnyGood, &[silent, not_busy]), not_busy);
        let no_client = b"-NOCLIENT No such client\r\n";
        assert_eq!(joined(Merge::AnyGood, &[silent, no_client]), silent);
        assert_eq!(joined(Merge::AnyGood, &[no_client, no_client]), b"-ERR No such client\r\n");
        assert_eq!(joined(Merge::AnyGood, &[silent, b"+OK\r\n"]), b"+OK\r\n");
        assert_eq!(joined(Merge::Max, &[silent]), silent);
        // A node that does not know a user has no clients of it.
        let unknown = b"-NOUSER No such user 'bob'\r\n";
        assert_eq!(joined(Merge::Sum, &[unknown, b":2\r\n"]), b":2\r\n");
        assert_eq!(joined(Merge::Text, &[b"$1\r\na\r\n", unknown]), b"$1\r\na\r\n");
        assert_eq!(joined(Merge::Sum, &[unknown, b":0\r\n"]), b":0\r\n");
        assert_eq!(joined(Merge::Sum, &[unknown, b":0\r\n", silent]), silent);
        assert_eq!(joined(Merge::Sum, &[unknown, unknown]), b"-ERR No such user 'bob'\r\n");
    }

    #[test]
    fn parts_are_split_again() {
        let mut whole = Joining::with_places(vec![vec![1], vec![0, 2, 3]]);
        let first = whole.divide(1, Joining::with_places(vec![vec![2], vec![0, 1]]));
        let again = whole.divide(first + 1, Joining::with_places(vec![vec![1], vec![0]]));
        assert!(!whole.put(again, b"*1\r\n$1\r\nc\r\n".to_vec()));
        assert!(!whole.put(first, b"*1\r\n$1\r\nd\r\n".to_vec()));
        assert!(!whole.put(0, b"*1\r\n$1\r\nb\r\n".to_vec()));
        assert!(whole.put(again + 1, b"*1\r\n$1\r\na\r\n".to_vec()));
        let joined = whole.finish(Protocol::Resp2);
        assert_eq!(joined, b"*4\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n");
        assert_eq!(
            whole.bytes(),
            b"*1\r\n$1\r\nb\r\n".len() + b"*3\r\n$1\r\na\r\n$1\r\nc\r\n$1\r\nd\r\n".len()
        );

        let mut sum = Joining::new(Merge::Sum, 1);
        let first = sum.divide(0, Joining::new(Merge::Sum, 2));
        assert!(!sum.put(first, b":2\r\n".to_vec()));
        assert!(sum.put(first + 1, b":3\r\n".to_vec()));
        assert_eq!(sum.finish(Protocol::Resp2), b":5\r\n");
    }

    #[test]
    fn a_reply_is_made_of_what_servers_were_asked() {
        static LONGEST: Gather = Gather {
            ask: |_| None,
            join: |words, replies, is_resp3| {
                let longest = replies.iter().map(Vec::len).max()?;
                Some(format!("+{} {longest} {is_resp3}\r\n", words.len()).into_bytes())
            },
        };
        let joined = |replies: [&str; 2]| {
            let mut joining = Joining::gathering(&LONGEST, raw::request(&[b"A", b"b"]), 2);
            let put = |(part, reply): (usize, &str)| joining.put(part, reply.as_bytes().to_vec());
            assert_eq!(replies.into_iter().enumerate().map(put).collect::<Vec<_>>(), [false, true]);
            String::from_utf8(joining.finish(Protocol::Resp3)).expect("text")
        };
        assert_eq!(joined(["+a\r\n", ":123\r\n"]), "+2 6 true\r\n");
        assert_eq!(joined(["+a\r\n", "-ERR no\r\n"]), "-ERR no\r\n");
    }

    #[test]
    fn each_rule_merges() {
        assert_eq!(joined(Merge::Sum, &[":1\r\n", ":2\r\n"]), ":3\r\n");
        assert_eq!(joined(Merge::Min, &[":5\r\n", ":2\r\n"]), ":2\r\n");
        assert_eq!(joined(Merge::First, &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        assert_eq!(joined(Merge::First, &["+OK\r\n", "-ERR no\r\n"]), "-ERR no\r\n");
        assert_eq!(
            joined(Merge::Concat, &["*1\r\n$1\r\na\r\n", "*0\r\n", "*1\r\n:1\r\n"]),
            "*2\r\n$1\r\na\r\n:1\r\n"
        );
        assert_eq!(
            joined(Merge::Union, &["*1\r\n$1\r\na\r\n", "*1\r\n$1\r\na\r\n"]),
            "*1\r\n$1\r\na\r\n"
        );
        assert_eq!(
            joined(Merge::Min, &["*2\r\n:1\r\n:0\r\n", "*2\r\n:1\r\n:1\r\n"]),
            "*2\r\n:1\r\n:0\r\n"
        );
        assert_eq!(
            joined(Merge::SumPairs, &["*2\r\n$1\r\na\r\n:1\r\n", "*2\r\n$1\r\na\r\n:2\r\n"]),
            "*2\r\n$1\r\na\r\n:3\r\n"
        );
        assert_eq!(joined(Merge::AnyValue, &["$-1\r\n", "$1\r\na\r\n"]), "$1\r\na\r\n");
        assert_eq!(joined(Merge::AnyValue, &["$-1\r\n", "$-1\r\n"]), "$-1\r\n");
        let parts = ["$1\r\na\r\n", "$1\r\nb\r\n", "-ERR away\r\n", "$1\r\nc\r\n"];
        let mut found: Vec<String> = (0..300).map(|_| joined(Merge::AnyValue, &parts)).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, [parts[0], parts[1], parts[3]], "each of the values comes");
        assert_eq!(joined(Merge::AnyGood, &["-NOTBUSY\r\n", "+OK\r\n"]), "+OK\r\n");
        let unkillable = "-UNKILLABLE\r\n";
        assert_eq!(joined(Merge::AnyGood, &["-NOTBUSY\r\n", "-ERR\r\n", unkillable]), unkillable);
        assert_eq!(joined(Merge::AnyGood, &["-NOTBUSY\r\n", "-ERR\r\n"]), "-ERR\r\n");
        assert!(joined(Merge::Sum, &[":1\r\n", "+OK\r\n"]).starts_with("-ERR the servers"));
    }

    #[test]
    fn counters_and_databases_of_info_are_summed() {
        let one = b"# Server\r\nredis_version:8\r\nredis_mode:cluster\r\nused_memory:10\r\n\
            cluster_enabled:1\r\n# Keyspace\r\n\
            db0:keys=1,expires=0,avg_ttl=0\r\n";
        let two = b"# Server\r\nredis_version:9\r\nused_memory:5\r\n# Keyspace\r\n\
            db0:keys=2,expires=1,avg_ttl=7\r\ndb3:keys=1,expires=0,avg_ttl=0\r\n";
        let merged = String::from_utf8(merge_info(&[one, two])).expect("text");
        assert_eq!(
            merged,
            "# Server\r\nredis_version:8\r\nredis_mode:standalone\r\nused_memory:15\r\n\
             cluster_enabled:0\r\n# Keyspace\r\n\
             db0:keys=3,expires=1,avg_ttl=0\r\ndb3:keys=1,expires=0,avg_ttl=0\r\n"
        );
    }

    proptest! {
        #[test]
        fn elements_reach_their_places(servers in prop::collection::vec(0usize..5, 0..40)) {
            let mut places = vec![Vec::new(); 5];
            for (place, server) in servers.iter().enumerate() {
                places[*server].push(place as u32);
            }
            places.retain(|places| !places.is_empty());
            let mut joining = Joining::with_places(places.clone());
            for (part, places) in places.iter().enumerate() {
                let mut reply = format!("*{}\r\n", places.len()).into_bytes();
                places.iter().for_each(|place| raw::push_integer(&mut reply, i64::from(*place)));
                joining.put(part, reply);
            }
            if !places.is_empty() {
                let mut expected = format!("*{}\r\n", servers.len()).into_bytes();
                (0..servers.len()).for_each(|n| raw::push_integer(&mut expected, n as i64));
                prop_assert_eq!(joining.finish(Protocol::Resp2), expected);
            }
        }
    }
}
