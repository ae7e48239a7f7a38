//! The set: elements in a hierarchical navigable small world (Malkov and Yashunin, 2016).
//!
//! ```text
//!  level 1      a ───────────── d          a search walks down from the entry point
//!  level 0      a ── b ── c ── d ── e      and collects the nearest at level 0
//! ```
//!
//! Every link is in the lists of both its ends, so an element is removed in place: its neighbours
//! lose it and are linked to each other. The last element takes over the place of a removed one,
//! so places are 0 to the length without holes.
//!
//! A search costs about `ef · links` distances, whatever the length. Chance, which chooses levels,
//! follows from a state in the value and in its payload: the same requests make the same graph.

use crate::Filter;
use crate::names::{self, Names};
use crate::projection::{Matrix, Projection};
use crate::vector::{Quant, Vector};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use structs::random::splitmix64_share;

/// The most links that a request may ask for (M).
pub const MAX_LINKS: usize = 4096;
/// The highest level: with 16 links 16^16 elements would have one there.
pub(crate) const MAX_LEVEL: usize = 15;
/// The seed of a projection.
const SEED: u64 = 0x7665_6374_6f72_7321;

/// The numbers of the sets of this process, for VINFO.
static NEXT_UID: AtomicU64 = AtomicU64::new(0);

/// An element.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub name: Box<[u8]>,
    pub vector: Vector,
    /// The length that the vector had.
    pub norm: f32,
    pub attributes: Option<Box<[u8]>>,
    /// The places of the neighbours, level by level.
    pub links: Box<[Vec<u32>]>,
}

/// A vector set.
#[derive(Debug)]
pub struct VectorSet {
    pub(crate) dim: usize,
    pub(crate) quant: Quant,
    pub(crate) links: usize,
    pub(crate) projection: Option<Projection>,
    pub(crate) chance: u64,
    /// How many elements were ever added.
    pub(crate) added: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) names: Names,
    pub(crate) entry: u32,
    uid: u64,
}

impl Clone for VectorSet {
    fn clone(&self) -> VectorSet {
        VectorSet {
            nodes: self.nodes.clone(),
            names: self.names.clone(),
            projection: self.projection.clone(),
            uid: NEXT_UID.fetch_add(1, Relaxed),
            ..*self
        }
    }
}

/// An element with its distance. Distances are no NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Near {
    distance: f32,
    place: u32,
}

impl Eq for Near {}
impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Near) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Near {
    fn cmp(&self, other: &Near) -> std::cmp::Ordering {
        self.distance.total_cmp(&other.distance).then(self.place.cmp(&other.place))
    }
}

/// What a search asks for.
pub struct Search<'a> {
    /// The most results.
    pub count: usize,
    /// How many of the nearest are kept while searching.
    pub ef: usize,
    /// Which elements count.
    pub filter: Option<&'a Filter>,
    /// How many elements the filter may look at, at most.
    pub filter_ef: usize,
    /// Compares with every element instead of walking the graph.
    pub exact: bool,
}

/// An element that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// 1 for the same direction, 0 for the opposite one.
    pub score: f64,
    /// Its attributes.
    pub attributes: Option<&'a [u8]>,
}

impl VectorSet {
    /// Creates an empty set of vectors of so many dimensions, with so many links for an element.
    /// `input` dimensions are projected to these, if given.
    pub fn new(dim: usize, quant: Quant, links: usize, input: Option<usize>) -> VectorSet {
        let projection = input.map(|input| Projection { input, matrix: Matrix::Seed(SEED) });
        VectorSet::from_parts(dim, quant, links, projection)
    }

    pub(crate) fn from_parts(
        dim: usize,
        quant: Quant,
        links: usize,
        projection: Option<Projection>,
    ) -> VectorSet {
        VectorSet {
            dim,
            quant,
            links,
            projection,
            chance: 0,
            added: 0,
            nodes: Vec::new(),
            names: Names::default(),
            entry: 0,
            uid: NEXT_UID.fetch_add(1, Relaxed),
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the dimensions of the vectors that it has.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Returns the dimensions of the vectors that are projected, if they are.
    pub fn input_dim(&self) -> Option<usize> {
        self.projection.as_ref().map(|projection| projection.input)
    }

    /// Returns the form of the vectors.
    pub fn quant(&self) -> Quant {
        self.quant
    }

    /// Returns the links of an element at the levels above 0; there are twice as many at level 0.
    pub fn links(&self) -> usize {
        self.links
    }

    /// Returns the highest level.
    pub fn max_level(&self) -> usize {
        self.nodes.get(self.entry as usize).map_or(0, |node| node.links.len() - 1)
    }

    /// Returns the number of this set in the process.
    pub fn uid(&self) -> u64 {
        self.uid
    }

    /// Returns how many elements were ever added.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Returns the number of elements with attributes.
    pub fn with_attributes(&self) -> usize {
        self.nodes.iter().filter(|node| node.attributes.is_some()).count()
    }

    pub(crate) fn place(&self, name: &[u8]) -> Option<u32> {
        self.names.find(names::hash(name), |place| *self.nodes[place as usize].name == *name)
    }

    fn node(&self, name: &[u8]) -> Option<&Node> {
        self.place(name).map(|place| &self.nodes[place as usize])
    }

    /// Returns whether there is an element.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.place(name).is_some()
    }

    /// Returns the vector of an element with the length that it had.
    pub fn vector(&self, name: &[u8]) -> Option<(&Vector, f32)> {
        self.node(name).map(|node| (&node.vector, node.norm))
    }

    /// Returns the attributes of an element, if it has some.
    pub fn attributes(&self, name: &[u8]) -> Option<&[u8]> {
        self.node(name)?.attributes.as_deref()
    }

    /// Sets the attributes of an element; empty ones are removed. Returns whether it is there.
    pub fn set_attributes(&mut self, name: &[u8], attributes: &[u8]) -> bool {
        let Some(place) = self.place(name) else { return false };
        let is_set = !attributes.is_empty();
        self.nodes[place as usize].attributes = is_set.then(|| attributes.into());
        true
    }

    /// Returns the name at a place below the length.
    pub fn name_at(&self, place: usize) -> &[u8] {
        &self.nodes[place].name
    }

    /// Returns all names in the order of their places.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.nodes.iter().map(|node| &*node.name)
    }

    /// Returns numbers in the form of the set, with their length. They have the dimensions of the
    /// set, or those that its projection takes.
    pub fn form(&self, numbers: Vec<f32>) -> (Vector, f32) {
        match &self.projection {
            Some(projection) if projection.input == numbers.len() => {
                Vector::new(projection.apply(&numbers, self.dim), self.quant)
            }
            _ => Vector::new(numbers, self.quant),
        }
    }

    /// Returns the neighbours of an element with their scores, from the highest level to 0.
    pub fn neighbours(&self, name: &[u8]) -> Option<Vec<Vec<Found<'_>>>> {
        let node = self.node(name)?;
        let found =
            |&place: &u32| self.found(Near { distance: self.to(&node.vector, place), place });
        Some(node.links.iter().rev().map(|list| list.iter().map(found).collect()).collect())
    }

    fn found(&self, near: Near) -> Found<'_> {
        let node = &self.nodes[near.place as usize];
        let score = f64::from(1.0 - near.distance / 2.0);
        Found { name: &node.name, score, attributes: node.attributes.as_deref() }
    }

    #[inline]
    fn to(&self, vector: &Vector, place: u32) -> f32 {
        vector.distance(&self.nodes[place as usize].vector, self.dim)
    }

    fn between(&self, a: u32, b: u32) -> f32 {
        self.to(&self.nodes[a as usize].vector, b)
    }

    fn max_links(&self, level: usize) -> usize {
        if level == 0 { 2 * self.links } else { self.links }
    }

    /// Adds an element, or replaces the vector of the one with this name, keeping its attributes.
    /// Returns whether it is new.
    pub fn add(&mut self, name: &[u8], vector: Vector, norm: f32, ef: usize) -> bool {
        let old = self.place(name);
        let attributes = old.and_then(|place| {
            let attributes = self.nodes[place as usize].attributes.take();
            self.remove(name);
            attributes
        });
        let level = self.draw_level();
        let place = self.nodes.len() as u32;
        self.added += 1;
        let links = vec![Vec::new(); level + 1].into();
        let hash = names::hash(name);
        self.nodes.push(Node { name: name.into(), vector, norm, attributes, links });
        let nodes = &self.nodes;
        self.names.insert(hash, place, |at| names::hash(&nodes[at as usize].name));
        if place == 0 {
            self.entry = 0;
        } else {
            self.connect(place, ef.max(self.links));
        }
        old.is_none()
    }

    /// Draws a level: each is reached by one of `links` elements of the level below.
    fn draw_level(&mut self) -> usize {
        let drawn = splitmix64_share(&mut self.chance);
        let (mut level, mut share) = (0, 1.0 / self.links as f64);
        while level < MAX_LEVEL && drawn < share {
            level += 1;
            share /= self.links as f64;
        }
        level
    }

    /// Links an element that has no links yet.
    fn connect(&mut self, place: u32, ef: usize) {
        let level = self.nodes[place as usize].links.len() - 1;
        let top = self.max_level();
        let vector = self.nodes[place as usize].vector.clone();
        let mut entry = self.descend(&vector, level.min(top));
        for at in (0..=level.min(top)).rev() {
            let near = self.nearest(&vector, entry, at, ef);
            entry = near.first().map_or(entry, |near| near.place);
            for other in self.choose(&near, self.links) {
                self.link(place, other, at);
            }
            if at == 0 && self.nodes[place as usize].links[0].is_empty() {
                // All near ones are full of better links. It must be found all the same.
                if let Some(first) = near.first() {
                    self.join(place, first.place, 0);
                }
            }
        }
        if level > top {
            self.entry = place;
        }
    }

    /// Walks from the entry point to the nearest element that is found above a level.
    fn descend(&self, vector: &Vector, level: usize) -> u32 {
        let mut best = Near { distance: self.to(vector, self.entry), place: self.entry };
        for at in (level + 1..=self.max_level()).rev() {
            loop {
                let list = &self.nodes[best.place as usize].links[at];
                let near =
                    list.iter().map(|&place| Near { distance: self.to(vector, place), place });
                match near.min().filter(|near| near.distance < best.distance) {
                    Some(near) => best = near,
                    None => break,
                }
            }
        }
        best.place
    }

    /// Returns the nearest elements at a level, the nearest first.
    fn nearest(&self, vector: &Vector, entry: u32, level: usize, ef: usize) -> Vec<Near> {
        self.walk(vector, entry, level, ef, usize::MAX, |_| true)
    }

    /// Walks a level from an element: collects the `ef` nearest that count, and looks at `visits`
    /// elements at most.
    fn walk(
        &self,
        vector: &Vector,
        entry: u32,
        level: usize,
        ef: usize,
        visits: usize,
        counts: impl Fn(u32) -> bool,
    ) -> Vec<Near> {
        let mut seen = vec![0_u64; self.nodes.len().div_ceil(64)];
        let mut see = |place: u32| {
            let (word, bit) = (place as usize / 64, 1_u64 << (place % 64));
            let is_new = seen[word] & bit == 0;
            seen[word] |= bit;
            is_new
        };
        let start = Near { distance: self.to(vector, entry), place: entry };
        see(entry);
        let mut waiting = BinaryHeap::from([Reverse(start)]);
        let mut best = BinaryHeap::new();
        if counts(entry) {
            best.push(start);
        }
        let mut left = visits;
        while let Some(Reverse(near)) = waiting.pop() {
            let is_full = best.len() >= ef;
            if is_full && best.peek().is_some_and(|worst: &Near| near.distance > worst.distance) {
                break;
            }
            for &place in &self.nodes[near.place as usize].links[level] {
                if !see(place) {
                    continue;
                }
                let Some(rest) = left.checked_sub(1) else { return best.into_sorted_vec() };
                left = rest;
                let next = Near { distance: self.to(vector, place), place };
                let is_better = best.len() < ef || best.peek().is_some_and(|worst| next < *worst);
                if is_better {
                    waiting.push(Reverse(next));
                    if counts(place) {
                        best.push(next);
                        if best.len() > ef {
                            best.pop();
                        }
                    }
                }
            }
        }
        best.into_sorted_vec()
    }

    /// Chooses neighbours in different directions: each is nearer to the element than to those that
    /// were chosen before. If these are too few, the nearest others follow.
    fn choose(&self, near: &[Near], count: usize) -> Vec<u32> {
        let mut chosen: Vec<u32> = Vec::with_capacity(count);
        let mut others = Vec::new();
        for near in near {
            if chosen.len() == count {
                break;
            }
            let is_apart =
                chosen.iter().all(|&other| self.between(near.place, other) >= near.distance);
            if is_apart { chosen.push(near.place) } else { others.push(near.place) }
        }
        let missing = count - chosen.len();
        chosen.extend(others.into_iter().take(missing));
        chosen
    }

    /// Links two elements, unless one of them is full of better links.
    fn link(&mut self, new: u32, old: u32, level: usize) {
        if new == old || self.nodes[new as usize].links[level].contains(&old) {
            return;
        }
        if self.nodes[old as usize].links[level].len() >= self.max_links(level) {
            match self.dispensable(old, new, level) {
                Some(other) => self.unlink(old, other, level),
                None => return,
            }
        }
        self.join(new, old, level);
    }

    fn join(&mut self, a: u32, b: u32, level: usize) {
        for (from, to) in [(a, b), (b, a)] {
            let list = &mut self.nodes[from as usize].links[level];
            // Grows by halves, so that full lists have no spare places.
            if list.len() == list.capacity() {
                list.reserve_exact((list.len() / 2).max(4));
            }
            list.push(to);
        }
    }

    fn unlink(&mut self, a: u32, b: u32, level: usize) {
        for (from, to) in [(a, b), (b, a)] {
            self.nodes[from as usize].links[level].retain(|&place| place != to);
        }
    }

    /// Returns the neighbour of a full element that a new one replaces: the farthest that is also
    /// reached by a nearer one and has other links, else the farthest that is farther than the new.
    fn dispensable(&self, full: u32, new: u32, level: usize) -> Option<u32> {
        let near = |&place: &u32| Near { distance: self.between(full, place), place };
        let mut all: Vec<Near> = self.nodes[full as usize].links[level].iter().map(near).collect();
        let added = near(&new);
        all.push(added);
        all.sort_unstable();
        let has_others =
            |place: u32| self.nodes[place as usize].links[level].len() > self.links / 2;
        for at in (1..all.len()).rev() {
            let Near { distance, place } = all[at];
            let is_reached = all[..at].iter().any(|by| self.between(by.place, place) < distance);
            if is_reached && place == new {
                return None;
            }
            if is_reached && has_others(place) {
                return Some(place);
            }
        }
        let farther = all.iter().rev().take_while(|near| near.place != new);
        farther.map(|near| near.place).find(|&place| has_others(place))
    }

    /// Removes an element. Returns whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(place) = self.place(name) else { return false };
        let levels = std::mem::take(&mut self.nodes[place as usize].links);
        for (level, list) in levels.iter().enumerate() {
            for &other in list {
                self.nodes[other as usize].links[level].retain(|&to| to != place);
            }
            self.repair(list, level);
        }
        let nodes = &self.nodes;
        self.names.remove(names::hash(name), place, |at| names::hash(&nodes[at as usize].name));
        let last = (self.nodes.len() - 1) as u32;
        self.nodes.swap_remove(place as usize);
        if place != last {
            self.rename_place(last, place);
        }
        if self.entry == place {
            self.choose_entry(levels.last().and_then(|list| list.first()).copied(), place, last);
        } else if self.entry == last {
            self.entry = place;
        }
        true
    }

    /// Links elements that have lost a common neighbour to each other, the nearest first.
    fn repair(&mut self, list: &[u32], level: usize) {
        let max = self.max_links(level);
        let list = &list[..list.len().min(4 * self.links.min(64))];
        let mut pairs = Vec::new();
        for (at, &a) in list.iter().enumerate() {
            let pair = |&b: &u32| (Near { distance: self.between(a, b), place: a }, b);
            pairs.extend(list[at + 1..].iter().map(pair));
        }
        pairs.sort_unstable();
        let mut given = vec![0; list.len()];
        for (near, b) in pairs {
            let (a, at) = (near.place, |of: u32| list.iter().position(|&place| place == of));
            let (Some(at_a), Some(at_b)) = (at(a), at(b)) else { continue };
            let has_space = |of: u32| self.nodes[of as usize].links[level].len() < max;
            let is_linked = self.nodes[a as usize].links[level].contains(&b);
            let is_wanted = given[at_a] < 2 || given[at_b] < 2;
            if is_wanted && !is_linked && has_space(a) && has_space(b) {
                self.join(a, b, level);
                given[at_a] += 1;
                given[at_b] += 1;
            }
        }
    }

    /// Lets the last element, which has moved to another place, be known by it.
    fn rename_place(&mut self, from: u32, to: u32) {
        let hash = names::hash(&self.nodes[to as usize].name);
        self.names.move_to(hash, from, to);
        for level in 0..self.nodes[to as usize].links.len() {
            for at in 0..self.nodes[to as usize].links[level].len() {
                let other = self.nodes[to as usize].links[level][at];
                let list = &mut self.nodes[other as usize].links[level];
                list.iter_mut().filter(|place| **place == from).for_each(|place| *place = to);
            }
        }
    }

    /// Chooses an entry point: one of the highest level.
    fn choose_entry(&mut self, neighbour: Option<u32>, removed: u32, last: u32) {
        self.entry = match neighbour {
            Some(place) if place == last => removed,
            Some(place) => place,
            None => self.first_of_highest(),
        };
    }

    /// Returns the first place of the highest level.
    pub(crate) fn first_of_highest(&self) -> u32 {
        let levels = self.nodes.iter().map(|node| node.links.len());
        let highest = levels.enumerate().max_by_key(|&(place, level)| (level, Reverse(place)));
        highest.map_or(0, |(place, _)| place as u32)
    }

    /// Links elements that no other is linked to at level 0, so that searches find them.
    pub(crate) fn join_lonely(&mut self, ef: usize) {
        for place in 0..self.nodes.len() as u32 {
            if place != self.entry && self.nodes[place as usize].links[0].is_empty() {
                for level in 1..self.nodes[place as usize].links.len() {
                    for other in std::mem::take(&mut self.nodes[place as usize].links[level]) {
                        self.nodes[other as usize].links[level].retain(|&to| to != place);
                    }
                }
                self.connect(place, ef);
            }
        }
    }

    /// Returns the elements nearest to a vector, the nearest first.
    pub fn search(&self, vector: &Vector, search: &Search<'_>) -> Vec<Found<'_>> {
        if self.is_empty() {
            return Vec::new();
        }
        let counts = |place: u32| {
            let attributes = self.nodes[place as usize].attributes.as_deref();
            search.filter.is_none_or(|filter| attributes.is_some_and(|text| filter.accepts(text)))
        };
        let near = if search.exact {
            self.all(vector, search.count, counts)
        } else {
            let entry = self.descend(vector, 0);
            let ef = search.ef.max(search.count);
            let visits = if search.filter.is_some() { search.filter_ef } else { usize::MAX };
            self.walk(vector, entry, 0, ef, visits, counts)
        };
        near.into_iter().take(search.count).map(|near| self.found(near)).collect()
    }

    /// Returns the nearest of all elements.
    fn all(&self, vector: &Vector, count: usize, counts: impl Fn(u32) -> bool) -> Vec<Near> {
        let mut best = BinaryHeap::new();
        for place in (0..self.nodes.len() as u32).filter(|&place| counts(place)) {
            best.push(Near { distance: self.to(vector, place), place });
            if best.len() > count {
                best.pop();
            }
        }
        best.into_sorted_vec()
    }

    /// Returns the bytes of its blocks.
    pub fn heap_bytes(&self) -> usize {
        let of_node = |node: &Node| {
            let lists = node.links.iter().map(|list| list.capacity() * size_of::<u32>());
            let attributes = node.attributes.as_ref().map_or(0, |text| text.len());
            node.name.len()
                + attributes
                + node.vector.allocated_bytes()
                + node.links.len() * size_of::<Vec<u32>>()
                + lists.sum::<usize>()
        };
        let nodes = self.nodes.capacity() * size_of::<Node>();
        let projection = self.projection.as_ref().map_or(0, Projection::allocated_bytes);
        projection
            + nodes
            + self.names.allocated_bytes()
            + self.nodes.iter().map(of_node).sum::<usize>()
    }
}
