//! Time series: payloads of RDB files are read or refused. What is read can be used, and is written
//! as the same value. Nothing panics, and nothing takes memory far beyond the input.

#[path = "memory.rs"]
mod memory;

use rdb::module::{Reader, Writer};
use rdb::{Compression, Decoder, Encoder, Error};
use series::aggregate::Aggregator;
use series::buckets::Buckets;
use series::range::{Aggregation, Query, Stamp};
use series::{Policy, REDIS_VERSION, Sample, Series, VERSION};

/// Reads the input as a payload of ours, and as one of Redis.
pub fn check(input: &[u8]) {
    for version in [VERSION, REDIS_VERSION] {
        memory::bounded(input.len(), || {
            if let Ok(series) = load(input, version) {
                let written = save(&series);
                let again = load(&written, VERSION).expect("what is written is read");
                assert_eq!(written, save(&again));
                use_series(again);
            }
        });
    }
}

fn load(body: &[u8], version: u16) -> Result<Series, Error> {
    series::load(&mut Reader::new(&mut Decoder::new(body)), version)
}

fn save(series: &Series) -> Vec<u8> {
    let mut encoder = Encoder::new(Compression::Off);
    series.save(&mut Writer::new(&mut encoder));
    encoder.into_bytes()
}

fn use_series(mut series: Series) {
    for rule in series.rules() {
        series.open_bucket(rule);
    }
    for aggregator in [None, Some(Aggregator::Twa), Some(Aggregator::VarS)] {
        let aggregation = aggregator.map(|aggregator| Aggregation {
            aggregators: vec![aggregator],
            buckets: Buckets { duration: 1000, align: 7 },
            stamp: Stamp::Mid,
            empty: false,
        });
        for is_reverse in [false, true] {
            let query = Query {
                from: 0,
                to: u64::MAX,
                times: None,
                values: None,
                aggregation: aggregation.clone(),
                count: None,
                is_reverse,
            };
            let _ = query.run(&series, None);
        }
    }
    let last = series.last().map_or(0, |sample| sample.time);
    for time in [last / 2, last.saturating_add(1).min(i64::MAX as u64)] {
        let _ = series.add(Sample { time, value: 0.1 }, Policy::Sum);
    }
    series.remove(last / 2, u64::MAX);
}
