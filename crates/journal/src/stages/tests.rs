use super::*;
use crate::{IfBehind, Journal, Reader};
use std::sync::Mutex;

const DB: DbIndex = DbIndex(0);

fn command(words: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| out += &format!("${}\r\n{word}\r\n", word.len()));
    out.into_bytes()
}

/// Returns all that a reader has not read yet, one command a line.
fn read(reader: &mut Reader<'_>) -> Vec<Vec<String>> {
    let (end, mut bytes) = (reader.readable(), Vec::new());
    while let Some(chunk) = reader.chunk(end) {
        bytes.extend_from_slice(&chunk);
        reader.advance(chunk.len());
    }
    let text = String::from_utf8(bytes).expect("it is text");
    let mut lines = text.split("\r\n");
    let mut commands = Vec::new();
    while let Some(count) = lines.next().and_then(|line| line.strip_prefix('*')) {
        let word = |_| lines.nth(1).expect("the word").to_owned();
        commands.push((0..count.parse().expect("a number")).map(word).collect());
    }
    commands
}

fn names(reader: &mut Reader<'_>) -> String {
    read(reader).iter().map(|words| words.join(" ")).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_batch_takes_one_place_behind_what_came_before() {
    let journal = Journal::default();
    let mut reader = journal.read(IfBehind::HoldWriters);
    let mark = journal.stage(DB, &command(&["A"])).expect("it is short");
    journal.stage(DbIndex(3), &command(&["B"])).expect("it is short");
    assert!(journal.has_staged() && Journal::own_marks()(mark) && !journal.settle(mark));
    assert_eq!(journal.position(), JournalPos(0));
    let end = journal.append_staged();
    assert_eq!((end, journal.has_staged()), (journal.position(), false));
    assert!(journal.settle(mark), "it is appended");
    assert_eq!(names(&mut reader), "SELECT 0, A, SELECT 3, B");
    assert_eq!(journal.selected_db(), Some(DbIndex(3)));
    assert_eq!(journal.append_staged(), end, "there is nothing more");
}

#[test]
fn an_entry_with_a_place_of_its_own_comes_behind_what_is_staged() {
    let journal = Journal::default();
    let mut reader = journal.read(IfBehind::HoldWriters);
    journal.stage(DB, &command(&["A"])).expect("it is short");
    let end = journal.append_command(DbIndex(1), &command(&["B"]));
    assert_eq!((end, journal.append_staged()), (journal.position(), journal.position()));
    journal.stage(DB, &command(&["C"])).expect("it is short");
    let long = "x".repeat(2 * MAX_STAGED);
    assert!(journal.stage(DB, &command(&[&long])).is_none());
    journal.append_command(DB, &command(&["D", &long]));
    let wanted = format!("SELECT 0, A, SELECT 1, B, SELECT 0, C, D {long}");
    assert_eq!(names(&mut reader), wanted);
}

#[test]
fn what_another_thread_has_staged_is_appended_before_its_stripe_is_used() {
    let journal = Journal::default();
    let mut reader = journal.read(IfBehind::HoldWriters);
    let mark = journal.stage(DB, &command(&["A"])).expect("it is short");
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert!(!Journal::own_marks()(mark) && journal.settle(mark));
            assert!(journal.stage(DB, &command(&["B"])).is_none(), "the first is not staged");
            journal.append_command(DB, &command(&["B"]));
            journal.stage(DB, &command(&["C"])).expect("others are");
            journal.append_staged();
        });
        other.join().expect("it ends");
    });
    assert!(!journal.has_staged());
    let later = journal.stage(DB, &command(&["D"])).expect("it is short");
    assert_ne!(later, mark, "it is another batch");
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(journal.settle(mark), "its batch is appended"));
    });
    assert_eq!(names(&mut reader), "SELECT 0, A, B, C");
    journal.append_staged();
    assert_eq!(names(&mut reader), "D");
}

#[test]
fn a_copy_of_a_stream_takes_nothing_staged() {
    let journal = Journal::default();
    let _reader = journal.read(IfBehind::HoldWriters);
    journal.set_copy(true);
    assert!(journal.stage(DB, &command(&["A"])).is_none());
    assert!(!journal.has_staged());
}

/// A stripe of the server: a counter in place of entries.
#[derive(Default)]
struct Cell {
    value: u64,
    mark: u32,
}

/// Threads change counters and read others in batches, as reactors do. Each entry says what it
/// changed and what its thread has read before.
#[test]
fn the_order_of_entries_is_one_that_all_threads_have_seen() {
    const THREADS: usize = 4;
    const CELLS: usize = 12;
    let batches = if cfg!(miri) { 6 } else { 4000 };
    let journal = Journal::default();
    let mut reader = journal.read(IfBehind::HoldWriters);
    let cells: Vec<Mutex<Cell>> = (0..CELLS).map(|_| Mutex::default()).collect();
    let locked = |at: usize| {
        let mut cell = lock(&cells[at]);
        if cell.mark != 0 && journal.settle(cell.mark) {
            cell.mark = 0;
        }
        cell
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (journal, locked) = (&journal, &locked);
            scope.spawn(move || {
                let mut random = thread as u64 + 1;
                let mut next = move |most: usize| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (random >> 33) as usize % most
                };
                let mut number = 0u64;
                for _ in 0..batches {
                    for _ in 0..1 + next(8) {
                        let seen = next(CELLS);
                        let seen_value = locked(seen).value;
                        let at = next(CELLS);
                        let mut cell = locked(at);
                        cell.value += 1;
                        number += 1;
                        let figures = [thread as u64, number, at as u64, cell.value];
                        let figures = figures.map(|figure| figure.to_string());
                        let seen = [seen as u64, seen_value].map(|figure| figure.to_string());
                        let words: Vec<&str> =
                            figures.iter().chain(&seen).map(String::as_str).collect();
                        let entry = command(&words);
                        match journal.stage(DB, &entry) {
                            Some(_) if next(5) == 0 => _ = journal.append_staged(),
                            Some(mark) => cell.mark = mark,
                            None => _ = journal.append_command(DB, &entry),
                        }
                    }
                    journal.append_staged();
                }
            });
        }
    });
    let mut values = [0u64; CELLS];
    let mut numbers = [0u64; THREADS];
    for words in read(&mut reader).iter().filter(|words| words[0] != "SELECT") {
        let figures: Vec<u64> = words.iter().map(|word| word.parse().expect("a number")).collect();
        let [thread, number, at, value, seen, seen_value] = figures[..] else {
            panic!("{words:?}")
        };
        numbers[thread as usize] += 1;
        assert_eq!(numbers[thread as usize], number, "a thread's entries in their order");
        assert!(values[seen as usize] >= seen_value, "what it has read comes before");
        values[at as usize] += 1;
        assert_eq!(values[at as usize], value, "the changes of a key in their order");
    }
    for (cell, value) in cells.iter().zip(values) {
        assert_eq!(lock(cell).value, value, "all entries are there");
    }
}
