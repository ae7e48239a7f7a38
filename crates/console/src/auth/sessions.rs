//! The sessions of browsers, and the connections of programs that send their credentials each time.

use crate::access::Access;
use crate::host::Host;
use crate::link::Link;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use structs::sync::lock;
use subtle::ConstantTimeEq as _;
use web::login::{Credentials, Digest, digest, random_token};

/// The cookie of a browser that has logged in.
pub const COOKIE: &str = "dunlin-console";

/// A session ends when nothing was heard of it for so long. An open page is heard every few
/// seconds.
const MAX_SILENCE: Duration = Duration::from_secs(8 * 3600);
/// The same for programs, which need no session. Their passwords are asked for with each request.
const MAX_PROGRAM_SILENCE: Duration = Duration::from_secs(60);
/// Sessions there can be; the one that has been silent for longest makes way.
const MAX_SESSIONS: usize = 512;

/// A user at work.
pub struct Session {
    /// The user's name.
    pub user: String,
    /// The server, for this user.
    pub access: Access,
    /// The connection of the command line, which keeps its state between commands.
    pub terminal: tokio::sync::Mutex<Option<Link>>,
    /// The secret that requests must know which change something; empty for programs.
    csrf: String,
    is_kept: AtomicBool,
}

impl Session {
    /// A session that ends with its request, if no one keeps it.
    pub fn new(host: &Arc<dyn Host>, credentials: Option<Credentials>) -> Session {
        let user = match &credentials {
            Some(credentials) => credentials.user.clone(),
            None => host.standing_user().unwrap_or_else(|| "default".to_owned()),
        };
        Session {
            user,
            access: Access::of_user(host, credentials),
            terminal: tokio::sync::Mutex::default(),
            csrf: random_token(),
            is_kept: AtomicBool::new(false),
        }
    }

    /// Whether a cookie leads to it.
    pub fn is_kept(&self) -> bool {
        self.is_kept.load(Relaxed)
    }

    /// The secret that its page sends with each request that changes something.
    pub fn csrf(&self) -> &str {
        &self.csrf
    }

    /// Whether this is that secret.
    pub fn accepts(&self, csrf: &str) -> bool {
        csrf.as_bytes().ct_eq(self.csrf.as_bytes()).into()
    }
}

struct Kept {
    session: Arc<Session>,
    heard: Instant,
    max_silence: Duration,
}

/// All sessions. They are found by a digest of their token, which takes the same time for any
/// guess.
#[derive(Default)]
pub struct Sessions(Mutex<HashMap<Digest, Kept>>);

impl Sessions {
    /// Keeps a session, and returns the token by which it is found.
    pub fn add(&self, session: Arc<Session>, now: Instant) -> String {
        let token = random_token();
        session.is_kept.store(true, Relaxed);
        self.keep(digest(&token), session, MAX_SILENCE, now);
        token
    }

    /// The session of this token.
    pub fn find(&self, token: &str, now: Instant) -> Option<Arc<Session>> {
        self.get(&digest(token), now)
    }

    /// Ends the session of this token.
    pub fn end(&self, token: &str) {
        lock(&self.0).remove(&digest(token));
    }

    /// The session of a program's credentials, if it has made a request lately that was accepted.
    pub fn of_program(&self, credentials: &Credentials, now: Instant) -> Option<Arc<Session>> {
        self.get(&program(credentials), now)
    }

    /// Keeps the session of a program whose credentials the server has accepted.
    pub fn keep_program(&self, credentials: &Credentials, session: Arc<Session>, now: Instant) {
        self.keep(program(credentials), session, MAX_PROGRAM_SILENCE, now);
    }

    /// Forgets a program whose credentials the server does not accept any more.
    pub fn forget_program(&self, credentials: &Credentials) {
        lock(&self.0).remove(&program(credentials));
    }

    fn get(&self, name: &Digest, now: Instant) -> Option<Arc<Session>> {
        let mut sessions = lock(&self.0);
        let kept = sessions.get_mut(name)?;
        if now.duration_since(kept.heard) > kept.max_silence {
            sessions.remove(name);
            return None;
        }
        kept.heard = now;
        Some(Arc::clone(&kept.session))
    }

    fn keep(&self, name: Digest, session: Arc<Session>, max_silence: Duration, now: Instant) {
        let mut sessions = lock(&self.0);
        sessions.retain(|_, kept| now.duration_since(kept.heard) <= kept.max_silence);
        if sessions.len() >= MAX_SESSIONS
            && let Some(oldest) = sessions.iter().min_by_key(|(_, kept)| kept.heard)
        {
            let oldest = *oldest.0;
            sessions.remove(&oldest);
        }
        sessions.insert(name, Kept { session, heard: now, max_silence });
    }
}

fn program(credentials: &Credentials) -> Digest {
    let Credentials { user, password } = credentials;
    digest(&format!("{}:{user}:{password}", user.len()))
}
