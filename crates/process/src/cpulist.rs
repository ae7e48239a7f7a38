//! Lists of processors, as the kernel prints them and `server-cpulist` takes them: `0,2-5` or, with
//! a stride, `1-10:2`.

use std::fmt;

/// Processors beyond this number do not exist; it keeps a typing error from filling memory.
const MAX_CPU: usize = 65_535;

/// Why a list is not one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuListError(String);

impl fmt::Display for CpuListError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "invalid CPU list at '{}'", self.0)
    }
}

impl std::error::Error for CpuListError {}

/// The processors of a list, each once, in the order in which they are named.
pub fn parse(list: &str) -> Result<Vec<usize>, CpuListError> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let range = parse_range(part).ok_or_else(|| CpuListError(part.to_owned()))?;
        cpus.extend(range);
    }
    let mut seen = std::collections::HashSet::new();
    cpus.retain(|cpu| seen.insert(*cpu));
    Ok(cpus)
}

fn parse_range(part: &str) -> Option<impl Iterator<Item = usize>> {
    let (range, stride) = match part.split_once(':') {
        // A stride means something only for a range.
        Some((range, stride)) => (range.contains('-').then_some(range)?, number(stride)?),
        None => (part, 1),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(range)?, number(range)?),
    };
    (first <= last && last <= MAX_CPU && stride > 0).then(|| (first..=last).step_by(stride))
}

fn number(text: &str) -> Option<usize> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ranges_and_strides() {
        assert_eq!(parse("0,2-5").unwrap(), [0, 2, 3, 4, 5]);
        assert_eq!(parse("1-10:2").unwrap(), [1, 3, 5, 7, 9]);
        assert_eq!(parse("7,1,7,0-1\n").unwrap(), [7, 1, 0]);
    }

    #[test]
    fn anything_else_is_an_error_that_says_where() {
        for wrong in ["", "a", "1,", "3-1", "1-5:0", "4:2", "-1", "1-", "0-99999999", "1 ,2", "+1"]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(parse("0,x-2").unwrap_err().to_string(), "invalid CPU list at 'x-2'");
    }
}
