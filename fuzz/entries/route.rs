//! What a server of the proxy, or a node of a cluster, may answer: replies find their requests in
//! whatever pieces they come, and what is made of several is a reply again.

use resp::Protocol;
use resp::decode::{Scanned, Scanner, decode};
use resp::token::ReplyLimits;
use route::link::{Link, Received};
use route::raw;
use route::{Joining, slots};
use spec::Merge;

const LONGEST: usize = 8 * 1024;
const REQUESTS: usize = 64;
const MERGES: [Merge; 10] = [
    Merge::First,
    Merge::Sum,
    Merge::Min,
    Merge::Max,
    Merge::Concat,
    Merge::Union,
    Merge::SumPairs,
    Merge::AnyValue,
    Merge::AnyGood,
    Merge::Info,
];

/// The first byte says how the rest is cut.
pub fn check(data: &[u8]) {
    let Some((step, stream)) = data.split_first() else { return };
    if stream.len() > LONGEST {
        return;
    }
    let whole = receive(stream, stream.len().max(1));
    assert_eq!(receive(stream, 1 + usize::from(*step)), whole, "in pieces");
    let mut replies = Vec::new();
    let mut rest = stream;
    let mut scanner = Scanner::new(ReplyLimits::PEER);
    while let Ok(Scanned::Reply { len }) = scanner.scan(rest) {
        replies.push(rest[..len].to_vec());
        rest = &rest[len..];
    }
    for reply in &replies {
        let _ = slots::redirection(reply);
        let _ = raw::elements(reply);
        whole_reply(&route::plan::Page::default().finish(reply), reply);
    }
    if replies.is_empty() {
        return;
    }
    let all = replies.concat();
    for merge in MERGES {
        let mut joining = Joining::new(merge, replies.len());
        for (part, reply) in replies.iter().enumerate() {
            joining.put(part, reply.clone());
        }
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            whole_reply(&joining.finish(protocol), &all);
        }
    }
    let places = (0..replies.len()).map(|at| vec![at as u32]).collect();
    let mut joining = Joining::with_places(places);
    for (part, reply) in replies.into_iter().enumerate() {
        joining.put(part, reply);
    }
    whole_reply(&joining.finish(Protocol::Resp2), &all);
}

/// Fails unless this is one reply and no more.
fn whole_reply(reply: &[u8], of: &[u8]) {
    let scanned = Scanner::new(ReplyLimits::PEER).scan(reply);
    let is_whole = matches!(scanned, Ok(Scanned::Reply { len }) if len == reply.len());
    assert!(is_whole, "{} of {}", reply.escape_ascii(), of.escape_ascii());
    let _ = decode(reply, ReplyLimits::PEER);
}

/// Which request each reply of a stream is for, and whether the link breaks.
fn receive(stream: &[u8], step: usize) -> (Vec<(usize, Vec<u8>)>, bool) {
    let mut link = Link::new(Vec::new());
    link.opened(&mut |_| {});
    (0..REQUESTS).for_each(|tag| link.send(b"", tag, &mut |_| {}));
    let (mut start, mut have, mut seen) = (0, 0, Vec::new());
    while have < stream.len() {
        have = (have + step).min(stream.len());
        loop {
            match link.receive(&stream[start..have], &mut |_| {}) {
                Ok(Some((received, len))) => {
                    if let Some(Received::Reply(tag, reply)) = received {
                        seen.push((tag, reply.to_vec()));
                    }
                    start += len;
                }
                Ok(None) => break,
                Err(_) => return (seen, true),
            }
        }
    }
    (seen, false)
}
