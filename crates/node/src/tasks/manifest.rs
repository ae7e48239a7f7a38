//! What a backup consists of: `DATABASE/TIME/manifest.json` beside a file for each shard. It is
//! written last, so a backup without one is no backup.

use super::storage::Storage;
use crate::settings::{Settings, sha256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The form of manifests that is written.
const FORMAT: u32 = 1;

/// The longest manifest.
const MAX_BYTES: u64 = 16 << 20;

/// The name of its file.
pub const FILE: &str = "manifest.json";

/// A file of a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Its name beside the manifest.
    pub file: String,
    /// The slots of the shard, as ranges.
    pub slots: Vec<(u16, u16)>,
    /// Bytes.
    pub bytes: u64,
    /// Keys.
    pub keys: u64,
    /// The SHA-256 of the file.
    pub sha256: String,
    /// The history of the shard's writes, and where in it the file stands.
    pub history: String,
    /// Likewise.
    pub offset: u64,
    /// The epoch of the shard's leadership.
    pub epoch: u64,
}

/// See the head of this file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// See [`FORMAT`].
    pub format: u32,
    /// The name of the database.
    pub database: String,
    /// The cluster.
    pub cluster: String,
    /// The version of the node that wrote it.
    pub version: String,
    /// The moment of the data, in milliseconds since 1970.
    pub at_ms: u64,
    /// When the last file was complete.
    pub ended_ms: u64,
    /// For how long writes were paused, in milliseconds; 0 if there is one shard.
    pub pause_ms: u64,
    /// The options of the database. The password is a hash.
    pub settings: Settings,
    /// The shards.
    pub parts: Vec<Part>,
}

impl Manifest {
    /// For a new backup.
    pub fn new(database: &str, cluster: &str, settings: Settings) -> Manifest {
        Manifest {
            format: FORMAT,
            database: database.to_owned(),
            cluster: cluster.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at_ms: 0,
            ended_ms: 0,
            pause_ms: 0,
            settings,
            parts: Vec::new(),
        }
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// The keys of all files.
    pub fn keys(&self) -> u64 {
        self.parts.iter().map(|part| part.keys).sum()
    }

    /// The document: the manifest, and the SHA-256 of its text.
    pub fn encode(&self) -> Vec<u8> {
        let value = serde_json::to_value(self).expect("numbers, texts and lists can be written");
        let sum = sha256(&value.to_string());
        let document = serde_json::json!({ "manifest": value, "sha256": sum });
        format!("{document:#}\n").into_bytes()
    }

    /// Reads a document.
    ///
    /// # Errors
    /// It is damaged, or of a later form.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        let document: Value = serde_json::from_slice(bytes)
            .map_err(|error| format!("the manifest is damaged: {error}"))?;
        // Keys of a value are sorted, so its text is the same again.
        let sum = sha256(&document["manifest"].to_string());
        if document["sha256"].as_str() != Some(&sum) {
            return Err("the manifest is damaged: its checksum is wrong".into());
        }
        let format = document["manifest"]["format"].as_u64().unwrap_or(0);
        if format != u64::from(FORMAT) {
            return Err(format!(
                "the manifest has form {format}, and this version reads form {FORMAT}"
            ));
        }
        serde_json::from_value(document["manifest"].clone())
            .map_err(|error| format!("the manifest makes no sense: {error}"))
    }

    /// Reads that of a backup, and looks whether its files are there with their lengths.
    ///
    /// # Errors
    /// The backup is not complete, or damaged.
    pub fn read(storage: &Storage, name: &str) -> Result<Manifest, String> {
        let file = format!("{name}/{FILE}");
        let len = match storage.len(&file)? {
            Some(len @ 1..=MAX_BYTES) => len,
            Some(_) => return Err("the manifest is damaged: its length makes no sense".into()),
            None if storage.list(name)?.is_empty() => {
                return Err(format!("there is no backup '{name}'"));
            }
            None => return Err("the backup has no manifest: it was never completed".into()),
        };
        let manifest = Manifest::decode(&storage.read(&file, 0, len)?)?;
        for part in &manifest.parts {
            match storage.len(&format!("{name}/{}", part.file))? {
                Some(len) if len == part.bytes => {}
                Some(len) => {
                    return Err(format!("{} has {len} bytes instead of {}", part.file, part.bytes));
                }
                None => return Err(format!("{} is not there", part.file)),
            }
        }
        Ok(manifest)
    }
}

/// The name of a moment, in the order of time: `2026-11-26T23-30-05Z`.
pub fn moment(at_ms: u64) -> String {
    let (days, seconds) = (at_ms / 86_400_000, at_ms / 1000 % 86_400);
    let (year, month, date) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}-{minute:02}-{second:02}Z")
}

/// The date of a day since 1970, by the calendar of 400 years that begins in March.
pub fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let part = (5 * of_year + 2) / 153;
    let day = of_year - (153 * part + 2) / 5 + 1;
    let month = if part < 10 { part + 3 } else { part - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::settings;

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(0), "1970-01-01T00-00-00Z");
        assert_eq!(moment(1_709_210_096_000), "2024-02-29T12-34-56Z");
        assert_eq!(moment(1_795_735_805_123), "2026-11-26T23-30-05Z");
    }

    #[test]
    fn a_damaged_manifest_is_refused() {
        let manifest = Manifest::new("a", "t", settings());
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes), Ok(manifest));
        let text = String::from_utf8(bytes).unwrap();
        assert!(Manifest::decode(text.replace("12000", "12001").as_bytes()).is_err());
        assert!(Manifest::decode(&text.as_bytes()[..text.len() / 2]).is_err());
    }
}
