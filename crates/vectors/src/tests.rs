//! The graph: recall, removal, payloads.

use crate::{Found, Quant, Search, TYPE, VectorSet};
use rdb::module::{Reader, Value, Writer};
use rdb::{Compression, Decoder, Encoder, Error};
use std::collections::HashSet;
use structs::random::splitmix64;

/// Returns vectors around random centres.
fn clustered(count: usize, dim: usize) -> Vec<Vec<f32>> {
    let mut state = 42;
    let mut draw = || (splitmix64(&mut state) >> 40) as f32 / (1_u64 << 24) as f32 - 0.5;
    let centres: Vec<Vec<f32>> = (0..20).map(|_| (0..dim).map(|_| draw()).collect()).collect();
    let around = |at: usize, draw: &mut dyn FnMut() -> f32| {
        centres[at % 20].iter().map(|x| x + draw() / 2.0).collect()
    };
    (0..count).map(|at| around(at, &mut draw)).collect()
}

fn filled(vectors: &[Vec<f32>], quant: Quant) -> VectorSet {
    let mut set = VectorSet::new(vectors[0].len(), quant, 16, None);
    for (at, vector) in vectors.iter().enumerate() {
        let (vector, norm) = set.form(vector.clone());
        assert!(set.add(format!("e{at}").as_bytes(), vector, norm, 200));
    }
    set
}

fn search<'s>(set: &'s VectorSet, numbers: &[f32], exact: bool) -> Vec<Found<'s>> {
    let query = Search { count: 10, ef: 100, filter: None, filter_ef: 0, exact };
    set.search(&set.form(numbers.to_vec()).0, &query)
}

fn recall(set: &VectorSet, queries: &[Vec<f32>]) -> f64 {
    let found: usize = queries
        .iter()
        .map(|query| {
            let truth: HashSet<&[u8]> =
                search(set, query, true).into_iter().map(|found| found.name).collect();
            search(set, query, false).iter().filter(|found| truth.contains(found.name)).count()
        })
        .sum();
    found as f64 / (10 * queries.len()) as f64
}

fn saved(set: &VectorSet) -> Vec<u8> {
    let mut encoder = Encoder::new(Compression::Off);
    Value::save(set, &mut Writer::new(&mut encoder));
    encoder.into_bytes()
}

fn load(bytes: &[u8]) -> Result<Box<dyn Value>, Error> {
    (TYPE.load)(&mut Reader::new(&mut Decoder::new(bytes)), TYPE.version)
}

#[test]
fn the_nearest_are_found_in_every_form() {
    let vectors = clustered(2050, 32);
    let (vectors, queries) = vectors.split_at(2000);
    for quant in [Quant::F32, Quant::Q8] {
        let set = filled(vectors, quant);
        let recall = recall(&set, queries);
        assert!(recall > 0.97, "{recall} of {quant:?}");
    }
    let set = filled(vectors, Quant::Bin);
    assert_eq!(search(&set, &vectors[7], true)[0].score, 1.0);
}

#[test]
fn removing_keeps_the_rest_findable() {
    let vectors = clustered(1550, 16);
    let (vectors, queries) = vectors.split_at(1500);
    let mut set = filled(vectors, Quant::Q8);
    for at in (0..1500).filter(|at| at % 3 != 0) {
        assert!(set.remove(format!("e{at}").as_bytes()));
        assert!(!set.remove(format!("e{at}").as_bytes()));
    }
    assert_eq!(set.len(), 500);
    for at in (0..1500).step_by(3) {
        let name = format!("e{at}");
        assert!(set.contains(name.as_bytes()));
        let score = search(&set, &vectors[at], false)[0].score;
        assert!(score > 0.99, "{name}: {score}");
    }
    assert!(load(&saved(&set)).is_ok(), "links go both ways");
    let recall = recall(&set, queries);
    assert!(recall > 0.95, "{recall}");
    for at in (0..1500).step_by(3) {
        set.remove(format!("e{at}").as_bytes());
    }
    assert!(set.is_empty());
    let (vector, norm) = set.form(vectors[0].clone());
    assert!(set.add(b"again", vector, norm, 200));
    assert_eq!(search(&set, &vectors[0], false).len(), 1);
}

#[test]
fn equal_vectors_are_all_kept_and_found() {
    let vectors = vec![vec![1.0, 2.0, 3.0]; 500];
    let set = filled(&vectors, Quant::Q8);
    let query = Search { count: 500, ef: 500, filter: None, filter_ef: 0, exact: false };
    assert!(set.search(&set.form(vectors[0].clone()).0, &query).len() > 400);
    let zeros = filled(&vec![vec![0.0; 3]; 50], Quant::F32);
    assert_eq!(search(&zeros, &[0.0; 3], false)[0].score, 0.5);
}

#[test]
fn a_copy_goes_on_as_the_value_does() {
    let vectors = clustered(300, 8);
    for quant in [Quant::F32, Quant::Q8, Quant::Bin] {
        let mut set = filled(&vectors[..200], quant);
        set.set_attributes(b"e3", b"{}");
        let bytes = saved(&set);
        let loaded = load(&bytes).expect("just written") as Box<dyn std::any::Any>;
        let mut copy = *loaded.downcast::<VectorSet>().expect("the type");
        assert_eq!(saved(&copy), bytes);
        for (at, numbers) in vectors[200..].iter().enumerate() {
            for set in [&mut set, &mut copy] {
                let (vector, norm) = set.form(numbers.clone());
                set.add(format!("n{at}").as_bytes(), vector, norm, 50);
                set.remove(format!("e{at}").as_bytes());
            }
        }
        assert_eq!(saved(&copy), saved(&set));
    }
}

#[test]
fn damaged_payloads_are_refused_or_sound() {
    let bytes = saved(&filled(&clustered(12, 4), Quant::Q8));
    for cut in 0..bytes.len() {
        assert!(load(&bytes[..cut]).is_err());
    }
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let Ok(value) = load(&damaged) else { continue };
            let value = value as Box<dyn std::any::Any>;
            let mut set = *value.downcast::<VectorSet>().expect("the type");
            let numbers = vec![0.5; set.input_dim().unwrap_or(set.dim())];
            search(&set, &numbers, false);
            let (vector, norm) = set.form(numbers);
            set.add(b"new", vector, norm, 10);
            let names: Vec<Vec<u8>> = set.names().map(<[u8]>::to_vec).collect();
            names.iter().for_each(|name| assert!(set.remove(name)));
        }
    }
}

#[test]
fn projections_keep_directions_apart() {
    let vectors = clustered(200, 256);
    let mut set = VectorSet::new(64, Quant::F32, 16, Some(256));
    for (at, numbers) in vectors.iter().enumerate() {
        let (vector, norm) = set.form(numbers.clone());
        set.add(format!("e{at}").as_bytes(), vector, norm, 200);
    }
    for at in [0, 50, 199] {
        assert_eq!(search(&set, &vectors[at], false)[0].name, format!("e{at}").as_bytes());
    }
}

#[test]
fn an_element_of_300_bytes_takes_less_than_700() {
    let set = filled(&clustered(1000, 300), Quant::Q8);
    let each = set.allocated_bytes() / set.len();
    assert!(each <= 700, "{each}");
}
