//! Logs that a killed server with `appendfsync always` left: batches with their heads, and
//! preallocated space behind them. Bytes are damaged, sectors are missing, the end is cut off; what
//! was acknowledged is there or the server says why it does not start, and a whole batch is never
//! cut off with a torn one.

use super::*;
use replication::preallocation::{BLOCK, BatchHead, SECTOR, is_preallocated, write_preallocation};

/// A batch in the file of a log.
pub struct Batch {
    /// From the first byte of its head, fillers included.
    pub at: Range<usize>,
    /// Where its head says how long it is.
    len: Range<usize>,
    /// Where the commands begin.
    pub body: usize,
    /// Keys that are there once it is, each with its own command.
    pub keys: usize,
}

impl Batch {
    /// The sectors that it has bytes in, as far as they are its own: the front of the first one was
    /// written before, and is the same whether this write of it came to the disk or not.
    pub fn sectors(&self) -> Vec<Range<usize>> {
        let first = self.at.start / SECTOR;
        let sectors = first..self.at.end.div_ceil(SECTOR);
        sectors.map(|it| (it * SECTOR).max(self.at.start)..(it + 1) * SECTOR).collect()
    }

    fn is_whole_in(&self, file: &[u8], original: &[u8]) -> bool {
        file.get(self.at.clone()) == Some(&original[self.at.clone()])
    }
}

/// A log as a killed server left it.
pub struct Sample {
    base: Vec<u8>,
    pub log: Vec<u8>,
    pub batches: Vec<Batch>,
    /// What the server had.
    whole: Contents,
}

/// The key that a command sets, as a number; they count up.
fn key(number: usize) -> String {
    format!("key:{number}{number}")
}

impl Sample {
    /// Has a server write batches of these many commands, with values of these many bytes. `None`:
    /// not in place, on this file system.
    pub fn of(batches: &[(usize, usize)]) -> Option<Sample> {
        if !has_preallocated_logs() {
            return None;
        }
        let always = ["--appendonly", "yes", "--appendfsync", "always"];
        let preallocated = ["--aof-preallocation-size", "64kb"];
        let options = Options::arguments(&[&always[..], &preallocated].concat());
        let mut server = Server::start(&Program::under_test(), options).unwrap();
        let mut client = server.client();
        let mut number = 0;
        for &(commands, len) in batches {
            let mut request = Vec::new();
            for _ in 0..commands {
                // A value may look like anything, and like nearly preallocated space.
                let value: String = "#value\r\n*".chars().cycle().take(len).collect();
                request.extend(encode(&["SET", &key(number), &value]));
                number += 1;
            }
            client.send_raw(&request).unwrap();
            (0..commands).for_each(|_| assert!(!client.reply().unwrap().is_error()));
        }
        let whole = all(&server);
        let path = server.directory().join("appendonlydir");
        // The first preallocated space is made beside the first batches.
        eventually("room", || fs::read(path.join(INCR)).unwrap().ends_with(b"#\n"));
        server.kill().unwrap();
        let (base, log) = (fs::read(path.join(BASE)).unwrap(), fs::read(path.join(INCR)).unwrap());
        let found = read_batches(&log);
        assert_eq!(found.last().unwrap().keys, number, "batches are told from room");
        assert!(log.len() > found.last().unwrap().at.end + SECTOR, "there is room");
        Some(Sample { base, log, batches: found, whole })
    }

    pub fn lay(&self, patient: &Patient, log: &[u8]) {
        patient.lay(&[(BASE, &self.base), (INCR, log), (MANIFEST, NAMES.as_bytes())]);
    }

    /// What is there after the first so many keys were set.
    pub fn with_keys(&self, count: usize) -> Contents {
        let mut found = self.whole.clone();
        found.retain(|(_, name), _| (0..count).any(|number| *name == key(number).into_bytes()));
        found
    }

    /// Where the data ends.
    pub fn end(&self) -> usize {
        self.batches.last().unwrap().at.end
    }

    pub fn last(&self) -> &Batch {
        self.batches.last().unwrap()
    }

    /// The file with preallocated space in the place of these bytes.
    pub fn without(&self, places: impl IntoIterator<Item = Range<usize>>) -> Vec<u8> {
        let mut log = self.log.clone();
        for place in places {
            write_preallocation(place.start as u64, &mut log[place]);
        }
        log
    }
}

/// The batches of a log that nothing has happened to.
fn read_batches(log: &[u8]) -> Vec<Batch> {
    let (mut batches, mut at, mut begin, mut keys) = (Vec::new(), 0, 0, 0);
    while at < log.len() && !is_preallocated(at as u64, &log[at..]) {
        let line = log[at..].split_inclusive(|&byte| byte == b'\n').next().unwrap();
        assert_eq!(line[0], b'#', "everything is in batches");
        let len = at + "#BATCH:".len()..at + "#BATCH:01234567".len();
        at += line.len();
        let Some(head) = BatchHead::parse(line.trim_ascii_end()) else { continue };
        let end = at + head.unwrap().len;
        let body = log[at..end].windows(5);
        keys += body.filter(|bytes| bytes.ends_with(b"key:")).count();
        batches.push(Batch { at: begin..end, len, body: at, keys });
        (at, begin) = (end, end);
    }
    batches
}

/// A few small batches, one of several commands, one of several sectors, and small ones.
fn small() -> Option<Sample> {
    Sample::of(&[(1, 20), (1, 700), (1, 30), (4, 25), (1, 1500), (1, 10), (3, 40), (1, 60)])
}

/// What a start from a log may do that has another byte at this place.
fn judge(
    sample: &Sample,
    at: usize,
    log: &[u8],
    outcome: Result<(String, Contents), String>,
    place: &str,
) {
    let damaged = sample.batches.iter().find(|batch| batch.at.contains(&at));
    let from = damaged.map_or(sample.end(), |batch| batch.at.start);
    match outcome {
        Err(said) => {
            assert!(said.contains(INCR), "{place}: the file is not named:\n{said}");
            let offset = offset_in(&said).unwrap_or_else(|| panic!("{place}: no offset:\n{said}"));
            let near = from as u64..=log.len() as u64;
            assert!(near.contains(&offset), "{place}: {offset} is not near:\n{said}");
        }
        Ok((said, found)) if said.contains("!!! Truncating") => {
            let lost = sample
                .batches
                .iter()
                .filter(|batch| batch.at.start > from && batch.is_whole_in(log, &sample.log));
            assert_eq!(lost.count(), 0, "{place}: whole batches were cut off:\n{said}");
            let keys = sample.batches.iter().rfind(|batch| batch.at.end <= from);
            let wanted = sample.with_keys(keys.map_or(0, |batch| batch.keys));
            assert!(found == wanted, "{place}: the data set is another one:\n{said}");
        }
        // It hit nothing that counts.
        Ok((said, found)) => {
            assert!(found == sample.whole, "{place}: the data set is another one:\n{said}");
        }
    }
}

#[test]
fn a_damaged_byte_of_a_batch_is_found() {
    let mut rng = Rng::new(seed());
    let Some(sample) = small() else { return };
    let mut patient = Patient::new(&["--appendonly", "yes", "--appendfsync", "always"]);
    let flips = variable("DUNLIN_FLIPS").unwrap_or(FLIPS) as usize;
    // The last batches byte by byte, or as many of them as there is time for; and anywhere.
    let from = sample.batches[sample.batches.len() - 4].at.start;
    let close = sample.end() + 8 - from;
    let step = close.div_ceil(flips);
    let mut places: Vec<usize> =
        (rng.below(step)..close).step_by(step).map(|it| from + it).collect();
    places.extend((0..flips / 2).map(|_| rng.below(sample.end() + 2 * SECTOR)));
    let (mut refused, mut cut) = (0, 0);
    for place in places {
        let to = match rng.below(3) {
            0 => sample.log[place] ^ (1 << rng.below(8)),
            1 => *rng.pick(b"0123456789abcdef*$#\r\n"),
            _ => rng.bits() as u8,
        };
        if to == sample.log[place] {
            continue;
        }
        let mut log = sample.log.clone();
        log[place] = to;
        sample.lay(&patient, &log);
        let what = format!("byte {place}: {to:02x} for {:02x}", sample.log[place]);
        let batch = sample.batches.iter().find(|batch| batch.at.contains(&place));
        let outcome = patient.start();
        if let Some(batch) = batch
            && place >= batch.body
            && batch.at.end < sample.end()
        {
            let said = outcome.as_ref().expect_err("a batch that others follow is not whole");
            assert!(said.contains("The checksum of the batch is not that"), "{what}:\n{said}");
        }
        match &outcome {
            Err(_) => assert_eq!(fs::read(patient.log_path(INCR)).unwrap(), log, "{what}"),
            Ok(said) => cut += usize::from(said.contains("!!! Truncating")),
        }
        refused += usize::from(outcome.is_err());
        let outcome = outcome.map(|said| (said, all(&patient.server)));
        judge(&sample, place, &log, outcome, &what);
        patient.server.kill().unwrap();
    }
    println!("{refused} were refused, {cut} cut off");
}

#[test]
fn a_batch_with_sectors_missing_is_cut_off_if_it_is_the_last() {
    let Some(sample) = Sample::of(&[(1, 20), (2, 600), (3, 500)]) else { return };
    let before = &sample.batches[sample.batches.len() - 2];
    let wanted = sample.with_keys(before.keys);
    let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut patient = Patient::new(&arguments);
    let mut strict = Patient::new(&[&arguments[..], &["--aof-load-truncated", "no"]].concat());
    let sectors = sample.last().sectors();
    assert!(sectors.len() >= 3, "{sectors:?}");
    for missing in 1..1usize << sectors.len() {
        let gone = (0..sectors.len()).filter(|sector| missing >> sector & 1 == 1);
        let log = sample.without(gone.map(|sector| sectors[sector].clone()));
        let what = format!("sectors {missing:b}");
        if sample.last().is_whole_in(&log, &sample.log) {
            continue;
        }
        sample.lay(&patient, &log);
        let said = patient.holds(&what, &wanted);
        let is_empty = is_preallocated(before.at.end as u64, &log[before.at.end..]);
        assert!(is_empty || said.contains("!!! Truncating the AOF"), "{what}: no word:\n{said}");
        if missing % 4 == 1 && !is_empty {
            sample.lay(&strict, &log);
            strict.refuses(&what, &[INCR, "Unexpected end of file"]);
            let log_now = fs::read(strict.log_path(INCR)).unwrap();
            assert_eq!(log_now, log, "{what}: it was changed");
            let offset = offset_in(&strict.server.log()).unwrap() as usize;
            assert!((sample.last().at.start..sample.last().body).contains(&offset), "{offset}");
        }
        // What is written next is read after another kill.
        if missing % 4 == 2 {
            patient.start().unwrap();
            ok(&mut patient.server.client(), &["SET", "more", "1"]);
            patient.server.kill().unwrap();
            patient.start().unwrap();
            assert_eq!(all(&patient.server).len(), wanted.len() + 1, "{what}");
            patient.server.kill().unwrap();
        }
    }
}

#[test]
fn a_batch_with_sectors_missing_that_others_follow_is_damage() {
    let Some(sample) = Sample::of(&[(1, 20), (3, 500), (1, 30), (1, 700)]) else { return };
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    let sectors = sample.batches[1].sectors();
    for (number, sector) in sectors.iter().enumerate() {
        let log = sample.without([sector.clone()]);
        let what = format!("sector {number}");
        sample.lay(&patient, &log);
        patient.refuses(&what, &[INCR, "offset "]);
        assert_eq!(fs::read(patient.log_path(INCR)).unwrap(), log, "{what}: it was changed");
    }
}

#[test]
fn a_length_that_leads_past_the_end_does_not_hide_whole_batches() {
    let Some(sample) = small() else { return };
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    let mut log = sample.log.clone();
    // 65536 bytes more.
    log[sample.batches[1].len.start + 3] = b'1';
    sample.lay(&patient, &log);
    patient.refuses("the length", &[INCR, "offset "]);
    assert_eq!(fs::read(patient.log_path(INCR)).unwrap(), log, "it was changed");
}

#[test]
fn room_in_the_middle_is_damage() {
    let Some(sample) = Sample::of(&[(1, 20), (1, 600), (1, 200_000), (1, 200_000), (1, 10)]) else {
        return;
    };
    let mut patient = Patient::new(&["--appendonly", "yes"]);
    // More follows than a batch can have.
    let log = sample.without([sample.batches[1].at.clone()]);
    sample.lay(&patient, &log);
    patient
        .refuses("in the place of a batch", &[INCR, "Unexpected room in front of data", "offset "]);
    let at = sample.batches[1].at.end.next_multiple_of(SECTOR);
    let mut log = sample.log[..at].to_vec();
    log.resize(at + 4 * SECTOR, 0);
    write_preallocation(at as u64, &mut log[at..]);
    log.extend_from_slice(&sample.log[at..]);
    sample.lay(&patient, &log);
    patient.refuses("between batches", &[INCR, "offset "]);
    assert_eq!(fs::read(patient.log_path(INCR)).unwrap(), log, "it was changed");
}

#[test]
fn a_log_with_batches_cut_anywhere_loads_up_to_the_cut() {
    let mut rng = Rng::new(seed());
    let Some(sample) = small() else { return };
    let mut patient = Patient::new(&["--appendonly", "yes", "--appendfsync", "always"]);
    let from = sample.batches[sample.batches.len() - 3].at.start;
    let last = sample.end() + SECTOR + 10;
    let step = (last - from).div_ceil(variable("DUNLIN_FLIPS").unwrap_or(FLIPS) as usize);
    let mut largest = 0;
    for cut in (from + rng.below(step)..last).step_by(step) {
        sample.lay(&patient, &sample.log[..cut]);
        let said = patient.start().unwrap_or_else(|said| panic!("cut at {cut}:\n{said}"));
        let found = all(&patient.server);
        let count = found.len();
        assert!(found == sample.with_keys(count), "cut at {cut}: not the first {count} keys");
        let whole = sample.batches.iter().rfind(|batch| batch.at.end <= cut).unwrap();
        let next = sample.batches.iter().find(|batch| batch.at.end > cut);
        assert!(count >= whole.keys && count <= next.map_or(count, |next| next.keys - 1));
        largest = largest.max(count);
        if cut >= sample.end() {
            assert!(!said.contains("!!! Truncating"), "cut at {cut}: nothing was lost\n{said}");
        }
        // It goes on behind what is left.
        ok(&mut patient.server.client(), &["SET", "more", "1"]);
        patient.server.kill().unwrap();
        patient.start().unwrap_or_else(|said| panic!("cut at {cut}, second start:\n{said}"));
        assert_eq!(all(&patient.server).len(), count + 1, "cut at {cut}");
        patient.server.kill().unwrap();
    }
    assert!(largest + 1 >= sample.whole.len(), "the whole file was not among them");
}

#[test]
fn zeros_of_a_cut_that_was_lost_are_room() {
    let Some(sample) = Sample::of(&[(1, 20), (1, 700), (1, 30)]) else { return };
    let mut patient = Patient::new(&["--appendonly", "yes", "--aof-load-truncated", "no"]);
    let block = sample.end().next_multiple_of(BLOCK);
    assert!(block - sample.end() > 3 * SECTOR, "the cut empties several sectors");
    // The system empties the rest of the block before the file is shorter, and each of its sectors
    // may be on the disk or not.
    let mut whole = sample.log.clone();
    whole[sample.end()..block].fill(0);
    sample.lay(&patient, &whole);
    patient.holds("all of them", &sample.whole);
    sample.lay(&patient, &whole[..block]);
    patient.holds("as many as the file has", &sample.whole);
    let sectors = sample.end() / SECTOR + 1..block / SECTOR;
    let sectors: Vec<usize> = sectors.map(|sector| sector * SECTOR).collect();
    for preallocated in 1..1usize << sectors.len().min(3) {
        for end in [block, whole.len()] {
            let mut mixed = whole[..end].to_vec();
            let is_preallocated = |number: usize| preallocated >> (number % 3) & 1 == 1;
            for (_, &at) in
                sectors.iter().enumerate().filter(|(number, _)| is_preallocated(*number))
            {
                write_preallocation(at as u64, &mut mixed[at..at + SECTOR]);
            }
            sample.lay(&patient, &mixed);
            patient.holds(&format!("sectors {preallocated:b}, {end} bytes"), &sample.whole);
        }
    }
}
