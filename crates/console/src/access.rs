//! The server as one user sees it: a few connections that have authenticated as that user.

use crate::host::{Host, Purpose};
use crate::link::{Failure, Link, Words};
use crate::words;
use resp::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use structs::sync::lock;
use tokio::sync::Semaphore;
use web::login::Credentials;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests of one user that run at a time.
const MAX_RUNNING: usize = 6;
/// Connections of one user that are kept for the next request.
const MAX_IDLE: usize = 2;

/// The server, for one user.
pub struct Access {
    host: Arc<dyn Host>,
    purpose: Purpose,
    credentials: Option<Credentials>,
    idle: Mutex<Vec<Link>>,
    places: Semaphore,
}

impl Access {
    /// For a user; the default user, who needs no password, if there are no credentials.
    pub fn of_user(host: &Arc<dyn Host>, credentials: Option<Credentials>) -> Access {
        Access::new(host, Purpose::User, credentials)
    }

    /// For the console itself.
    pub fn watching(host: &Arc<dyn Host>) -> Access {
        Access::new(host, Purpose::Watching, None)
    }

    fn new(host: &Arc<dyn Host>, purpose: Purpose, credentials: Option<Credentials>) -> Access {
        Access {
            host: Arc::clone(host),
            purpose,
            credentials,
            idle: Mutex::default(),
            places: Semaphore::new(MAX_RUNNING),
        }
    }

    /// Runs a request. An error of the server's is a reply.
    ///
    /// # Errors
    /// There is no reply.
    pub async fn run(&self, words: Words) -> Result<Value, Failure> {
        self.run_in(0, words).await
    }

    /// As [`Access::run`], in a database.
    ///
    /// # Errors
    /// As [`Access::run`].
    pub async fn run_in(&self, db: u32, words: Words) -> Result<Value, Failure> {
        let mut replies = self.run_all_in(db, &[words], PATIENCE).await?;
        replies.pop().ok_or(Failure::Unreadable("there is none"))
    }

    /// Runs requests one after the other on one connection, in a database.
    ///
    /// # Errors
    /// As [`Access::run`].
    pub async fn run_all_in(
        &self,
        db: u32,
        requests: &[Words],
        patience: Duration,
    ) -> Result<Vec<Value>, Failure> {
        let _place = self.places.acquire().await.map_err(|_| Failure::Late)?;
        let mut link = self.link().await?;
        if link.db != db {
            let select = words!["SELECT", db.to_string()];
            let reply = link.ask(&[select], PATIENCE).await?;
            if let Some(Value::Error(why)) = reply.into_iter().next() {
                let refusals = requests.iter().map(|_| Value::Error(why.clone())).collect();
                self.keep(link);
                return Ok(refusals);
            }
            link.db = db;
        }
        let replies = link.ask(requests, patience).await?;
        self.keep(link);
        Ok(replies)
    }

    /// Runs requests one after the other on one connection, in database 0.
    ///
    /// # Errors
    /// As [`Access::run`].
    pub async fn run_all(&self, requests: &[Words]) -> Result<Vec<Value>, Failure> {
        self.run_all_in(0, requests, PATIENCE).await
    }

    fn keep(&self, link: Link) {
        let mut idle = lock(&self.idle);
        if idle.len() < MAX_IDLE {
            idle.push(link);
        }
    }

    async fn link(&self) -> Result<Link, Failure> {
        match self.take_idle() {
            Some(link) => Ok(link),
            None => self.open().await,
        }
    }

    fn take_idle(&self) -> Option<Link> {
        let mut idle = lock(&self.idle);
        while let Some(mut link) = idle.pop() {
            if link.is_idle() {
                return Some(link);
            }
        }
        None
    }

    /// Authenticates anew. A connection outlives the password that it was opened with.
    ///
    /// # Errors
    /// The server does not accept the name and password any more, or there is no reply.
    pub async fn verify(&self) -> Result<(), Failure> {
        let _place = self.places.acquire().await.map_err(|_| Failure::Late)?;
        let verified = match self.take_idle() {
            Some(mut link) => self.authenticate(&mut link).await.map(|()| link),
            None => self.open().await,
        };
        match verified {
            Ok(link) => self.keep(link),
            Err(failure) => {
                lock(&self.idle).clear();
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Returns whether it is for a user that needs no password.
    pub fn is_open(&self) -> bool {
        self.credentials.is_none()
    }

    /// A connection of its own, for subscribing and monitoring, and for what changes its state.
    ///
    /// # Errors
    /// There is none, or the server refuses the user.
    pub async fn open(&self) -> Result<Link, Failure> {
        let opening = self.host.open(self.purpose);
        let stream = tokio::time::timeout(PATIENCE, opening).await.map_err(|_| Failure::Late)??;
        let mut link = Link::new(stream);
        self.authenticate(&mut link).await?;
        // Both are wishes: old servers know neither, and a user may be allowed neither.
        let wishes = [words!["HELLO", "3"], words!["CLIENT", "SETNAME", "console"]];
        link.ask(&wishes, PATIENCE).await?;
        Ok(link)
    }

    async fn authenticate(&self, link: &mut Link) -> Result<(), Failure> {
        let Some(Credentials { user, password }) = &self.credentials else { return Ok(()) };
        // Servers before Redis 6 know the default user alone.
        let request = if user == "default" {
            words!["AUTH", password.as_str()]
        } else {
            words!["AUTH", user.as_str(), password.as_str()]
        };
        match link.ask(&[request], PATIENCE).await?.into_iter().next() {
            Some(Value::Error(why)) => {
                Err(Failure::Refused(String::from_utf8_lossy(&why).into_owned()))
            }
            _ => Ok(()),
        }
    }
}
