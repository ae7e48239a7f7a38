//! The fuzz target of time series on seeded mutations of payloads.

#[path = "../../../fuzz/entries/series.rs"]
mod entry;
#[path = "../../../fuzz/entries/mutate.rs"]
mod mutate;

use rdb::module::Writer;
use rdb::{Compression, Encoder};
use series::aggregate::Aggregator;
use series::buckets::Buckets;
use series::{Encoding, Ignore, Policy, Rule, Sample, Series, Settings};
use structs::labels::Labels;

fn payload(encoding: Encoding, step: f64) -> Vec<u8> {
    let settings = Settings {
        retention: 0,
        encoding,
        chunk_size: 64,
        policy: Policy::Last,
        ignore: Ignore::default(),
    };
    let labels = Labels::new(vec![(Box::from(&b"a"[..]), Box::from(&b"b"[..]))]);
    let mut series = Series::new(settings, labels);
    for at in 0..60 {
        let sample = Sample { time: 1000 + at * at, value: at as f64 * step };
        series.add(sample, Policy::Last).expect("it is later than the last");
    }
    let buckets = Buckets { duration: 100, align: 3 };
    let (target, aggregator) = (Box::from(&b"t"[..]), Aggregator::Twa);
    series.rules_mut().push(Rule { target, aggregator, buckets, after: Some(5) });
    let mut encoder = Encoder::new(Compression::Off);
    series.save(&mut Writer::new(&mut encoder));
    encoder.into_bytes()
}

/// Returns payloads of a running Redis.
fn of_redis() -> Vec<Vec<u8>> {
    let lines = include_str!("../src/redis_file/payloads.txt").lines();
    let hex = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split(' ').next());
    let byte = |hex: &str, at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("digits");
    hex.map(|hex| (0..hex.len()).step_by(2).map(|at| byte(hex, at)).collect()).collect()
}

#[test]
fn damaged_payloads_are_refused_or_sound() {
    let mut inputs = of_redis();
    inputs.extend([
        payload(Encoding::Compressed, 0.5),
        payload(Encoding::Compressed, 1.0 / 3.0),
        payload(Encoding::Uncompressed, 1.0),
    ]);
    let words: [&[u8]; 5] = [
        b"\x81\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\0\0\0\xf8\x7f",
        b"\x02\x00",
        b"\x05\x01",
    ];
    mutate::run(&inputs, &words, entry::check);
}
