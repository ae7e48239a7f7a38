//! `-u`: `redis://user:password@host:port/database` and its kin.

use super::Options;
use crate::flavor::Flavor;
use crate::link::Place;

/// Takes what a URI says; what it leaves out stays as it is.
pub fn apply(options: &mut Options, uri: &str) -> Result<(), String> {
    let lower = uri.to_ascii_lowercase();
    let schemes =
        [("redis://", false), ("rediss://", true), ("valkey://", false), ("valkeys://", true)];
    let known = schemes.iter().find(|(scheme, _)| lower.starts_with(scheme));
    let &(scheme, encrypted) = known.ok_or("Invalid URI scheme")?;
    options.tls.tls |= encrypted;
    let rest = &uri[scheme.len()..];
    // The password may have a slash in it.
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    if let Some(login) = login {
        match login.split_once(':') {
            Some((user, password)) => {
                options.user = Some(decoded(user)?).filter(|user| !user.is_empty());
                options.set_password(decoded(password)?);
            }
            None if options.flavor == Flavor::Valkey => options.user = Some(decoded(login)?),
            // A login without a colon is a password.
            None => options.set_password(decoded(login)?),
        }
    }
    let (place, database) = place.split_once('/').unwrap_or((place, ""));
    let (host, port) = match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let (mut new_host, mut new_port) = match &options.place {
        Place::Tcp(host, port) => (host.clone(), *port),
        Place::Unix(_) => ("127.0.0.1".into(), 6379),
    };
    if !host.is_empty() {
        new_host = decoded(host)?;
    }
    if let Some(port) = port {
        new_port = port.parse().map_err(|_| "Invalid server port.".to_owned())?;
    }
    options.place = Place::Tcp(new_host, new_port);
    let database = database.split('?').next().unwrap_or_default();
    if !database.is_empty() {
        options.database = super::whole(database);
    }
    Ok(())
}

/// Undoes percent encoding.
fn decoded(text: &str) -> Result<String, String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| (byte? as char).to_digit(16);
        let (high, low) = (digit(bytes.next()), digit(bytes.next()));
        let (Some(high), Some(low)) = (high, low) else {
            return Err("Incomplete URI encoding".into());
        };
        out.push((high * 16 + low) as u8);
    }
    String::from_utf8(out).map_err(|_| "Invalid URI encoding".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(uri: &str) -> Result<Options, String> {
        let mut options = Options::new(Flavor::Redis);
        apply(&mut options, uri)?;
        Ok(options)
    }

    #[test]
    fn every_part_is_taken() {
        let full = parsed("rediss://me:p%40ss@db.example:7000/3").unwrap();
        assert_eq!(full.place, Place::Tcp("db.example".into(), 7000));
        assert_eq!((full.user.as_deref(), full.password.as_deref()), (Some("me"), Some("p@ss")));
        assert_eq!((full.database, full.tls.tls), (3, true));
        let bare = parsed("valkey://").unwrap();
        assert_eq!(bare.place, Place::Tcp("127.0.0.1".into(), 6379));
        assert_eq!((bare.user, bare.password, bare.tls.tls), (None, None, false));
        assert_eq!(parsed("redis://[::1]:7").unwrap().place, Place::Tcp("::1".into(), 7));
        assert_eq!(parsed("redis://secret@h").unwrap().password.as_deref(), Some("secret"));
    }

    #[test]
    fn what_is_no_uri_is_refused() {
        assert_eq!(parsed("http://x").unwrap_err(), "Invalid URI scheme");
        assert!(parsed("redis://h:port").is_err() && parsed("redis://a%4:b@h").is_err());
    }
}
