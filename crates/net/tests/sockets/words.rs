//! Long words, which are received into blocks of their own: at first out of the back-end's buffers,
//! then straight from the socket. On both back-ends.
#![allow(clippy::unwrap_used)] // A test's helpers are tests.

use crate::support::{Message, Peer, Server, digest};
use net::{Backend, Close};
use std::io::Write;

crate::on_both!(
    words_arrive_in_any_pieces,
    words_of_many_peers_arrive_beside_short_requests,
    a_word_waits_while_its_connection_is_paused,
    a_word_waits_for_a_request_that_cannot_run,
    a_peer_that_leaves_in_a_word_is_noticed,
    an_announced_word_is_given_up_with_its_connection,
);

fn word(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 5 + at % 253 + seed) as u8).collect()
}

/// A request with this word.
fn request(word: &[u8]) -> Vec<u8> {
    [format!("@{}\n", word.len()).as_bytes(), word, b"\n"].concat()
}

/// Requests with words of many lengths, and what is answered.
fn requests(lens: &[usize]) -> (Vec<u8>, Vec<String>) {
    let (mut bytes, mut answers) = (Vec::new(), Vec::new());
    for (number, len) in lens.iter().enumerate() {
        let word = word(number, *len);
        bytes.extend(request(&word));
        answers.push(digest(&word).to_string());
        // Some are followed by another word at once, some by so many short requests that the
        // connection is read in the usual way again.
        for short in 0..[0, 0, 1, 30][number % 4] {
            bytes.extend(format!("echo {short}\n").bytes());
            answers.push(short.to_string());
        }
    }
    (bytes, answers)
}

fn send_in_pieces(peer: &Peer, bytes: Vec<u8>, piece: usize) -> std::thread::JoinHandle<()> {
    let mut writer = peer.tcp().try_clone().unwrap();
    std::thread::spawn(move || {
        bytes.chunks(piece).for_each(|part| writer.write_all(part).unwrap());
    })
}

fn words_arrive_in_any_pieces(backend: Backend) {
    let server = Server::start(backend, 1);
    let lens = [65_536, 100, 70_000, 65_537, 3, 300_000, 2_000_000, 65_536, 16_384, 1_500_000];
    let (bytes, answers) = requests(&[lens, lens].concat());
    for piece in [997, 2047, 2048, 2049, 16_384, 65_543, 1 << 20, usize::MAX] {
        let mut peer = server.connect();
        let sender = send_in_pieces(&peer, bytes.clone(), piece);
        for answer in &answers {
            assert_eq!(peer.line(), *answer, "in pieces of {piece}");
        }
        sender.join().unwrap();
    }
    // The second word of a connection is read directly. It is cut at each place around its ends.
    let (mut peer, mut witness) = (server.connect(), server.connect());
    let (long, first) = (word(9, 65_536), word(8, 65_536));
    let bytes = [request(&long), b"echo last\n".to_vec()].concat();
    let header = "@65536\n".len();
    let places = (0..header + 3).chain(header + 65_534..bytes.len());
    for at in places.chain([header + 2048, header + 2049, header + 40_000]) {
        peer.tcp().write_all(&request(&first)).unwrap();
        assert_eq!(peer.line(), digest(&first).to_string());
        peer.tcp().write_all(&bytes[..at]).unwrap();
        // The same thread answers the witness after it has seen the first part.
        assert_eq!(witness.ask("echo sync"), "sync");
        peer.tcp().write_all(&bytes[at..]).unwrap();
        assert_eq!([peer.line(), peer.line()], [digest(&long).to_string(), "last".to_owned()]);
    }
}

fn words_of_many_peers_arrive_beside_short_requests(backend: Backend) {
    let server = Server::start(backend, 2);
    let mut peers: Vec<Peer> = (0..20).map(|_| server.connect()).collect();
    let (bytes, answers) = requests(&[3_000_000, 65_536, 200_000, 1_000_000]);
    let sent = |peer: &Peer| send_in_pieces(peer, bytes.clone(), 100_000);
    let senders: Vec<_> = peers.iter().map(sent).collect();
    let mut small = server.connect();
    for number in 0..200 {
        assert_eq!(small.ask(&format!("echo {number}")), number.to_string());
    }
    for peer in &mut peers {
        answers.iter().for_each(|answer| assert_eq!(peer.line(), *answer));
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

fn a_word_waits_while_its_connection_is_paused(backend: Backend) {
    let server = Server::start(backend, 1);
    let (mut peer, mut witness) = (server.connect(), server.connect());
    let id = peer.id();
    let long = word(1, 500_000);
    let bytes = request(&long);
    peer.tcp().write_all(&bytes).unwrap();
    assert_eq!(peer.line(), digest(&long).to_string());
    for at in [3, 1000, 100_000, bytes.len() - 1] {
        // What is behind the pause waits, some of it in the socket.
        let begun = [b"echo before\npause\n", &bytes[..at]].concat();
        let first = send_in_pieces(&peer, begun, usize::MAX);
        assert_eq!(peer.line(), "before");
        assert_eq!(witness.ask("echo sync"), "sync");
        let rest = bytes[at..].to_vec();
        let writer = peer.tcp().try_clone().unwrap();
        let sender = std::thread::spawn(move || {
            first.join().unwrap();
            rest.chunks(4096).for_each(|part| (&writer).write_all(part).unwrap());
        });
        server.send(Message::Say(id, "still paused".to_owned()));
        assert_eq!(peer.line(), "still paused");
        server.send(Message::Resume(id));
        assert_eq!(peer.line(), digest(&long).to_string());
        sender.join().unwrap();
    }
}

fn a_word_waits_for_a_request_that_cannot_run(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut peer = server.connect();
    let long = word(2, 200_000);
    for _ in 0..3 {
        let bytes = [&request(&long)[..], b"later 100\n", &request(&long), b"echo end\n"].concat();
        let sender = send_in_pieces(&peer, bytes, 50_000);
        let sum = digest(&long).to_string();
        assert_eq!([peer.line(), peer.line(), peer.line()], [&sum[..], "after 100", &sum]);
        assert_eq!(peer.line(), "end");
        sender.join().unwrap();
    }
}

fn a_peer_that_leaves_in_a_word_is_noticed(backend: Backend) {
    let server = Server::start(backend, 1);
    let bytes = request(&word(3, 400_000));
    for at in [0, 4, 100, 65_536, 399_999, bytes.len() - 1] {
        for is_first in [true, false] {
            let mut peer = server.connect();
            let id = peer.id();
            if !is_first {
                peer.tcp().write_all(&bytes).unwrap();
                peer.line();
            }
            peer.tcp().write_all(&bytes[..at]).unwrap();
            drop(peer);
            assert_eq!(server.watch.closed(id), Close::Eof);
        }
    }
    assert_eq!(server.connect().ask("echo usual"), "usual");
}

fn an_announced_word_is_given_up_with_its_connection(backend: Backend) {
    let server = Server::start(backend, 1);
    let mut peer = server.connect();
    let id = peer.id();
    let long = word(4, 100_000);
    peer.tcp().write_all(&request(&long)).unwrap();
    assert_eq!(peer.line(), digest(&long).to_string());
    peer.tcp().write_all(&request(&long)[..50_000]).unwrap();
    server.send(Message::Hang(id));
    assert_eq!(server.watch.closed(id), Close::Asked);
    assert!(peer.ended());
}
