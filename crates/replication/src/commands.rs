//! A list of commands, as places of their words in the bytes that they came in. Nothing is copied.

use std::ops::Range;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    words: Vec<Range<usize>>,
    /// For each command the number of words up to its end.
    ends: Vec<usize>,
}

impl Commands {
    /// Returns the number of commands.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds a command whose words are at these places, counted from `begin`.
    pub fn push(&mut self, begin: usize, words: &[Range<usize>]) {
        self.words.extend(words.iter().map(|word| begin + word.start..begin + word.end));
        self.ends.push(self.words.len());
    }

    /// Puts the words of a command into `into`, in place of what it held.
    #[inline]
    pub fn words<'i>(&self, bytes: &'i [u8], command: usize, into: &mut Vec<&'i [u8]>) {
        let first = command.checked_sub(1).map_or(0, |before| self.ends[before]);
        into.clear();
        into.extend(self.words[first..self.ends[command]].iter().map(|word| &bytes[word.clone()]));
    }

    /// Removes the commands from this one on and returns them. Their bytes will begin so many bytes
    /// further on.
    #[must_use]
    pub fn split_off(&mut self, command: usize, bytes: usize) -> Commands {
        let words = command.checked_sub(1).map_or(0, |before| self.ends[before]);
        let mut ends = self.ends.split_off(command);
        ends.iter_mut().for_each(|end| *end -= words);
        let mut of_rest = self.words.split_off(words);
        of_rest.iter_mut().for_each(|word| *word = word.start - bytes..word.end - bytes);
        Commands { words: of_rest, ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_counted_from_its_own_beginning() {
        let mut commands = Commands::default();
        commands.push(0, &[0..3, 4..5]);
        commands.push(6, &[0..3, 4..6]);
        let rest = commands.split_off(1, 6);
        let mut words = Vec::new();
        commands.words(b"GET a DEL bc", 0, &mut words);
        assert_eq!((words.as_slice(), commands.len()), (&[&b"GET"[..], b"a"][..], 1));
        rest.words(b"DEL bc", 0, &mut words);
        assert_eq!((words.as_slice(), rest.len()), (&[&b"DEL"[..], b"bc"][..], 1));
    }
}
