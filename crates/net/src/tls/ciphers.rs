//! Cipher suites by the names that configuration files and command lines have: those of OpenSSL,
//! or those of the standards (`ECDHE-RSA-AES128-GCM-SHA256` and
//! `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` are the same suite).
//!
//! rustls has only suites that are sound, so an OpenSSL list is taken as a restriction of those:
//! names it does not have select nothing, classes such as `HIGH` select everything, and `!name`
//! takes one away.

use rustls::SupportedCipherSuite;
use rustls::crypto::ring::cipher_suite as suite;

static TLS12: [SupportedCipherSuite; 6] = [
    suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

static TLS13: [SupportedCipherSuite; 3] = [
    suite::TLS13_AES_256_GCM_SHA384,
    suite::TLS13_AES_128_GCM_SHA256,
    suite::TLS13_CHACHA20_POLY1305_SHA256,
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

fn select(list: &str, known: &[SupportedCipherSuite]) -> Vec<SupportedCipherSuite> {
    let find = |name: &str| {
        let name = canonical(name);
        let of = |suite: &SupportedCipherSuite| {
            suite.suite().as_str().is_some_and(|own| canonical(own) == name)
        };
        known.iter().copied().find(of)
    };
    let mut words = list.split([':', ',', ' ']).filter(|word| !word.is_empty()).peekable();
    if words.peek().is_none() {
        return known.to_vec();
    }
    let mut selected: Vec<SupportedCipherSuite> = Vec::new();
    for word in words {
        if let Some(name) = word.strip_prefix(['!', '-']) {
            selected.retain(|suite| find(name) != Some(*suite));
        } else if CLASSES.contains(&word) {
            for suite in known {
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

/// Returns what is the same in both names of a suite.
fn canonical(name: &str) -> String {
    let name: String = name
        .to_ascii_uppercase()
        .replace("TLS13_", "")
        .replace("TLS_", "")
        .replace("WITH_", "")
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    // OpenSSL leaves away the hash of its ChaCha suites.
    match name.strip_suffix("POLY1305") {
        Some(_) => name + "SHA256",
        None => name,
    }
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

    #[test]
    fn either_name_selects_a_suite() {
        let named =
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,tls_ecdhe_rsa_with_aes_128_gcm_sha256";
        assert_eq!(tls12(named), tls12("ECDHE-RSA-CHACHA20-POLY1305:ECDHE-RSA-AES128-GCM-SHA256"));
        assert_eq!(tls12(named).len(), 2);
        assert_eq!(tls13("AES256-GCM-SHA384"), [suite::TLS13_AES_256_GCM_SHA384]);
    }
}
