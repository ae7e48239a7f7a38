//! Which processors a server has and which the generator, so that neither takes the other's time.

use crate::generator::os;
use std::fs;

/// The processors of this process, divided.
pub struct Division {
    /// All of them.
    pub all: Vec<usize>,
    /// The server's half; empty on a machine with one processor.
    pub server: Vec<usize>,
    /// The generator's half.
    pub generator: Vec<usize>,
}

impl Division {
    /// Divides the processors of this process. Those that share a core stay together.
    pub fn of_this_machine() -> Result<Division, String> {
        let all = os::allowed_cpus().map_err(|error| format!("the processors: {error}"))?;
        Ok(halves(all, place))
    }
}

/// Returns the package and the core of a processor. One that says nothing is a core of its own.
fn place(cpu: usize) -> (u64, u64) {
    let number = |name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{name}");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    number("physical_package_id").zip(number("core_id")).unwrap_or((0, cpu as u64))
}

fn halves(mut all: Vec<usize>, place: impl Fn(usize) -> (u64, u64)) -> Division {
    all.sort_by_key(|&cpu| (place(cpu), cpu));
    let mut middle = all.len() / 2;
    // A core that lies across the middle belongs to the generator, unless it is the only one.
    let is_within_core = |at: usize| at > 0 && place(all[at - 1]) == place(all[at]);
    while middle > 0 && is_within_core(middle) {
        middle -= 1;
    }
    if middle == 0 {
        middle = all.len() / 2;
    }
    let (server, generator) = all.split_at(middle);
    Division { server: server.to_vec(), generator: generator.to_vec(), all: all.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_one_core_stay_together() {
        // As Linux numbers them on many machines: 0 and 4 share a core.
        let with_siblings = |cpu: usize| (0, cpu as u64 % 4);
        let division = halves((0..8).collect(), with_siblings);
        assert_eq!((division.server, division.generator), (vec![0, 4, 1, 5], vec![2, 6, 3, 7]));
        let division = halves((0..6).collect(), |cpu| (0, cpu as u64 / 2));
        assert_eq!((division.server, division.generator), (vec![0, 1], vec![2, 3, 4, 5]));
    }

    #[test]
    fn few_processors_are_divided_as_far_as_they_can() {
        let alone = |cpu: usize| (0, cpu as u64);
        let division = halves(vec![3, 5], alone);
        assert_eq!((division.server, division.generator), (vec![3], vec![5]));
        let division = halves(vec![0], alone);
        assert_eq!((division.server, division.generator), (vec![], vec![0]));
        // Two processors of the only core.
        let division = halves(vec![0, 1], |_| (0, 0));
        assert_eq!((division.server, division.generator), (vec![0], vec![1]));
    }

    #[test]
    fn this_machine_has_processors() {
        let division = Division::of_this_machine().unwrap();
        assert_eq!(division.all.len(), division.server.len() + division.generator.len());
        assert!(!division.generator.is_empty());
    }
}
