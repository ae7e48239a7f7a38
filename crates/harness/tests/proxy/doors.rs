//! What hostile clients, servers and configurations meet.

use crate::support::{Proxy, dunlin, okay, server, single, text, until};
use harness::client::{Client, ask, encode};
use harness::reply::{Protocol, Reply};
use harness::server::{Program, Server, free_port};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Returns the text of an error.
fn why(reply: &Reply) -> String {
    match reply {
        Reply::Error(why) => String::from_utf8_lossy(why).into_owned(),
        other => panic!("{other:?} is no error"),
    }
}

/// Reads what comes until the connection ends.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(6 * harness::client::patience())).expect("a socket");
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => rest,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => rest,
        Err(error) => panic!("it is not closed: {error}"),
    }
}

#[test]
fn a_connection_that_speaks_http_is_closed() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let proxy = single(&program, &server, "", "");
    for request in harness::http::WITH_COMMANDS {
        let mut stream = TcpStream::connect(proxy.address).expect("it connects");
        stream.write_all(request).expect("it is sent");
        rest(&mut stream);
    }
    assert_eq!(ask(&mut proxy.client(Protocol::Resp2), &["EXISTS", "http"]), Reply::Integer(0));
    let warnings = || proxy.log().matches("Possible SECURITY ATTACK").count();
    until("the log warns", || warnings() > 0);
    assert_eq!(warnings(), 1);
}

#[test]
fn rules_for_commands_name_subcommands_and_have_no_misspelt_names() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let proxy = single(&program, &server, "", "deny = [\"config|set\", \"flushall\", \"=putt\"]");
    let mut client = proxy.client(Protocol::Resp2);
    let refused = why(&ask(&mut client, &["CONFIG", "set", "maxmemory", "1"]));
    assert_eq!(refused, "NOPERM 'config|set' is not allowed in pool 'main'");
    assert!(why(&ask(&mut client, &["flushall"])).starts_with("NOPERM"));
    assert!(why(&ask(&mut client, &["Putt", "a"])).starts_with("NOPERM"));
    assert!(!ask(&mut client, &["CONFIG", "GET", "maxmemory"]).is_error());
    let proxy = single(&program, &server, "", "allow = [\"config|get\", \"get\"]");
    let mut client = proxy.client(Protocol::Resp2);
    assert!(!ask(&mut client, &["CONFIG", "GET", "maxmemory"]).is_error());
    for words in [
        &["CONFIG", "SET", "maxmemory", "1"][..],
        &["CONFIG"],
        &["CONFIG", "x"],
        &["SET", "a", "b"],
    ] {
        assert!(why(&ask(&mut client, words)).starts_with("NOPERM"), "{words:?}");
    }
    // A file with names that would have no effect is refused.
    let file = server.directory().join("rules.toml");
    let test = |rules: &str| {
        let pool = "[pool.main]\nkind = \"single\"\nlisten = [\"127.0.0.1:1\"]\nserver = \"127.0.0.1:2\"\n";
        std::fs::write(&file, format!("{pool}{rules}\n")).expect("a file");
        let output = program.subcommand("proxy").arg("-t").arg("-c").arg(&file).output();
        let output = output.expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert!(test("deny = [\"Config|SET\", \"ft.search\", \"=renamed\"]").0);
    for (rules, expected) in [
        ("deny = [\"flusall\"]", "'deny': 'flusall' is no command"),
        ("deny = [\"config|st\"]", "'deny': 'config|st' is no subcommand"),
        ("allow = [\"@read\"]", "'allow': '@read' is a category"),
    ] {
        let (is_valid, told) = test(rules);
        assert!(!is_valid && told.contains(expected), "{told}");
    }
}

#[test]
fn a_yaml_file_of_aliases_of_aliases_is_refused() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let file = server.directory().join("aliases.yml");
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    std::fs::write(&file, text).expect("a file");
    let output = program.subcommand("proxy").arg("-t").arg("-c").arg(&file).output();
    let told = output.expect("it runs").stderr;
    assert!(String::from_utf8_lossy(&told).contains("aliases"), "{told:?}");
}

#[test]
fn a_proxy_that_leads_to_itself_says_so() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let port = free_port().expect("a port");
    for pool in ["", "client_password = \"x\"\npassword = \"x\""] {
        let config = format!(
            "[pool.main]\nkind = \"single\"\nlisten = [\"127.0.0.1:{port}\"]\nserver = \"127.0.0.1:{port}\"\n{pool}\n"
        );
        let file = server.directory().join("loop.toml");
        let proxy = Proxy::run(&program, &file, port, &config);
        let mut client = proxy.client(Protocol::Resp2);
        if !pool.is_empty() {
            assert_eq!(ask(&mut client, &["AUTH", "x"]), okay());
        }
        let told = why(&ask(&mut client, &["SET", "a", "1"]));
        assert!(told.contains("leads back to the same proxy"), "{told}");
    }
}

/// Starts a chain of proxies, each of which leads to the next; the last one leads to `last`, or to
/// the first one again.
fn chain(
    program: &Program,
    server: &Server,
    len: usize,
    last: Option<u16>,
    more: &str,
) -> Vec<Proxy> {
    let ports: Vec<u16> = (0..len).map(|_| free_port().expect("a port")).collect();
    let next = |at: usize| ports.get(at + 1).copied().or(last).unwrap_or(ports[0]);
    let run = |at: usize| {
        let config = format!(
            "[pool.main]\nkind = \"single\"\nlisten = [\"127.0.0.1:{}\"]\n\
             server = \"127.0.0.1:{}\"\n{more}\n",
            ports[at],
            next(at)
        );
        let file = server.directory().join(format!("chain{}.toml", ports[at]));
        Proxy::run(program, &file, ports[at], &config)
    };
    (0..len).map(run).collect()
}

#[test]
fn proxies_that_lead_to_each_other_say_so() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    for (len, more) in [(2, ""), (3, ""), (2, "deny = [\"client\"]")] {
        let proxies = chain(&program, &server, len, None, more);
        for proxy in &proxies {
            let mut client = proxy.client(Protocol::Resp2);
            for request in
                [&["SET", "a", "1"][..], &["BLPOP", "a", "0"], &["EVAL", "return 1", "1", "a"]]
            {
                let told = why(&ask(&mut client, request));
                assert!(told.contains("LOOP this request has come through 8 proxies"), "{told}");
            }
        }
    }
}

#[test]
fn proxies_one_behind_the_other_serve() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let proxies = chain(&program, &server, 8, Some(server.port()), "");
    let mut client = proxies[0].client(Protocol::Resp3);
    assert_eq!(ask(&mut client, &["SET", "a", "1"]), okay());
    assert_eq!(text(&ask(&mut client, &["GET", "a"])), "1");
    assert_eq!(ask(&mut client, &["MULTI"]), okay());
    assert_eq!(text(&ask(&mut client, &["INCR", "a"])), "QUEUED");
    assert_eq!(ask(&mut client, &["EXEC"]), Reply::Array(vec![Reply::Integer(2)]));
    // Clients of the last one, and of those before it, do not share a connection to the server.
    let mut near = proxies[7].client(Protocol::Resp3);
    assert_eq!(text(&ask(&mut near, &["GET", "a"])), "2");
    let clients = text(&ask(&mut server.client(), &["CLIENT", "LIST"]));
    let named = |end: &str| clients.lines().filter(|line| line.contains(end)).count();
    assert!(clients.contains("-7 ") && named(" name=dunlin-proxy-") >= 2, "{clients}");
}

#[test]
fn connections_to_a_server_are_bounded_whatever_databases_are_used() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &["--databases", "400"]);
    let proxy = single(&program, &server, "", "");
    let mut client = proxy.client(Protocol::Resp2);
    let databases: Vec<String> = (0..300).map(|db| db.to_string()).collect();
    for db in databases.iter().chain(&databases) {
        assert_eq!(ask(&mut client, &["SELECT", db]), okay());
        assert_eq!(ask(&mut client, &["SET", "key", db]), okay());
        assert_eq!(text(&ask(&mut client, &["GET", "key"])), *db);
    }
    let mut direct = server.client();
    let clients = text(&ask(&mut direct, &["CLIENT", "LIST"]));
    // One thread serves the client.
    assert!(clients.lines().count() <= 64 + 2, "{}", clients.lines().count());
    assert!(clients.contains(" name=dunlin-proxy-"), "{clients}");
    for db in &databases {
        assert_eq!(ask(&mut direct, &["SELECT", db]), okay());
        assert_eq!(text(&ask(&mut direct, &["GET", "key"])), *db);
    }
}

#[test]
fn half_requests_leave_connections_to_others() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let proxy = single(&program, &server, "", "max_exclusive = 4");
    let value = "v".repeat(100_000);
    let mut halves: Vec<(Client, Vec<u8>)> = (0..20)
        .map(|at| {
            let mut client = proxy.client(Protocol::Resp2);
            let mut request = encode(&["SET", &format!("half{at}"), &value]);
            let left = request.split_off(70_000);
            client.send_raw(&request).expect("it is sent");
            (client, left)
        })
        .collect();
    // Half of the connections may be theirs.
    let mut waiting: Vec<Client> = (0..2).map(|_| proxy.client(Protocol::Resp2)).collect();
    let mut client = proxy.client(Protocol::Resp2);
    for (at, waiting) in waiting.iter_mut().enumerate() {
        let key = format!("queue{at}");
        waiting.send(&["BLPOP", &key, "0"]).expect("it is sent");
        until("it waits", || {
            text(&ask(&mut server.client(), &["INFO", "clients"]))
                .contains(&format!("blocked_clients:{}\r\n", at + 1))
        });
    }
    for (half, left) in &mut halves {
        half.send_raw(left).expect("it is sent");
        assert_eq!(half.reply().expect("a reply"), okay());
    }
    for (at, waiting) in waiting.iter_mut().enumerate() {
        assert_eq!(ask(&mut client, &["LPUSH", &format!("queue{at}"), "x"]), Reply::Integer(1));
        assert!(!waiting.reply().expect("a reply").is_error());
    }
    for at in 0..20 {
        let len = ask(&mut client, &["STRLEN", &format!("half{at}")]);
        assert_eq!(len, Reply::Integer(100_000));
    }
}

#[test]
fn replies_that_a_client_does_not_read_are_bounded() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let proxy = single(&program, &server, "", "");
    let mut client = proxy.client(Protocol::Resp2);
    let value = "v".repeat(10_000);
    let keys: Vec<String> = (0..10).map(|at| format!("key{at}")).collect();
    for key in &keys {
        assert_eq!(ask(&mut client, &["SET", key, &value]), okay());
    }
    let mut words = vec!["MGET"];
    words.extend(keys.iter().map(String::as_str));
    const REQUESTS: usize = 3000;
    let requests = encode(&words).repeat(REQUESTS);
    let before = crate::large::peak(proxy.process_id());
    let mut lazy = TcpStream::connect(proxy.address).expect("it connects");
    let mut writer = lazy.try_clone().expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&requests).expect("they are sent"));
        // Others are served, and its requests wait.
        for _ in 0..2000 {
            assert_eq!(ask(&mut client, &["STRLEN", "key0"]), Reply::Integer(10_000));
        }
        let most = crate::large::peak(proxy.process_id());
        assert!(most < before + (100 << 20), "{before} bytes before, {most} at most");
        let one = keys.len() * (value.len() + "$10000\r\n\r\n".len()) + "*10\r\n".len();
        let mut left = REQUESTS * one;
        let mut buffer = vec![0; 1 << 20];
        while left > 0 {
            let count = lazy.read(&mut buffer).expect("replies");
            assert!(count > 0, "{left} bytes are missing");
            left -= count;
        }
    });
}

#[test]
fn a_password_that_the_server_has_changed_is_told() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &["--databases", "20"]);
    let proxy = single(&program, &server, "", "");
    let mut client = proxy.client(Protocol::Resp2);
    assert_eq!(ask(&mut client, &["SET", "key", "x"]), okay());
    assert_eq!(ask(&mut client, &["CONFIG", "SET", "requirepass", "new"]), okay());
    // The connections that there are go on, others are not let in.
    assert_eq!(text(&ask(&mut client, &["GET", "key"])), "x");
    let told = why(&ask(&mut client, &["SELECT", "1"]));
    assert!(told.contains("NOAUTH") && told.contains("SIGHUP"), "{told}");
    let config = std::fs::read_to_string(&proxy.file).expect("a file") + "password = \"new\"\n";
    std::fs::write(&proxy.file, config).expect("a file");
    harness::server::signal(proxy.process_id(), "HUP").expect("it runs");
    until("the proxy logs in", || !ask(&mut client, &["SELECT", "1"]).is_error());
    assert_eq!(ask(&mut client, &["GET", "key"]), Reply::Nil);
    assert_eq!(ask(&mut client, &["SELECT", "0"]), okay());
    assert_eq!(text(&ask(&mut client, &["GET", "key"])), "x");
}

#[test]
fn a_proxy_header_is_whole_and_comes_in_time() {
    if !Program::under_test().is_dunlin() {
        return;
    }
    let program = Program::under_test();
    let server = server(&program, &[]);
    let proxy = single(&program, &server, "", "proxy_protocol = true");
    let connect = |header: &[u8]| {
        let mut stream = TcpStream::connect(proxy.address).expect("it connects");
        stream.write_all(header).expect("it is sent");
        stream.write_all(b"PING\r\n").expect("it is sent");
        stream
    };
    let header = |bytes: &[u8]| {
        let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0".to_vec();
        header.push(bytes.len() as u8);
        header.extend_from_slice(bytes);
        header
    };
    let mut whole = connect(&header(&[10, 0, 0, 1, 10, 0, 0, 2, 0x15, 0xb3, 0x18, 0xeb]));
    let mut pong = [0; 7];
    whole.read_exact(&mut pong).expect("a reply");
    assert_eq!(&pong, b"+PONG\r\n");
    assert!(rest(&mut connect(&header(&[10, 0, 0, 1]))).is_empty());
    // The rest of a header that never comes is not waited for.
    let mut half = TcpStream::connect(proxy.address).expect("it connects");
    half.write_all(b"PROXY TCP4").expect("it is sent");
    assert!(rest(&mut half).is_empty());
    until("the log says so", || proxy.log().contains("no PROXY header"));
}
