//! The reactor from the outside: everything a peer can do to it, on both back-ends.
#![allow(clippy::unwrap_used)] // A test's helpers are tests.

use crate::support::{Message, Note, Peer, Server};
use net::{Backend, Close, ConnId, Kind, ListenSpec, NetOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

crate::on_both!(
    requests_are_answered_in_order,
    a_request_may_arrive_in_any_pieces,
    a_large_request_arrives_whole,
    an_announcement_costs_no_memory,
    a_paused_connection_waits_and_loses_nothing,
    a_paused_peer_that_leaves_is_noticed,
    a_flood_to_a_paused_connection_is_stopped,
    the_last_reply_is_sent_before_closing,
    closing_at_once_drops_output,
    a_peer_that_does_not_read_yet_is_served,
    half_closing_is_answered_first,
    a_reset_ends_one_connection_only,
    garbage_and_fragments_disturb_nobody,
    a_retried_request_runs_later,
    messages_from_other_threads_arrive,
    connections_reach_each_other,
    a_stale_id_names_nobody,
    connections_are_spread_evenly,
    those_that_leave_at_once_make_way_for_others,
    many_requests_at_once_find_buffers,
    held_replies_leave_in_order_whenever_they_are_released,
    a_held_reply_is_sent_before_closing,
    many_replies_that_are_released_at_once_all_leave,
    nothing_is_sent_for_who_has_gone,
    busy_threads_wait_for_several_requests,
    unix_sockets_work,
    listeners_change_at_run_time,
    stopping_closes_everything,
);

fn requests_are_answered_in_order(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut peer = server.connect();
    let mut text = String::new();
    for n in 0..20_000 {
        text.push_str(&format!("echo {n}\n"));
    }
    let mut writer = peer.tcp().try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(text.as_bytes()).unwrap());
    for n in 0..20_000 {
        assert_eq!(peer.line(), n.to_string());
    }
    sender.join().unwrap();
}

fn a_request_may_arrive_in_any_pieces(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut witness = server.connect();
    let mut peer = server.connect();
    let text = "echo first\n$5\n\x01\x01\x01\x01\x01echo last\n";
    for at in 0..=text.len() {
        peer.say(&text[..at]);
        // The same thread answers the witness after it has seen the first part.
        assert_eq!(witness.ask("echo sync"), "sync");
        peer.say(&text[at..]);
        assert_eq!([peer.line(), peer.line(), peer.line()], ["first", "5", "last"]);
    }
    for byte in text.split_inclusive(|_| true) {
        peer.say(byte);
        assert_eq!(witness.ask("echo sync"), "sync");
    }
    assert_eq!([peer.line(), peer.line(), peer.line()], ["first", "5", "last"]);
}

fn a_large_request_arrives_whole(backend: Backend) {
    const LEN: usize = 40 << 20;
    let server = Server::start(backend, 1);
    let mut peer = server.connect();
    let id = peer.id();
    let mut writer = peer.tcp().try_clone().unwrap();
    let sender = std::thread::spawn(move || {
        writer.write_all(format!("${LEN}\n").as_bytes()).unwrap();
        let block = vec![1u8; 1 << 20];
        for _ in 0..LEN / block.len() {
            writer.write_all(&block).unwrap();
        }
        writer.write_all(b"echo next\n").unwrap();
    });
    assert_eq!(peer.line(), LEN.to_string());
    assert_eq!(peer.line(), "next");
    sender.join().unwrap();
    let memory: usize = server.connect().ask(&format!("memory {}", id.as_u64())).parse().unwrap();
    assert!(memory < 4096, "{memory} bytes are kept when idle");
}

fn an_announcement_costs_no_memory(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut peer = server.connect();
    let id = peer.id();
    peer.say("$536870912\nonly this");
    let memory: usize = server.connect().ask(&format!("memory {}", id.as_u64())).parse().unwrap();
    assert!(memory < 64 << 10, "{memory} bytes for an announcement");
}

fn a_paused_connection_waits_and_loses_nothing(backend: Backend) {
    let server = Server::start(backend, 1);
    let (mut peer, mut witness) = (server.connect(), server.connect());
    let id = peer.id();
    peer.say("echo before\npause\necho behind\n");
    assert_eq!(peer.line(), "before");
    peer.say("echo more\n");
    assert_eq!(witness.ask("echo sync"), "sync");
    server.send(Message::Say(id, "still paused".to_owned()));
    assert_eq!(peer.line(), "still paused");
    server.send(Message::Resume(id));
    assert_eq!([peer.line(), peer.line()], ["behind", "more"]);
    assert_eq!(peer.ask("echo usual"), "usual");
}

fn a_paused_peer_that_leaves_is_noticed(backend: Backend) {
    let server = Server::start(backend, 1);
    for flood in [false, true] {
        let mut peer = server.connect();
        let id = peer.id();
        peer.say("pause\n");
        if flood {
            // Enough that the socket is no longer read, and little enough to fit the kernel's
            // buffers: the end of a stream that is stopped before its end cannot be seen.
            peer.say(&"x".repeat(100 << 10));
        }
        peer.tcp().shutdown(Shutdown::Both).unwrap();
        drop(peer);
        let why = server.watch.closed(id);
        assert!(matches!(why, Close::Eof | Close::Failed(_)), "{why:?}");
    }
}

/// Sends until the other side takes no more; how many lines that were.
fn fill(peer: &mut Peer) -> usize {
    peer.tcp().set_nonblocking(true).unwrap();
    let line = b"echo 0123456789012345678901234567890123456789012345678901234567\n";
    let mut bytes = 0;
    let mut idle = 0;
    while idle < 20 {
        let rest = &line[bytes % line.len()..];
        match peer.stream.get_mut().write(rest) {
            Ok(n) => {
                bytes += n;
                idle = 0;
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                // There is no event for "will not be read": a pause that is too short makes the
                // test weaker, not wrong.
                std::thread::sleep(Duration::from_millis(5));
                idle += 1;
            }
            Err(e) => panic!("{e}"),
        }
        assert!(bytes < 256 << 20, "nothing stops the flood");
    }
    peer.tcp().set_nonblocking(false).unwrap();
    let rest = &line[bytes % line.len()..];
    if rest.len() < line.len() {
        bytes += rest.len();
        let mut writer = peer.tcp().try_clone().unwrap();
        let rest = rest.to_vec();
        std::thread::spawn(move || writer.write_all(&rest));
    }
    bytes / line.len()
}

fn a_flood_to_a_paused_connection_is_stopped(backend: Backend) {
    let server = Server::start(backend, 1);
    let (mut peer, mut witness) = (server.connect(), server.connect());
    let id = peer.id();
    peer.say("pause\n");
    let lines = fill(&mut peer);
    let memory: usize = witness.ask(&format!("memory {}", id.as_u64())).parse().unwrap();
    assert!(memory < 2 << 20, "{memory} bytes for {lines} lines");
    server.send(Message::Resume(id));
    for _ in 0..lines {
        assert_eq!(peer.line().len(), 58);
    }
    assert_eq!(peer.ask("echo usual"), "usual");
}

fn the_last_reply_is_sent_before_closing(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut peer = server.connect();
    let id = peer.id();
    peer.say("big 8000000\nquit\necho never\n");
    let mut all = Vec::new();
    peer.stream.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 8_000_001 + 4);
    assert!(all.ends_with(b"x\nbye\n"));
    assert_eq!(server.watch.closed(id), Close::Asked);
}

fn closing_at_once_drops_output(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut peer = server.connect();
    let id = peer.id();
    peer.say("echo lost\nhang\n");
    assert!(peer.ended());
    assert_eq!(server.watch.closed(id), Close::Asked);
}

/// It may be one that sends all its requests before it reads the first reply.
fn a_peer_that_does_not_read_yet_is_served(backend: Backend) {
    const REQUESTS: usize = 300;
    let server = Server::start(backend, 1);
    let (mut peer, mut witness) = (server.connect(), server.connect());
    let id = peer.id();
    // Three times 30 MB: more than the sockets of both sides hold.
    for _ in 0..REQUESTS {
        peer.say("big 100000\nbig 100000\nbig 100000\n");
        assert_eq!(witness.ask("echo others are served"), "others are served");
    }
    let memory: usize = witness.ask(&format!("memory {}", id.as_u64())).parse().unwrap();
    assert!(memory > 40 << 20, "only {memory} bytes of replies wait");
    for _ in 0..3 * REQUESTS {
        assert_eq!(peer.line().len(), 100_000);
    }
    assert_eq!(peer.ask("echo usual"), "usual");
    let memory: usize = witness.ask(&format!("memory {}", id.as_u64())).parse().unwrap();
    assert_eq!(memory, 0, "all has been sent");
}

fn half_closing_is_answered_first(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut peer = server.connect();
    let id = peer.id();
    peer.say("big 5000000\nbig 5000000\nbig 5000000\nlater 3\necho end\n");
    peer.tcp().shutdown(Shutdown::Write).unwrap();
    for _ in 0..3 {
        assert_eq!(peer.line().len(), 5_000_000);
    }
    assert_eq!([peer.line(), peer.line()], ["after 3", "end"]);
    assert!(peer.ended());
    assert_eq!(server.watch.closed(id), Close::Eof);
}

fn a_reset_ends_one_connection_only(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut other = server.connect();
    for round in 0..20 {
        let mut peer = server.connect();
        let id = peer.id();
        // Unread replies make closing a reset; so does unfinished business of either kind.
        peer.say(["big 3000000\n", "$1000\nhalf", "later 5\n", "pause\n"][round % 4]);
        drop(peer);
        let why = server.watch.closed(id);
        assert!(matches!(why, Close::Eof | Close::Failed(_)), "{why:?}");
        assert_eq!(other.ask("echo alive"), "alive");
    }
}

fn garbage_and_fragments_disturb_nobody(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut other = server.connect();
    let mut noisy: Vec<_> = (0..50).map(|_| server.connect()).collect();
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for peer in &mut noisy {
        let noise: Vec<u8> = (0..500)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // No digit: nothing may turn into a request for much.
                (state as u8) | 0x80
            })
            .collect();
        peer.stream.get_mut().write_all(&noise).unwrap();
        assert_eq!(other.ask("echo alive"), "alive");
    }
    for mut peer in noisy {
        assert_eq!(peer.ask(""), "what?");
    }
}

fn a_retried_request_runs_later(backend: Backend) {
    let server = Server::start(backend, 1);
    let (mut peer, mut other) = (server.connect(), server.connect());
    assert_eq!(peer.ask("later 10"), "after 10");
    // Many in a pipeline, with arrivals while they wait.
    peer.say("later 200\necho one\nlater 2\n").say("echo two\n");
    assert_eq!(other.ask("echo meanwhile"), "meanwhile");
    assert_eq!(
        [peer.line(), peer.line(), peer.line(), peer.line()],
        ["after 200", "one", "after 2", "two"]
    );
}

fn messages_from_other_threads_arrive(backend: Backend) {
    let server = Server::start(backend, 2);
    let mut peers: Vec<_> = (0..8).map(|_| server.connect()).collect();
    let ids: Vec<ConnId> = peers.iter_mut().map(Peer::id).collect();
    std::thread::scope(|scope| {
        for sender in 0..4 {
            let (server, ids) = (&server, &ids);
            scope.spawn(move || {
                for n in 0..200 {
                    for id in ids {
                        server.send(Message::Say(*id, format!("{sender} {n}")));
                    }
                }
            });
        }
    });
    for peer in &mut peers {
        let mut next = [0; 4];
        for _ in 0..800 {
            let line = peer.line();
            let (sender, n) = line.split_once(' ').unwrap();
            let next = &mut next[sender.parse::<usize>().unwrap()];
            assert_eq!(n.parse::<usize>().unwrap(), *next, "in the order they were sent");
            *next += 1;
        }
    }
    server.send(Message::Hang(ids[0]));
    assert!(peers[0].ended());
    assert_eq!(server.watch.closed(ids[0]), Close::Asked);
}

/// Releases what has been written, once, until it is dropped.
struct Releaser {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Releaser {
    fn start(server: &Server) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (net, watch, over) = (server.net.clone(), server.watch.clone(), ends.clone());
        let thread = std::thread::spawn(move || {
            let mut released = 0;
            for round in 0_u32.. {
                let written = watch.written.load(SeqCst);
                // Sometimes as fast as it can, sometimes after the reactor has gone to sleep.
                if round.is_multiple_of(3) {
                    std::thread::sleep(Duration::from_micros(u64::from(round % 64)));
                }
                // No thread comes back to what was forgotten.
                if written != released {
                    net.release(written);
                    released = written;
                }
                if over.load(SeqCst) {
                    return;
                }
            }
        });
        Self { ends, thread: Some(thread) }
    }
}

fn release_what_is_written(server: &Server) {
    server.net.release(server.watch.written.load(SeqCst));
}

impl Drop for Releaser {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn held_replies_leave_in_order_whenever_they_are_released(backend: Backend) {
    // Where there is only one, no other release makes up for one that was missed.
    for peers in [6, 1] {
        let server = Server::start(backend, 2);
        let _releaser = Releaser::start(&server);
        std::thread::scope(|scope| {
            for number in 0..peers {
                let server = &server;
                scope.spawn(move || hold_again_and_again(&mut server.connect(), number));
            }
        });
    }
}

fn hold_again_and_again(peer: &mut Peer, number: u32) {
    for n in 0..3000 {
        // One at a time, several in a pipeline, and something that is not held behind.
        match (n + number) % 4 {
            0 | 1 => drop(peer.say(&format!("hold {n}\n"))),
            2 => {
                peer.say(&format!("hold a\nhold b\necho {n}\n"));
                assert_eq!([peer.line(), peer.line()], ["a", "b"]);
            }
            _ if n % 16 < 4 => {
                // Too large to be sent by the thread that releases it.
                peer.say(&format!("big 20000\nhold {n}\n"));
                assert_eq!(peer.line().len(), 20_000);
            }
            _ => {
                peer.say("hold a\n");
                peer.say("echo b\n");
                peer.say(&format!("hold {n}\n"));
                assert_eq!([peer.line(), peer.line()], ["a", "b"]);
            }
        }
        assert_eq!(peer.line(), n.to_string(), "of peer {number}");
    }
}

fn many_replies_that_are_released_at_once_all_leave(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut peers: Vec<_> = (0..200).map(|_| server.connect()).collect();
    for round in 0..5 {
        for peer in &mut peers {
            peer.say(&format!("hold {round}\n"));
        }
        server.watch.until(|_| {
            let all = (round + 1) * peers.len() as u64;
            (server.watch.written.load(SeqCst) == all).then_some(())
        });
        release_what_is_written(&server);
        for peer in &mut peers {
            assert_eq!(peer.line(), round.to_string());
        }
    }
}

fn a_held_reply_is_sent_before_closing(backend: Backend) {
    let server = Server::start(backend, 1);
    for _ in 0..50 {
        let mut peer = server.connect();
        let id = peer.id();
        peer.say("hold first\n");
        // It has been handed over when the reactor comes to this.
        let mut other = server.connect();
        assert_eq!(other.ask("echo a"), "a");
        peer.say("echo second\nquit\n");
        assert_eq!(other.ask("echo b"), "b");
        release_what_is_written(&server);
        assert_eq!([peer.line(), peer.line(), peer.line()], ["first", "second", "bye"]);
        assert!(peer.ended());
        assert_eq!(server.watch.closed(id), Close::Asked);
        let mut peer = server.connect();
        peer.id();
        peer.say("hold last\nquit\n");
        assert_eq!(other.ask("echo c"), "c");
        release_what_is_written(&server);
        assert_eq!([peer.line(), peer.line()], ["last", "bye"]);
        assert!(peer.ended());
    }
}

fn nothing_is_sent_for_who_has_gone(backend: Backend) {
    let server = Server::start(backend, 1);
    for _ in 0..50 {
        let mut peer = server.connect();
        let id = peer.id();
        peer.say("hold never\n");
        let mut other = server.connect();
        assert_eq!(other.ask("echo a"), "a");
        server.send(Message::Hang(id));
        assert!(peer.ended(), "closing does not wait for a release");
        // The next one gets the descriptor, and not the reply.
        let mut next = server.connect();
        release_what_is_written(&server);
        assert_eq!(next.ask("echo b"), "b");
    }
}

fn connections_reach_each_other(backend: Backend) {
    let server = Server::start(backend, 1);
    let (mut one, mut two) = (server.connect(), server.connect());
    let id = two.id();
    one.say(&format!("tell {} hello there\n", id.as_u64()));
    assert_eq!(two.line(), "hello there");
    // Even one that is paused.
    two.say("pause\n");
    one.say(&format!("tell {} hello again\n", id.as_u64()));
    assert_eq!(two.line(), "hello again");
}

fn a_stale_id_names_nobody(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut peer = server.connect();
    let old = peer.id();
    drop(peer);
    server.watch.closed(old);
    // The slot is used again, under another name.
    let mut peer = server.connect();
    let new = peer.id();
    assert_eq!(new.as_u64() & 0xff_ffff, old.as_u64() & 0xff_ffff);
    assert_ne!(new, old);
    assert_eq!(peer.ask(&format!("tell {} hello", old.as_u64())), "nobody");
    server.send(Message::Hang(old));
    assert_eq!(peer.ask("echo still here"), "still here");
    assert_eq!(server.watch.lost(), 1);
}

fn connections_are_spread_evenly(backend: Backend) {
    let server = Server::start(backend, 2);
    let mut peers: Vec<_> = (0..40).map(|_| server.connect()).collect();
    let mut count = [0; 2];
    for peer in &mut peers {
        count[peer.id().thread()] += 1;
    }
    assert_eq!(count, [20, 20]);
    // Later connections fill the gaps.
    let gone: Vec<ConnId> =
        peers.iter_mut().map(Peer::id).filter(|id| id.thread() == 0).take(10).collect();
    for id in &gone {
        server.send(Message::Hang(*id));
    }
    for id in &gone {
        server.watch.closed(*id);
    }
    let mut late: Vec<_> = (0..10).map(|_| server.connect()).collect();
    assert!(late.iter_mut().all(|peer| peer.id().thread() == 0));
}

fn those_that_leave_at_once_make_way_for_others(backend: Backend) {
    const MANY: usize = 300;
    let server = Server::start(backend, 1);
    let mut old = server.connect();
    for _ in 0..3 {
        let mut peers: Vec<_> = (0..MANY).map(|_| server.connect()).collect();
        let ids: Vec<ConnId> = peers.iter_mut().map(Peer::id).collect();
        // All of these events are there when the thread looks again.
        old.say("block 100\n");
        drop(peers);
        assert_eq!(old.ask("echo between"), "between");
        for id in ids {
            assert_eq!(server.watch.closed(id), Close::Eof);
        }
    }
    // Those that the server closes see their end, each.
    let mut peers: Vec<_> = (0..MANY).map(|_| server.connect()).collect();
    assert!(peers.iter_mut().all(|peer| peer.ask("echo here") == "here"));
    old.say("block 100\n");
    for peer in &mut peers {
        peer.say("quit\n");
    }
    for peer in &mut peers {
        assert_eq!(peer.line(), "bye");
        assert!(peer.ended());
    }
    assert_eq!(old.ask("echo still here"), "still here");
}

fn many_requests_at_once_find_buffers(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut peers: Vec<_> = (0..1200).map(|_| server.connect()).collect();
    for peer in &mut peers {
        assert_eq!(peer.ask("echo ready"), "ready");
    }
    for _ in 0..2 {
        // All of these arrive while the thread is busy, more than there can be buffers.
        peers[0].say("block 300\n");
        for peer in &mut peers {
            peer.say("echo found\n");
        }
        for peer in &mut peers {
            assert_eq!(peer.line(), "found");
        }
    }
}

fn unix_sockets_work(backend: Backend) {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;
    let name = format!("dunlin-net-{}-{backend}.sock", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, "left by an earlier process").unwrap();
    let options = NetOptions { backend, ..NetOptions::default() };
    let server = Server::with(options, |_| vec![ListenSpec::unix(&path, 0o700, None)]);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mut peer = Peer::over(UnixStream::connect(&path).unwrap());
    assert_eq!(peer.ask("echo local"), "local");
    let id = peer.id();
    server.watch.until(|notes| {
        let opened = Note::Opened { id, kind: Kind::Unix, cert_name: None, local: true };
        notes.contains(&opened).then_some(())
    });
    server.net.rebind(&[]).unwrap();
    assert!(!path.exists(), "a closed listener takes its file along");
}

fn listeners_change_at_run_time(backend: Backend) {
    let server = Server::start(backend, 2);
    let before = server.addr();
    let mut old = server.connect();
    assert_eq!(old.ask("echo old"), "old");
    // A second address beside the first; then the second alone.
    let first = Server::anywhere(Kind::Tcp);
    let mut second = first.clone();
    second.address = net::Address::Tcp { host: "127.0.0.2".to_owned(), port: before.port() };
    server.net.rebind(&[first, second.clone()]).unwrap();
    assert_eq!(server.addr(), before, "what stays is not touched");
    assert_eq!(server.connect().ask("echo first"), "first");
    server.net.rebind(&[second]).unwrap();
    assert!(std::net::TcpStream::connect(before).is_err());
    for _ in 0..10 {
        assert_eq!(server.connect().ask("echo second"), "second");
    }
    assert_eq!(old.ask("echo kept"), "kept");
}

fn busy_threads_wait_for_several_requests(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut peers: Vec<_> = (0..40).map(|_| server.connect()).collect();
    let mut rounds = |at_most: u32, enough: &dyn Fn() -> bool| {
        for round in 0..at_most {
            for peer in &mut peers {
                peer.say(&format!("echo {round}\n"));
            }
            for peer in &mut peers {
                assert_eq!(peer.line(), round.to_string());
            }
            if enough() {
                break;
            }
        }
    };
    let waits = || server.net.coalesced_waits();
    rounds(20_000, &|| waits() > 10);
    assert!(waits() > 10, "forty busy connections were never waited for");
    server.net.set_coalescing_time(Duration::ZERO);
    // The turn that is under way may still be of the old kind.
    rounds(1, &|| true);
    let before = waits();
    rounds(200, &|| false);
    assert_eq!(waits(), before);
}

fn stopping_closes_everything(backend: Backend) {
    let mut server = Server::start(backend, 2);
    let mut peers: Vec<_> = (0..10).map(|_| server.connect()).collect();
    let ids: Vec<ConnId> = peers.iter_mut().map(Peer::id).collect();
    peers[0].say("pause\n");
    // One that does not read must not hold up the rest for long.
    peers[1].say("big 50000000\n");
    let address = server.addr();
    server.stop();
    for id in ids {
        assert_eq!(server.watch.closed(id), Close::Stopping);
    }
    for peer in &mut peers[2..] {
        assert!(peer.ended());
    }
    server.net.rebind(&[]).unwrap();
    assert!(std::net::TcpStream::connect(address).is_err());
}
