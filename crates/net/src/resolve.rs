//! Names of hosts, looked up beside the reactors: the system's resolver blocks.
//!
//! A look-up is done by a thread that ends when no further one waits. So a process without names
//! has no such thread, and a name server that does not answer holds up as many look-ups as there
//! may be threads.

use super::conn::Token;
use super::shared::Net;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, Weak};
use structs::sync::lock;

/// The most look-ups at a time.
const MAX_THREADS: usize = 8;

/// What a look-up has found.
pub(super) struct Found {
    pub token: Token,
    pub addresses: io::Result<Vec<SocketAddr>>,
}

struct Question {
    thread: usize,
    token: Token,
    host: String,
    port: u16,
}

#[derive(Default)]
struct Questions {
    waiting: VecDeque<Question>,
    threads: usize,
}

/// Looks names up for all threads of a [`Net`].
#[derive(Clone, Default)]
pub(super) struct Resolver(Arc<Mutex<Questions>>);

impl Resolver {
    /// Looks a name up. The thread that asks finds the answer in its seat.
    pub fn ask(&self, net: &Arc<Net>, token: Token, thread: usize, (host, port): (String, u16)) {
        let mut questions = lock(&self.0);
        questions.waiting.push_back(Question { thread, token, host, port });
        if questions.threads == MAX_THREADS {
            return;
        }
        let (this, weak) = (self.clone(), Arc::downgrade(net));
        let started =
            std::thread::Builder::new().name("resolver".to_owned()).spawn(move || this.work(&weak));
        match started {
            Ok(_) => questions.threads += 1,
            // The threads that there are take it up.
            Err(_) if questions.threads > 0 => {}
            Err(error) => {
                questions.waiting.pop_back();
                drop(questions);
                net.found(thread, Found { token, addresses: Err(error) });
            }
        }
    }

    fn work(&self, net: &Weak<Net>) {
        loop {
            let question = {
                let mut questions = lock(&self.0);
                let Some(question) = questions.waiting.pop_front() else {
                    questions.threads -= 1;
                    return;
                };
                question
            };
            let Question { thread, token, host, port } = question;
            let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            let Some(net) = net.upgrade() else { continue };
            net.found(thread, Found { token, addresses });
        }
    }
}
