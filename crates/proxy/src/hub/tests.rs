//! Hubs on a network in memory.
