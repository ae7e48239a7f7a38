//! `dunlin cluster …`: reads the arguments, asks a node, and prints what it says.

mod apply;
mod arguments;
mod data;
mod print;
mod unplaced;

use crate::hashing::{self, Trial};
use crate::http::{Authority, Node};
use crate::rest::wire::{
    Begun, Creation, Deletion, Drain, JobId, MachineChange, MoveSlots, Named, Pace, Rebalance,
    Recovery, Status, Switch, Update, UserChange, UserRemoval, Zone,
};
use crate::settings::fields::{self, Changes};
use crate::settings::{Measure, Wrong};
use crate::show::{DatabaseShown, EventShown, JobShown, MachineShown};
use crate::up::{ADMIN_PORT, DownOptions, UpOptions, down, up};
use apply::ApplyOptions;
use arguments::{ChangedOptions, NewOptions};
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use data::DataVerb;
use process::facts;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use unplaced::UnplacedVerb;

/// The status for arguments that make no sense.
const MISUSE: u8 = 2;

/// How long a job is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

const GUIDE: &str = "The guide: docs/cluster.md, docs/kubernetes.md";

/// What the helps of the subcommands end with.
const GUIDE_OF_COMMANDS: &str = "The guide: docs/cluster/commands.md";

/// Options that `dunlin cluster up` takes as `dunlin node` does, which are for containers and pods.
const OF_CONTAINERS: [&str; 4] = ["contained", "drain_timeout", "drain_delay", "etcd_members"];

/// Options that `dunlin node` refuses, or that do nothing there.
const OF_OWN_ETCD: [&str; 1] = ["join"];

/// Returns the command line of `dunlin cluster`, for its help and for completions.
pub fn cluster_command() -> clap::Command {
    let guided = Cluster::command().mut_subcommands(guiding);
    guided.mut_subcommand("up", |up| hiding(up, &OF_CONTAINERS))
}

/// Names the guide at the end of a command's help, and of those of its subcommands.
fn guiding(command: clap::Command) -> clap::Command {
    command.after_help(GUIDE_OF_COMMANDS).mut_subcommands(guiding)
}

/// Returns the command line of `dunlin node`, likewise.
pub fn node_command() -> clap::Command {
    hiding(NodeOnly::command(), &OF_OWN_ETCD)
}

/// Leaves options out of a command's help.
fn hiding(command: clap::Command, options: &[&'static str]) -> clap::Command {
    options.iter().fold(command, |command, &name| command.mut_arg(name, |arg| arg.hide(true)))
}

/// Machines and databases of a cluster.
#[derive(Parser)]
#[command(
    name = "dunlin cluster",
    version = facts::VERSION,
    propagate_version = true,
    after_help = GUIDE
)]
struct Cluster {
    #[command(subcommand)]
    command: Verb,
}

/// Runs the node of a machine, with an etcd that is there already.
#[derive(Parser)]
#[command(name = "dunlin node", version = facts::VERSION, after_help = GUIDE)]
struct NodeOnly {
    #[command(flatten)]
    options: UpOptions,
}

#[derive(Subcommand)]
enum Verb {
    Up(Box<UpOptions>),
    Down(DownOptions),
    /// Shows how the cluster is
    Status(Place),
    /// Lists the machines
    Nodes(Place),
    /// Lists the databases, or shows one with its shards and copies
    Databases {
        /// A database
        name: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Lists what happened, the newest first
    Events(Place),
    /// Lists jobs, the newest first
    Jobs(Place),
    /// Follows a job until it ends
    Watch {
        /// The job
        job: String,
        #[command(flatten)]
        place: Place,
    },
    /// Cancels a job, which goes back to what was before
    Cancel {
        /// The job
        job: String,
        #[command(flatten)]
        place: Place,
    },
    /// Changes how fast, and before which others, the slots of a job move
    Pace {
        /// The job
        job: String,
        /// Bytes per second that each source sends to each target at most: 50mb, or none
        #[arg(long)]
        rate: Option<String>,
        /// Of the moves that wait for a place at a source, those with a greater number come first
        #[arg(long, allow_hyphen_values = true)]
        priority: Option<i32>,
        #[command(flatten)]
        place: Place,
    },
    Apply(ApplyOptions),
    /// Creates a database
    CreateDb(CreateOptions),
    /// Changes a database while it runs: memory, shards up and down, replicas, options
    UpdateDb(UpdateOptions),
    /// Moves slots until the shards of a database carry the same
    Rebalance {
        /// The database
        name: String,
        /// What they are to carry the same of: bytes, cpu, network or keys
        #[arg(long, default_value = "bytes", value_parser = fields::read_word::<Measure>)]
        by: Measure,
        #[command(flatten)]
        change: Change,
    },
    /// Moves slots to a shard
    Move {
        /// The database
        name: String,
        /// The slots: 0-99,200
        slots: String,
        /// The shard that they go to, counted from 1
        shard: usize,
        #[command(flatten)]
        change: Change,
    },
    /// Lists the users of a database beside the default one, or changes one
    User(UserOptions),
    /// Deletes a database with its data
    DeleteDb {
        /// The database
        name: String,
        /// Its name again, since its data are gone afterwards
        #[arg(long)]
        confirm: Option<String>,
        #[command(flatten)]
        change: Change,
    },
    /// Rules by which keys get their slots
    Hashing {
        #[command(subcommand)]
        verb: HashingVerb,
    },
    /// Hands a shard over to a replica
    Failover {
        /// The database
        name: String,
        /// The shard, counted from 1; one of its replicas is taken
        #[arg(long, required_unless_present = "copy")]
        shard: Option<usize>,
        /// The replica, by its 40 digits
        #[arg(long)]
        copy: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Lets a copy lead a shard that cannot elect one; what only other copies had is given up
    Recover {
        /// The database
        name: String,
        /// The copy, by its 40 digits (dunlin cluster databases NAME)
        #[arg(long)]
        copy: String,
        /// Take it although another copy has more
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Says that what etcd has of a database is right although it was started with older files
    AcceptRollback {
        /// The database, as status names it
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// Copies that run although no database at etcd has them: an older etcd was restored, or a key
    /// is lost
    Unplaced {
        #[command(subcommand)]
        verb: UnplacedVerb,
    },
    /// Hands over what a machine leads, and moves its copies to others; it gets none until --undo
    DrainNode {
        /// The machine
        machine: String,
        /// Only hand over what it leads: for a short stop
        #[arg(long)]
        switch_only: bool,
        /// Let it have copies again
        #[arg(long, conflicts_with = "switch_only")]
        undo: bool,
        /// Begin although copies have no place elsewhere yet, and wait until there is one
        #[arg(long)]
        wait_for_room: bool,
        #[command(flatten)]
        change: Change,
    },
    /// Moves copies from machines that have more to one that has fewer, as one that has just joined
    AddNode {
        /// The machine
        machine: String,
        #[command(flatten)]
        change: Change,
    },
    /// Gives the copies of a machine away, ends its node, and forgets it
    RemoveNode {
        /// The machine
        machine: String,
        #[command(flatten)]
        change: Change,
    },
    /// Says what fails together with a machine
    SetZone {
        /// The machine
        machine: String,
        /// The zone; empty is none
        zone: String,
        #[command(flatten)]
        place: Place,
    },
    #[command(flatten)]
    Data(DataVerb),
    /// Forgets a machine that does not come back
    Forget {
        /// The machine
        machine: String,
        /// Give its shards new copies on other machines first
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        place: Place,
    },
}

/// Which node is asked, and how the answer looks.
#[derive(Args)]
pub(crate) struct Place {
    /// The admin port of a node: HOST:PORT, or https://HOST:PORT if it speaks TLS
    #[arg(long, env = "DUNLIN_NODE", default_value_t = format!("127.0.0.1:{ADMIN_PORT}"))]
    node: String,
    /// File with the authorities that a node's certificate must come from [default: the system's]
    #[arg(long, value_name = "FILE", env = "DUNLIN_CACERT")]
    cacert: Option<PathBuf>,
    /// File with the cluster's token (tls/join-token of a machine), or the secret that its machines
    /// share, in place of --cacert: a node's certificate must come from its authority
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct Change {
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not wait until it is done
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// A name for this request: the same again, after a lost answer, begins nothing new
    #[arg(long, default_value = "")]
    pub(crate) request_id: String,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Args)]
struct CreateOptions {
    /// The database's name
    name: String,
    #[command(flatten)]
    options: NewOptions,
    #[command(flatten)]
    change: Change,
}

#[derive(Subcommand)]
enum HashingVerb {
    /// Shows the tag, slot and shard that rules give to keys, and how the keys spread
    Try {
        /// Keys
        keys: Vec<String>,
        /// A rule; several are tried in this order, none is the standard rule
        #[arg(long = "rule", value_name = "REGEX")]
        rules: Vec<String>,
        /// A file with a key on each line
        #[arg(long)]
        file: Option<PathBuf>,
        /// A database, of which a thousand keys are taken, and whose shards are meant
        #[arg(long)]
        database: Option<String>,
        /// Without a database: how many shards there would be
        #[arg(long, default_value_t = 3)]
        shards: usize,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Args)]
struct UpdateOptions {
    /// The database's name
    name: String,
    #[command(flatten)]
    options: ChangedOptions,
    /// Draw a new password for dunlin-internal, as which nodes and copies log in; both count until
    /// all use the new one
    #[arg(long)]
    new_secret: bool,
    #[command(flatten)]
    change: Change,
}

#[derive(Args)]
struct UserOptions {
    /// The database's name
    name: String,
    /// The user; without one all are listed
    user: Option<String>,
    /// What it may do, as ACL SETUSER takes it: "+@read ~cache:*"
    #[arg(long, requires = "user")]
    rules: Option<String>,
    /// File with its password
    #[arg(long, requires = "user")]
    password_file: Option<PathBuf>,
    /// Delete it
    #[arg(long, requires = "user", conflicts_with_all = ["rules", "password_file"])]
    delete: bool,
    #[command(flatten)]
    change: Change,
}

pub(crate) fn bytes(option: &str, text: &str) -> Result<u64, Wrong> {
    let why = || Wrong(format!("--{option} {text}: a size is a number with a unit, as in 10gb"));
    config::parse_memory(text.as_bytes()).filter(|bytes| *bytes > 0).ok_or_else(why)
}

/// Runs `dunlin node` with these arguments, the program's name left out.
pub fn run_node(args: Vec<OsString>) -> ExitCode {
    match parse::<NodeOnly>(node_command(), args) {
        Ok(node) => end("dunlin node", up(&node.options, false)),
        Err(status) => status,
    }
}

/// Runs `dunlin cluster` with these arguments, the program's name left out.
pub fn run_cluster(args: Vec<OsString>) -> ExitCode {
    match parse::<Cluster>(cluster_command(), args) {
        Ok(cluster) => end("dunlin cluster", run(cluster.command)),
        Err(status) => status,
    }
}

fn parse<T: Parser>(command: clap::Command, args: Vec<OsString>) -> Result<T, ExitCode> {
    let name = OsString::from(command.get_name());
    let matches = command.try_get_matches_from([name].into_iter().chain(args));
    matches.and_then(|matches| T::from_arg_matches(&matches)).map_err(|why| {
        // There is no place left to report to if standard error is closed.
        let _ = why.print();
        if why.use_stderr() { ExitCode::from(MISUSE) } else { ExitCode::SUCCESS }
    })
}

fn end(name: &str, outcome: Result<(), Wrong>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{name}: {why}");
            ExitCode::FAILURE
        }
    }
}

impl Place {
    pub(crate) fn node(&self) -> Node {
        let password = std::env::var("DUNLIN_ADMIN_PASSWORD").ok();
        let authority = match (&self.token_file, &self.cacert) {
            (Some(path), _) => Authority::Token(path.clone()),
            (None, Some(path)) => Authority::File(path.clone()),
            (None, None) => Authority::System,
        };
        Node {
            address: self.node.clone(),
            authority,
            password: password.filter(|text| !text.is_empty()),
            request_id: String::new(),
        }
    }

    /// Reads something and prints it.
    pub(crate) fn show<T: DeserializeOwned>(
        &self,
        path: &str,
        text: fn(&T) -> String,
    ) -> Result<(), Wrong> {
        let value: Value = self.node().get(path).map_err(Wrong::from)?;
        print::value(&value, self.json, text)
    }

    /// Sends something that is done at once.
    pub(crate) fn order(
        &self,
        path: &str,
        body: &impl serde::Serialize,
        said: &str,
    ) -> Result<(), Wrong> {
        self.order_by("POST", path, body, said)
    }

    /// The same by another method.
    pub(crate) fn order_by(
        &self,
        method: &str,
        path: &str,
        body: &impl serde::Serialize,
        said: &str,
    ) -> Result<(), Wrong> {
        let value: Value = self.node().send(method, path, body).map_err(Wrong::from)?;
        if self.json {
            return print::value(&value, true, Value::to_string);
        }
        println!("{said}");
        Ok(())
    }
}

fn accept_rollback(name: String, place: &Place) -> Result<(), Wrong> {
    let said =
        "Slots may move again, and keys of slots of others are dropped when a copy begins to lead.";
    place.order("/rollback/accept", &Named { name }, said)
}

fn run(verb: Verb) -> Result<(), Wrong> {
    match verb {
        Verb::Up(options) => up(&options, true),
        Verb::Down(options) => down(&options),
        Verb::Status(place) => place.show::<Status>("", print::status),
        Verb::Nodes(place) => {
            place.show::<Vec<MachineShown>>("/machines", |it| print::machines(it))
        }
        Verb::Databases { name: None, place } => {
            place.show::<Vec<DatabaseShown>>("/databases", |it| print::databases(it))
        }
        Verb::Databases { name: Some(name), place } => {
            let path = format!("/database?name={}", print::encoded(&name));
            place.show::<DatabaseShown>(&path, print::database)
        }
        Verb::Events(place) => place.show::<Vec<EventShown>>("/events", |it| print::events(it)),
        Verb::Jobs(place) => place.show::<Vec<JobShown>>("/jobs", |it| print::jobs(it)),
        Verb::Watch { job, place } => follow(&place, &job, Duration::MAX),
        Verb::Cancel { job, place } => {
            place.order("/jobs/cancel", &JobId { id: job.clone() }, "It is being cancelled.")?;
            follow(&place, &job, PATIENCE)
        }
        Verb::Pace { job: id, rate, priority, place } => {
            let rate_bytes = match rate.as_deref() {
                Some("none" | "0") => Some(0),
                text => text.map(|text| bytes("rate", text)).transpose()?,
            };
            let body = Pace { id, rate_bytes, priority };
            place.order("/jobs/pace", &body, "Its slots move at that pace.")
        }
        Verb::Apply(options) => apply::apply(&options),
        Verb::CreateDb(options) => create(options),
        Verb::UpdateDb(options) => update(options),
        Verb::DeleteDb { name, confirm, change } => delete(name, confirm, &change),
        Verb::Hashing { verb } => try_rules(verb),
        Verb::Failover { name, shard, copy, place } => {
            place.order("/failover", &Switch { name, copy, shard }, "The replica leads the shard.")
        }
        Verb::Recover { name, copy, force, place } => {
            let body = Recovery { name, copy, force };
            place.order("/recover", &body, "The copy leads the shard.")
        }
        Verb::AcceptRollback { name, place } => accept_rollback(name, &place),
        Verb::Unplaced { verb } => unplaced::run(&verb),
        Verb::Rebalance { name, by, change } => {
            let dry_run = change.dry_run;
            send(("POST", "/databases/rebalance"), &change, &Rebalance { name, by, dry_run })
        }
        Verb::Move { name, slots, shard, change } => {
            let body = MoveSlots { name, slots, shard, dry_run: change.dry_run };
            send(("POST", "/databases/move"), &change, &body)
        }
        Verb::User(options) => user(options),
        Verb::DrainNode { machine: name, undo: true, change, .. } => {
            let said = "It can have copies again.";
            change.place.order("/machines/undo-drain", &Named { name }, said)
        }
        Verb::DrainNode { machine: name, switch_only, wait_for_room, change, .. } => {
            let body = Drain { name, switch_only, waits: wait_for_room, dry_run: change.dry_run };
            send(("POST", "/machines/drain"), &change, &body)
        }
        Verb::AddNode { machine: name, change } => {
            let body = MachineChange { name, dry_run: change.dry_run };
            send(("POST", "/machines/add"), &change, &body)
        }
        Verb::RemoveNode { machine: name, change } => {
            let body = MachineChange { name, dry_run: change.dry_run };
            send(("POST", "/machines/remove"), &change, &body)
        }
        Verb::SetZone { machine: name, zone, place } => {
            place.order("/machines/zone", &Zone { name, zone }, "The zone is set.")
        }
        Verb::Data(verb) => data::run(verb),
        Verb::Forget { machine: name, replace: true, place } => {
            give_away(&place, "/machines/replace", &Named { name })
        }
        Verb::Forget { machine, place, .. } => {
            place.order("/machines/forget", &Named { name: machine }, "It is forgotten.")
        }
    }
}

fn create(options: CreateOptions) -> Result<(), Wrong> {
    let settings = fields::from_values(options.options.values)?;
    settings.check()?;
    let (name, dry_run) = (options.name, options.change.dry_run);
    let creation = Creation { name, settings, dry_run };
    send(("POST", "/databases"), &options.change, &creation)
}

/// Tries rules on keys. Without a database it needs no node.
fn try_rules(verb: HashingVerb) -> Result<(), Wrong> {
    let HashingVerb::Try { mut keys, rules, file, database, shards, place } = verb;
    if let Some(path) = file {
        let text = std::fs::read(&path);
        let text = text.map_err(|error| Wrong(format!("{}: {error}", path.display())))?;
        let lines = text.split(|&byte| byte == b'\n').map(|line| line.trim_ascii_end());
        let lines = lines.filter(|line| !line.is_empty());
        keys.extend(lines.map(|line| String::from_utf8_lossy(line).into_owned()));
    }
    let trial = Trial { rules, keys, shards: Some(shards), database };
    let value: Value = match trial.database {
        Some(_) => place.node().send("POST", "/hashing/try", &trial).map_err(Wrong::from)?,
        None => {
            let tried = hashing::attempt(&trial, &[], None)?;
            serde_json::to_value(tried).map_err(|error| Wrong(error.to_string()))?
        }
    };
    print::value(&value, place.json, print::tried)
}

/// Begins a job about a machine, and follows it.
fn give_away(place: &Place, path: &str, body: &impl serde::Serialize) -> Result<(), Wrong> {
    let begun: Begun = place.node().send("POST", path, body).map_err(Wrong::from)?;
    match begun.job {
        Some(job) => follow(place, &job, Duration::MAX),
        None => Ok(()),
    }
}

/// The password in a file, if there is a file.
fn in_file(path: Option<&Path>) -> Result<Option<String>, Wrong> {
    let Some(path) = path else { return Ok(None) };
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| Wrong(format!("{}: {error}", path.display())))?;
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

fn update(options: UpdateOptions) -> Result<(), Wrong> {
    let update = Update {
        name: options.name,
        changes: Changes::new(options.options.values),
        new_secret: options.new_secret,
        dry_run: options.change.dry_run,
    };
    send(("PATCH", "/databases"), &options.change, &update)
}

fn user(options: UserOptions) -> Result<(), Wrong> {
    let UserOptions { name, user, rules, password_file, delete, change } = options;
    let Some(user) = user else {
        let path = format!("/database?name={}", print::encoded(&name));
        return change.place.show::<DatabaseShown>(&path, print::users);
    };
    let dry_run = change.dry_run;
    if delete {
        return send(("DELETE", "/databases/users"), &change, &UserRemoval { name, user, dry_run });
    }
    let password = in_file(password_file.as_deref())?;
    let body = UserChange { name, user, rules, password, dry_run };
    send(("POST", "/databases/users"), &change, &body)
}

fn delete(name: String, confirm: Option<String>, change: &Change) -> Result<(), Wrong> {
    if !change.dry_run && confirm.as_ref() != Some(&name) {
        return Err(Wrong(format!("all data of '{name}' would be gone: add --confirm {name}")));
    }
    let body = Deletion { name, dry_run: change.dry_run };
    send(("DELETE", "/databases"), change, &body)
}

/// Sends a change, and follows its job.
fn send(
    (method, path): (&str, &str),
    change: &Change,
    body: &impl serde::Serialize,
) -> Result<(), Wrong> {
    let place = &change.place;
    let node = Node { request_id: change.request_id.clone(), ..place.node() };
    let value: Value = node.send(method, path, body).map_err(Wrong::from)?;
    let begun: Begun = serde_json::from_value(value.clone()).map_err(|it| Wrong(it.to_string()))?;
    let job = begun.job.filter(|_| !change.no_wait);
    // With --json there is one document: that of the job when it has ended.
    if !place.json || job.is_none() {
        print::value(&value, place.json, print::begun)?;
    }
    match job {
        // What moves data takes as long as there are data.
        Some(job) => follow(place, &job, Duration::MAX),
        None => Ok(()),
    }
}

/// Waits until a job ends, and prints what it waits for.
pub(crate) fn follow(place: &Place, id: &str, limit: Duration) -> Result<(), Wrong> {
    let (began, mut said) = (Instant::now(), String::new());
    let path = format!("/job?id={}", print::encoded(id));
    loop {
        let value: Value = match place.node().get(&path) {
            // The job goes on meanwhile.
            Err(refusal) if refusal.is_temporary && began.elapsed() < limit => {
                std::thread::sleep(Duration::from_millis(200));
                continue;
            }
            answer => answer.map_err(Wrong::from)?,
        };
        let job: JobShown =
            serde_json::from_value(value.clone()).map_err(|it| Wrong(it.to_string()))?;
        let text = print::progress(&job);
        if job.ended_ms > 0 {
            print::value(&value, place.json, print::progress)?;
            return match &*job.state {
                "failed" => Err(Wrong(format!("the job has failed: {}", job.text))),
                _ => Ok(()),
            };
        }
        if text != said && !place.json {
            print!("{text}");
        }
        said = text;
        if began.elapsed() > limit {
            return Err(Wrong(format!(
                "the job is not done yet; it goes on. Follow it with dunlin cluster watch {id}"
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_sound() {
        cluster_command().debug_assert();
        node_command().debug_assert();
    }

    #[test]
    fn words_and_sizes_are_checked() {
        let word = fields::read_word::<Measure>;
        assert_eq!(word("cpu"), Ok(Measure::Cpu));
        assert!(word("some").is_err_and(|why| why.contains("`bytes`")));
        assert_eq!(bytes("memory", "1gb"), Ok(1 << 30));
        assert!(bytes("memory", "much").is_err_and(|why| why.0.contains("--memory much")));
    }
}
