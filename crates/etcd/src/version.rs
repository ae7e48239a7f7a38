//! Which versions of etcd keep leases as they promise.

/// The first version in which a leader that is stuck on its disk does not end leases renewed with
/// its successor (etcd-io/etcd issue 15247).
const SOUND: (u32, u32, u32) = (3, 5, 13);

/// Returns what to say about a version of etcd, if it is not to be relied on.
pub fn version_warning(version: &str) -> Option<String> {
    let mut parts = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    let mut next = || parts.next().flatten();
    let numbers = next().zip(next()).zip(next());
    match numbers.map(|((major, minor), patch)| (major, minor, patch)) {
        Some(numbers) if numbers >= SOUND => None,
        Some(_) => Some(format!(
            "etcd {version} may end leases that were renewed, when its leader is stuck on its disk \
             (issue 15247): a primary is then replaced without need. Use 3.5.13 or later."
        )),
        None => Some(format!("etcd says that its version is '{version}', which is none.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_the_bug_of_leases_are_named() {
        for sound in ["3.5.13", "3.5.21", "3.6.0", "3.6.0-rc.1", "4.0.0"] {
            assert_eq!(version_warning(sound), None, "{sound}");
        }
        for buggy in ["3.4.23", "3.5.12", "3.5.0+git"] {
            let warning = version_warning(buggy).unwrap_or_default();
            assert!(warning.contains(buggy) && warning.contains("15247"), "{warning}");
        }
        for none in ["", "3", "3.5", "three"] {
            assert!(version_warning(none).is_some_and(|text| text.contains("none")), "{none}");
        }
    }
}
