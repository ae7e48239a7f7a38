//! Local calendar time, correct on both sides of a daylight-saving change.
//!
//! `localtime_r` consults the zone's rules for the very instant asked about. Redis caches the
//! offset instead, because it forks while other threads may hold the zone's lock; Dunlin forks
//! only before it has threads.
#![allow(unsafe_code)] // localtime_r: std has no notion of time zones

use std::time::{SystemTime, UNIX_EPOCH};

/// An instant taken apart in the local time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalTime {
    /// Year, such as 2025.
    pub year: i32,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 60.
    pub second: u8,
    /// Millisecond, 0 to 999.
    pub millis: u16,
    /// Seconds east of UTC, daylight saving included.
    pub utc_offset_seconds: i32,
    /// Milliseconds since the Unix epoch.
    pub unix_millis: i64,
}

impl LocalTime {
    /// The present.
    pub fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_unix_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    /// The instant `unix_millis` after the Unix epoch.
    pub fn from_unix_millis(unix_millis: i64) -> Self {
        let seconds: libc::time_t = unix_millis.div_euclid(1000);
        // SAFETY: `tm` is plain data for which all zeroes is a valid value.
        let mut parts: libc::tm = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are valid for the call. On failure (a year beyond i32) the zeroed
        // parts remain, which render as a wrong date rather than fail.
        unsafe { libc::localtime_r(&seconds, &mut parts) };
        let small = |value: libc::c_int| u8::try_from(value).unwrap_or_default();
        Self {
            year: parts.tm_year.saturating_add(1900),
            month: small(parts.tm_mon + 1),
            day: small(parts.tm_mday),
            hour: small(parts.tm_hour),
            minute: small(parts.tm_min),
            second: small(parts.tm_sec),
            millis: u16::try_from(unix_millis.rem_euclid(1000)).unwrap_or_default(),
            utc_offset_seconds: i32::try_from(parts.tm_gmtoff).unwrap_or_default(),
            unix_millis,
        }
    }

    /// The English three-letter name of the month, whatever the locale.
    pub fn month_name(&self) -> &'static str {
        const NAMES: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        usize::from(self.month)
            .checked_sub(1)
            .and_then(|at| NAMES.get(at))
            .copied()
            .unwrap_or("???")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// The zone is process-wide state, so each case runs in a process of its own.
    #[test]
    fn daylight_saving_follows_the_instant() {
        if let Some(zone) = testing::child_argument("local_time_zone") {
            assert_eq!(zone, "CET-1CEST,M3.5.0,M10.5.0/3");
            // Half a second before and at the change of 30 March 2025 01:00 UTC.
            let before = LocalTime::from_unix_millis(1_743_296_399_500);
            let after = LocalTime::from_unix_millis(1_743_296_400_000);
            assert_eq!((before.hour, before.minute, before.millis), (1, 59, 500));
            assert_eq!(before.utc_offset_seconds, 3600);
            assert_eq!((after.hour, after.minute, after.millis), (3, 0, 0));
            assert_eq!(after.utc_offset_seconds, 7200);
            assert_eq!((after.year, after.month_name(), after.day), (2025, "Mar", 30));
            return;
        }
        let zone = "CET-1CEST,M3.5.0,M10.5.0/3";
        let name = "local_time::tests::daylight_saving_follows_the_instant";
        testing::child_passes(name, "local_time_zone", zone, &[("TZ", zone)]);
    }

    #[test]
    fn times_before_the_epoch_have_positive_milliseconds() {
        assert_eq!(LocalTime::from_unix_millis(-1).millis, 999);
    }
}
