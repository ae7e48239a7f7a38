//! The data set in files.

pub mod load;
