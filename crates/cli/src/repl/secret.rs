//! Which commands hold secrets, and so are kept out of the history's file.

use crate::session::lower;

/// Options of CONFIG SET whose values are secret.
const OPTIONS: [&str; 7] = [
    "masterauth",
    "masteruser",
    "primaryauth",
    "primaryuser",
    "tls-key-file-pass",
    "tls-client-key-file-pass",
    "requirepass",
];

/// Returns whether a command may be written to the history's file.
pub fn may_be_kept(words: &[Vec<u8>]) -> bool {
    let (name, sub) = (lower(words, 0), lower(words, 1));
    let rest = |from: usize| (from..words.len()).map(move |at| lower(words, at));
    let has_secret = match (name.as_str(), sub.as_str()) {
        ("auth", _) => true,
        ("acl", "deluser" | "setuser" | "getuser") => true,
        ("config", "set") => rest(2).step_by(2).any(|name| OPTIONS.contains(&name.as_str())),
        ("hello", _) => rest(2).any(|word| word == "auth"),
        ("migrate", _) => {
            rest(6).take_while(|word| word != "keys").any(|word| word == "auth" || word == "auth2")
        }
        ("sentinel", "config" | "set") => rest(2).any(|word| {
            ["sentinel-pass", "sentinel-user", "auth-pass", "auth-user"].contains(&word.as_str())
        }),
        _ => false,
    };
    !has_secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_with_passwords_are_not_kept() {
        let kept = |line: &str| may_be_kept(&crate::words::split(line.as_bytes()).unwrap());
        for line in [
            "AUTH x",
            "acl setuser a >b",
            "CONFIG SET maxmemory 1 requirepass x",
            "hello 3 auth default x",
            "migrate h 1 \"\" 0 10 copy auth2 u p keys a",
            "sentinel set m auth-pass x",
        ] {
            assert!(!kept(line), "{line}");
        }
        for line in
            ["get auth", "acl list", "config get requirepass", "migrate h 1 \"\" 0 1 keys auth"]
        {
            assert!(kept(line), "{line}");
        }
    }
}
