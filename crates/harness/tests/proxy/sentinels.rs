//! A pool behind sentinels, which are played by the test.

use crate::support::{Proxy, dunlin, okay, servers, text, until};
use harness::client::{Client, ask};
use harness::reply::{Protocol, Reply};
use harness::server::{Program, Server, free_port};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Sentinels with a password that name one master.
struct Sentinels {
    ports: Vec<u16>,
    master: Arc<Mutex<u16>>,
    replicas: Arc<Mutex<Vec<u16>>>,
    subscribers: Arc<Mutex<Vec<TcpStream>>>,
}

impl Sentinels {
    fn start(count: usize, master: u16) -> Sentinels {
        let master = Arc::new(Mutex::new(master));
        let subscribers = Arc::new(Mutex::new(Vec::new()));
        let replicas = Arc::new(Mutex::new(Vec::new()));
        let mut ports = Vec::new();
        for _ in 0..count {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            ports.push(listener.local_addr().expect("an address").port());
            let all = (master.clone(), replicas.clone(), subscribers.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (master, replicas, subscribers) = all.clone();
                    std::thread::spawn(move || serve(stream, &master, &replicas, &subscribers));
                }
            });
        }
        Sentinels { ports, master, replicas, subscribers }
    }

    /// Names another master; says so only if `aloud`.
    fn switch(&self, master: u16, aloud: bool) {
        *self.master.lock().expect("no panic") = master;
        if aloud {
            let message = b"*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$1\r\nx\r\n";
            for stream in self.subscribers.lock().expect("no panic").iter_mut() {
                let _ = stream.write_all(message);
            }
        }
    }
}

/// One request: an array of bulk strings.
fn request(input: &mut impl BufRead) -> Option<Vec<String>> {
    let mut line = String::new();
    let mut next = || {
        line.clear();
        (input.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    };
    let words: usize = next()?.strip_prefix('*')?.parse().ok()?;
    (0..words).map(|_| next().and_then(|_| next())).collect()
}

fn serve(
    mut stream: TcpStream,
    master: &Mutex<u16>,
    replicas: &Mutex<Vec<u16>>,
    subscribers: &Mutex<Vec<TcpStream>>,
) {
    let mut input = BufReader::new(stream.try_clone().expect("a descriptor"));
    let mut is_known = false;
    while let Some(words) = request(&mut input) {
        let reply = match &words[0][..] {
            "AUTH" => {
                is_known = words[1..] == ["watcher", "secret"];
                if is_known { "+OK\r\n".to_owned() } else { "-WRONGPASS no\r\n".to_owned() }
            }
            _ if !is_known => "-NOAUTH Authentication required.\r\n".to_owned(),
            "SUBSCRIBE" => {
                let stream = stream.try_clone().expect("a descriptor");
                subscribers.lock().expect("no panic").push(stream);
                "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n".to_owned()
            }
            "SENTINEL" if words[1] == "REPLICAS" => {
                let ports = replicas.lock().expect("no panic");
                let replica = |port: &u16| {
                    let port = port.to_string();
                    format!(
                        "*4\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n$4\r\nport\r\n${}\r\n{port}\r\n",
                        port.len()
                    )
                };
                let lines: String = ports.iter().map(replica).collect();
                format!("*{}\r\n{lines}", ports.len())
            }
            _ => {
                let port = master.lock().expect("no panic").to_string();
                format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
            }
        };
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

fn start(program: &Program, servers: &[Server], sentinels: &Sentinels, more: &str) -> Proxy {
    let port = free_port().expect("a port");
    let list: Vec<String> =
        sentinels.ports.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
    let config = format!(
        "[pool.main]\nkind = \"sentinel\"\nlisten = [\"127.0.0.1:{port}\"]\nmaster = \"mymaster\"\n\
         sentinels = [{}]\nsentinel_user = \"watcher\"\nsentinel_password = \"secret\"\n\
         {more}",
        list.join(", ")
    );
    Proxy::run(program, &servers[0].directory().join("proxy.toml"), port, &config)
}

fn message(client: &mut Client) -> Vec<String> {
    let (Reply::Array(parts) | Reply::Push(parts)) = client.message().expect("a message") else {
        panic!("no message")
    };
    parts.iter().map(text).collect()
}

#[test]
fn clients_go_to_the_new_master() {
    let Some(program) = dunlin() else { return };
    let servers = servers(&program);
    let sentinels = Sentinels::start(3, servers[0].port());
    let proxy = start(&program, &servers, &sentinels, "");
    let mut client = proxy.client(Protocol::Resp2);
    let mut subscriber = proxy.client(Protocol::Resp3);
    let mut blocked = proxy.client(Protocol::Resp2);
    assert_eq!(ask(&mut client, &["SET", "a", "1"]), okay());
    subscriber.send(&["SUBSCRIBE", "news"]).expect("it is sent");
    assert_eq!(message(&mut subscriber)[..2], ["subscribe", "news"]);
    blocked.send(&["BLPOP", "queue", "0"]).expect("it is sent");
    until("the client waits", || {
        let clients = text(&ask(&mut servers[0].client(), &["INFO", "clients"]));
        clients.contains("blocked_clients:1\r\n")
    });
    sentinels.switch(servers[1].port(), true);
    // Connections to the old master are closed, whatever they do.
    assert!(matches!(blocked.reply().expect("a reply"), Reply::Error(_)));
    assert_eq!(message(&mut subscriber)[..2], ["subscribe", "news"]);
    until("writes go to the new master", || {
        ask(&mut client, &["SET", "b", "1"]) == okay()
            && ask(&mut servers[1].client(), &["EXISTS", "b"]) == Reply::Integer(1)
    });
    assert_eq!(ask(&mut servers[1].client(), &["PUBLISH", "news", "x"]), Reply::Integer(1));
    assert_eq!(message(&mut subscriber), ["message", "news", "x"]);
}

#[test]
fn a_replica_is_not_taken_for_the_master() {
    let Some(program) = dunlin() else { return };
    let servers = servers(&program);
    let port = servers[0].port().to_string();
    let mut replica = servers[1].client();
    assert_eq!(ask(&mut replica, &["REPLICAOF", "127.0.0.1", &port]), okay());
    let sentinels = Sentinels::start(3, servers[0].port());
    let proxy = start(&program, &servers, &sentinels, "");
    let mut client = proxy.client(Protocol::Resp2);
    assert_eq!(ask(&mut client, &["SET", "a", "1"]), okay());
    sentinels.switch(servers[1].port(), true);
    until("the proxy has asked the replica", || proxy.log().contains("but is a slave"));
    assert_eq!(ask(&mut client, &["SET", "a", "2"]), okay());
    // It is promoted, and no sentinel says so aloud.
    assert_eq!(ask(&mut replica, &["REPLICAOF", "NO", "ONE"]), okay());
    until("writes go to the promoted replica", || {
        ask(&mut client, &["SET", "b", "1"]) == okay()
            && ask(&mut replica, &["EXISTS", "b"]) == Reply::Integer(1)
    });
}

/// How often a server has run GET.
fn gets(server: &Server) -> bool {
    text(&ask(&mut server.client(), &["INFO", "commandstats"])).contains("cmdstat_get:")
}

#[test]
fn reads_go_to_replicas_that_keep_up() {
    let Some(program) = dunlin() else { return };
    let mut servers = servers(&program);
    let port = servers[0].port().to_string();
    for server in &servers[1..] {
        assert_eq!(ask(&mut server.client(), &["REPLICAOF", "127.0.0.1", &port]), okay());
    }
    let sentinels = Sentinels::start(3, servers[0].port());
    *sentinels.replicas.lock().expect("no panic") = vec![servers[1].port(), servers[2].port()];
    let proxy = start(&program, &servers, &sentinels, "reads = \"replicas\"\n");
    let mut clients: Vec<Client> = (0..4).map(|_| proxy.client(Protocol::Resp2)).collect();
    assert_eq!(ask(&mut clients[0], &["SET", "a", "1"]), okay());
    until("both replicas are read", || {
        clients.iter_mut().for_each(|client| drop(ask(client, &["GET", "a"])));
        gets(&servers[1]) && gets(&servers[2])
    });
    until("they have the key", || {
        clients.iter_mut().all(|client| text(&ask(client, &["GET", "a"])) == "1")
    });
    // What is read in a transaction is read where it is written.
    assert_eq!(ask(&mut clients[0], &["MULTI"]), okay());
    ask(&mut clients[0], &["SET", "a", "2"]);
    ask(&mut clients[0], &["GET", "a"]);
    let Reply::Array(results) = ask(&mut clients[0], &["EXEC"]) else { panic!("no results") };
    assert_eq!(text(&results[1]), "2");
    // A replica without its primary is not read any more.
    assert_eq!(ask(&mut servers[1].client(), &["REPLICAOF", "NO", "ONE"]), okay());
    assert_eq!(ask(&mut servers[1].client(), &["SET", "a", "alien"]), okay());
    assert_eq!(ask(&mut clients[0], &["SET", "a", "3"]), okay());
    until("it is left alone", || {
        clients.iter_mut().all(|client| text(&ask(client, &["GET", "a"])) == "3")
    });
    // Nor is one that has died, though reads may have been on their way to it.
    drop(servers.pop());
    until("reads find a server", || {
        clients.iter_mut().all(|client| text(&ask(client, &["GET", "a"])) == "3")
    });
}

#[test]
fn clients_that_want_notices_hear_of_a_fail_over() {
    let Some(program) = dunlin() else { return };
    let mut servers = servers(&program);
    let sentinels = Sentinels::start(3, servers[0].port());
    let proxy = start(&program, &servers, &sentinels, "");
    let mut client = proxy.client(Protocol::Resp3);
    let mut silent = proxy.client(Protocol::Resp3);
    let wants = ["CLIENT", "MAINT_NOTIFICATIONS", "ON", "moving-endpoint-type", "none"];
    assert_eq!(ask(&mut client, &wants), okay());
    assert_eq!(ask(&mut client, &["SET", "a", "1"]), okay());
    servers[0].kill().expect("it ends");
    until("requests fail", || ask(&mut client, &["SET", "a", "1"]) != okay());
    sentinels.switch(servers[1].port(), true);
    until("writes go to the new master", || ask(&mut client, &["SET", "a", "1"]) == okay());
    let mut heard = Vec::new();
    while let Some(Reply::Push(parts)) = client.push() {
        heard.push(text(&parts[0]));
    }
    assert_eq!(heard, ["FAILING_OVER", "FAILED_OVER"]);
    // It may be on another thread, which hears of the switch a moment later.
    until("its writes go there, too", || ask(&mut silent, &["SET", "a", "1"]) == okay());
    assert!(silent.push().is_none());
}
