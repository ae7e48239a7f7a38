//! `-u`: `redis://user:password@host:port/database` and its kin.

use super::Options;
use crate::flavor::Flavor;
use client::{Address, Credentials, Scheme, Url, UrlError};

/// Takes what a URI says; what it leaves out stays as it is.
pub fn apply(options: &mut Options, uri: &str) -> Result<(), String> {
    let url = Url::parse(uri).map_err(|why| match why {
        UrlError::NoScheme | UrlError::Scheme(_) => "Invalid URI scheme",
        UrlError::Port(_) => "Invalid server port.",
        UrlError::Percent => "Incomplete URI encoding",
        UrlError::Utf8 => "Invalid URI encoding",
    })?;
    if url.scheme != Scheme::Redis {
        return Err("Invalid URI scheme".into());
    }
    options.is_tls |= url.is_tls;
    let (host, port) = match &options.place {
        Address::Tcp { host, port } => (host.clone(), *port),
        Address::Unix(_) => ("127.0.0.1".into(), 6379),
    };
    options.place = url.address(&host, port);
    match url.credentials {
        None => {}
        Some(Credentials::Pair(user, password)) => {
            options.user = Some(user).filter(|user| !user.is_empty());
            options.set_password(password);
        }
        Some(Credentials::Word(user)) if options.flavor == Flavor::Valkey => {
            options.user = Some(user);
        }
        // A login without a colon is a password.
        Some(Credentials::Word(password)) => options.set_password(password),
    }
    let database = url.path.split('?').next().unwrap_or_default();
    if !database.is_empty() {
        options.database = super::whole(database);
    }
    Ok(())
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
        assert_eq!(full.place, Address::tcp("db.example", 7000));
        assert_eq!((full.user.as_deref(), full.password.as_deref()), (Some("me"), Some("p@ss")));
        assert_eq!((full.database, full.is_tls), (3, true));
        let bare = parsed("valkey://").unwrap();
        assert_eq!(bare.place, Address::tcp("127.0.0.1", 6379));
        assert_eq!((bare.user, bare.password, bare.is_tls), (None, None, false));
        assert_eq!(parsed("redis://[::1]:7").unwrap().place, Address::tcp("::1", 7));
        assert_eq!(parsed("redis://secret@h").unwrap().password.as_deref(), Some("secret"));
    }

    #[test]
    fn what_is_no_uri_is_refused() {
        assert_eq!(parsed("http://x").unwrap_err(), "Invalid URI scheme");
        assert!(parsed("redis://h:port").is_err() && parsed("redis://a%4:b@h").is_err());
    }
}
