//! Cipher suites by the names OpenSSL gives them, which are those in configuration files.
//!
//! rustls has only suites that are sound, so an OpenSSL list is taken as a restriction of those:
//! names it does not have select nothing, classes such as `HIGH` select everything, and `!name`
//! takes one away.

use rustls::SupportedCipherSuite;
use rustls::crypto::ring::cipher_suite as suite;

/// TLS 1.2: OpenSSL's name, the suite.
static TLS12: [(&str, SupportedCipherSuite); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// TLS 1.3: the standard's name, which OpenSSL uses too.
static TLS13: [(&str, SupportedCipherSuite); 3] = [
    ("TLS_AES_256_GCM_SHA384", suite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", suite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", suite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// Words that select every suite there is: classes of OpenSSL in which all of ours are.
const CLASSES: [&str; 6] = ["DEFAULT", "ALL", "HIGH", "ECDHE", "EECDH", "TLSv1.2"];

/// The suites a `tls-ciphers` list selects, in its order; all when it is empty.
pub(super) fn tls12(list: &str) -> Vec<SupportedCipherSuite> {
    select(list, &TLS12)
}

/// The suites a `tls-ciphersuites` list selects, in its order; all when it is empty.
pub(super) fn tls13(list: &str) -> Vec<SupportedCipherSuite> {
    select(list, &TLS13)
}

fn select(list: &str, known: &[(&str, SupportedCipherSuite)]) -> Vec<SupportedCipherSuite> {
    let find = |name: &str| known.iter().find(|(n, _)| *n == name).map(|(_, suite)| *suite);
    let mut words = list.split([':', ',', ' ']).filter(|word| !word.is_empty()).peekable();
    if words.peek().is_none() {
        return known.iter().map(|(_, suite)| *suite).collect();
    }
    let mut selected: Vec<SupportedCipherSuite> = Vec::new();
    for word in words {
        if let Some(name) = word.strip_prefix(['!', '-']) {
            selected.retain(|suite| find(name) != Some(*suite));
        } else if CLASSES.contains(&word) {
            for (_, suite) in known {
                if !selected.contains(suite) {
                    selected.push(*suite);
                }
            }
        } else if let Some(suite) = find(word)
            && !selected.contains(&suite)
        {
            selected.push(suite);
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_restricts_nothing() {
        assert_eq!((tls12("").len(), tls13(" ").len()), (6, 3));
    }

    #[test]
    fn names_select_in_order_and_unknown_ones_are_passed_over() {
        let chosen = tls12("AES256-SHA:ECDHE-RSA-CHACHA20-POLY1305:ECDHE-RSA-AES128-GCM-SHA256");
        assert_eq!(
            chosen,
            [
                suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
                suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
            ]
        );
        assert_eq!(tls12("DEFAULT:!MEDIUM:!ECDHE-RSA-CHACHA20-POLY1305").len(), 5);
        assert!(tls12("RC4-MD5").is_empty());
        assert_eq!(tls13("TLS_AES_128_GCM_SHA256"), [suite::TLS13_AES_128_GCM_SHA256]);
    }
}
