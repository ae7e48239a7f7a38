//! Files: the log, snapshots, the flash tier, and disks that fail.

mod disk_faults;
mod durability;
mod durability_changes;
mod files;
mod group_commit;
mod power_loss;
mod recovery;
mod reloading;
mod replay;
mod round_trips;
mod shared_fields;
mod snapshot_history;
mod snapshots;
mod tier;
mod wait;
