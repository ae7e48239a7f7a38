//! The payload of a vector set that Redis writes, version 0; it is read, not written.
//!
//! The layout was found by looking at what a running Redis 8.0 writes for sets that were made for
//! it, not by its sources. A test reads payloads of that server.
//!
//! ```text
//!  dimensions │ elements │ form 0 f32, 1 int8, 2 bits + links · 256
//!  1: a projection, + 2: attributes                                        (all unsigned)
//!  with a projection: input dimensions │ the matrix, row by row, 4 bytes a number (a string)
//!  then for each element:
//!  name │ with attributes: attributes, empty: none │ vector (strings) │ count of numbers, they:
//!      number of the element │ its level in the lowest 24 bits
//!      for each level from 0: links │ most links │ the numbers of the neighbours │ the worst
//!      length in the low half, largest dimension in the high one, as floats
//! ```
//!
//! The graph is taken over: links that do not go both ways are left out, and an element that has
//! none left is linked anew. So whatever a file says of links, the result is a sound set.

use crate::checks::{DAMAGED, bounded, rows_of};
use crate::graph::{MAX_LEVEL, MAX_LINKS, Node, VectorSet};
use crate::names;
use crate::projection::Projection;
use crate::vector::{MAX_DIM, Quant, Vector};
use rdb::Error;
use rdb::module::Reader;
use std::collections::HashMap;

/// The version that is read.
pub(crate) const REDIS_VERSION: u16 = 0;
/// The primitives of an element, of at least two bytes each.
const LEAST_ELEMENT: usize = 2 * 6;
/// How many of the nearest are looked at for an element without links.
const REPAIR_EF: usize = 100;

/// Reads a set. The input may be hostile.
///
/// # Errors
/// It is none, or an empty one.
pub(crate) fn load(from: &mut Reader<'_, '_>) -> Result<VectorSet, Error> {
    let dim = bounded(from.unsigned()?, 1, MAX_DIM)?;
    let count = bounded(from.unsigned()?, 1, from.remaining() / LEAST_ELEMENT)?;
    let form = from.unsigned()?;
    let quant = match form & 0xff {
        0 => Quant::F32,
        1 => Quant::Q8,
        2 => Quant::Bin,
        _ => return Err(DAMAGED),
    };
    let links = bounded(form >> 8, 4, MAX_LINKS)?;
    let parts = bounded(from.unsigned()?, 0, 3)?;
    let projection = if parts & 1 == 0 {
        None
    } else {
        let input = bounded(from.unsigned()?, 1, MAX_DIM)?;
        Some(Projection { input, matrix: rows_of(&from.string()?, dim, input)? })
    };
    u32::try_from(count).map_err(|_| DAMAGED)?;
    let mut set = VectorSet::from_parts(dim, quant, links, projection);
    let mut numbers = HashMap::new();
    let mut graph = Vec::new();
    for place in 0..count as u32 {
        let (node, number, lists) = element(from, &set, parts & 2 != 0)?;
        if set.contains(&node.name) || numbers.insert(number, place).is_some() {
            return Err(DAMAGED);
        }
        set.added = set.added.max(number);
        let hash = names::hash(&node.name);
        set.nodes.push(node);
        let nodes = &set.nodes;
        set.names.insert(hash, place, |at| names::hash(&nodes[at as usize].name));
        graph.push(lists);
    }
    set.chance = set.added;
    take_over(&mut set, &numbers, &graph);
    set.entry = set.first_of_highest();
    set.join_lonely(REPAIR_EF);
    Ok(set)
}

/// The numbers of the neighbours, level by level.
type Lists = Vec<Vec<u64>>;

/// Reads an element without links, its number, and its links.
fn element(
    from: &mut Reader<'_, '_>,
    set: &VectorSet,
    has_attributes: bool,
) -> Result<(Node, u64, Lists), Error> {
    let name = from.string()?.into();
    let attributes = if has_attributes { from.string()? } else { Default::default() };
    let attributes = (!attributes.is_empty()).then(|| attributes.into());
    let bytes = from.string()?;
    let mut left = from.count(2)?;
    let mut next = |from: &mut Reader<'_, '_>| {
        left = left.checked_sub(1).ok_or(DAMAGED)?;
        from.unsigned()
    };
    let number = next(from)?;
    let level = next(from)? & 0x00ff_ffff;
    let mut lists = Vec::new();
    for at in 0..=level {
        let len = next(from)?;
        let _most = next(from)?;
        let mut list = Vec::new();
        for _ in 0..len {
            list.push(next(from)?);
        }
        let _worst = next(from)?;
        if at <= MAX_LEVEL as u64 {
            lists.push(list);
        }
    }
    let floats = next(from)?;
    if left > 0 {
        return Err(DAMAGED);
    }
    let (norm, largest) = (f32::from_bits(floats as u32), f32::from_bits((floats >> 32) as u32));
    if !norm.is_finite() || norm < 0.0 {
        return Err(DAMAGED);
    }
    let vector = Vector::from_bytes(&bytes, largest, set.quant, set.dim).ok_or(DAMAGED)?;
    let links = vec![Vec::new(); lists.len()].into();
    Ok((Node { name, vector, norm, attributes, links }, number, lists))
}

/// Gives the elements the links that go both ways, once.
fn take_over(set: &mut VectorSet, numbers: &HashMap<u64, u32>, graph: &[Lists]) {
    let mut links = Vec::new();
    for (from, lists) in graph.iter().enumerate() {
        for (level, list) in lists.iter().enumerate() {
            let places = list.iter().filter_map(|number| numbers.get(number));
            links.extend(places.map(|&to| (level as u8, from as u32, to)));
        }
    }
    links.sort_unstable();
    links.dedup();
    for &(level, from, to) in &links {
        let is_mutual = from != to && links.binary_search(&(level, to, from)).is_ok();
        if is_mutual {
            set.nodes[from as usize].links[usize::from(level)].push(to);
        }
    }
    let lists = set.nodes.iter_mut().flat_map(|node| node.links.iter_mut());
    lists.for_each(Vec::shrink_to_fit);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Search;
    use rdb::Decoder;

    /// Values of a running Redis 8.0, as DUMP answers.
    const CASES: &str = include_str!("redis_payload/payloads.txt");
    const QUERY: [f32; 8] = [0.5, -0.25, 1.0, 0.0, 0.125, -1.0, 0.75, 0.3];

    fn cases() -> impl Iterator<Item = (Vec<u8>, &'static str)> {
        let lines = CASES.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| {
            let (hex, expected) = line.split_once(' ').expect("payload and scores");
            let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits");
            ((0..hex.len()).step_by(2).map(byte).collect(), expected)
        })
    }

    fn read(payload: &[u8]) -> Result<VectorSet, Error> {
        load(&mut Reader::new(&mut Decoder::new(payload)))
    }

    fn found(set: &VectorSet, numbers: &[f32], exact: bool) -> Vec<(String, f64)> {
        let query = Search { count: 100, ef: 100, filter: None, filter_ef: 0, exact };
        let found = set.search(&set.form(numbers.to_vec()).0, &query);
        found.iter().map(|it| (it.name.escape_ascii().to_string(), it.score)).collect()
    }

    #[test]
    fn sets_of_redis_are_read() {
        assert_eq!(cases().count(), 4);
        for (payload, expected) in cases() {
            let mut set = read(&payload).expect("a set of Redis");
            let scores: std::collections::BTreeMap<&str, f64> = expected
                .split(' ')
                .filter_map(|pair| pair.split_once('='))
                .map(|(name, score)| (name, score.parse().expect("a number")))
                .collect();
            for exact in [true, false] {
                let all = found(&set, &QUERY, exact);
                assert_eq!(all.len(), scores.len(), "{:?}, exact: {exact}", set.quant());
                for (name, score) in all {
                    let theirs = scores[name.as_str()];
                    assert!((score - theirs).abs() < 0.02, "{name} {score} {theirs}");
                }
            }
            let (vector, norm) = set.form(QUERY.to_vec());
            assert!(set.add(b"new", vector, norm, 100));
            assert_eq!(found(&set, &QUERY, false)[0].0, "new");
            if set.input_dim().is_none() {
                assert_eq!(set.attributes(b"e3"), Some(&br#"{"n":3}"#[..]));
            }
        }
    }

    #[test]
    fn damaged_payloads_make_sound_sets_or_errors() {
        for (payload, _) in cases() {
            // The last byte is the mark of the end, which the caller reads.
            for cut in 0..payload.len() - 1 {
                assert!(read(&payload[..cut]).is_err());
            }
            for at in 0..payload.len() {
                for mask in [1, 0x80, 0xff] {
                    let mut damaged = payload.clone();
                    damaged[at] ^= mask;
                    let Ok(mut set) = read(&damaged) else { continue };
                    let numbers = vec![0.5; set.input_dim().unwrap_or(set.dim())];
                    found(&set, &numbers, false);
                    let (vector, norm) = set.form(numbers);
                    set.add(b"new", vector, norm, 10);
                    let names: Vec<Vec<u8>> = set.names().map(<[u8]>::to_vec).collect();
                    names.iter().for_each(|name| assert!(set.remove(name)));
                }
            }
        }
    }
}
