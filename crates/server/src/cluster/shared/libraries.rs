//! The libraries of functions of this server, and how others are put in their place.

use crate::inside::Inside;
use client::{Client, Patience, Stream};
use cluster::shared::{Functions, Library};
use engine::Engine;
use std::io;
use std::time::Duration;

/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest reply: EXEC's has the name of each library.
const MAX_REPLY: usize = 16 << 20;

/// The libraries that are here.
pub(super) fn own(engine: &Engine) -> Result<Vec<Library>, String> {
    let all = engine.scripts.functions.all();
    let shared = all.iter().map(|library| {
        let why = || format!("the library '{}' is not UTF-8 text: replace it", library.name);
        library.to_shared().ok_or_else(why)
    });
    shared.collect()
}

/// Returns whether exactly these libraries are here.
pub(super) fn are_in_force(engine: &Engine, functions: &Functions) -> bool {
    let all = engine.scripts.functions.all();
    let here = all.iter().map(|library| (&*library.name, &*library.source));
    here.eq(functions.libraries.iter().map(|other| (&*other.name, other.source.as_bytes())))
}

/// Puts these libraries in the place of all that are here, in one transaction, which replicas and
/// the append-only file get as well.
pub(super) fn put_in_force(inside: &Inside, functions: &Functions) -> Result<(), String> {
    replace(inside, functions).map_err(|error| format!("libraries cannot be loaded: {error}"))
}

fn replace(inside: &Inside, functions: &Functions) -> io::Result<()> {
    let stream = Stream::from(inside.watch()?);
    stream.set_waiting(true)?;
    let mut client = Client::over(stream, Patience::Each(PATIENCE), MAX_REPLY);
    let mut requests: Vec<Vec<&str>> =
        vec![vec!["CLIENT", "CAPA", "cluster", "node"], vec!["MULTI"], vec!["FUNCTION", "FLUSH"]];
    requests.extend(functions.libraries.iter().map(|it| vec!["FUNCTION", "LOAD", &*it.source]));
    requests.push(vec!["EXEC"]);
    requests.iter().for_each(|words| client.queue(words));
    client.flush()?;
    for _ in &requests {
        if let Some(why) = client.reply()?.refusal() {
            return Err(io::Error::other(why.into_owned()));
        }
    }
    Ok(())
}
