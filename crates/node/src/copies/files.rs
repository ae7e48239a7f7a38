//! The files of a copy: its configuration, and the file with its name.

use crate::file;
use crate::settings::{Persistence, Settings, Wrong, fields, sha256};
use crate::site::{CONSOLE, Database, INTERNAL, Placed, console_password};
use crate::talk::{Certificates, NO_CERTIFICATES};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What is the same for all copies of a node.
#[derive(Clone, Debug)]
pub struct Common {
    /// The cluster's name.
    pub cluster: String,
    /// etcd's addresses, with commas.
    pub coordinator: String,
    /// The seconds that a copy's lease lasts, if it is not the default.
    pub lease_seconds: Option<u32>,
    /// Options by which etcd lets a copy in.
    pub access: Vec<(&'static str, String)>,
    /// Options about TLS of clients; none is without TLS.
    pub tls: Vec<(&'static str, String)>,
    /// The port with TLS is the plain port and this number.
    pub tls_port_offset: u16,
    /// The directory for values on flash; none is that of each copy.
    pub flash: Option<PathBuf>,
    /// The audit log of the machine, an absolute path, if there is one.
    pub audit_log: Option<PathBuf>,
    /// Copies write their log to the node's output, and have no files for it.
    pub logs_to_output: bool,
    /// The certificates of this machine, if it has some.
    pub certificates: Option<Certificates>,
    /// What copies have for each other, if this machine has the authority's key.
    pub bus: Option<Bus>,
}

/// What copies of a machine have for each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bus {
    /// The bus port is the plain port and this number.
    pub port_offset: u16,
    /// What copies show each other.
    pub certificates: Certificates,
}

impl Bus {
    /// The options of a copy.
    fn options(&self, port: u16) -> [(&'static str, String); 4] {
        let Certificates { ca_cert_file, cert_file, key_file } = &self.certificates;
        [
            ("cluster-port", port.to_string()),
            ("cluster-bus-cert-file", cert_file.clone()),
            ("cluster-bus-key-file", key_file.clone()),
            ("cluster-bus-ca-cert-file", ca_cert_file.clone()),
        ]
    }
}

impl Certificates {
    /// The options of a copy that speaks TLS alone, with clients and with other copies.
    fn options(&self, port: u16) -> [(&'static str, String); 9] {
        let Certificates { ca_cert_file, cert_file, key_file } = self;
        let yes = || "yes".to_owned();
        [
            ("port", "0".into()),
            ("tls-port", port.to_string()),
            ("cluster-announce-tls-port", port.to_string()),
            ("tls-cert-file", cert_file.clone()),
            ("tls-key-file", key_file.clone()),
            ("tls-ca-cert-file", ca_cert_file.clone()),
            // Clients have passwords.
            ("tls-auth-clients", "optional".into()),
            ("tls-replication", yes()),
            ("tls-cluster", yes()),
        ]
    }
}

/// The seconds after which a copy looks for certificates that were renewed.
const RELOAD_S: &str = "30";

/// Returns the options that can be changed while a copy of a shard runs, with their values.
pub fn live_options(database: &Database, shard: usize) -> Vec<(&'static str, String)> {
    let settings = &database.settings;
    let bytes = database.copy_bytes(shard).to_string();
    let save =
        if settings.persistence == Persistence::Rdb { "3600 1 300 100 60 10000" } else { "" };
    let log = if settings.persistence == Persistence::Aof { "yes" } else { "no" };
    let quorum = settings.quorum().saturating_sub(1).max(1).to_string();
    let mut options = vec![
        ("maxmemory", bytes),
        ("maxmemory-policy", settings.eviction.clone()),
        ("save", save.into()),
        ("appendonly", log.into()),
        ("commit-quorum", quorum),
        ("commit-mode", fields::word(&settings.commit)),
    ];
    if Settings::has_single_endpoint() {
        let endpoint = if settings.endpoint.is_cluster() { "cluster" } else { "single" };
        options.push(("cluster-endpoint", endpoint.into()));
    }
    if settings.flash_bytes > 0 {
        options.push(("tier-max-size", database.copy_flash_bytes(shard).to_string()));
    }
    options
}

/// The user as which copies log in to each other, and all users that they let in.
pub struct Users<'a> {
    /// Options by which copies log in to each other.
    pub logins: Vec<(&'static str, &'a str)>,
    /// Users, each with its rules.
    pub rules: Vec<(&'a str, Vec<String>)>,
}

/// Returns the users of a database.
pub fn users(database: &Database) -> Users<'_> {
    users_with(database, &FOR_NODES)
}

/// Returns the users of a database for copies of any version: earlier ones do not know what nodes
/// need, so the nodes' user may do everything there.
pub fn users_for_all_versions(database: &Database) -> Users<'_> {
    users_with(database, &EVERYTHING)
}

fn users_with<'a>(database: &'a Database, rights: &[&str]) -> Users<'a> {
    let rights = rights.iter().map(|&rule| rule.to_owned());
    let Database { settings, secret, old_secret, .. } = database;
    let more = database.users.iter().map(|(name, user)| {
        let hash = format!("#{}", user.password_sha256);
        let reset = ["reset", "on", &hash].map(str::to_owned).to_vec();
        (&**name, [reset, user.rules.clone()].concat())
    });
    let rules = |password: String| ["on".to_owned(), "resetpass".to_owned(), password].to_vec();
    let hash = |secret: &str| format!("#{}", sha256(secret));
    // The present password, and the one before as long as copies may use it.
    let log_in = |password: fn(&str) -> String| {
        let old = (!old_secret.is_empty()).then(|| hash(&password(old_secret)));
        rules(hash(&password(secret))).into_iter().chain(old)
    };
    let internal = log_in(str::to_owned).chain(rights).collect();
    let console = log_in(console_password).chain(EVERYTHING.map(str::to_owned)).collect();
    let of_clients = match &*settings.password_sha256 {
        "" => "nopass".to_owned(),
        hash => format!("#{hash}"),
    };
    Users {
        logins: vec![("masteruser", INTERNAL), ("masterauth", secret)],
        rules: [(INTERNAL, internal), (CONSOLE, console), ("default", rules(of_clients))]
            .into_iter()
            .chain(more)
            .collect(),
    }
}

/// What the nodes' user may do. The category has what nodes and copies send each other.
const FOR_NODES: [&str; 4] = ["~*", "&*", "-@all", "+@nodes"];

/// What a user may do without a limit.
const EVERYTHING: [&str; 3] = ["~*", "&*", "+@all"];

/// Returns the text of a copy's configuration file. `bus_port`: its port for other copies, if it is
/// to have one.
///
/// # Errors
/// The machine lacks what the database needs.
pub fn configuration(
    common: &Common,
    database: &Database,
    placed: &Placed,
    (log, bus_port): (&Path, Option<u16>),
) -> Result<String, Wrong> {
    let settings = &database.settings;
    let is_local = matches!(&*placed.host, "127.0.0.1" | "::1" | "localhost");
    let bind = if is_local { "127.0.0.1 -::1" } else { "* -::*" };
    let mut text =
        "# Written by the node at each start of the copy. Use dunlin cluster update-db.\n"
            .to_owned();
    let mut line = |name: &str, value: &str| {
        let value = structs::words::quote_word(value.as_bytes());
        writeln!(text, "{name} {}", String::from_utf8_lossy(&value)).expect("memory takes all");
    };
    for (name, value) in ports(common, settings, placed.port)? {
        line(name, &value);
    }
    line("protected-mode", "no");
    line("dir", ".");
    let logfile = if common.logs_to_output { "".into() } else { log.to_string_lossy() };
    line("logfile", &logfile);
    if let Some(path) = &common.audit_log {
        line("audit-log", &path.to_string_lossy());
    }
    let mut has_files = settings.tls || bus_port.is_some();
    // A database with TLS has one port.
    if !settings.tls
        && !common.tls.is_empty()
        && let Some(port) = placed.port.checked_add(common.tls_port_offset)
    {
        line("tls-port", &port.to_string());
        line("cluster-announce-tls-port", &port.to_string());
        for (name, value) in &common.tls {
            line(name, value);
        }
        has_files = true;
    }
    for (name, value) in common.bus.iter().zip(bus_port).flat_map(|(bus, port)| bus.options(port)) {
        line(name, &value);
    }
    if has_files {
        line("tls-auto-reload-interval", RELOAD_S);
    }
    line("io-threads", &placed.threads.to_string());
    line("cluster-enabled", "yes");
    line("cluster-coordinator", &common.coordinator);
    for (name, value) in &common.access {
        line(name, value);
    }
    line("cluster-name", &common.cluster);
    if let Some(seconds) = common.lease_seconds {
        line("cluster-lease", &seconds.to_string());
    }
    line("cluster-config-file", "nodes.conf");
    line("cluster-announce-ip", &placed.host);
    // A copy takes over only when it has synchronised once; the default waits five seconds for
    // replicas that may follow.
    line("repl-diskless-sync-delay", "0");
    line("cluster-share-users", "yes");
    line("cluster-databases", &settings.databases.to_string());
    if settings.flash_bytes > 0 {
        let own = Path::new("flash").to_owned();
        let flash =
            common.flash.as_ref().map_or(own, |folder| folder.join(placed.copy.to_string()));
        line("tier-dir", &flash.to_string_lossy());
    }
    for (name, value) in live_options(database, placed.shard) {
        line(name, &value);
    }
    let Users { logins, rules } = users(database);
    for (name, value) in logins {
        line(name, value);
    }
    text += &user_lines(rules, settings);
    // Its words are values, not one value.
    Ok(text + "bind " + bind + "\n")
}

/// The options about the port of a copy, which has TLS if the database has it.
fn ports(
    common: &Common,
    settings: &Settings,
    port: u16,
) -> Result<Vec<(&'static str, String)>, Wrong> {
    let plain = ["port", "cluster-announce-port"].map(|name| (name, port.to_string()));
    match &common.certificates {
        _ if !settings.tls => Ok(plain.into()),
        Some(certificates) => Ok(certificates.options(port).into()),
        None => Err(Wrong(NO_CERTIFICATES.into())),
    }
}

/// Returns a configuration without a port for other copies.
pub fn without_bus(text: &str) -> String {
    let stays =
        |line: &&str| !line.starts_with("cluster-port ") && !line.starts_with("cluster-bus-");
    text.lines().filter(stays).flat_map(|line| [line, "\n"]).collect()
}

/// The lines of users. Their words are plain.
fn user_lines(rules: Vec<(&str, Vec<String>)>, settings: &Settings) -> String {
    let own = rules.into_iter().map(|(name, rules)| {
        let more =
            if name == "default" { EVERYTHING.map(str::to_owned).to_vec() } else { Vec::new() };
        format!("user {name} {}\n", [rules, more].concat().join(" "))
    });
    // The first copy writes them at the coordinator. Later starts have those that are there.
    own.chain(settings.users.iter().map(|user| format!("user {user}\n"))).collect()
}

/// Writes what a copy needs to start.
///
/// # Errors
/// The disk refuses it.
pub fn prepare(
    directory: &Path,
    flash: Option<&Path>,
    placed: &Placed,
    text: &str,
) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::create_dir_all(directory.join("flash"))?;
    if let Some(folder) = flash {
        fs::create_dir_all(folder.join(placed.copy.to_string()))?;
    }
    file::write(&directory.join("dunlin.conf"), text)?;
    let name = directory.join("nodes.conf");
    if name.exists() {
        return Ok(());
    }
    let Placed { copy, host, port, .. } = placed;
    file::write(&name, &format!("{copy} {host}:{port}@0 myself,master - 0 0 0 connected\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;
    use crate::site::{DatabaseUser, Stage};
    use cluster::id::Id;
    use std::collections::BTreeMap;

    fn database(settings: Settings, placed: Placed) -> Database {
        let rules = ["+@read", "~a:*"].map(str::to_owned).to_vec();
        let user = DatabaseUser { rules, password_sha256: sha256("x") };
        Database {
            id: placed.copy,
            stage: Stage::Creating,
            settings: settings.sealed(),
            copies: vec![placed],
            created_ms: 0,
            secret: "s3".into(),
            old_secret: String::new(),
            floor: None,
            layout: 0,
            users: [("app".to_owned(), user)].into(),
            former_users: Vec::new(),
            later: BTreeMap::new(),
        }
    }

    fn placed() -> Placed {
        Placed {
            copy: Id::new([7; 20]),
            shard: 0,
            machine: "a".into(),
            host: "10.0.0.1".into(),
            port: 12001,
            threads: 2,
            is_leaving: false,
            is_surge: false,
            layout: 0,
            later: BTreeMap::new(),
        }
    }

    #[test]
    fn the_configuration_can_be_read() {
        let mut settings = settings();
        settings.password = "a \"b\" # c".into();
        settings.persistence = Persistence::Rdb;
        settings.databases = 4;
        let placed = placed();
        let database = database(settings, placed.clone());
        let coordinator = "etcd://10.0.0.1:2379,etcd://10.0.0.2:2379".into();
        let access = vec![("cluster-coordinator-password", "a # b".to_owned())];
        let file = |name: &str| format!("/tls/{name}.pem");
        let certificates = Certificates {
            ca_cert_file: file("ca"),
            cert_file: file("machine"),
            key_file: file("machine"),
        };
        let common = Common {
            cluster: "prod".into(),
            coordinator,
            lease_seconds: None,
            access,
            tls: vec![("tls-cert-file", "/tls/tls.crt".into())],
            tls_port_offset: 1000,
            flash: None,
            audit_log: Some("/var/log/a b.json".into()),
            logs_to_output: false,
            certificates: Some(certificates.clone()),
            bus: Some(Bus { port_offset: 10_000, certificates }),
        };
        let log = Path::new("/var/log/a b.log");
        let text = configuration(&common, &database, &placed, (log, Some(22001)));
        let text = text.expect("nothing is lacking");
        let read = config::load_text(text.as_bytes()).map_err(|error| error.to_string());
        let read = read.expect("it is sound").config;
        let get = |name: &str| {
            let value = read.value_of(name).expect("there is such an option");
            String::from_utf8(value).expect("a value is text")
        };
        assert_eq!(read.cluster_coordinator_password().to_string_lossy(), "a # b");
        assert_eq!(get("masteruser"), INTERNAL);
        assert_eq!(get("audit-log"), "/var/log/a b.json");
        assert_eq!(
            (get("tls-port"), get("tls-cert-file")),
            ("13001".into(), "/tls/tls.crt".into())
        );
        assert_eq!(
            (get("cluster-port"), get("cluster-bus-ca-cert-file")),
            ("22001".into(), "/tls/ca.pem".into())
        );
        assert_eq!(get("tls-auto-reload-interval"), "30");
        let without = without_bus(&text);
        let alone = configuration(&common, &database, &placed, (log, None));
        assert_eq!(Some(without), alone.ok());
        assert!(!text.contains("requirepass") && text.contains(&sha256("a \"b\" # c")));
        let loaded = config::load_text(text.as_bytes()).map(|loaded| loaded.users);
        assert_eq!(loaded.map(|users| users.len()).unwrap_or_default(), 4);
        let hash = sha256(&console_password("s3"));
        let line = format!("user dunlin-console on resetpass #{hash} ~* &* +@all\n");
        assert!(text.contains(&line), "{text}");
        assert_eq!((get("port"), get("cluster-name")), ("12001".into(), "prod".into()));
        assert_eq!((get("appendonly"), get("bind")), ("no".into(), "* -::*".into()));
        assert_eq!(get("save"), "3600 1 300 100 60 10000");
        assert_eq!(get("cluster-databases"), "4");
        assert_eq!(get("maxmemory"), (1u64 << 30).to_string());

        // With TLS there is no port without.
        let mut encrypted = database.clone();
        encrypted.settings.tls = true;
        let text = configuration(&common, &encrypted, &placed, (log, None));
        let text = text.expect("the machine has certificates");
        let expected = [
            ("port", "0"),
            ("tls-port", "12001"),
            ("tls-replication", "yes"),
            ("tls-cluster", "yes"),
            ("tls-auto-reload-interval", "30"),
        ];
        for (name, value) in expected {
            assert!(text.contains(&format!("\n{name} \"{value}\"\n")), "{text}");
        }
        let common = Common { certificates: None, ..common };
        assert!(configuration(&common, &encrypted, &placed, (log, None)).is_err());
    }
}
