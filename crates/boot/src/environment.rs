//! Variables by which other images are told about passwords and options. Those that this one heeds
//! become options of the server. A server without what the rest ask for would be another than
//! people think, so these are refused.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// What variables of other images begin with.
const MAKERS: [&str; 2] = ["REDIS", "VALKEY"];

/// Ends of variables that are not heeded, and what to do in their place.
const REFUSED: [(&str, &str); 6] = [
    ("REPLICATION_MODE", "give the server --replicaof HOST PORT"),
    ("MASTER_HOST", "give the server --replicaof HOST PORT"),
    ("PRIMARY_HOST", "give the server --replicaof HOST PORT"),
    ("TLS_ENABLED", "give the server --tls-port, --tls-cert-file, --tls-key-file"),
    ("DISABLE_COMMANDS", "give the server --user with rules of ACL"),
    ("PORT_NUMBER", "give the server --port"),
];

/// Ends of variables with more arguments for the server, divided by blanks.
const ARGUMENTS: [&str; 2] = ["ARGS", "EXTRA_FLAGS"];

/// What a variable holds, if it is set.
type Variables<'v> = &'v dyn Fn(&str) -> Option<OsString>;

/// Returns options of the server that the environment asks for.
///
/// # Errors
/// It asks for what there is not; the text says what to do.
pub fn options(get: Variables<'_>) -> Result<Vec<OsString>, String> {
    let set = |name: &str| get(name).filter(|value| !value.is_empty());
    for (maker, (end, instead)) in MAKERS.iter().flat_map(|it| REFUSED.map(|row| (it, row))) {
        let name = format!("{maker}_{end}");
        // What says that there shall be nothing is heeded.
        if set(&name).is_some_and(|value| !is_no(&value)) {
            return Err(format!("{name} is a variable of another image: {instead}"));
        }
    }
    let mut options = Vec::new();
    let password = secret(get, &["PASSWORD"])?;
    for (option, secret) in [
        ("--requirepass", password),
        ("--masterauth", secret(get, &["MASTER_PASSWORD", "PRIMARY_PASSWORD"])?),
    ] {
        let Some((name, secret)) = secret else { continue };
        if secret.as_bytes().starts_with(b"--") {
            return Err(format!("{name} begins with --, as options do: write it into a file.conf"));
        }
        options.extend([option.into(), secret]);
    }
    Ok(options)
}

/// Returns the password of the server that the environment asks for.
///
/// # Errors
/// It cannot be told; the text says why.
pub fn password(get: Variables<'_>) -> Result<Option<OsString>, String> {
    Ok(secret(get, &["PASSWORD"])?.map(|(_, secret)| secret))
}

/// Returns more arguments of the server, which come last.
pub fn arguments(get: Variables<'_>) -> Vec<OsString> {
    let names = MAKERS.iter().flat_map(|it| ARGUMENTS.map(|end| format!("{it}_{end}")));
    let texts = names.filter_map(|name| get(&name));
    texts
        .flat_map(|text| {
            let words = text.as_bytes().split(u8::is_ascii_whitespace).map(<[u8]>::to_vec);
            words.filter(|word| !word.is_empty()).map(OsString::from_vec).collect::<Vec<_>>()
        })
        .collect()
}

/// Whether a server without a password is wanted: what `ALLOW_EMPTY_PASSWORD` says.
pub fn allows_no_password(get: Variables<'_>) -> Option<bool> {
    let value = get("ALLOW_EMPTY_PASSWORD").filter(|value| !value.is_empty())?;
    Some(!is_no(&value))
}

fn is_no(value: &OsString) -> bool {
    ["no", "false", "0"].iter().any(|no| value.eq_ignore_ascii_case(no))
}

/// Returns a password, of a variable or of the file that one names, with the variable's name.
fn secret(get: Variables<'_>, ends: &[&str]) -> Result<Option<(String, OsString)>, String> {
    let mut found: Option<(String, OsString)> = None;
    for (maker, end) in MAKERS.iter().flat_map(|it| ends.iter().map(move |end| (it, end))) {
        for (name, is_file) in
            [(format!("{maker}_{end}"), false), (format!("{maker}_{end}_FILE"), true)]
        {
            let Some(mut value) = get(&name).filter(|value| !value.is_empty()) else { continue };
            if is_file {
                let read = std::fs::read(&value).map_err(|why| format!("{name}: {why}"))?;
                value = OsString::from_vec(read.trim_ascii_end().to_vec());
            }
            match &found {
                Some((other, known)) if *known != value => {
                    return Err(format!("{other} and {name} are two passwords: set one of them"));
                }
                Some(_) => (),
                None => found = Some((name, value)),
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'v>(set: &'v [(&'v str, &'v str)]) -> impl Fn(&str) -> Option<OsString> + 'v {
        |name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
    }

    fn said(set: &[(&str, &str)]) -> Result<String, String> {
        let options = options(&with(set))?;
        Ok(options.join(" ".as_ref()).to_string_lossy().into_owned())
    }

    #[test]
    fn passwords_become_options() {
        let file = std::env::temp_dir().join(format!("dunlin-secret-{}", std::process::id()));
        std::fs::write(&file, "of a file\n").unwrap();
        let path = file.to_string_lossy().into_owned();
        for (set, expected) in [
            (&[][..], ""),
            (&[("REDIS_PASSWORD", "a b")], "--requirepass a b"),
            (&[("VALKEY_PASSWORD", "x"), ("REDIS_PASSWORD", "x")], "--requirepass x"),
            (&[("REDIS_PASSWORD", ""), ("VALKEY_PASSWORD_FILE", &path)], "--requirepass of a file"),
            (
                &[("REDIS_PASSWORD", "x"), ("VALKEY_PRIMARY_PASSWORD", "y")],
                "--requirepass x --masterauth y",
            ),
            (&[("REDIS_MASTER_PASSWORD", "y"), ("REDIS_TLS_ENABLED", "no")], "--masterauth y"),
            // What Kubernetes sets for a service with the name `redis`.
            (&[("REDIS_PORT", "tcp://10.0.0.1:6379"), ("REDIS_SERVICE_HOST", "10.0.0.1")], ""),
        ] {
            assert_eq!(said(set).as_deref(), Ok(expected), "{set:?}");
        }
        std::fs::remove_file(&file).unwrap();
        for (set, expected) in [
            (&[("REDIS_PASSWORD", "x"), ("VALKEY_PASSWORD", "y")][..], "are two passwords"),
            (&[("REDIS_PASSWORD_FILE", "/nonexistent")], "REDIS_PASSWORD_FILE: No such file"),
            (&[("REDIS_PASSWORD", "--save")], "begins with --"),
            (&[("VALKEY_TLS_ENABLED", "yes")], "give the server --tls-port"),
            (&[("REDIS_REPLICATION_MODE", "slave")], "--replicaof"),
        ] {
            let error = said(set).expect_err("it is refused");
            assert!(error.contains(expected), "{set:?}: {error}");
        }
    }

    #[test]
    fn arguments_are_divided_by_blanks() {
        let set = [("REDIS_ARGS", " --save  60 1 "), ("VALKEY_EXTRA_FLAGS", "--port 7\n")];
        assert_eq!(arguments(&with(&set)), ["--save", "60", "1", "--port", "7"]);
        assert!(arguments(&with(&[])).is_empty());
        let allows = |value| allows_no_password(&with(&[("ALLOW_EMPTY_PASSWORD", value)]));
        assert_eq!(
            ["yes", "no", "FALSE", ""].map(allows),
            [Some(true), Some(false), Some(false), None]
        );
    }
}
