//! Another server that a command talks to, as a command sees it. The connection is the server's.

use std::io;

/// A connection to another server. After an error it is of no use any more.
pub trait Peer: Send {
    /// Sends some bytes.
    ///
    /// # Errors
    /// The connection is broken, or the other side takes too long to accept a piece.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns the next line that comes, without its end.
    ///
    /// # Errors
    /// The connection is broken, the line takes too long, or it is longer than any server's answer.
    fn line(&mut self) -> io::Result<Vec<u8>>;

    /// Keeps the connection for a while, for the next command that wants one to that server. All
    /// that was asked for has been answered.
    fn keep(self: Box<Self>);

    /// Returns the database that was selected, as far as that is known.
    fn selected(&mut self) -> &mut Option<i64>;
}
