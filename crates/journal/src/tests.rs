//! The journal with its readers, without a server.

use crate::journal::MAX_PENDING_BYTES;
use crate::{Entry, History, IfBehind, Journal, JournalPos, NotKept, Reader};
use keyspace::DbIndex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

fn drain(reader: &mut Reader<'_>, into: &mut Vec<u8>) {
    let end = reader.readable();
    while let Some(chunk) = reader.chunk(end) {
        into.extend_from_slice(&chunk);
        reader.advance(chunk.len());
    }
    assert_eq!(reader.position(), end);
}

fn append(journal: &Journal, db: u32, words: &[&[u8]]) -> JournalPos {
    let mut entry = Entry::default();
    entry.command(DbIndex(db), words);
    journal.append(&mut entry, true)
}

#[test]
fn a_database_is_selected_where_it_changes() {
    let journal = Journal::default();
    assert!(!journal.is_recording());
    let mut reader = journal.read(IfBehind::HoldWriters);
    assert!(journal.is_recording());
    assert_eq!(journal.selected_db(), None);
    append(&journal, 0, &[b"A"]);
    append(&journal, 0, &[b"B"]);
    append(&journal, 9, &[b"C"]);
    assert_eq!(journal.selected_db(), Some(DbIndex(9)));
    append(&journal, 300, &[b"D"]);
    assert_eq!(journal.selected_db(), None);
    append(&journal, 300, &[b"E"]);
    journal.forget_db();
    let end = append(&journal, 9, &[b"F"]);
    let mut bytes = Vec::new();
    drain(&mut reader, &mut bytes);
    assert_eq!(end.0, bytes.len() as u64);
    assert_eq!(end, journal.position());
    let text = String::from_utf8(bytes).unwrap().replace("\r\n", " ");
    let select = |db: &str| format!("*2 $6 SELECT ${} {db} ", db.len());
    let one = |name: &str| format!("*1 $1 {name} ");
    let wanted = [
        select("0"),
        one("A"),
        one("B"),
        select("9"),
        one("C"),
        select("300"),
        one("D"),
        select("300"),
        one("E"),
        select("9"),
        one("F"),
    ];
    assert_eq!(text, wanted.concat());
    drop(reader);
    assert!(!journal.is_recording());
}

/// Words of a stream, one list a command.
fn parse(bytes: &[u8]) -> Vec<Vec<String>> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let mut lines = text.split("\r\n");
    let mut commands = Vec::new();
    while let Some(count) = lines.next().and_then(|line| line.strip_prefix('*')) {
        let word = |_| {
            let len = lines.next().unwrap()[1..].parse::<usize>().unwrap();
            let word = lines.next().unwrap().to_owned();
            assert_eq!(word.len(), len);
            word
        };
        commands.push((0..count.parse().unwrap()).map(word).collect());
    }
    commands
}

#[test]
fn threads_append_and_readers_see_whole_entries_in_each_threads_order() {
    const THREADS: usize = 6;
    const EACH: usize = 4000;
    let journal = Journal::default();
    let [mut first, mut second] = [0; 2].map(|_| journal.read(IfBehind::HoldWriters));
    let running = AtomicUsize::new(THREADS);
    let (first, second) = std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (journal, running) = (&journal, &running);
            scope.spawn(move || {
                let filler = "x".repeat(thread * 300);
                let mut entry = Entry::default();
                for number in 0..EACH {
                    let db = DbIndex(if number.is_multiple_of(7) { 1 } else { thread as u32 % 2 });
                    for part in ["a", "b", "c"].iter().take(1 + number % 3) {
                        let (thread, number) = (thread.to_string(), number.to_string());
                        let words = [&thread, &number, *part, &filler].map(str::as_bytes);
                        entry.command(db, &words);
                    }
                    journal.append(&mut entry, true);
                }
                running.fetch_sub(1, SeqCst);
            });
        }
        let follow = |reader: &mut Reader<'_>| {
            let mut bytes = Vec::new();
            loop {
                let is_last = running.load(SeqCst) == 0;
                drain(reader, &mut bytes);
                if is_last {
                    return bytes;
                }
                std::thread::yield_now();
            }
        };
        let other = scope.spawn(move || follow(&mut second));
        let mine = follow(&mut first);
        (mine, other.join().unwrap())
    });
    assert!(first == second, "readers see the same");
    assert_eq!(journal.position().0, first.len() as u64);
    check_stream(&parse(&first), THREADS, EACH);
}

fn check_stream(commands: &[Vec<String>], threads: usize, each: usize) {
    let (mut next, mut db) = (vec![0; threads], String::new());
    let mut commands = commands.iter();
    while let Some(command) = commands.next() {
        match command[0].as_str() {
            "SELECT" => db = command[1].clone(),
            "MULTI" => {
                let inside: Vec<_> =
                    commands.by_ref().take_while(|command| command[0] != "EXEC").collect();
                assert!(inside.len() > 1);
                // One thread's parts, in order, and no other thread's between them.
                for (part, command) in ["a", "b", "c"].iter().zip(&inside) {
                    assert_eq!((&command[..2], &*command[2]), (&inside[0][..2], *part));
                }
                check_one(inside[0], &db, &mut next);
            }
            _ => check_one(command, &db, &mut next),
        }
    }
    assert!(next.iter().all(|&next| next == each));
}

fn check_one(command: &[String], db: &str, next: &mut [usize]) {
    let (thread, number) = (command[0].parse::<usize>().unwrap(), &command[1]);
    assert_eq!(*number, next[thread].to_string());
    let wanted = if next[thread].is_multiple_of(7) { 1 } else { thread % 2 };
    assert_eq!(db, wanted.to_string());
    next[thread] += 1;
}

#[test]
fn writes_wait_for_a_reader_that_is_far_behind() {
    let journal = Journal::default();
    let mut reader = journal.read(IfBehind::HoldWriters);
    let big = vec![b'v'; 5 << 20];
    let mut in_vain = 0;
    while !journal.is_full() {
        append(&journal, 0, &[b"SET", b"k", &big]);
        in_vain += 1;
        assert!(in_vain < 60, "the limit does not work");
    }
    assert!(journal.position().0 > MAX_PENDING_BYTES);
    let (end, mut woke) = (reader.readable(), false);
    while let Some(chunk) = reader.chunk(end) {
        woke |= reader.advance(chunk.len());
    }
    assert!(woke && !journal.is_full());
}

#[test]
fn a_reader_that_may_be_cut_off_delays_no_write() {
    let journal = Journal::default();
    journal.set_backlog(3 << 20);
    let mut log = journal.read(IfBehind::HoldWriters);
    let [mut near, mut far] = [0; 2].map(|_| journal.read(IfBehind::CutOff));
    let (big, mut of_log, mut of_near) = (vec![b'v'; 1 << 19], Vec::new(), Vec::new());
    append(&journal, 0, &[b"SET", b"first", &big]);
    // The chunk is held while its segment is given back.
    let kept = far.chunk(far.readable()).unwrap();
    let copy = kept.to_vec();
    let mut cut_off_at = None;
    for number in 0..40 {
        append(&journal, 0, &[b"SET", b"k", &big]);
        drain(&mut log, &mut of_log);
        drain(&mut near, &mut of_near);
        if far.is_cut_off() {
            cut_off_at.get_or_insert(number);
        }
    }
    // The limit is three mebibytes, and it is checked once a mebibyte.
    assert!((6..=8).contains(&cut_off_at.unwrap()), "{cut_off_at:?}");
    assert!(far.chunk(far.readable()).is_none());
    assert!(*kept == copy[..], "what is held is not used again");
    assert!(!near.is_cut_off() && !journal.is_full());
    assert!(of_log == of_near && of_log.len() as u64 == journal.position().0);
}

#[test]
fn writes_wait_only_for_readers_that_must_not_be_cut_off() {
    let journal = Journal::default();
    journal.set_backlog(u64::MAX);
    let mut log = journal.read(IfBehind::HoldWriters);
    let slow = journal.read(IfBehind::CutOff);
    let (big, mut bytes) = (vec![b'v'; 5 << 20], Vec::new());
    while !journal.is_full() {
        append(&journal, 0, &[b"SET", b"k", &big]);
    }
    drain(&mut log, &mut bytes);
    assert!(!journal.is_full() && !slow.is_cut_off());
    while !journal.is_full() {
        append(&journal, 0, &[b"SET", b"k", &big]);
    }
    drop(log);
    assert!(journal.is_recording() && !journal.is_full());
}

#[test]
fn when_the_last_reader_is_cut_off_recording_ends() {
    let journal = Journal::default();
    journal.set_backlog(1 << 20);
    let reader = journal.read(IfBehind::CutOff);
    let big = vec![b'v'; 1 << 20];
    while journal.is_recording() {
        append(&journal, 0, &[b"SET", b"k", &big]);
        assert!(journal.position().0 < 9 << 20, "it is never cut off");
    }
    assert!(reader.is_cut_off());
    let mut next = journal.read(IfBehind::CutOff);
    append(&journal, 0, &[b"A"]);
    let mut bytes = Vec::new();
    drain(&mut next, &mut bytes);
    assert_eq!(parse(&bytes), [vec!["SELECT", "0"], vec!["A"]]);
}

#[test]
fn bytes_are_kept_without_a_reader_and_read_from_a_past_position() {
    let journal = Journal::default();
    journal.set_backlog(4 << 20);
    assert_eq!(journal.kept_from(), None);
    assert_eq!(journal.read_from(JournalPos(0), IfBehind::CutOff).err(), Some(NotKept));
    journal.keep();
    let begin = append(&journal, 0, &[b"A"]);
    append(&journal, 0, &[b"B"]);
    let mut bytes = Vec::new();
    drain(&mut journal.read_from(begin, IfBehind::CutOff).unwrap(), &mut bytes);
    assert_eq!(parse(&bytes), [["B"]]);
    // Not beyond the end, and no more than was asked for.
    let end = journal.position();
    assert!(journal.read_from(end, IfBehind::CutOff).is_ok());
    assert_eq!(journal.read_from(JournalPos(end.0 + 1), IfBehind::CutOff).err(), Some(NotKept));
    let big = vec![b'v'; 1 << 19];
    while journal.position().0 < 20 << 20 {
        append(&journal, 0, &[b"SET", b"k", &big]);
    }
    assert_eq!(journal.read_from(begin, IfBehind::CutOff).err(), Some(NotKept));
    let first = journal.kept_from().unwrap();
    assert_eq!(first.0, journal.position().0 - (4 << 20));
    assert!(journal.held_bytes() <= 7 << 20, "{}", journal.held_bytes());
    let mut bytes = Vec::new();
    drain(&mut journal.read_from(first, IfBehind::CutOff).unwrap(), &mut bytes);
    assert_eq!(bytes.len(), 4 << 20);
    assert!(journal.is_recording());
}

#[test]
fn the_backlog_changes_while_bytes_are_kept() {
    let journal = Journal::default();
    journal.set_backlog(16 << 20);
    journal.keep();
    let big = vec![b'v'; 1 << 19];
    let fill = |to: u64| {
        while journal.position().0 < to << 20 {
            append(&journal, 0, &[b"SET", b"k", &big]);
        }
    };
    fill(12);
    assert!(journal.held_bytes() >= 12 << 20);
    journal.set_backlog(1 << 20);
    assert!(journal.held_bytes() <= 3 << 20);
    let first = journal.kept_from().unwrap();
    // More is kept from now on, but what was given back does not return.
    journal.set_backlog(16 << 20);
    assert!(journal.kept_from().unwrap().0 > first.0 - (2 << 20));
    fill(20);
    assert!(journal.read_from(first, IfBehind::CutOff).is_ok());
    journal.stop_keeping();
    assert!(!journal.is_recording() && journal.held_bytes() <= 1 << 20);
    assert_eq!(journal.kept_from(), None);
}

#[test]
fn an_entry_larger_than_the_backlog_cuts_off_only_slow_readers() {
    let journal = Journal::default();
    journal.set_backlog(1 << 20);
    let [mut quick, slow] = [0; 2].map(|_| journal.read(IfBehind::CutOff));
    let (huge, big) = (vec![b'v'; 20 << 20], vec![b'v'; 1 << 19]);
    let mut bytes = Vec::new();
    append(&journal, 0, &[b"SET", b"k", &huge]);
    append(&journal, 0, &[b"SET", b"k", &big]);
    append(&journal, 0, &[b"SET", b"k", &big]);
    assert!(!quick.is_cut_off(), "it could not have read it yet");
    drain(&mut quick, &mut bytes);
    for _ in 0..6 {
        append(&journal, 0, &[b"SET", b"k", &big]);
        drain(&mut quick, &mut bytes);
    }
    assert!(slow.is_cut_off() && !quick.is_cut_off());
    assert_eq!(bytes.len() as u64, journal.position().0);
}

#[test]
fn a_reader_may_be_allowed_more_than_the_backlog() {
    let journal = Journal::default();
    journal.set_backlog(1 << 20);
    let mut reader = journal.read(IfBehind::CutOff);
    reader.allow(8 << 20);
    let big = vec![b'v'; 1 << 19];
    while journal.position().0 < 7 << 20 {
        append(&journal, 0, &[b"SET", b"k", &big]);
    }
    let mut bytes = Vec::new();
    drain(&mut reader, &mut bytes);
    assert_eq!(bytes.len() as u64, journal.position().0);
    reader.allow(0);
    for _ in 0..8 {
        append(&journal, 0, &[b"SET", b"k", &big]);
    }
    assert!(reader.is_cut_off());
}

#[test]
fn a_history_begins_where_it_is_told_to() {
    let journal = Journal::default();
    let unread = journal.history();
    drop(journal.read(IfBehind::CutOff));
    assert_ne!(journal.history(), unread, "writes may have happened before");
    let history = History::new().branch(JournalPos(70));
    for start in [100 << 20, 77] {
        journal.begin_history(history, JournalPos(start));
        let mut reader = journal.read(IfBehind::CutOff);
        assert_eq!(journal.history(), history);
        assert_eq!((reader.position(), journal.selected_db()), (JournalPos(start), None));
        append(&journal, 0, &[b"A"]);
        let mut bytes = Vec::new();
        drain(&mut reader, &mut bytes);
        assert_eq!(parse(&bytes), [vec!["SELECT", "0"], vec!["A"]]);
        let big = vec![b'v'; 3 << 20];
        append(&journal, 0, &[b"SET", b"k", &big]);
        assert!(journal.held_bytes() >= 3 << 20);
        // The next one begins elsewhere, also at a lower position.
        journal.begin_history(History::new(), JournalPos(start / 2));
        assert!(reader.is_cut_off() && reader.chunk(journal.position()).is_none());
        assert_eq!(journal.held_bytes(), 0);
        drop(reader);
    }
    // Without a word about the state there is another history.
    drop(journal.read(IfBehind::CutOff));
    drop(journal.read(IfBehind::CutOff));
    assert_ne!(journal.history(), history);
}

#[test]
fn a_stream_is_copied_verbatim() {
    let (primary, replica) = (Journal::default(), Journal::default());
    primary.begin_history(primary.history(), JournalPos(1000));
    let mut link = primary.read(IfBehind::CutOff);
    append(&primary, 3, &[b"A"]);
    append(&primary, 3, &[b"B", &vec![b'v'; 2 << 20]]);
    let mut stream = Vec::new();
    drain(&mut link, &mut stream);
    replica.begin_history(primary.history(), JournalPos(1000));
    replica.keep();
    let [mut follower, mut log] =
        [IfBehind::CutOff, IfBehind::HoldWriters].map(|r| replica.read(r));
    replica.set_copy(true);
    assert!(replica.is_active() && replica.takes_asides());
    replica.note_db(DbIndex(2));
    // A snapshot for a follower does not add a SELECT, nor does it take the database away.
    replica.forget_db();
    assert_eq!(replica.selected_db(), Some(DbIndex(2)));
    let (first, rest) = stream.split_at(stream.len() - 20);
    replica.append_verbatim(first, DbIndex(3));
    assert_eq!(replica.append_verbatim(rest, DbIndex(3)), primary.position());
    let (mut of_follower, mut of_log) = (Vec::new(), Vec::new());
    drain(&mut follower, &mut of_follower);
    drain(&mut log, &mut of_log);
    assert!(of_follower == stream && of_log == stream);
    assert_eq!(replica.selected_db(), Some(DbIndex(3)));
    // Promoted, it goes on from there, and its followers keep their place.
    replica.set_history(replica.history().branch(replica.position()));
    replica.set_copy(false);
    assert!(replica.is_recording());
    append(&replica, 3, &[b"C"]);
    drain(&mut follower, &mut of_follower);
    assert!(of_follower.ends_with(b"*1\r\n$1\r\nC\r\n") && !follower.is_cut_off());
    assert!(replica.history().contains(&primary.history().id, primary.position()));
}

#[test]
fn a_large_entry_does_not_stay_until_the_next() {
    let copy = Journal::default();
    copy.set_backlog(10);
    copy.keep();
    copy.set_copy(true);
    copy.append_verbatim(&vec![b'x'; 8 << 20], DbIndex(0));
    assert!(copy.held_bytes() <= 2 << 20, "{} bytes", copy.held_bytes());
}

#[test]
fn what_a_slow_reader_keeps_is_there_for_others() {
    let journal = Journal::default();
    journal.set_backlog(1000);
    journal.keep();
    let slow = journal.read(IfBehind::CutOff);
    slow.allow(u64::MAX);
    for _ in 0..100 {
        append(&journal, 0, &[&[b'x'; 50_000]]);
    }
    assert_eq!(journal.kept_from(), Some(JournalPos(0)));
    assert!(journal.read_from(JournalPos(5), IfBehind::CutOff).is_ok());
    // Its limit is lowered from afar.
    slow.limit().allow(100_000);
    journal.check_limits();
    assert!(slow.is_cut_off());
    assert_eq!(journal.kept_from().map(|at| at.0), Some(journal.position().0 - 1000));
    assert!(journal.read_from(JournalPos(5), IfBehind::CutOff).is_err());
}

#[test]
fn own_entries_of_a_copy_stand_beside_it() {
    let replica = Journal::default();
    replica.keep();
    replica.set_copy(true);
    assert!(replica.is_active() && !replica.is_recording(), "own entries have no place in it");
    let mut follower = replica.read(IfBehind::CutOff);
    assert!(!replica.is_recording());
    let mut log = replica.read(IfBehind::HoldWriters);
    assert!(replica.is_recording() && replica.takes_asides());
    let first = replica.append_verbatim(b"*1\r\n$1\r\nA\r\n", DbIndex(300));
    assert_eq!(append(&replica, 2, &[b"B"]), first, "the position stands still");
    let second = replica.append_verbatim(b"*1\r\n$1\r\nC\r\n", DbIndex(4));
    append(&replica, 2, &[b"D"]);
    assert_eq!(log.readable(), second);
    let (mut of_follower, mut of_log) = (Vec::new(), Vec::new());
    drain(&mut follower, &mut of_follower);
    drain(&mut log, &mut of_log);
    assert_eq!(of_follower, b"*1\r\n$1\r\nA\r\n*1\r\n$1\r\nC\r\n");
    assert_eq!(of_log, of_follower);
    assert_eq!(replica.first_aside(JournalPos(0), u64::MAX), None);
    let aside = replica.first_aside(second, u64::MAX).expect("an entry");
    assert_eq!((aside.at, aside.stream_db), (first, DbIndex(300)));
    assert_eq!(aside.bytes, b"*2\r\n$6\r\nSELECT\r\n$1\r\n2\r\n*1\r\n$1\r\nB\r\n");
    assert!(!replica.aside_written(&aside));
    assert_eq!(replica.first_aside(second, aside.number + 1), None);
    assert_eq!(replica.first_aside(second, u64::MAX).map(|aside| aside.at), Some(second));
    drop(log);
    assert!(!replica.is_recording() && replica.first_aside(second, u64::MAX).is_none());
}
