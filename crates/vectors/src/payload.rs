//! The row of the type and its payload.
//!
//! The version is ours, and Redis refuses it. What Redis writes is read, too: `redis_payload`.
//! Numbers in strings are little-endian.
//!
//! ```text
//!  dimensions │ form 0 f32, 1 int8, 2 bits │ links │ input dimensions, 0: none │ seed
//!  the matrix, 4 bytes a number, empty: that of the seed (a string)
//!  state of chance │ ever added │ place of the entry point │ elements        (all unsigned)
//!  then for each element, in the order of places:
//!  name │ attributes, empty: none │ vector (strings) │ largest dimension │ length (doubles)
//!  levels (unsigned) │ the places of the neighbours, 4 bytes each (a string for each level)
//! ```

use crate::checks::{DAMAGED, bounded, rows_of};
use crate::graph::{MAX_LEVEL, MAX_LINKS, Node, VectorSet};
use crate::names;
use crate::projection::{Matrix, Projection};
use crate::redis_payload::{self, REDIS_VERSION};
use crate::vector::{MAX_DIM, Quant, Vector};
use rdb::Error;
use rdb::module::{Reader, Type, Value, Writer};

/// The version that is written.
const VERSION: u16 = 512;
/// The primitives of an element, of at least two bytes each.
const LEAST_ELEMENT: usize = 2 * 7;
/// Dimensions that count as one element when commands are found to be long.
const ELEMENT_DIM: usize = 16;

/// The row of the type.
pub static TYPE: Type = Type {
    name: "vectorset",
    version: VERSION,
    reads: &[VERSION, REDIS_VERSION],
    load: |from, version| match version {
        REDIS_VERSION => Ok(Box::new(redis_payload::load(from)?)),
        _ => Ok(Box::new(load(from)?)),
    },
};

impl Value for VectorSet {
    fn row(&self) -> &'static Type {
        &TYPE
    }

    fn save(&self, to: &mut Writer<'_>) {
        save(self, to);
    }

    fn duplicate(&self) -> Box<dyn Value> {
        Box::new(self.clone())
    }

    fn allocated_bytes(&self) -> usize {
        size_of::<Self>() + self.heap_bytes()
    }

    fn free_effort(&self) -> usize {
        1 + self.len() * 4
    }

    fn elements(&self) -> usize {
        1 + self.len() * (1 + self.dim() / ELEMENT_DIM)
    }

    fn is_empty(&self) -> bool {
        VectorSet::is_empty(self)
    }
}

fn save(set: &VectorSet, to: &mut Writer<'_>) {
    let form = match set.quant {
        Quant::F32 => 0,
        Quant::Q8 => 1,
        Quant::Bin => 2,
    };
    let input = set.projection.as_ref().map_or(0, |it| it.input as u64);
    let (seed, rows) = match set.projection.as_ref().map(|it| &it.matrix) {
        None => (0, Vec::new()),
        Some(Matrix::Seed(seed)) => (*seed, Vec::new()),
        Some(Matrix::Rows(rows)) => (0, rows.iter().flat_map(|x| x.to_le_bytes()).collect()),
    };
    let numbers = [set.dim as u64, form, set.links as u64, input, seed];
    numbers.into_iter().for_each(|number| to.unsigned(number));
    to.string(&rows);
    [set.chance, set.added, set.entry.into()].into_iter().for_each(|number| to.unsigned(number));
    to.unsigned(set.nodes.len() as u64);
    for node in &set.nodes {
        to.string(&node.name);
        to.string(node.attributes.as_deref().unwrap_or_default());
        to.string(&node.vector.bytes());
        to.double(node.vector.largest().unwrap_or_default().into());
        to.double(node.norm.into());
        to.unsigned(node.links.len() as u64);
        for list in &node.links {
            let places: Vec<u8> = list.iter().flat_map(|place| place.to_le_bytes()).collect();
            to.string(&places);
        }
    }
}

fn load(from: &mut Reader<'_, '_>) -> Result<VectorSet, Error> {
    let dim = bounded(from.unsigned()?, 1, MAX_DIM)?;
    let quant = match from.unsigned()? {
        0 => Quant::F32,
        1 => Quant::Q8,
        2 => Quant::Bin,
        _ => return Err(DAMAGED),
    };
    let links = bounded(from.unsigned()?, 4, MAX_LINKS)?;
    let input = bounded(from.unsigned()?, 0, MAX_DIM)?;
    let seed = from.unsigned()?;
    let rows = from.string()?;
    let matrix = if rows.is_empty() { Matrix::Seed(seed) } else { rows_of(&rows, dim, input)? };
    let projection = (input > 0).then_some(Projection { input, matrix });
    let mut set = VectorSet::from_parts(dim, quant, links, projection);
    set.chance = from.unsigned()?;
    set.added = from.unsigned()?;
    let entry = from.unsigned()?;
    let count = from.count(LEAST_ELEMENT)?;
    // Deleting the last element deletes the key: there is no empty set.
    if entry >= count as u64 || u32::try_from(count).is_err() {
        return Err(DAMAGED);
    }
    set.entry = entry as u32;
    for place in 0..count as u32 {
        let node = element(from, &set, count)?;
        if set.contains(&node.name) {
            return Err(DAMAGED);
        }
        let hash = names::hash(&node.name);
        set.nodes.push(node);
        let nodes = &set.nodes;
        set.names.insert(hash, place, |at| names::hash(&nodes[at as usize].name));
    }
    check(&set)?;
    Ok(set)
}

fn element(from: &mut Reader<'_, '_>, set: &VectorSet, count: usize) -> Result<Node, Error> {
    let name = from.string()?.into();
    let attributes = from.string()?;
    let attributes = (!attributes.is_empty()).then(|| attributes.into());
    let bytes = from.string()?;
    let largest = from.double()? as f32;
    let vector = Vector::from_bytes(&bytes, largest, set.quant, set.dim).ok_or(DAMAGED)?;
    let norm = from.double()? as f32;
    if !norm.is_finite() || norm < 0.0 {
        return Err(DAMAGED);
    }
    let levels = bounded(from.unsigned()?, 1, MAX_LEVEL + 1)?;
    let mut links = Vec::with_capacity(levels);
    for _ in 0..levels {
        let bytes = from.string()?;
        let (places, rest) = bytes.as_chunks::<4>();
        let list: Vec<u32> = places.iter().map(|place| u32::from_le_bytes(*place)).collect();
        if !rest.is_empty() || list.iter().any(|&place| place as usize >= count) {
            return Err(DAMAGED);
        }
        links.push(list);
    }
    Ok(Node { name, vector, norm, attributes, links: links.into() })
}

/// Checks what the graph relies on: links go both ways, once, between elements of the level, and
/// no element is above the entry point.
fn check(set: &VectorSet) -> Result<(), Error> {
    let mut links = Vec::new();
    for (place, node) in set.nodes.iter().enumerate() {
        for (level, list) in node.links.iter().enumerate() {
            links.extend(list.iter().map(|&to| (level as u8, place as u32, to)));
        }
        if node.links.len() > set.max_level() + 1 {
            return Err(DAMAGED);
        }
    }
    links.sort_unstable();
    let is_sound = links
        .iter()
        .all(|&(level, from, to)| from != to && links.binary_search(&(level, to, from)).is_ok());
    let is_once = links.windows(2).all(|pair| pair[0] != pair[1]);
    if is_sound && is_once { Ok(()) } else { Err(DAMAGED) }
}
