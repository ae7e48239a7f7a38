//! Changes of users, functions and keyspace events that clients ask for: a transaction at the coordinator, then a
//! wait until all nodes that are there have it, then the reply.

use super::super::refusal::{self, away};
use super::{Coordination, libraries};
use crate::log;
use cluster::change::Refused;
use cluster::coordinator::{Coordinator as _, Outcome, Revision, Transaction};
use cluster::id::Id;
use cluster::shared::{Definitions, Functions, Library, MAX_BYTES, Policy, Taken};
use cluster::topology::Shard;
use engine::long::LateReply;
use engine::membership::{Definition, Published};
use process::thread;
use resp::Reply;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How often a transaction is made anew because others were faster.
const ATTEMPTS: usize = 16;

/// How long a reply waits for the other nodes. They get the change in any case.
const PATIENCE: Duration = Duration::from_secs(3);

/// Between two looks at what they have.
const LOOK: Duration = Duration::from_millis(4);

/// The way for changes.
pub(in crate::cluster) type Changes = Sender<(Definition, Option<LateReply>)>;

/// What a client is told.
enum Answer {
    Ok,
    Count(i64),
    Name(String),
}

impl Answer {
    fn write(&self, reply: &mut Reply<'_>) {
        match self {
            Answer::Ok => reply.ok(),
            Answer::Count(count) => reply.integer(*count),
            Answer::Name(name) => reply.bulk(name.as_bytes()),
        }
    }
}

/// What a change is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Users,
    /// Replicas have them with the stream of their primary.
    Functions,
    Events,
}

impl Subject {
    fn of(definition: &Definition) -> Subject {
        match definition {
            Definition::SetUser(..) | Definition::DeleteUsers(_) => Subject::Users,
            Definition::Events(_) => Subject::Events,
            _ => Subject::Functions,
        }
    }
}

pub(super) struct Changer(Coordination);

impl Changer {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system can start no thread.
    pub(super) fn start(place: Coordination) -> io::Result<Changes> {
        let (changes, asked) = channel();
        let changer = Changer(place);
        thread::spawn("cluster-define", move || changer.run(&asked))?;
        Ok(changes)
    }

    fn run(mut self, asked: &Receiver<(Definition, Option<LateReply>)>) {
        for (definition, reply) in asked {
            let outcome = self.change(&definition);
            match (reply, outcome) {
                (Some(reply), Ok(answer)) => reply.send(|reply| answer.write(reply)),
                (Some(reply), Err(why)) => reply.send(|reply| reply.error(&refusal::text(&why))),
                (None, Ok(_)) => {}
                (None, Err(why)) => log!(Warning, "Cluster: {why}"),
            }
        }
    }

    fn change(&mut self, definition: &Definition) -> Result<Answer, Refused> {
        for _ in 0..ATTEMPTS {
            let published = self.0.engine.membership.newest();
            let published = published.ok_or("The node is in no cluster yet, try again")?;
            let database = published.view.database;
            let definitions = self.0.read(database)?;
            let (transaction, answer) = match definition {
                Definition::SetUser(..) | Definition::DeleteUsers(_) => {
                    self.of_users(definition, &definitions)?
                }
                Definition::Events(letters) => of_events(letters, &definitions),
                _ => of_functions(definition, &definitions)?,
            };
            let Some(transaction) = transaction else {
                // Another client may have made it a moment ago.
                if let Some(at) = &definitions.functions
                    && Subject::of(definition) == Subject::Functions
                {
                    self.await_others(definition, at.revision, &published);
                }
                return Ok(answer);
            };
            if let Outcome::Done(revision) = self.0.client.commit(&transaction).map_err(away)? {
                self.await_others(definition, revision, &published);
                return Ok(answer);
            }
        }
        Err("Others change users, functions or options at the same time, try again".into())
    }

    fn of_users(
        &self,
        definition: &Definition,
        definitions: &Definitions,
    ) -> Result<(Option<Transaction>, Answer), Refused> {
        let acl = &&self.0.engine.acl;
        let text = match &definitions.users {
            Some(at) => at.value.clone(),
            None => acl.shared_text(&self.0.own_user()),
        };
        let (text, answer) = match definition {
            Definition::SetUser(name, rules) => (acl.set_in_text(&text, name, rules)?, Answer::Ok),
            Definition::DeleteUsers(names) => match acl.remove_from_text(&text, names)? {
                (_, 0) => return Ok((None, Answer::Count(0))),
                (text, count) => (text, Answer::Count(count)),
            },
            _ => unreachable!("the others are about other subjects"),
        };
        if text.len() > MAX_BYTES {
            let why = format!("The users of a cluster have at most {MAX_BYTES} bytes of rules");
            return Err(Refused::Wrong(why));
        }
        Ok((Some(definitions.put_users(text)), answer))
    }

    /// Waits until the nodes that are there have the change of this revision, and this one among
    /// them.
    fn await_others(&mut self, definition: &Definition, revision: Revision, at: &Published) {
        let subject = Subject::of(definition);
        let began = Instant::now();
        let mut behind = Vec::new();
        while began.elapsed() < PATIENCE {
            // A node that has died meanwhile is not waited for.
            let newest = self.0.engine.membership.newest();
            let wanted = wanted(newest.as_ref().map_or(at, Arc::as_ref), subject);
            match self.behind(at.view.database, &wanted, subject, revision) {
                Ok(found) if found.is_empty() => return,
                Ok(found) => behind = found,
                Err(why) => {
                    log!(Warning, "Cluster: it is not known which nodes have the change: {why}");
                    return;
                }
            }
            std::thread::sleep(LOOK);
        }
        log!(Warning, "Cluster: nodes that do not have the change yet: {behind:?}");
    }

    /// Returns the nodes that do not have the change.
    fn behind(
        &mut self,
        database: Id,
        wanted: &[Id],
        subject: Subject,
        revision: Revision,
    ) -> Result<Vec<Id>, Refused> {
        let definitions = self.0.read(database)?;
        let has_it = |copy: &Id| {
            let applied = definitions.applied.get(copy).copied().unwrap_or_default();
            let has = match subject {
                Subject::Users => applied.users,
                Subject::Functions => applied.functions,
                Subject::Events => applied.events,
            };
            has >= revision
        };
        let mut behind: Vec<Id> = wanted.iter().copied().filter(|copy| !has_it(copy)).collect();
        // The functions of a replica come with its primary's stream.
        let is_here = subject != Subject::Functions
            || definitions
                .functions
                .is_none_or(|at| libraries::are_in_force(self.0.engine, &at.value));
        if !is_here && !behind.contains(&self.0.me) {
            behind.push(self.0.me);
        }
        Ok(behind)
    }
}

/// The nodes that have to have a change: all, or the primaries.
fn wanted(published: &Published, subject: Subject) -> Vec<Id> {
    let view = &published.view;
    let of_shard = |shard: &Shard| -> Vec<Id> {
        let is_alive = |copy: &Id| view.alive.contains_key(copy);
        let copies = shard.copies.iter().map(|copy| copy.id);
        let is_meant = |copy: &Id| subject != Subject::Functions || *copy == shard.holder.id;
        copies.filter(is_alive).filter(is_meant).collect()
    };
    view.topology.value.shards.iter().flat_map(of_shard).collect()
}

fn of_events(letters: &str, definitions: &Definitions) -> (Option<Transaction>, Answer) {
    let is_so = definitions.events.as_ref().is_some_and(|at| at.value == letters);
    ((!is_so).then(|| definitions.put_events(letters)), Answer::Ok)
}

fn of_functions(
    definition: &Definition,
    definitions: &Definitions,
) -> Result<(Option<Transaction>, Answer), Refused> {
    let all = definitions.functions.as_ref();
    let mut functions = all.map_or_else(Functions::default, |at| at.value.clone());
    let answer = match definition {
        Definition::LoadLibrary(library, policy) => {
            add(&mut functions, std::slice::from_ref(library), *policy, "'")?;
            Answer::Name(library.name.clone())
        }
        Definition::RestoreLibraries(libraries, policy) => {
            // In other words than FUNCTION LOAD, as in the reference.
            add(&mut functions, libraries, *policy, "")?;
            Answer::Ok
        }
        Definition::DeleteLibrary(name) if !functions.remove(name) => {
            return Err("Library not found".into());
        }
        Definition::DeleteLibrary(_) => Answer::Ok,
        Definition::FlushLibraries => {
            functions.libraries.clear();
            Answer::Ok
        }
        Definition::SetUser(..) | Definition::DeleteUsers(_) | Definition::Events(_) => {
            unreachable!("these are about other subjects")
        }
    };
    let bytes: usize = functions.libraries.iter().map(|library| library.source.len()).sum();
    if bytes > MAX_BYTES {
        let why = format!("The libraries of a cluster have at most {MAX_BYTES} bytes in all");
        return Err(Refused::Wrong(why));
    }
    // Many processes of a service load the same library when they start.
    let is_same = all.is_some_and(|at| at.value == functions);
    Ok(((!is_same).then(|| definitions.put_functions(&functions)), answer))
}

fn add(
    functions: &mut Functions,
    libraries: &[Library],
    policy: Policy,
    quote: &str,
) -> Result<(), String> {
    functions.add(libraries, policy).map_err(|taken| match taken {
        Taken::Library(name) => format!("Library {quote}{name}{quote} already exists"),
        Taken::Function(name) => format!("Function {name} already exists"),
    })
}
