//! Which keys a request of SORT names, and whether it may read others.

use engine::KeyFlags;
use engine::keys::InvalidKeys;

/// SORT: `STORE` may be anywhere among the options. What the patterns of BY and GET refer to is
/// known only when the data is read.
pub(super) fn find_keys(
    argv: &[&[u8]],
    found: &mut dyn FnMut(usize, KeyFlags),
) -> Result<(), InvalidKeys> {
    found(1, KeyFlags::RO.with(KeyFlags::ACCESS));
    let mut store = None;
    let mut index = 2;
    while index < argv.len() {
        let word = argv[index];
        if word.eq_ignore_ascii_case(b"limit") {
            index += 2;
        } else if word.eq_ignore_ascii_case(b"get") || word.eq_ignore_ascii_case(b"by") {
            index += 1;
        } else if word.eq_ignore_ascii_case(b"store") && index + 1 < argv.len() {
            // The last one counts.
            store = Some(index + 1);
            index += 1;
        }
        index += 1;
    }
    if let Some(store) = store {
        found(store, KeyFlags::OW.with(KeyFlags::UPDATE));
    }
    Ok(())
}

/// SORT_RO: as [`find_keys`], without STORE.
pub(super) fn find_keys_ro(
    _argv: &[&[u8]],
    found: &mut dyn FnMut(usize, KeyFlags),
) -> Result<(), InvalidKeys> {
    found(1, KeyFlags::RO.with(KeyFlags::ACCESS));
    Ok(())
}

/// Finds what the names of keys begin with that the patterns of BY and GET stand for: what is before
/// the element's place. A pattern without `*` names no key, and `#` is the element itself.
pub(super) fn find_prefixes(argv: &[&[u8]], found: &mut dyn FnMut(&[u8])) {
    let mut index = 2;
    while index < argv.len() {
        let word = argv[index];
        if word.eq_ignore_ascii_case(b"limit") {
            index += 2;
        } else if word.eq_ignore_ascii_case(b"get") || word.eq_ignore_ascii_case(b"by") {
            if let Some(pattern) = argv.get(index + 1)
                && let Some(star) = pattern.iter().position(|&byte| byte == b'*')
            {
                found(&pattern[..star]);
            }
            index += 1;
        } else if word.eq_ignore_ascii_case(b"store") {
            index += 1;
        }
        index += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(request: &str) -> Vec<&[u8]> {
        request.split(' ').map(str::as_bytes).collect()
    }

    #[track_caller]
    fn check(request: &str, expected: &[usize]) {
        let mut found = Vec::new();
        find_keys(&words(request), &mut |index, _| found.push(index)).expect("it is valid");
        assert_eq!(found, expected);
    }

    #[test]
    fn store_may_be_anywhere() {
        check("sort k", &[1]);
        check("sort k store a desc STORE b", &[1, 6]);
        check("sort k limit store x store y", &[1, 6]);
        check("sort k get store by store store z", &[1, 7]);
        check("sort k store", &[1]);
        check("sort k limit 1", &[1]);
    }

    #[test]
    fn the_read_only_form_stores_nothing() {
        let mut found = Vec::new();
        find_keys_ro(&words("sort_ro k store x"), &mut |index, _| found.push(index))
            .expect("it is valid");
        assert_eq!(found, [1]);
    }

    fn prefixes(request: &str) -> Vec<String> {
        let mut prefixes = Vec::new();
        let mut found = |prefix: &[u8]| prefixes.push(String::from_utf8_lossy(prefix).into());
        find_prefixes(&words(request), &mut found);
        prefixes
    }

    #[test]
    fn patterns_with_a_star_are_followed() {
        for (request, expected) in [
            ("sort k by w*", &["w"][..]),
            ("sort k desc GET # get *", &[""]),
            ("sort k limit 0 1 By *->f", &[""]),
            ("sort k by x get y*", &["y"]),
            ("sort k by {k}w_*->f* get {k}v*", &["{k}w_", "{k}v"]),
        ] {
            assert_eq!(prefixes(request), expected, "{request}");
        }
        for request in [
            "sort by",
            "sort k*",
            "sort k by nosort get #",
            "sort k store by* limit by* get*",
            "sort k by get store w*",
            "sort k get",
        ] {
            assert_eq!(prefixes(request), [""; 0], "{request}");
        }
    }

    /// Whatever is sent, only words that exist are reported.
    #[test]
    fn hostile_requests_stay_within_bounds() {
        let options = ["k", "STORE", "get", "by", "limit", "a*"];
        for number in 0..options.len().pow(5) {
            let mut argv: Vec<&[u8]> = vec![b"sort", b"k"];
            let mut rest = number;
            while rest > 0 {
                argv.push(options[rest % options.len()].as_bytes());
                rest /= options.len();
            }
            let is_there = |index: usize| assert!((1..argv.len()).contains(&index));
            find_keys(&argv, &mut |index, _| is_there(index)).expect("it is always valid");
            find_prefixes(&argv, &mut |_| {});
        }
    }
}
