//! Clients that keep a server busy.

use crate::client::{Client, is_gone};
use crate::server::Server;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Connections that send the same requests again and again, each from a thread of its own, and take
/// the replies, none of which may be an error.
pub struct Crowd {
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// `requests` are as many as they say, encoded, and sent in one go.
    pub fn start(server: &Server, clients: usize, requests: (Vec<u8>, usize)) -> Crowd {
        let requests = Arc::new(requests);
        let mut crowd = Crowd { streams: Vec::new(), threads: Vec::new() };
        for _ in 0..clients {
            let client = server.client();
            crowd.streams.push(client.stream().try_clone().expect("a handle"));
            let requests = Arc::clone(&requests);
            crowd.threads.push(thread::spawn(move || keep_busy(client, &requests.0, requests.1)));
        }
        crowd
    }

    /// Ends the connections and waits for the threads; panics if one of them did.
    pub fn stop(self) {
        for stream in &self.streams {
            stream.shutdown(Shutdown::Both).expect("it is shut down");
        }
        for thread in self.threads {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
}

fn keep_busy(mut client: Client, requests: &[u8], count: usize) {
    let mut send = || -> io::Result<()> {
        client.send_raw(requests)?;
        for _ in 0..count {
            let reply = client.reply()?;
            assert!(!reply.is_error(), "{reply:?}");
        }
        Ok(())
    };
    loop {
        if let Err(why) = send() {
            assert!(is_gone(&why), "{why}");
            return;
        }
    }
}
