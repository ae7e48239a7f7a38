//! A proxy in front of servers.

pub use harness::proxy::{Proxy, yml};
use harness::reply::Reply;
use harness::server::{Options, Program, Server, free_port, signal};
pub use harness::wait::eventually as until;

/// The program under test; `None` if it is another server's, which has no proxy.
pub fn dunlin() -> Option<Program> {
    let program = Program::under_test();
    program.is_dunlin().then_some(program)
}

/// Three servers and a proxy in front of them; `more` is added to its pool.
pub fn in_front_of_three(more: &str) -> Option<(Vec<Server>, Proxy)> {
    let program = dunlin()?;
    let servers = servers(&program);
    let proxy = Proxy::start(&program, &servers, more);
    Some((servers, proxy))
}

/// Three servers.
pub fn servers(program: &Program) -> Vec<Server> {
    (0..3).map(|_| server(program, &[])).collect()
}

/// A server with more arguments.
pub fn server(program: &Program, more: &[&str]) -> Server {
    let mut arguments = vec!["--io-threads", "1"];
    arguments.extend(more);
    Server::start(program, Options::arguments(&arguments)).expect("it starts")
}

/// A proxy in front of one server, by the own form of configuration: lines for all, and lines of the
/// pool.
pub fn single(program: &Program, server: &Server, all: &str, pool: &str) -> Proxy {
    let file = server.directory().join("proxy.toml");
    let port = free_port().expect("a port");
    let config = format!(
        "{all}\n[pool.main]\nkind = \"single\"\nlisten = [\"127.0.0.1:{port}\"]\n\
         server = \"127.0.0.1:{}\"\n{pool}\n",
        server.port()
    );
    Proxy::run(program, &file, port, &config)
}

/// Stops a process, and waits until all its threads stand.
pub fn stop(process_id: u32) {
    signal(process_id, "STOP").expect("it stops");
    let stands = |stat: String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'));
    until("all threads stand", || {
        let tasks = std::fs::read_dir(format!("/proc/{process_id}/task")).expect("it runs");
        tasks
            .flatten()
            .all(|task| std::fs::read_to_string(task.path().join("stat")).map_or(true, stands))
    });
}

/// `+OK`
pub fn okay() -> Reply {
    Reply::Simple(b"OK".to_vec())
}

/// A reply's text.
pub fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned()
}
