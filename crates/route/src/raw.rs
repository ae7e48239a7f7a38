//! Replies as bytes: where one ends, its elements, and building new ones.

use resp::{Protocol, ReplyLimits, Scanned, Scanner};
use structs::numbers;

/// The request that begins a transaction.
pub const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
/// The request that runs it.
pub const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";
/// The request that ends it without running it.
pub const DISCARD: &[u8] = b"*1\r\n$7\r\nDISCARD\r\n";
/// The request that forgets watched keys.
pub const UNWATCH: &[u8] = b"*1\r\n$7\r\nUNWATCH\r\n";

/// CLIENT TRACKING OFF.
pub const UNTRACK: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$3\r\nOFF\r\n";

/// CLIENT CACHING YES or NO.
pub fn caching(is_wanted: bool) -> Vec<u8> {
    request(&[b"CLIENT", b"CACHING", if is_wanted { b"YES" } else { b"NO" }])
}

/// The request that ends what clients of the sending node have waiting at another node, because
/// they have gone.
pub fn abandon(clients: &[u64]) -> Vec<u8> {
    let ids: Vec<String> = clients.iter().map(u64::to_string).collect();
    let mut words: Vec<&[u8]> = vec![b"CLIENT", b"UNBLOCK"];
    words.extend(ids.iter().map(String::as_bytes));
    words.insert(words.len().min(3), b"ABANDON");
    request(&words)
}

/// The request that ends what a client has waiting, as by CLIENT UNBLOCK.
pub fn unblock(client: u64) -> Vec<u8> {
    request(&[b"CLIENT", b"UNBLOCK", client.to_string().as_bytes(), b"ERROR"])
}

/// How the reply to a command begins that CLIENT UNBLOCK has ended.
pub const UNBLOCKED: &[u8] = b"-UNBLOCKED ";

/// What a node of a cluster says on a link of another node before it goes down: no request without
/// a reply has been or will be carried out. No command's reply begins like that, and no client can
/// publish it.
pub const GOES_DOWN: &[u8] = b">1\r\n$16\r\ndunlin-goes-down\r\n";

/// What a node of a cluster answers on a link of another node when the request's slot is about to
/// move: the text of an error. It gives the request back instead of letting it wait.
pub const PAUSED: &str = "TRYAGAIN PAUSED The slot is about to move, or stays";

/// The first word of the error by which a proxy refuses a connection of proxies that lead to
/// themselves.
pub const LOOP_CODE: &str = "LOOP";

/// What a proxy answers to a connection that it has made itself: the text of an error.
pub const LOOP: &str =
    "LOOP this address leads back to the same proxy; name other servers in its pool";

/// What a node says on such a link, first of all that it sends again what it gets back, later that
/// nothing of that is under way.
pub const AGAIN: &[u8] = b"*3\r\n$6\r\nCLIENT\r\n$4\r\nCAPA\r\n$5\r\nagain\r\n";

/// The length of the reply at the start of `input`, if it is one line or one string that has
/// arrived whole. `None`: ask a [`Scanner`].
#[inline]
pub fn plain_reply(input: &[u8]) -> Option<usize> {
    if let [b'$', first @ b'0'..=b'9', rest @ ..] = input {
        return plain_bulk(*first, rest).map(|len| len + 2);
    }
    plain_line(input)
}

/// The length of the rest of a string's reply behind the first digit of its length.
#[inline]
fn plain_bulk(first: u8, rest: &[u8]) -> Option<usize> {
    let mut len = usize::from(first - b'0');
    let mut at = 0;
    while let Some(digit @ b'0'..=b'9') = rest.get(at) {
        len = len * 10 + usize::from(digit - b'0');
        at += 1;
        if at == MAX_DIGITS {
            return None;
        }
    }
    let end = at + 2 + len + 2;
    let is_whole =
        rest.len() >= end && rest[at..at + 2] == *b"\r\n" && rest[end - 2..end] == *b"\r\n";
    is_whole.then_some(end)
}

/// A string whose length has more digits is no plain reply.
const MAX_DIGITS: usize = 9;

/// The same as [`plain_reply`] of a reply that is one line.
fn plain_line(input: &[u8]) -> Option<usize> {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let line_end = 1 + input.get(1..)?.iter().take(64).position(is_end)?;
    if input.get(line_end..line_end + 2)? != b"\r\n" {
        return None;
    }
    match input[0] {
        b'+' | b'-' => Some(line_end + 2),
        b':' => numbers::parse_i64(&input[1..line_end]).map(|_| line_end + 2),
        b'_' if line_end == 1 => Some(line_end + 2),
        b'$' if input[1..line_end] == *b"-1" => Some(line_end + 2),
        _ => None,
    }
}

/// Returns whether a reply is an error.
pub fn is_error(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'-' | b'!'))
}

/// Returns whether an error, without its mark, says that a connection is not logged in, has the wrong
/// password, or gives one where there is none.
pub fn is_about_login(error: &str) -> bool {
    ["NOAUTH", "WRONGPASS", "ERR AUTH"].iter().any(|start| error.starts_with(start))
}

/// The elements of an array, a set or a push, each as the bytes of its own. A map's are its keys
/// and values in turn. `None` if the reply is something else.
pub fn elements(reply: &[u8]) -> Option<Vec<&[u8]>> {
    let line_end = reply.iter().position(|&byte| byte == b'\r')?;
    let count = numbers::parse_i64(reply.get(1..line_end)?)?;
    let count = match reply[0] {
        b'*' | b'~' | b'>' => usize::try_from(count).ok()?,
        b'%' => usize::try_from(count).ok()?.checked_mul(2)?,
        _ => return None,
    };
    let mut rest = reply.get(line_end + 2..)?;
    let mut found = Vec::with_capacity(count.min(rest.len() / 3 + 1));
    for _ in 0..count {
        let len = match plain_reply(rest) {
            Some(len) => len,
            None => match Scanner::new(ReplyLimits::PEER).scan(rest) {
                Ok(Scanned::Reply { len }) => len,
                _ => return None,
            },
        };
        found.push(&rest[..len]);
        rest = &rest[len..];
    }
    rest.is_empty().then_some(found)
}

/// Returns the words of a request. `None` if it is none.
pub fn words(request: &[u8]) -> Option<Vec<&[u8]>> {
    elements(request)?.into_iter().map(text).collect()
}

/// The integer that a reply is.
pub fn integer(reply: &[u8]) -> Option<i64> {
    let line = reply.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
    numbers::parse_i64(line)
}

/// The text of a simple or bulk string, or of a verbatim one without its format.
pub fn text(reply: &[u8]) -> Option<&[u8]> {
    match *reply.first()? {
        b'+' => reply[1..].strip_suffix(b"\r\n"),
        b'$' | b'=' => {
            let line_end = reply.iter().position(|&byte| byte == b'\r')?;
            let body = reply.get(line_end + 2..)?.strip_suffix(b"\r\n")?;
            if reply[0] == b'=' { body.get(4..) } else { Some(body) }
        }
        _ => None,
    }
}

/// Returns whether a reply is a null of either protocol.
pub fn is_null(reply: &[u8]) -> bool {
    matches!(reply, b"$-1\r\n" | b"*-1\r\n" | b"_\r\n")
}

/// Appends a request of these words.
pub fn push_request(out: &mut Vec<u8>, words: &[&[u8]]) {
    resp::bulk::push_request(out, words);
}

/// A request of these words.
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(words.iter().map(|word| word.len() + 8).sum::<usize>() + 8);
    push_request(&mut out, words);
    out
}

/// Appends an integer.
pub fn push_integer(out: &mut Vec<u8>, value: i64) {
    out.push(b':');
    numbers::push_i64(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Appends an error line; line ends inside the text become blanks.
pub fn push_error(out: &mut Vec<u8>, text: &str) {
    out.push(b'-');
    out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

/// An error line.
pub fn error(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 3);
    push_error(&mut out, text);
    out
}

/// Appends a null.
pub fn push_null(out: &mut Vec<u8>, protocol: Protocol) {
    out.extend_from_slice(match protocol {
        Protocol::Resp2 => b"$-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use resp::bulk::{push_bulk, push_header};

    /// Any reply, as bytes.
    pub fn any_reply() -> impl Strategy<Value = Vec<u8>> {
        let leaf = prop_oneof![
            "[a-zA-Z ]{0,80}".prop_map(|text| format!("+{text}\r\n").into_bytes()),
            "[A-Z]{1,9} [a-z]{0,9}".prop_map(|text| format!("-{text}\r\n").into_bytes()),
            any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
            prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| {
                let mut out = Vec::new();
                push_bulk(&mut out, &bytes);
                out
            }),
            Just(b"$-1\r\n".to_vec()),
            Just(b"_\r\n".to_vec()),
            Just(b"#t\r\n".to_vec()),
        ];
        leaf.prop_recursive(3, 20, 5, |inner| {
            prop::collection::vec(inner, 0..5).prop_map(|parts| {
                let mut out = Vec::new();
                push_header(&mut out, b'*', parts.len());
                parts.iter().for_each(|part| out.extend_from_slice(part));
                out
            })
        })
    }

    proptest! {
        #[test]
        fn a_plain_reply_is_what_the_scanner_finds(reply in any_reply(), cut in 0usize..400) {
            let whole = Scanner::new(ReplyLimits::PEER).scan(&reply);
            prop_assert_eq!(whole, Ok(Scanned::Reply { len: reply.len() }));
            if let Some(len) = plain_reply(&reply) {
                prop_assert_eq!(len, reply.len());
            }
            let cut = cut.min(reply.len().saturating_sub(1));
            prop_assert_eq!(plain_reply(&reply[..cut]), None);
        }

        #[test]
        fn elements_are_found(parts in prop::collection::vec(any_reply(), 0..6)) {
            let mut reply = format!("*{}\r\n", parts.len()).into_bytes();
            parts.iter().for_each(|part| reply.extend_from_slice(part));
            let found = elements(&reply).expect("an array");
            prop_assert_eq!(found, parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
    }
}
