//! An etcd that lets in only those with a certificate and a password, and one of an earlier
//! version.

use crate::support::{Machine, ask_etcd, etcd, run, until_ok};
use harness::tls::Authority;
use harness::wait::eventually;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// An etcd of the user's.
struct Theirs {
    process: Child,
    directory: PathBuf,
    /// The port with TLS, one without for the operator, and that of peers.
    ports: [u16; 3],
    authority: Authority,
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// An authority that has signed a certificate for etcd and one for its clients.
fn authority() -> Authority {
    let authority = Authority::new("their-etcd");
    authority.sign("etcd");
    authority.sign_nameless("client");
    authority
}

fn spawn(directory: &Path, [tls, plain, peer]: [u16; 3], authority: &Authority) -> Child {
    let peer = format!("http://127.0.0.1:{peer}");
    Command::new(etcd())
        .args(["--name=one", &format!("--initial-cluster=one={peer}")])
        .args([
            &format!("--listen-peer-urls={peer}"),
            &format!("--initial-advertise-peer-urls={peer}"),
        ])
        .arg(format!("--listen-client-urls=https://127.0.0.1:{tls},http://127.0.0.1:{plain}"))
        .arg(format!("--advertise-client-urls=https://localhost:{tls}"))
        .arg(format!("--cert-file={}", authority.path("etcd.crt")))
        .arg(format!("--key-file={}", authority.path("etcd.key")))
        .args([&format!("--trusted-ca-file={}", authority.path("ca.crt")), "--client-cert-auth"])
        .arg(format!("--data-dir={}", directory.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd starts")
}

impl Theirs {
    fn start() -> Theirs {
        let [tls, plain, peer] = [(); 3].map(|()| crate::support::port());
        let directory = std::env::temp_dir().join(format!("dunlin-theirs-{tls}"));
        let (ports, authority) = ([tls, plain, peer], authority());
        let process = spawn(&directory, ports, &authority);
        let theirs = Theirs { process, directory, ports, authority };
        theirs.wait();
        theirs
    }

    fn wait(&self) {
        eventually("etcd is there", || {
            let status = self.ask("maintenance/status", "{}");
            status.is_some_and(|it| it.contains("\"leader\""))
        });
    }

    /// Starts it again with certificates of another authority. Those of before open nothing more.
    fn renew(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
        self.authority = authority();
        self.process = spawn(&self.directory, self.ports, &self.authority);
        self.wait();
    }

    /// Asks as an operator. `None`: it is not there yet.
    fn ask(&self, path: &str, body: &str) -> Option<String> {
        ask_etcd(self.ports[1], path, body)
    }

    /// From now on etcd wants a user. The one that is made may use Dunlin's keys alone.
    fn demand_passwords(&self, password: &str) {
        let administer = |path: &str, body: String| {
            assert!(self.ask(&format!("auth/{path}"), &body).is_some(), "{path}: {body}");
        };
        for name in ["root", "dunlin"] {
            administer("user/add", format!(r#"{{"name":"{name}","password":"{password}"}}"#));
            administer("role/add", format!(r#"{{"name":"{name}"}}"#));
            administer("user/grant", format!(r#"{{"user":"{name}","role":"{name}"}}"#));
        }
        // From "/dunlin" to "/dunlio", in base64.
        let keys = r#"{"permType":"READWRITE","key":"L2R1bmxpbg==","range_end":"L2R1bmxpbw=="}"#;
        administer("role/grant", format!(r#"{{"name":"dunlin","perm":{keys}}}"#));
        administer("enable", "{}".into());
    }
}

/// What processes were started with, those of one directory.
fn command_lines(machine: &Machine) -> Vec<String> {
    let entries = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    let ours = entries.map(|entry| entry.path()).filter(|path| {
        std::fs::read_link(path.join("cwd"))
            .is_ok_and(|there| there.starts_with(&machine.directory))
    });
    ours.filter_map(|path| std::fs::read_to_string(path.join("cmdline")).ok()).collect()
}

#[test]
fn an_etcd_with_certificates_and_users_serves_nodes_and_copies() {
    const PASSWORD: &str = "not to be seen in ps";
    let theirs = Theirs::start();
    theirs.demand_passwords(PASSWORD);
    let file = theirs.directory.join("password");
    std::fs::write(&file, PASSWORD).expect("it is written");
    let etcd = format!("https://localhost:{}", theirs.ports[0]);

    let mut machine = Machine::new("locked", "a", "");
    let mut words = machine.words();
    words.extend(["--etcd".to_owned(), etcd]);
    let refused = machine.try_with(&words).1;
    assert!(refused.contains("See --etcd-cacert"), "{refused}");
    for (option, value) in [
        ("--etcd-cacert", theirs.authority.path("ca.crt")),
        ("--etcd-cert", theirs.authority.path("client.crt")),
        ("--etcd-key", theirs.authority.path("client.key")),
        ("--etcd-user", "dunlin".to_owned()),
    ] {
        words.extend([option.to_owned(), value]);
    }
    let refused = machine.try_with(&words).1;
    assert!(refused.contains("DUNLIN_ETCD_PASSWORD"), "{refused}");
    words.extend(["--etcd-password-file".to_owned(), file.to_string_lossy().into_owned()]);
    assert!(machine.start_with(&words), "the machine starts");
    machine.create("d", "1");
    until_ok(&machine, "d");

    let lines = command_lines(&machine);
    assert!(lines.len() >= 6, "there are copies: {lines:?}");
    assert!(lines.iter().all(|line| !line.contains(PASSWORD)), "{lines:?}");
    // What it was told once it remembers.
    machine.kill_node();
    let words = machine.words();
    assert!(machine.start_with(&words), "the machine starts again");
    until_ok(&machine, "d");
}

/// Puts the certificates of an authority into a folder as Kubernetes does with a secret: what is
/// read is a link to a folder that is replaced.
fn mount(folder: &Path, version: &str, authority: &Authority) {
    let (there, old) = (folder.join(version), std::fs::read_link(folder.join("data")).ok());
    std::fs::create_dir_all(&there).expect("it is made");
    let names = [("ca.crt", "ca.crt"), ("client.crt", "tls.crt"), ("client.key", "tls.key")];
    for (file, name) in names {
        std::fs::copy(authority.path(file), there.join(name)).expect("it is copied");
        if old.is_none() {
            symlink(Path::new("data").join(name), folder.join(name)).expect("it is made");
        }
    }
    symlink(version, folder.join("new")).expect("it is made");
    std::fs::rename(folder.join("new"), folder.join("data")).expect("it is replaced");
    if let Some(old) = old {
        std::fs::remove_dir_all(folder.join(old)).expect("it is removed");
    }
}

#[test]
fn nodes_and_copies_take_certificates_for_etcd_that_were_renewed() {
    let mut theirs = Theirs::start();
    let folder = std::env::temp_dir().join(format!("dunlin-secret-{}", theirs.ports[0]));
    mount(&folder, "one", &theirs.authority);
    let mut machine = Machine::new("renewed", "a", "");
    let mut words = machine.words();
    words.extend(["--etcd".to_owned(), format!("https://localhost:{}", theirs.ports[0])]);
    for (option, file) in
        [("--etcd-cacert", "ca.crt"), ("--etcd-cert", "tls.crt"), ("--etcd-key", "tls.key")]
    {
        words.extend([option.to_owned(), folder.join(file).to_string_lossy().into_owned()]);
    }
    assert!(machine.start_with(&words), "the machine starts");
    machine.create("d", "1");
    until_ok(&machine, "d");
    let copies = machine.copies("d");
    let before: Vec<_> = copies.iter().map(|copy| machine.process_of(copy)).collect();

    theirs.renew();
    mount(&folder, "two", &theirs.authority);
    // The node writes there.
    eventually("the node reaches etcd again", || machine.ask(&["set-zone", "a", "x"]).0);
    // The replica that is asked for does.
    eventually("copies reach etcd again", || machine.ask(&["failover", "d", "--shard", "1"]).0);
    until_ok(&machine, "d");
    let after: Vec<_> = copies.iter().map(|copy| machine.process_of(copy)).collect();
    assert_eq!(before, after, "no copy was started again");
    assert!(!machine.has_ended());
    let (is_done, text) = machine.ask(&["restart", "d"]);
    assert!(is_done, "copies that start find the files: {text}");
    until_ok(&machine, "d");
    std::fs::remove_dir_all(&folder).expect("it is removed");
}

#[test]
fn a_machine_refuses_an_etcd_that_does_not_know_its_cluster() {
    let [first, other] = [(); 2].map(|()| Theirs::start());
    let mut machine = Machine::new("moved", "a", "");
    let words = |machine: &Machine, theirs: &Theirs| {
        let mut words = machine.words();
        words.extend(["--etcd".to_owned(), format!("http://127.0.0.1:{}", theirs.ports[1])]);
        words
    };
    let there = words(&machine, &first);
    assert!(machine.start_with(&there), "the machine starts");
    machine.kill_node();
    let refused = machine.try_with(&words(&machine, &other)).1;
    assert!(refused.contains("has no cluster 't', to which this machine belongs"), "{refused}");
    assert!(machine.start_with(&there), "the machine starts again");
}

#[test]
fn a_cluster_whose_etcd_has_no_tls_goes_on() {
    let mut machine = Machine::with_plain_etcd("plain", "a");
    let mut words = machine.words();
    let port = machine.etcd_port.unwrap_or_default().to_string();
    words.extend(["--etcd-port".to_owned(), port]);
    let (directory, file) = (machine.path(""), machine.path("node.json"));
    let kept = std::fs::read_to_string(&file).expect("it is there");
    let mut kept: serde_json::Value = serde_json::from_str(&kept).expect("it is JSON");
    // As earlier versions wrote it.
    kept.as_object_mut().expect("it is one").remove("access");
    kept["etcd"].as_object_mut().expect("it has an etcd").remove("is_tls");
    let place = kept["endpoints"][0].as_str().expect("it is text").replace("http://", "");
    kept["endpoints"] = serde_json::json!([place]);
    for is_down in [false, true] {
        if is_down {
            let (is_done, text) = run(&["down", "--dir", &directory]);
            assert!(is_done, "{text}");
        }
        machine.kill_node();
        std::fs::write(&file, kept.to_string()).expect("it is written");
        assert!(machine.start_with(&words), "the machine starts again");
        assert_eq!(machine.json(&["status"])["etcd_members"].as_array().map(Vec::len), Some(1));
    }
}
