//! The libraries of functions of this server, and how others are put in their place.

use crate::inside::Inside;
use cluster::shared::{Functions, Library};
use engine::Engine;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The libraries that are here.
pub(super) fn own(engine: &Engine) -> Result<Vec<Library>, String> {
    let all = engine.scripts().functions.all();
    let shared = all.iter().map(|library| {
        let why = || format!("the library '{}' is not UTF-8 text: replace it", library.name);
        library.to_shared().ok_or_else(why)
    });
    shared.collect()
}

/// Returns whether exactly these libraries are here.
pub(super) fn are_in_force(engine: &Engine, functions: &Functions) -> bool {
    let all = engine.scripts().functions.all();
    let here = all.iter().map(|library| (&*library.name, &*library.source));
    here.eq(functions.libraries.iter().map(|other| (&*other.name, other.source.as_bytes())))
}

/// Puts these libraries in the place of all that are here, in one transaction, which replicas and
/// the append-only file get as well.
pub(super) fn put_in_force(inside: &Inside, functions: &Functions) -> Result<(), String> {
    replace(inside, functions).map_err(|error| format!("libraries cannot be loaded: {error}"))
}

fn replace(inside: &Inside, functions: &Functions) -> io::Result<()> {
    let mut stream = inside.watch()?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut requests: Vec<Vec<&str>> =
        vec![vec!["CLIENT", "CAPA", "cluster", "node"], vec!["MULTI"], vec!["FUNCTION", "FLUSH"]];
    requests.extend(functions.libraries.iter().map(|it| vec!["FUNCTION", "LOAD", &*it.source]));
    requests.push(vec!["EXEC"]);
    let mut bytes = Vec::new();
    for words in &requests {
        write!(bytes, "*{}\r\n", words.len())?;
        for word in words {
            write!(bytes, "${}\r\n{word}\r\n", word.len())?;
        }
    }
    stream.write_all(&bytes)?;
    let mut reader = BufReader::new(stream);
    // The replies to all but EXEC, then the number of its elements, then these.
    for _ in 0..requests.len() + 1 + functions.libraries.len() {
        read_reply(&mut reader)?;
    }
    Ok(())
}

/// Reads a reply, of an array its head.
fn read_reply(reader: &mut BufReader<UnixStream>) -> io::Result<()> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    match line.as_bytes().first() {
        Some(b'-') => Err(io::Error::other(line.trim_end()[1..].to_owned())),
        Some(b'$') => {
            let len: usize = line[1..].trim_end().parse().map_err(io::Error::other)?;
            reader.read_exact(&mut vec![0; len + 2])
        }
        Some(_) => Ok(()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
