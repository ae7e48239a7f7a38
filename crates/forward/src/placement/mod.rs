//! Which server has a key, as Twemproxy decides it.
//!
//! Twemproxy lays servers on a *continuum* of points and looks a key's hash up there:
//!
//! * **ketama**: each server has 160 points times its share of the weights, from MD5 digests of its
//!   name; the first point at or behind the hash has the key.
//! * **modula**: a server has as many points as its weight says, in the order of the names.
//! * **random**: any server.
//!
//! A server that is ejected has no points.

pub mod hash;

use hash::Hash;

/// How servers share the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the distributions of the same names")]
pub enum Distribution {
    #[default]
    Ketama,
    Modula,
    Random,
}

impl Distribution {
    /// Returns the distribution of this name in Twemproxy's configuration.
    pub fn named(name: &str) -> Option<Distribution> {
        Some(match name {
            "ketama" => Distribution::Ketama,
            "modula" => Distribution::Modula,
            "random" => Distribution::Random,
            _ => return None,
        })
    }
}

/// A server, as far as placement is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name from which its points are computed. Without a name it is the address.
    pub name: String,
    /// Its share of the keys, in proportion to the other weights.
    pub weight: u32,
}

/// How keys become hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The function.
    pub hash: Hash,
    /// The opening and the closing character around the part of a key that is hashed.
    pub tag: Option<[u8; 2]>,
}

impl Keys {
    /// Returns the part of a key that is hashed: what is between the first opening character and
    /// the next closing one. If there is no such part, or it is empty, the whole key is hashed.
    pub fn significant<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        let Some([open, close]) = self.tag else { return key };
        let Some(start) = key.iter().position(|&byte| byte == open) else { return key };
        let inside = &key[start + 1..];
        match inside.iter().position(|&byte| byte == close) {
            Some(len) if len > 0 => &inside[..len],
            _ => key,
        }
    }

    /// Returns whether all keys that begin with `prefix` have the same part that is hashed.
    pub fn is_decided_by(&self, prefix: &[u8]) -> bool {
        self.significant(prefix).len() < prefix.len()
    }

    /// Returns the hash of a key; that of an empty key is 0.
    pub fn hash_of(&self, key: &[u8]) -> u32 {
        let key = self.significant(key);
        if key.is_empty() { 0 } else { self.hash.of(key) }
    }
}

/// Points of servers.
#[derive(Clone, Debug)]
pub struct Continuum {
    distribution: Distribution,
    /// The points' values and the servers' numbers, for ketama in the order of the values. The
    /// other distributions have no values, only positions.
    points: Vec<(u32, u32)>,
}

const POINTS_PER_SERVER: u32 = 160;
const POINTS_PER_HASH: u32 = 4;

impl Continuum {
    /// Makes the continuum of the members that are live.
    pub fn new(
        distribution: Distribution,
        members: &[Member],
        is_live: impl Fn(usize) -> bool,
    ) -> Continuum {
        let mut live: Vec<usize> = (0..members.len()).filter(|&at| is_live(at)).collect();
        // Twemproxy sorts the servers by their names, short ones first, whatever the file's order
        // is.
        live.sort_by_key(|&at| (members[at].name.len(), members[at].name.as_bytes()));
        let mut points = Vec::new();
        match distribution {
            Distribution::Ketama => {
                let total: u32 = live.iter().map(|&at| members[at].weight).sum();
                for &at in &live {
                    ketama_points(&members[at], at as u32, total, live.len(), &mut points);
                }
                points.sort_by_key(|point| point.0);
            }
            Distribution::Modula => {
                for &at in &live {
                    points.extend((0..members[at].weight).map(|_| (0, at as u32)));
                }
            }
            Distribution::Random => points.extend(live.iter().map(|&at| (0, at as u32))),
        }
        Continuum { distribution, points }
    }

    /// Returns the number of the server that a hash belongs to. The random distribution ignores the
    /// hash and takes `chance`, which is any number.
    pub fn server(&self, hash: u32, chance: u32) -> Option<usize> {
        let count = self.points.len();
        if count == 0 {
            return None;
        }
        let at = match self.distribution {
            Distribution::Ketama => self.points.partition_point(|point| point.0 < hash) % count,
            Distribution::Modula => hash as usize % count,
            Distribution::Random => chance as usize % count,
        };
        Some(self.points[at].1 as usize)
    }
}

/// Appends a server's points. The sums are those of C's `float`: a different rounding would move
/// keys.
fn ketama_points(
    member: &Member,
    server: u32,
    total: u32,
    live: usize,
    points: &mut Vec<(u32, u32)>,
) {
    let share = member.weight as f32 / total as f32;
    let hashes = share * POINTS_PER_SERVER as f32 / POINTS_PER_HASH as f32 * live as f32;
    let hashes = (f64::from(hashes) + 0.000_000_000_1) as f32;
    for index in 0..hashes.floor() as u32 {
        let digest = hash::md5(format!("{}-{index}", member.name).as_bytes());
        for part in digest.chunks_exact(4) {
            points.push((u32::from_le_bytes([part[0], part[1], part[2], part[3]]), server));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_what_is_between_the_tags_counts() {
        let keys = Keys { tag: Some(*b"{}"), ..Keys::default() };
        assert_eq!(keys.significant(b"a{b}c"), b"b");
        assert_eq!(keys.significant(b"a{}c{d}"), b"a{}c{d}");
        assert_eq!(keys.significant(b"}{"), b"}{");
        assert_eq!(keys.significant(b"a"), b"a");
        let decides = |prefix: &str| keys.is_decided_by(prefix.as_bytes());
        assert!(decides("a{b}") && decides("{b}c"));
        assert!(!decides("") && !decides("a{b") && !decides("a{}{b}") && !decides("a}"));
        assert!(!Keys::default().is_decided_by(b"a{b}"));
        let same = Keys { tag: Some(*b"$$"), ..Keys::default() };
        assert_eq!(same.significant(b"a$b$c"), b"b");
    }

    proptest! {
        /// Ejecting a server moves only the keys that it had, when weights are alike.
        #[test]
        fn ejection_moves_no_other_key(gone in 0usize..5, hashes in prop::collection::vec(any::<u32>(), 50)) {
            let members: Vec<Member> =
                (0..5).map(|n| Member { name: format!("s{n}"), weight: 1 }).collect();
            let all = Continuum::new(Distribution::Ketama, &members, |_| true);
            let fewer = Continuum::new(Distribution::Ketama, &members, |at| at != gone);
            for hash in hashes {
                let (before, after) = (all.server(hash, 0), fewer.server(hash, 0));
                prop_assert!(before == Some(gone) || before == after);
                prop_assert_ne!(after, Some(gone));
            }
        }
    }
}
