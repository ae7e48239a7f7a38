//! Limits that control groups (containers, systemd units) put on this process, versions 1 and 2.
//!
//! A group's limit also binds the groups inside it, so the tightest one on the way from the
//! process's own group up to the mount point counts. Limits above the mount point (outside the
//! container) cannot be seen from here.
//!
//! ```text
//! /proc/self/cgroup     which group, per hierarchy:  4:memory:/docker/7f3a   or   0::/a/b
//! /proc/self/mountinfo  where that hierarchy is mounted, and which group its top directory is
//! ```
//!
//! All functions take the root directory, so that tests can show them another machine.

use std::fs;
use std::path::{Path, PathBuf};

/// The tightest CPU quota that binds the process, in processors: 2.5 means 250 ms of processor time
/// each 100 ms. `None` without a quota.
pub fn cpu_quota(root: &Path) -> Option<f64> {
    let modern = groups(root, Hierarchy::Unified).filter_map(|group| {
        let text = fs::read_to_string(group.join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        ratio(quota.parse().ok()?, period.parse().ok()?)
    });
    let legacy = groups(root, Hierarchy::Legacy("cpu")).filter_map(|group| {
        let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
        // A quota of -1 means none.
        ratio(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
    });
    modern.chain(legacy).min_by(f64::total_cmp)
}

fn ratio(quota: f64, period: f64) -> Option<f64> {
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

/// The tightest memory limit that binds the process, in bytes. `None` without a limit.
pub fn memory_limit(root: &Path) -> Option<u64> {
    /// Version 1 says "no limit" with a number near `i64::MAX`, rounded down to a page.
    const NO_LIMIT: u64 = 1 << 62;
    let limits = |hierarchy, file: &'static str| {
        groups(root, hierarchy).filter_map(move |group| {
            fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok()
        })
    };
    limits(Hierarchy::Unified, "memory.max")
        .chain(limits(Hierarchy::Legacy("memory"), "memory.limit_in_bytes"))
        .filter(|limit| *limit < NO_LIMIT)
        .min()
}

#[derive(Clone, Copy)]
enum Hierarchy {
    /// Version 2: one hierarchy for all controllers.
    Unified,
    /// Version 1: the hierarchy of this controller.
    Legacy(&'static str),
}

/// The directories of the process's own group and of all groups around it.
fn groups(root: &Path, hierarchy: Hierarchy) -> impl Iterator<Item = PathBuf> + use<> {
    let own = own_group(root, hierarchy);
    let (top, bottom) = own.unwrap_or_default();
    let mut next = (!top.as_os_str().is_empty()).then_some(bottom);
    std::iter::from_fn(move || {
        let group = next.take()?;
        if group != top {
            next = group.parent().map(Path::to_owned);
        }
        Some(group)
    })
}

/// The hierarchy's mount point, and the directory of the process's group in it.
fn own_group(root: &Path, hierarchy: Hierarchy) -> Option<(PathBuf, PathBuf)> {
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let group = cgroups.lines().find_map(|line| group_of_line(line, hierarchy))?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mount = mounts.lines().find_map(|line| Mount::parse(line, hierarchy))?;
    let top = root.join(mount.point.trim_start_matches('/'));
    // The mounted part may begin below the hierarchy's root, as in a container. A group outside it
    // ("/../x", or one of the host's names) cannot be reached: what is mounted is the best to be
    // had.
    let below = match mount.root.as_str() {
        "/" => Some(group),
        container => {
            group.strip_prefix(container).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        }
    };
    let below = below.filter(|path| !path.split('/').any(|part| part == "..")).unwrap_or_default();
    let bottom = top.join(below.trim_start_matches('/'));
    let exists = bottom.is_dir();
    Some((top.clone(), if exists { bottom } else { top }))
}

/// The group in a line `NUMBER:CONTROLLERS:GROUP` if it is of the hierarchy wanted.
fn group_of_line(line: &str, hierarchy: Hierarchy) -> Option<&str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, group) = (fields.next()?, fields.next()?, fields.next()?);
    let matches = match hierarchy {
        Hierarchy::Unified => number == "0" && controllers.is_empty(),
        Hierarchy::Legacy(name) => controllers.split(',').any(|controller| controller == name),
    };
    matches.then_some(group)
}

struct Mount {
    /// The group that its top directory is.
    root: String,
    /// Where it is mounted.
    point: String,
}

impl Mount {
    /// From `36 35 0:31 /root /point options tags… - type source superoptions`, if that is the
    /// hierarchy wanted.
    fn parse(line: &str, hierarchy: Hierarchy) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut fields = filesystem.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        let matches = match hierarchy {
            Hierarchy::Unified => kind == "cgroup2",
            Hierarchy::Legacy(name) => {
                kind == "cgroup" && options.split(',').any(|option| option == name)
            }
        };
        matches.then(|| Self { root: unescape(root), point: unescape(point) })
    }
}

/// mountinfo writes space, tab, newline and backslash as `\040` and so on.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;

    const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn without_control_groups_nothing_is_limited() {
        let machine = Directory::new("cgroup-none");
        assert_eq!(cpu_quota(machine.path()), None);
        assert_eq!(memory_limit(machine.path()), None);
    }

    #[test]
    fn the_tightest_of_nested_groups_binds() {
        let machine = Directory::new("cgroup2");
        machine.file("proc/self/cgroup", "0::/a.slice/b.service\n");
        machine.file("proc/self/mountinfo", UNIFIED);
        machine.file("sys/fs/cgroup/a.slice/b.service/cpu.max", "400000 100000\n");
        machine.file("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n");
        machine.file("sys/fs/cgroup/a.slice/cpu.max", "150000 100000\n");
        machine.file("sys/fs/cgroup/a.slice/memory.max", "1073741824\n");
        assert_eq!(cpu_quota(machine.path()), Some(1.5));
        assert_eq!(memory_limit(machine.path()), Some(1 << 30));
        machine.file("sys/fs/cgroup/a.slice/cpu.max", "max 100000\n");
        assert_eq!(cpu_quota(machine.path()), Some(4.0));
    }

    #[test]
    fn a_container_with_its_own_namespace_reads_the_mount_point() {
        let machine = Directory::new("cgroup-ns");
        machine.file("proc/self/cgroup", "0::/\n").file("proc/self/mountinfo", UNIFIED);
        machine.file("sys/fs/cgroup/cpu.max", "50000 100000\n");
        assert_eq!(cpu_quota(machine.path()), Some(0.5));
    }

    #[test]
    fn version_1_in_a_container_strips_the_container_s_own_path() {
        let machine = Directory::new("cgroup1");
        machine.file(
            "proc/self/cgroup",
            "5:memory:/docker/7f/inner\n4:cpu,cpuacct:/docker/7f/inner\n1:name=systemd:/docker/7f\n",
        );
        machine.file(
            "proc/self/mountinfo",
            "40 23 0:30 /docker/7f /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
             41 23 0:31 /docker/7f /sys/fs/cgroup/me\\040mory ro master:2 - cgroup c rw,memory\n",
        );
        let cpu = "sys/fs/cgroup/cpu,cpuacct";
        machine.file(&format!("{cpu}/inner/cpu.cfs_quota_us"), "-1\n");
        machine.file(&format!("{cpu}/inner/cpu.cfs_period_us"), "100000\n");
        machine.file(&format!("{cpu}/cpu.cfs_quota_us"), "200000\n");
        machine.file(&format!("{cpu}/cpu.cfs_period_us"), "100000\n");
        let unlimited = "9223372036854771712\n";
        machine.file("sys/fs/cgroup/me mory/inner/memory.limit_in_bytes", unlimited);
        machine.file("sys/fs/cgroup/me mory/memory.limit_in_bytes", "536870912\n");
        assert_eq!(cpu_quota(machine.path()), Some(2.0));
        assert_eq!(memory_limit(machine.path()), Some(512 << 20));
    }

    #[test]
    fn a_group_outside_of_what_is_mounted_falls_back_to_the_mount_point() {
        for group in ["/../other", "/docker/7fff", "/elsewhere"] {
            let machine = Directory::new("cgroup-outside");
            machine.file("proc/self/cgroup", &format!("0::{group}\n"));
            machine.file("proc/self/mountinfo", &UNIFIED.replace(" / ", " /docker/7f "));
            machine.file("sys/fs/cgroup/cpu.max", "300000 100000\n");
            assert_eq!(cpu_quota(machine.path()), Some(3.0), "{group}");
        }
    }

    #[test]
    fn a_hybrid_machine_looks_at_both_versions() {
        let machine = Directory::new("cgroup-hybrid");
        machine.file("proc/self/cgroup", "3:cpu:/g\n0::/g\n");
        machine.file(
            "proc/self/mountinfo",
            &format!("{UNIFIED}41 23 0:31 / /cpu rw - cgroup cgroup rw,cpu\n"),
        );
        machine.file("cpu/g/cpu.cfs_quota_us", "700000").file("cpu/g/cpu.cfs_period_us", "100000");
        assert_eq!(cpu_quota(machine.path()), Some(7.0));
    }
}
