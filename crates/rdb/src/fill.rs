//! A collection or a string as requests that fill it, each of limited size. A payload has to fit
//! into one argument of a request, and a large value does not.

use crate::object::ObjectRef;
use structs::hash::Hash;

/// The most words of a request.
const MAX_WORDS: usize = 512;

/// Bytes of words after which a request ends.
const MAX_BYTES: usize = 1 << 20;

/// Bytes of a string that are in one request.
const PIECE: usize = 16 << 20;

/// Takes the words of a request.
pub type Send<'a, E> = &'a mut dyn FnMut(&[&[u8]]) -> Result<(), E>;

/// Hands over requests that add the elements of a value to what is at `key`: a collection's, or a
/// string. Returns whether there are such requests: a stream is more than its entries, and the
/// commands of a module type are not known here.
///
/// # Errors
/// Those of `send`.
pub fn fill<E>(value: ObjectRef<'_>, key: &[u8], send: Send<'_, E>) -> Result<bool, E> {
    let mut filling = Filling { key, command: b"", words: Vec::new(), bytes: 0, send };
    match value {
        ObjectRef::String(string) => {
            filling.command = b"APPEND";
            for piece in string.chunks(PIECE) {
                filling.add([piece.to_vec()])?;
                filling.flush()?;
            }
        }
        ObjectRef::Int(number) => {
            filling.command = b"APPEND";
            filling.add([number.to_string().into_bytes()])?;
        }
        ObjectRef::List(list) => {
            filling.command = b"RPUSH";
            list.iter().try_for_each(|it| filling.add([it.to_vec()]))?;
        }
        ObjectRef::Set(set) => {
            filling.command = b"SADD";
            set.iter().try_for_each(|it| filling.add([it.to_vec()]))?;
        }
        ObjectRef::Zset(zset) => {
            filling.command = b"ZADD";
            zset.iter().try_for_each(|(member, score)| {
                // The shortest text that gives the same number again.
                filling.add([score.to_string().into_bytes(), member.to_vec()])
            })?;
        }
        ObjectRef::Hash(hash) => filling.hash(hash)?,
        ObjectRef::Stream(_) | ObjectRef::Module(_) => return Ok(false),
    }
    filling.flush()?;
    Ok(true)
}

/// Hands over the request that says when a key expires, in milliseconds since 1970.
///
/// # Errors
/// Those of `send`.
pub fn expire_at<E>(key: &[u8], at_ms: i64, send: Send<'_, E>) -> Result<(), E> {
    send(&[b"PEXPIREAT", key, at_ms.to_string().as_bytes()])
}

/// Requests that add elements, several elements each.
struct Filling<'a, E> {
    key: &'a [u8],
    command: &'static [u8],
    words: Vec<Vec<u8>>,
    bytes: usize,
    send: Send<'a, E>,
}

impl<E> Filling<'_, E> {
    fn hash(&mut self, hash: &Hash) -> Result<(), E> {
        self.command = b"HSET";
        let mut expiries = Vec::new();
        for (field, value) in hash.iter() {
            let field = field.to_vec();
            if let Some(Some(expiry)) = hash.expiry(&field) {
                expiries.push((field.clone(), expiry));
            }
            self.add([field, value.to_vec()])?;
        }
        self.flush()?;
        self.command = b"HPEXPIREAT";
        for (field, expiry) in expiries {
            let fixed = [expiry.to_string().into_bytes(), b"FIELDS".to_vec(), b"1".to_vec()];
            self.add(fixed.into_iter().chain([field]))?;
            self.flush()?;
        }
        Ok(())
    }

    fn add(&mut self, words: impl IntoIterator<Item = Vec<u8>>) -> Result<(), E> {
        for word in words {
            self.bytes += word.len();
            self.words.push(word);
        }
        let is_full = self.words.len() >= MAX_WORDS || self.bytes >= MAX_BYTES;
        if is_full { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), E> {
        if self.words.is_empty() {
            return Ok(());
        }
        let mut words = vec![self.command, self.key];
        words.extend(self.words.iter().map(Vec::as_slice));
        (self.send)(&words)?;
        self.words.clear();
        self.bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use structs::set::{Set, SetLimits};

    fn requests(value: ObjectRef<'_>) -> Vec<Vec<Vec<u8>>> {
        let mut requests = Vec::new();
        let sent: Result<bool, ()> = fill(value, b"key", &mut |words| {
            requests.push(words.iter().map(|word| word.to_vec()).collect());
            Ok(())
        });
        assert_eq!(sent, Ok(true));
        requests
    }

    #[test]
    fn requests_have_a_limited_size() {
        let long = vec![b'x'; 2 * PIECE + 1];
        let sizes: Vec<usize> =
            requests(ObjectRef::String(&long)).iter().map(|words| words[2].len()).collect();
        assert_eq!(sizes, [PIECE, PIECE, 1]);
        assert_eq!(
            requests(ObjectRef::Int(-7)),
            [[b"APPEND".to_vec(), b"key".into(), b"-7".into()]]
        );
        let limits = SetLimits::default();
        let mut set = Set::empty();
        (0..1000_u32).for_each(|number| _ = set.insert(number.to_string().as_bytes(), &limits));
        let requests = requests(ObjectRef::Set(&set));
        assert_eq!(requests.len(), 2);
        assert!(requests.iter().all(|words| words[0] == b"SADD" && words.len() <= MAX_WORDS + 2));
        assert_eq!(requests.iter().map(|words| words.len() - 2).sum::<usize>(), 1000);
    }
}
