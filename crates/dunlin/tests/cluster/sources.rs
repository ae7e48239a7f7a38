//! Sources of imports that are no plain server: with TLS and users, and watched by sentinels.

use crate::data::{begin, client, first_database, until_in_step};
use crate::support::Machine;
use harness::client::{Client, ask, ok};
use harness::reply::{Protocol, Reply};
use harness::sentinel::{NAME, Sentinels};
use harness::server::{Options, Program, Server, free_port};
use harness::tls::Authority;
use harness::wait::eventually;
use std::fs;
use std::path::PathBuf;

fn reference() -> Program {
    Program::reference().unwrap_or_else(|_| Program::under_test())
}

/// Files of an authority, where a program sees them.
struct Files {
    outside: PathBuf,
    inside: PathBuf,
}

impl Files {
    fn of(program: &Program, authority: &Authority, names: &[&str]) -> Files {
        let base =
            if program.is_dunlin() { std::env::temp_dir() } else { program.root().join("tmp") };
        let outside = base.join(format!("import-files-{}", std::process::id()));
        fs::create_dir_all(&outside).expect("a folder");
        for name in names {
            fs::copy(authority.path(name), outside.join(name)).expect("it is copied");
        }
        Files { inside: program.inside(&outside), outside }
    }

    fn path(&self, name: &str) -> String {
        self.inside.join(name).display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left is for the system to clean up.
        let _ = fs::remove_dir_all(&self.outside);
    }
}

/// Fills a source with keys whose names begin with this.
fn write(client: &mut Client, name: &str) {
    for number in 0..100 {
        ok(client, &*format!("SET {name}:{number} {number}"));
    }
}

#[test]
fn a_source_is_asked_with_tls_and_a_user() {
    let machine = Machine::first("import-tls", "a");
    let (port, _) = machine.create("there", "0");
    let authority = Authority::new("import-tls");
    authority.sign("source");
    let tls_port = free_port().expect("a port is free");
    let program = reference();
    let files = Files::of(&program, &authority, &["ca.crt", "source.crt", "source.key"]);
    let arguments = [
        ("--tls-port", tls_port.to_string()),
        ("--tls-cert-file", files.path("source.crt")),
        ("--tls-key-file", files.path("source.key")),
        ("--tls-ca-cert-file", files.path("ca.crt")),
        ("--tls-auth-clients", "no".to_owned()),
        ("--repl-diskless-sync-delay", "0".to_owned()),
    ];
    let arguments: Vec<&str> =
        arguments.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
    let source = Server::start(&program, Options::arguments(&arguments)).expect("it starts");
    let mut writer = source.client();
    write(&mut writer, "before");
    // The default user may nothing that an import needs.
    let user = "ACL SETUSER importer on >p@ss:word -@all +psync +replconf +ping +info +client +command \
                +function|dump +cluster +scan +hello +auth +role +config|get +dbsize";
    ok(&mut writer, user);
    let authorities = authority.path("ca.crt");
    let place = |login: &str, query: &str| format!("rediss://{login}localhost:{tls_port}?{query}");
    let trusting = format!("cacert={authorities}");
    let refusals = [
        (place("importer:wrong@", &trusting), "WRONGPASS"),
        (place("importer:p%40ss:word@", ""), "certificate"),
        (place("importer:p%40ss:word@", "cacert=/none"), "/none"),
        (format!("redis://importer:p%40ss:word@localhost:{tls_port}"), "localhost"),
    ];
    for (place, reason) in refusals {
        let (is_done, text) = machine.ask(&["import", &place, "there", "--dry-run"]);
        assert!(!is_done && text.contains(reason) && !text.contains("ss:word"), "{place}: {text}");
    }
    let right = place("importer:p%40ss:word@", &trusting);
    let (is_done, text) = machine.ask(&["import", &right, "there", "--dry-run"]);
    assert!(is_done && text.contains("Nothing is in the way"), "{text}");
    let import = begin(&machine, &["import", &right, "there"]);
    until_in_step(&machine, &import);
    write(&mut writer, "after");
    let (is_done, text) = machine.ask(&["finish", &import]);
    assert!(is_done && text.contains("done"), "{text}");
    assert_eq!(first_database(&mut client(port)), first_database(&mut writer));
    // Nothing that is kept or shown has the password.
    assert!(!machine.ask(&["jobs"]).1.contains("ss:word"));
}

#[test]
fn a_source_is_followed_through_a_failover_of_its_sentinels() {
    let machine = Machine::first("import-sentinel", "a");
    let (port, _) = machine.create("there", "0");
    let words = "--repl-diskless-sync-delay 0 --requirepass secret --masterauth secret";
    let words: Vec<&str> = words.split(' ').collect();
    let options = || Options::arguments(&words);
    let mut servers: Vec<Server> =
        (0..2).map(|_| Server::start(&reference(), options()).expect("it starts")).collect();
    let log_in = |server: &Server| {
        let mut client = server.client();
        ok(&mut client, "AUTH secret");
        client
    };
    let primary = servers[0].port();
    ok(&mut log_in(&servers[1]), &*format!("REPLICAOF 127.0.0.1 {primary}"));
    let lines = [
        "sentinel auth-pass NAME secret",
        "requirepass watching",
        "sentinel sentinel-pass watching",
    ];
    let sentinels = Sentinels::watch(&reference(), "127.0.0.1", primary, &lines);
    let sentinels = sentinels.expect("they start");
    let known = |number: usize| {
        let address = ([127, 0, 0, 1], sentinels.port(number)).into();
        let mut client = Client::connect(address).expect("it listens");
        ok(&mut client, "AUTH watching");
        client
    };
    let told = |number: usize, name: &str| {
        let reply = known(number).command(&["SENTINEL", "MASTER", NAME]).expect("it answers");
        let words: Vec<String> =
            reply.elements().unwrap_or_default().iter().map(Reply::shown).collect();
        words.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone())
    };
    eventually("sentinels know the replica", || {
        (0..3).all(|number| {
            told(number, "num-slaves").as_deref() == Some("1")
                && told(number, "num-other-sentinels").as_deref() == Some("2")
        })
    });
    write(&mut log_in(&servers[0]), "before");
    let hosts: Vec<String> =
        (0..3).map(|number| format!("127.0.0.1:{}", sentinels.port(number))).collect();
    let hosts = hosts.join(",");
    let place = |login: &str, name: &str, query: &str| {
        format!("redis-sentinel://{login}{hosts}/{name}?{query}")
    };
    refuse_sentinels(&machine, place);
    let right = place(":secret@", NAME, "sentinel-password=watching");
    let import = begin(&machine, &["import", &right, "there"]);
    until_in_step(&machine, &import);
    // What the replica has, is not lost with the primary.
    let mut writer = log_in(&servers[0]);
    write(&mut writer, "while");
    eventually("the replica has it", || ask(&mut writer, "WAIT 1 1000") != Reply::Integer(0));
    servers[0].kill().expect("it runs");
    eventually("the replica is promoted", || {
        // A sentinel closes all connections where it changes a role.
        let Ok(mut client) = servers[1].connect(Protocol::Resp2) else { return false };
        let replies = ["AUTH secret", "ROLE"].map(|request| {
            let words: Vec<&str> = request.split(' ').collect();
            client.command(&words).ok()
        });
        let role = replies[1].as_ref().and_then(Reply::elements);
        role.is_some_and(|it| it[0].shown() == "master")
    });
    write(&mut log_in(&servers[1]), "after");
    eventually("the new primary is followed", || {
        ask(&mut client(port), "GET after:99") == Reply::Bulk(b"99".to_vec())
    });
    until_in_step(&machine, &import);
    let (is_done, text) = machine.ask(&["finish", &import]);
    assert!(is_done && text.contains("done"), "{text}");
    assert_eq!(first_database(&mut client(port)), first_database(&mut log_in(&servers[1])));
}

/// Passwords and names that are wrong or missing.
fn refuse_sentinels(machine: &Machine, place: impl Fn(&str, &str, &str) -> String) {
    let refusals = [
        (place(":secret@", NAME, ""), "NOAUTH"),
        (place(":secret@", "unknown", "sentinel-password=watching"), "unknown"),
        (place("", NAME, "sentinel-password=watching"), "NOAUTH"),
    ];
    for (place, reason) in refusals {
        let (is_done, text) = machine.ask(&["import", &place, "there", "--dry-run"]);
        assert!(!is_done && text.contains(reason), "{place}: {text}");
    }
}
