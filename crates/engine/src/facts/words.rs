//! The words of a request in one allocation, to outlive the input they came in: while MULTI queues
//! it, or a background thread runs it.

/// See the module.
pub(crate) struct Words {
    bytes: Box<[u8]>,
    ends: Box<[usize]>,
}

impl Words {
    /// Copies them.
    pub fn new(words: &[&[u8]]) -> Words {
        let mut end = 0;
        let ends = words.iter().map(|word| {
            end += word.len();
            end
        });
        Words { ends: ends.collect(), bytes: words.concat().into_boxed_slice() }
    }

    /// Returns all words, in order.
    pub fn to_vec(&self) -> Vec<&[u8]> {
        let mut start = 0;
        let word = |&end: &usize| &self.bytes[std::mem::replace(&mut start, end)..end];
        self.ends.iter().map(word).collect()
    }

    /// Returns the number of bytes of memory, as CLIENT LIST counts them: those of the words and of
    /// their lengths.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_outlive_their_input() {
        let words: [&[u8]; 4] = [b"mget", b"", b"a", b"bc"];
        assert_eq!(Words::new(&words).to_vec(), words);
        assert_eq!(Words::new(&words).memory_bytes(), 7 + 4 * 16);
    }
}
