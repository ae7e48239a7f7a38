//! Carries what a request changes: one function for changes that a job does, one for those that are
//! done at once. Both see to the name of the request, to plans, to the transaction and to the
//! event, so a route says only what is its own.
//!
//! ```text
//!   carry  begun before? → plan → only a plan? → begun before? the job's transaction → event
//!   order  served before? → look → only a plan? → act → served before? the transaction → event
//! ```

use super::Call;
use super::threads::Waits;
use super::wire::Begun;
use super::work::work_of;
use crate::change::{self, Owner};
use crate::keys::SiteKeys;
use crate::show::{self, PlanShown};
use crate::site::{JobKind, Site};
use crate::store::{Problem, Store};
use cluster::coordinator::Transaction;
use cluster::view::Keys;
use web::rest::{ApiError, Done};

/// A job that is asked for.
#[derive(Clone, Debug)]
pub struct Subject {
    kind: JobKind,
    database: String,
    machine: String,
    dry_run: bool,
}

impl Subject {
    /// A job about a database.
    pub fn database(kind: JobKind, name: &str) -> Subject {
        Subject { kind, database: name.to_owned(), machine: String::new(), dry_run: false }
    }

    /// A job about a machine.
    pub fn machine(kind: JobKind, name: &str) -> Subject {
        Subject { kind, database: String::new(), machine: name.to_owned(), dry_run: false }
    }

    /// Returns the same, only planned if the body of the request says so. Its query can say so,
    /// too.
    pub fn dry(self, dry_run: bool) -> Subject {
        Subject { dry_run, ..self }
    }

    fn names(&self) -> (&str, &str) {
        (&self.database, &self.machine)
    }

    /// Returns what requests of this kind wait for.
    fn waits(&self) -> Waits {
        match self.kind {
            JobKind::Import
            | JobKind::Export
            | JobKind::Backup
            | JobKind::Verify
            | JobKind::Restore => Waits::Elsewhere,
            JobKind::Create
            | JobKind::Update
            | JobKind::Delete
            | JobKind::Rebalance
            | JobKind::Move
            | JobKind::Switch
            | JobKind::Drain
            | JobKind::Replace
            | JobKind::Restart
            | JobKind::Remove
            | JobKind::Fill => Waits::Cluster,
        }
    }

    /// Returns the event of a job that begins.
    fn event(&self, job: &str) -> String {
        let Subject { kind, database, machine, .. } = self;
        match kind {
            JobKind::Create => format!("database '{database}' is being created"),
            JobKind::Update => format!("database '{database}' is being changed"),
            JobKind::Delete => format!("database '{database}' is being deleted"),
            JobKind::Rebalance | JobKind::Move => {
                format!("slots of database '{database}' are being moved")
            }
            JobKind::Fill => format!("machine '{machine}' gets copies of others"),
            JobKind::Switch | JobKind::Drain | JobKind::Replace | JobKind::Remove => {
                format!("machine '{machine}' gives its copies away")
            }
            JobKind::Import
            | JobKind::Export
            | JobKind::Backup
            | JobKind::Verify
            | JobKind::Restore
            | JobKind::Restart => {
                format!("job {job}: the {} of database '{database}' begins", show::word(kind))
            }
        }
    }
}

/// What a job would do.
pub struct Planned<W> {
    /// What the user is shown.
    pub shown: Option<PlanShown>,
    /// There is nothing to do, so no job begins.
    pub is_done: bool,
    /// What the transaction needs of the plan.
    pub work: W,
}

impl<W> Planned<W> {
    /// A plan with something to do.
    pub fn new(shown: Option<PlanShown>, work: W) -> Planned<W> {
        Planned { shown, is_done: false, work }
    }
}

/// Begins a job that all nodes can read, or only plans it. `plan` checks all that can be checked
/// before, and is told whether only the plan is wanted; `begin` makes the transaction of the newest
/// site, and is asked again after a conflict.
pub async fn carry<W: 'static>(
    call: Call,
    about: Subject,
    plan: impl FnOnce(&mut Store, &Site, bool) -> Result<Planned<W>, Problem> + Send + 'static,
    begin: impl Fn(&W, &Site, (&SiteKeys, &Keys), &Owner) -> Result<(String, Transaction), Problem>
    + Send
    + 'static,
) -> Result<Begun, ApiError> {
    work_of(about.waits(), call.clone(), move |shared, store| {
        let is_dry = about.dry_run || call.dry_run;
        let Call { request_id, .. } = call;
        let asking = Owner { machine: String::new(), lease: 0, request_id };
        let before = |site: &Site| change::begun_before(site, &asking, about.kind, about.names());
        let site = store.read()?;
        if let Some(job) = before(&site)? {
            return Ok(Begun { job: Some(job), plan: None });
        }
        site.check_readable(about.kind.format())?;
        let Planned { shown, is_done, work } = plan(store, &site, is_dry)?;
        if is_dry || is_done {
            return Ok(Begun { job: None, plan: shown });
        }
        let owner = Owner { request_id: asking.request_id.clone(), ..shared.owner()? };
        let job = store.change(|site, keys, copies| match before(site)? {
            Some(job) => Ok((job, Transaction::default())),
            None => {
                site.check_readable(about.kind.format())?;
                begin(&work, site, (keys, copies), &owner)
            }
        })?;
        store.note(&about.event(&job));
        Ok(Begun { job: Some(job), plan: shown })
    })
    .await
}

/// A change that is done at once.
pub struct Order {
    /// The body of the request says that it is only to be looked whether it can be done.
    pub dry_run: bool,
    /// What it waits for.
    pub waits: Waits,
    /// The event of it, if it is one.
    pub event: Option<String>,
}

impl Order {
    /// A change with this event.
    pub fn new(event: String) -> Order {
        Order { dry_run: false, waits: Waits::Cluster, event: Some(event) }
    }

    /// A change that is no event.
    pub fn silent() -> Order {
        Order { dry_run: false, waits: Waits::Cluster, event: None }
    }
}

/// What was found before a change.
pub struct Looked<W> {
    /// What the change needs.
    pub work: W,
    /// What the event says of it more.
    pub more: String,
}

/// Makes a change once for each name of a request, or only looks whether it can be made. Returns
/// whether it was made now. `act` does what is no transaction; `change` makes the transaction of
/// the newest site, and is asked again after a conflict.
pub async fn order<W: 'static>(
    call: Call,
    order: Order,
    look: impl FnOnce(&mut Store, &Site) -> Result<Looked<W>, Problem> + Send + 'static,
    act: impl FnOnce(&W, &mut Store) -> Result<(), Problem> + Send + 'static,
    change: impl Fn(&W, &Site, &SiteKeys) -> Result<Transaction, Problem> + Send + 'static,
) -> Result<bool, ApiError> {
    work_of(order.waits, call.clone(), move |_, store| {
        let site = store.read()?;
        if change::served_before(&site, call.request())? {
            return Ok(false);
        }
        let Looked { work, more } = look(store, &site)?;
        if order.dry_run || call.dry_run {
            change(&work, &site, &store.keys)?;
            return Ok(false);
        }
        act(&work, store)?;
        let is_new = store.change(|site, keys, _| {
            if change::served_before(site, call.request())? {
                return Ok((false, Transaction::default()));
            }
            let mut transaction = change(&work, site, keys)?;
            change::note_served(site, keys, call.request(), &mut transaction);
            Ok((true, transaction))
        })?;
        if let Some(event) = order.event.filter(|_| is_new) {
            store.note(&(event + &more));
        }
        Ok(is_new)
    })
    .await
}

/// Makes a change that is one transaction.
pub async fn once(
    call: Call,
    of: Order,
    change: impl Fn(&Site, &SiteKeys) -> Result<Transaction, Problem> + Send + 'static,
) -> Result<Done, ApiError> {
    let nothing = |_: &mut Store, _: &Site| Ok(Looked { work: (), more: String::new() });
    order(call, of, nothing, |(), _| Ok(()), move |(), site, keys| change(site, keys)).await?;
    Ok(Done::new())
}
