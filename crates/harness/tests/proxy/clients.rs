//! What one client asks of the others: CLIENT LIST, KILL, UNBLOCK and PAUSE concern the clients of all
//! threads.

use crate::support::{Proxy, dunlin, in_front_of_three, okay, server, single, text, until};
use harness::client::{Client, ask};
use harness::reply::{Protocol, Reply};
use harness::server::Server;
use std::time::Duration;

/// Clients of both threads, by name.
fn named(proxy: &Proxy, count: usize) -> Vec<(Client, String)> {
    let client = |at: usize| {
        let mut client = proxy.client(Protocol::Resp2);
        let name = format!("client{at}");
        assert_eq!(ask(&mut client, &["CLIENT", "SETNAME", &name]), okay());
        (client, name)
    };
    (0..count).map(client).collect()
}

fn number(client: &mut Client) -> String {
    match ask(client, &["CLIENT", "ID"]) {
        Reply::Integer(number) => number.to_string(),
        other => panic!("{other:?} is no number"),
    }
}

fn until_blocked(server: &Server, count: usize) {
    let line = format!("blocked_clients:{count}\r\n");
    until("they wait", || text(&ask(&mut server.client(), &["INFO", "clients"])).contains(&line));
}

fn error(reply: Reply) -> String {
    match reply {
        Reply::Error(why) => String::from_utf8_lossy(&why).into_owned(),
        other => panic!("{other:?} is no error"),
    }
}

#[test]
fn clients_of_all_threads_are_listed_and_closed() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    let mut clients = named(&proxy, 8);
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut asker = proxy.client(protocol);
        let all = text(&ask(&mut asker, &["CLIENT", "LIST"]));
        for (_, name) in &clients {
            assert!(all.contains(&format!(" name={name} ")), "{all}");
        }
        let one = number(&mut clients[3].0);
        let some = text(&ask(&mut asker, &["CLIENT", "LIST", "ID", &one]));
        assert!(some.lines().count() == 1 && some.contains(" name=client3 "), "{some}");
    }
    let (mut asker, _) = clients.remove(0);
    assert_eq!(ask(&mut asker, &["CLIENT", "KILL", "NAME", "client5"]), Reply::Integer(1));
    let five = clients.iter().position(|(_, name)| name == "client5").expect("it is there");
    assert!(clients.remove(five).0.reply().is_err());
    assert_eq!(ask(&mut asker, &["CLIENT", "KILL", "NAME", "client5"]), Reply::Integer(0));
    let info = text(&ask(&mut clients[0].0, &["CLIENT", "INFO"]));
    let address = info.split(' ').find_map(|word| word.strip_prefix("addr=")).expect("an address");
    assert_eq!(ask(&mut asker, &["CLIENT", "KILL", address]), okay());
    assert!(clients.remove(0).0.reply().is_err());
    assert_eq!(error(ask(&mut asker, &["CLIENT", "KILL", address])), "ERR No such client");
    assert_eq!(
        error(ask(&mut asker, &["CLIENT", "KILL", "USER", "bob"])),
        "ERR No such user 'bob'"
    );
    // All others, and not the one that asks.
    let left = clients.len() as i64;
    assert_eq!(ask(&mut asker, &["CLIENT", "KILL", "TYPE", "normal"]), Reply::Integer(left));
    assert!(clients.iter_mut().all(|(client, _)| client.reply().is_err()));
    // The one that asks has its reply before it is closed.
    let own = number(&mut asker);
    let itself = ["CLIENT", "KILL", "ID", &own, "SKIPME", "no"];
    assert_eq!(ask(&mut asker, &itself), Reply::Integer(1));
    assert!(asker.reply().is_err());
}

#[test]
fn a_client_that_waits_is_unblocked_by_another() {
    let Some(program) = dunlin() else { return };
    let server = server(&program, &[]);
    let proxy = single(&program, &server, "", "");
    let mut asker = proxy.client(Protocol::Resp2);
    for _ in 0..3 {
        let mut waiting = proxy.client(Protocol::Resp2);
        let number = number(&mut waiting);
        assert_eq!(ask(&mut asker, &["CLIENT", "UNBLOCK", &number]), Reply::Integer(0));
        for word in [None, Some("TIMEOUT"), Some("ERROR")] {
            waiting.send(&["BLPOP", "queue", "0"]).expect("it is sent");
            until_blocked(&server, 1);
            let mut words = vec!["CLIENT", "UNBLOCK", &number];
            words.extend(word);
            assert_eq!(ask(&mut asker, &words[..]), Reply::Integer(1));
            let reply = waiting.reply().expect("a reply");
            match word {
                Some("ERROR") => assert!(error(reply).starts_with("UNBLOCKED")),
                _ => assert_eq!(reply, Reply::NilArray),
            }
            // What is pushed now is for others.
            assert_eq!(ask(&mut asker, &["LPUSH", "queue", "x"]), Reply::Integer(1));
            assert_eq!(text(&ask(&mut waiting, &["LPOP", "queue"])), "x");
        }
    }
}

#[test]
fn a_pause_holds_the_clients_of_all_threads() {
    let Some((_servers, proxy)) = in_front_of_three("") else { return };
    let mut asker = proxy.client(Protocol::Resp2);
    let mut clients = named(&proxy, 6);
    assert_eq!(ask(&mut asker, &["CLIENT", "PAUSE", "600000", "WRITE"]), okay());
    for (client, name) in &mut clients {
        // Reads go on, writes wait.
        assert_eq!(ask(client, &["EXISTS", name]), Reply::Integer(0));
        client.send(&["INCR", name]).expect("it is sent");
    }
    for (_, name) in clients.iter().cycle().take(200) {
        assert_eq!(ask(&mut asker, &["EXISTS", name]), Reply::Integer(0), "{name}");
    }
    assert_eq!(ask(&mut asker, &["CLIENT", "UNPAUSE"]), okay());
    for (client, _) in &mut clients {
        assert_eq!(client.reply().expect("a reply"), Reply::Integer(1));
    }
    // A pause of all requests ends by itself.
    let began = std::time::Instant::now();
    assert_eq!(ask(&mut asker, &["CLIENT", "PAUSE", "300"]), okay());
    for (client, name) in &mut clients {
        assert_eq!(text(&ask(client, &["GET", name])), "1");
    }
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(ask(&mut asker, &["CLIENT", "PAUSE", "x"]).is_error());
}
