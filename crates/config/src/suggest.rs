//! The name that was probably meant by one that does not exist.

use crate::spec::Spec;
use crate::table::OPTIONS;
use structs::misspelling;

/// Directives that are not options.
const DIRECTIVES: [&str; 4] = ["include", "rename-command", "user", "loadmodule"];

/// The directive whose name is closest to `name`, if it is close enough to be a misspelling.
pub(crate) fn closest(name: &[u8]) -> Option<&'static str> {
    let known = OPTIONS.iter().filter(|spec| !spec.is_hidden()).flat_map(Spec::names);
    misspelling::closest(name, known.chain(DIRECTIVES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_misspelling_has_a_suggestion() {
        assert_eq!(closest(b"maxmemmory"), Some("maxmemory"));
        assert_eq!(closest(b"prot"), Some("port"));
        assert_eq!(closest(b"append-fsync"), Some("appendfsync"));
        assert_eq!(closest(b"max-memory-policy"), Some("maxmemory-policy"));
        assert_eq!(closest(b"inlcude"), Some("include"));
        assert_eq!(closest(b"nosuch"), None);
        // It exists: something else is wrong with its line.
        assert_eq!(closest(b"include"), None);
    }
}
