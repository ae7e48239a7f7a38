//! Commands of a module that Valkeys behind the proxy have loaded.

use crate::support::{Proxy, dunlin, okay, text, until};
use harness::client::{Client, ask};
use harness::environment::skipped;
use harness::reply::{Protocol, Reply};
use harness::server::{Options, Program, Server};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Three Valkeys that can load the module, a proxy in front of them, and the module's path as they
/// see it.
fn servers() -> Option<(Vec<Server>, Proxy, PathBuf)> {
    let program = dunlin()?;
    let reference = Program::reference_or_skip()?;
    let options = Options::arguments(&["--enable-module-command", "yes"]);
    let start = |_| Server::start(&reference, options.clone()).expect("it starts");
    let servers: Vec<Server> = (0..3).map(start).collect();
    let module = servers[0].directory().join("shelf.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proxy/shelf.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&module);
    let done = compiler.arg(&source).status();
    let done = done.inspect_err(|why| skipped(format_args!("no C compiler: {why}"))).ok()?;
    assert!(done.success(), "the module is not compiled");
    let proxy = Proxy::start(&program, &servers, "");
    Some((servers, proxy, reference.inside(&module)))
}

#[test]
fn commands_of_modules_go_where_their_keys_are() {
    let Some((servers, proxy, module)) = servers() else { return };
    let mut client = proxy.client(Protocol::Resp2);
    let reply = ask(&mut client, &["SHELF.PUT", "early", "1"]);
    assert!(reply.shown().contains("unknown command"), "{reply:?}");
    let path = module.to_str().expect("a path in letters");
    for server in &servers {
        assert_eq!(ask(&mut server.client(), &["MODULE", "LOAD", path]), okay());
    }
    // That it is unknown is not believed for long.
    until("the module is known", || ask(&mut client, &["SHELF.PUT", "first", "1"]) == okay());
    for key in (0..30).map(|number| format!("key{number}")) {
        assert_eq!(ask(&mut client, &["shelf.put", &key, &key]), okay());
        assert_eq!(text(&ask(&mut client, &["GET", &key])), key);
        assert_eq!(text(&ask(&mut client, &["SHELF.TAKE", &key])), key);
        let len = Reply::Integer(key.len() as i64);
        assert_eq!(ask(&mut client, &["SHELF.AT", "LEN", &key]), len);
    }
    let sizes = servers.iter().map(|server| ask(&mut server.client(), &["DBSIZE"]));
    assert!(sizes.into_iter().all(|size| size != Reply::Integer(0)));
    // One that waits holds up no others.
    let mut waiting: Vec<Client> = (0..6).map(|_| proxy.client(Protocol::Resp2)).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        client.send(&["SHELF.WAIT", &format!("key{number}")]).expect("it is sent");
    }
    let mut others: Vec<Client> = (0..2).map(|_| proxy.client(Protocol::Resp2)).collect();
    for other in &mut others {
        for key in (0..30).map(|number| format!("key{number}")) {
            assert_eq!(text(&ask(other, &["SHELF.TAKE", &key])), key);
        }
    }
    let is_waiting = |client: &mut Client| !client.has_data().expect("it is connected");
    assert!(waiting.iter_mut().any(is_waiting), "others waited for those that wait");
    for client in &mut waiting {
        assert_eq!(text(&client.reply().expect("a reply")), "waited");
    }
}
