//! Files that releases left behind (`tests/releases`): this build reads all of them.

// A failed step is a failed test.
#![allow(clippy::unwrap_used)]

use crate::support::{Machine, ask_etcd, base64, etcd, row_of_ports, until_ok};
use harness::client::Client;
use harness::reply::Reply;
use harness::server::{Options, Program, Server, repository};
use harness::wait::eventually;
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The ports in the files of a cluster: `tests/releases/MAKE`. No system gives them to clients.
const ETCD: u16 = 61379;
const NODE: u16 = 61380;
const COPIES: u16 = 61400;

/// The folders of all releases.
fn releases() -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join("tests/releases")).unwrap().flatten();
    let folders: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    assert!(!folders.is_empty(), "there is no release");
    folders
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// A reply as `tests/releases/MAKE` writes it.
fn plain(reply: &Reply) -> Value {
    match reply {
        Reply::Simple(text) | Reply::Bulk(text) => String::from_utf8_lossy(text).into(),
        Reply::Integer(number) => (*number).into(),
        Reply::Nil | Reply::NilArray => Value::Null,
        Reply::Array(elements) => elements.iter().map(plain).collect(),
        other => panic!("{other:?}"),
    }
}

/// Asks what a release was asked, and expects what it answered.
fn expect_answers(client: &mut Client, release: &Path, file: &str) {
    let expected = json(&release.join(file));
    let requests = expected.as_array().unwrap();
    assert!(requests.len() > 20, "{file} is short");
    for request in requests {
        let words = request[0].as_array().unwrap().iter();
        let words: Vec<&str> = words.map(|word| word.as_str().unwrap()).collect();
        let reply = plain(&client.command(&words).unwrap());
        assert_eq!(reply, request[1], "{words:?}, written by {}", release.display());
    }
}

/// Copies a folder, with another name of the folder that it was written in.
fn copy(from: &Path, to: &Path, place: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target, place);
        } else if let Ok(text) = fs::read_to_string(&source) {
            fs::write(target, text.replace("FOLDER", &place.to_string_lossy())).unwrap();
        } else {
            fs::copy(source, target).unwrap();
        }
    }
}

/// A copy of a release's folder that is gone when the test is over.
struct Copied(PathBuf);

impl Copied {
    fn of(release: &Path, name: &str) -> Copied {
        let version = release.file_name().unwrap_or_default().to_string_lossy();
        let folder = format!("dunlin-corpus-{}-{version}-{name}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        copy(&release.join(name), &path.join(name), &path);
        Copied(path)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_server_reads_the_snapshots_and_logs_of_each_release() {
    for release in releases() {
        for (name, more) in [
            ("rdb", &["--appendonly", "no"][..]),
            ("tier", &["--appendonly", "no"]),
            ("aof", &["--appendonly", "yes"]),
        ] {
            let copied = Copied::of(&release, name);
            let folder = copied.0.join(name).to_string_lossy().into_owned();
            let mut words = vec!["--dir", &folder, "--save", ""];
            words.extend(more);
            let server = Server::start(&Program::under_test(), Options::arguments(&words)).unwrap();
            expect_answers(&mut server.client(), &release, "expected.json");
        }
    }
}

/// The etcd that the files of a cluster name, with the values that a release wrote.
struct KeptEtcd {
    process: Child,
    folder: PathBuf,
}

impl KeptEtcd {
    fn start(release: &Path) -> KeptEtcd {
        let folder =
            std::env::temp_dir().join(format!("dunlin-corpus-{}-etcd", std::process::id()));
        let [clients, peers] = [ETCD, ETCD - 1].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new(etcd());
        command
            .arg("--data-dir")
            .arg(&folder)
            .args(["--initial-cluster", &format!("default={peers}")]);
        for (option, url) in [
            ("--listen-client-urls", &clients),
            ("--advertise-client-urls", &clients),
            ("--listen-peer-urls", &peers),
            ("--initial-advertise-peer-urls", &peers),
        ] {
            command.args([option, url]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let etcd = KeptEtcd { process: command.spawn().unwrap(), folder };
        let values = json(&release.join("etcd.json"));
        let values = values.as_object().unwrap();
        assert!(values.len() > 5, "etcd has few values");
        for (key, value) in values {
            let value = value.as_str().unwrap();
            let [key, value] = [key.as_bytes(), value.as_bytes()].map(base64);
            let body = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
            eventually("etcd takes a value", || ask_etcd(ETCD, "kv/put", &body).is_some());
        }
        etcd
    }
}

impl Drop for KeptEtcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn client(port: u16) -> Client {
    Client::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap()
}

#[test]
fn a_node_starts_from_the_folder_and_the_values_of_each_release() {
    for release in releases() {
        let _etcd = KeptEtcd::start(&release);
        let copied = Copied::of(&release, "machine");
        let backup = Copied::of(&release, "backup");
        let mut machine = Machine::new("corpus", "one", "");
        machine.admin_port = NODE;
        machine.directory = copied.0.join("machine");
        let directory = machine.directory.to_string_lossy().into_owned();
        let (etcd, port) = (format!("http://127.0.0.1:{ETCD}"), NODE.to_string());
        let words = [
            "up",
            "--name",
            "kept",
            "--dir",
            &directory,
            "--etcd",
            &etcd,
            "--machine",
            "one",
            "--host",
            "127.0.0.1",
            "--port",
            &port,
        ];
        assert!(machine.start_with(&words.map(str::to_owned)), "the node does not start");
        until_ok(&machine, "words");
        // A copy reads a moment later than its node that all shards have primaries.
        eventually("it serves", || !client(COPIES).command(&["GET", "text"]).unwrap().is_error());
        expect_answers(&mut client(COPIES), &release, "cluster.json");
        let mut reader = client(COPIES);
        assert_eq!(plain(&reader.command(&["AUTH", "reader", "secret"]).unwrap()), "OK");
        assert!(reader.command(&["SET", "text", "other"]).unwrap().is_error());

        let at = backup.0.join("backup").to_string_lossy().into_owned();
        let found = fs::read_dir(backup.0.join("backup/words")).unwrap().flatten().next();
        let name = format!("words/{}", found.unwrap().file_name().to_string_lossy());
        let restored = row_of_ports();
        let number = restored.to_string();
        let words = ["restore", &at, &name, "--as", "again", "--port", &number, "--shards", "1"];
        let (is_done, text) = machine.ask(&words);
        assert!(is_done && text.contains("done"), "{text}");
        until_ok(&machine, "again");
        eventually("it serves", || !client(restored).command(&["GET", "text"]).unwrap().is_error());
        expect_answers(&mut client(restored), &release, "cluster.json");
    }
}
