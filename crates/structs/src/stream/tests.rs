use super::*;
use crate::random::Rng;

/// What a stream should hold.
type Model = BTreeMap<StreamId, Vec<Vec<u8>>>;

const LIMITS: StreamLimits = StreamLimits { max_bytes: 200, max_entries: 7 };

fn id(number: u64) -> StreamId {
    StreamId::new(number / 3, number % 3)
}

fn words(rng: &mut Rng) -> Vec<Vec<u8>> {
    let names: &[&[u8]] = match rng.below(4) {
        0 => &[b"other", b"7"],
        1 => &[b"name"],
        _ => &[b"name", b"12", b"value"],
    };
    let value = |rng: &mut Rng| match rng.below(3) {
        0 => rng.below(1 << 20).to_string().into_bytes(),
        _ => vec![b'v'; rng.index(60)],
    };
    names.iter().flat_map(|name| [name.to_vec(), value(rng)]).collect()
}

fn entries(stream: &Stream, range: Range) -> Vec<(StreamId, Vec<Vec<u8>>)> {
    let mut found = Vec::new();
    stream.walk(range, |id, fields| {
        let expected = fields.len();
        let words: Vec<Vec<u8>> =
            fields.flat_map(|(name, value)| [name.to_vec(), value.to_vec()]).collect();
        assert_eq!(words.len(), 2 * expected);
        found.push((id, words));
        ControlFlow::Continue(())
    });
    found
}

fn check(stream: &Stream, model: &Model, rng: &mut Rng) {
    assert_eq!(stream.len(), model.len());
    let (a, b) = (id(rng.below(900)), id(rng.below(900)));
    for range in [Range::ALL, Range::between(a, b), Range::between(b, StreamId::MAX)] {
        let expected: Vec<_> = model
            .iter()
            .filter(|&(&id, _)| range.start <= id && id <= range.end)
            .map(|(&id, words)| (id, words.clone()))
            .collect();
        assert_eq!(entries(stream, range), expected);
        let mut backwards = entries(stream, Range { is_reverse: true, ..range });
        backwards.reverse();
        assert_eq!(backwards, expected);
    }
    assert_eq!(stream.contains(a), model.contains_key(&a));
    assert_eq!(stream.edge(false), model.keys().next().copied());
    assert_eq!(stream.edge(true), model.keys().next_back().copied());
    let counters = stream.counters();
    assert_eq!(counters.first_id, model.keys().next().copied().unwrap_or_default());
}

/// The stream that its parts make again.
fn rebuilt(stream: &Stream) -> Stream {
    let (mut parts, mut builder) = (Parts::new(stream), StreamBuilder::default());
    let mut add = |part: Part<'_>| match part {
        Part::Idempotency(_) => Ok(()),
        Part::Block(id, bytes) => builder.block(id, bytes),
        Part::Counters(c, _) => {
            let later = Some((c.first_id, c.max_deleted_id, c.entries_added));
            builder.counters(c.length, c.last_id, later)
        }
        Part::Group { name, last_id, entries_read, .. } => {
            builder.group(name, last_id, entries_read)
        }
        Part::Pending(id, time, count) => builder.pending(id, time, count),
        Part::Consumers(_) => Ok(()),
        Part::Consumer { name, seen_time, active_time, .. } => {
            builder.consumer(name, seen_time, active_time)
        }
        Part::Own(id) => builder.own(id),
    };
    while parts.show(|part| add(part).expect("a stream's own parts are sound")) {}
    builder.finish().expect("it is complete")
}

fn trim_model(model: &mut Model, strategy: Strategy) -> u64 {
    let before = model.len();
    match strategy {
        Strategy::MaxLength(most) => {
            while model.len() as u64 > most {
                model.pop_first();
            }
        }
        Strategy::MinId(least) => model.retain(|&id, _| id >= least),
    }
    (before - model.len()) as u64
}

#[test]
fn it_is_a_map_of_entries() {
    for seed in 1..6 {
        let mut rng = Rng::seeded(seed);
        let (mut stream, mut model) = (Stream::new(), Model::new());
        for step in 0..800 {
            match rng.below(10) {
                0 => {
                    let strategy = match rng.below(2) {
                        0 => Strategy::MaxLength(rng.below(300)),
                        _ => Strategy::MinId(id(rng.below(step + 1))),
                    };
                    let references = References::Keep;
                    let trim = Trim { strategy, is_approximate: false, limit: 0, references };
                    if rng.below(4) == 0 {
                        assert_eq!(stream.trim(&trim), trim_model(&mut model, strategy));
                    }
                }
                1..=3 => {
                    let id = id(rng.below(step + 1));
                    assert_eq!(stream.delete(id), model.remove(&id).is_some());
                }
                _ => {
                    let words = words(&mut rng);
                    let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                    stream.append(id(step + 1), &slices, &LIMITS);
                    model.insert(id(step + 1), words);
                }
            }
            if step % 50 == 0 {
                check(&stream, &model, &mut rng);
            }
        }
        check(&stream, &model, &mut rng);
        let copy = rebuilt(&stream);
        check(&copy, &model, &mut rng);
        assert_eq!(copy.counters(), stream.counters());
    }
}

fn numbered(count: u64) -> Stream {
    let mut stream = Stream::new();
    for number in 1..=count {
        stream.append(StreamId::new(number, 0), &[b"n", number.to_string().as_bytes()], &LIMITS);
    }
    stream
}

fn read(stream: &mut Stream, group: &[u8], consumer: &[u8], count: usize, now: i64) -> usize {
    let of = stream.group_mut(group).expect("the group is there");
    let number = of.find_consumer(consumer);
    let number = number.or_else(|| of.create_consumer(consumer, now)).expect("found or made");
    let delivery = Delivery { count, is_acknowledged: false, now };
    stream.deliver(group, number, delivery, |_, _| ())
}

#[test]
fn groups_survive_their_parts() {
    let mut stream = numbered(50);
    assert!(stream.create_group(b"g", StreamId::MIN, UNKNOWN_READS));
    assert!(stream.create_group(b"empty", StreamId::MAX, 3));
    assert!(!stream.create_group(b"g", StreamId::MIN, 0));
    assert_eq!(read(&mut stream, b"g", b"a", 10, 100), 10);
    assert_eq!(read(&mut stream, b"g", b"b", 5, 200), 5);
    assert_eq!(read(&mut stream, b"g", b"idle", 0, 300), 0);
    let group = stream.group_mut(b"g").expect("made above");
    assert!(group.acknowledge(StreamId::new(3, 0)) && !group.acknowledge(StreamId::new(3, 0)));
    let b = group.find_consumer(b"b").expect("it has read");
    group.assign(StreamId::new(4, 0), b, 150, 2);
    let copy = rebuilt(&stream);
    let (was, is) = (stream.group(b"g").expect("is"), copy.group(b"g").expect("is"));
    assert_eq!((is.last_id, is.entries_read), (was.last_id, was.entries_read));
    assert_eq!(is.consumer_count(), 3);
    let pending = |group: &Group| {
        let mut all = Vec::new();
        group.walk(StreamId::MIN, i64::MAX, |p| {
            all.push((p.id.ms, p.time, p.deliveries, group.owner(p).to_vec()));
            ControlFlow::Continue(())
        });
        all
    };
    assert_eq!(pending(is), pending(was));
    assert_eq!(pending(is).len(), 14);
    assert_eq!(is.oldest_pending().map(|p| p.id.ms), Some(1));
    let mut group = is.clone();
    assert_eq!(group.delete_consumer(b"a"), Some(8));
    assert_eq!((group.pending_count(), group.delete_consumer(b"a")), (6, None));
}

#[test]
fn trimming_heeds_references() {
    let trim = |references| Trim {
        strategy: Strategy::MaxLength(5),
        is_approximate: false,
        limit: 0,
        references,
    };
    let read_some = || {
        let mut stream = numbered(30);
        stream.create_group(b"g", StreamId::MIN, UNKNOWN_READS);
        read(&mut stream, b"g", b"c", 20, 1);
        let group = stream.group_mut(b"g").expect("made above");
        (1..=20).filter(|n| n % 2 == 0).for_each(|n| {
            group.acknowledge(StreamId::new(n, 0));
        });
        stream
    };
    let pending = |stream: &Stream| stream.group(b"g").map_or(0, Group::pending_count);
    let mut kept = read_some();
    assert_eq!((kept.trim(&trim(References::Keep)), pending(&kept)), (25, 10));
    let mut deleted = read_some();
    assert_eq!((deleted.trim(&trim(References::Delete)), pending(&deleted)), (25, 0));
    let mut acknowledged = read_some();
    assert_eq!(acknowledged.trim(&trim(References::Acknowledged)), 10);
    assert_eq!((acknowledged.len(), pending(&acknowledged)), (20, 10));
}

#[test]
fn a_clone_is_not_changed_by_what_follows() {
    let mut stream = numbered(100);
    stream.create_group(b"g", StreamId::MIN, UNKNOWN_READS);
    read(&mut stream, b"g", b"c", 50, 1);
    let kept = stream.clone();
    (1..90).for_each(|n| {
        stream.delete(StreamId::new(n, 0));
        stream.group_mut(b"g").expect("made above").acknowledge(StreamId::new(n, 0));
    });
    assert_eq!((kept.len(), kept.group(b"g").map(Group::pending_count)), (100, Some(50)));
    assert_eq!(entries(&kept, Range::ALL).len(), 100);
    assert_eq!((stream.len(), stream.group(b"g").map(Group::pending_count)), (11, Some(0)));
}

#[test]
fn a_block_takes_the_memory_that_it_needs() {
    let limits = StreamLimits::default();
    let words: Vec<String> =
        (0..5).flat_map(|n| [format!("field:{n:04}"), "0123456789".into()]).collect();
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let mut stream = Stream::new();
    (1..=1000).for_each(|n| stream.append(StreamId::new(n, 0), &words, &limits));
    // The prefix of a listpack and its bytes; the last block is made for as much as the one before
    // it.
    let needed = |block: &block::Block| block_size(8 + block.as_bytes().len());
    let (mut before, mut count) = (0, 0);
    stream.0.blocks.for_each(|placed| {
        count += 1;
        if count < stream.block_count() {
            before = needed(&placed.block);
        }
        assert_eq!(placed.block.allocated_bytes(), before);
    });
    assert_eq!((before, count > 10), (4096, true));
}

#[test]
fn damaged_blocks_are_refused() {
    let stream = numbered(5);
    let mut block = Vec::new();
    stream.0.blocks.for_each(|placed| block = placed.block.as_bytes().to_vec());
    let first = StreamId::new(1, 0);
    assert!(StreamBuilder::default().block(first, &block).is_ok());
    let mut rng = Rng::seeded(3);
    for _ in 0..20_000 {
        let mut damaged = block.clone();
        for _ in 0..=rng.below(2) {
            let at = rng.index(damaged.len());
            damaged[at] = rng.next_u64() as u8;
        }
        let mut builder = StreamBuilder::default();
        if builder.block(first, &damaged).is_ok() {
            let live = builder.live;
            let last = builder.last_id.expect("a block has been added");
            builder.counters(live, last, None).expect("the counts agree");
            let stream = builder.finish().expect("it is complete");
            assert_eq!(entries(&stream, Range::ALL).len() as u64, live);
        }
    }
}
