//! What commands answer and do, one client at a time: scripts, tables, random requests.

mod command_table;
mod differential;
mod endless_scripts;
mod field_expiry;
mod functions;
mod hostile_arguments;
mod long_commands;
mod long_strings;
mod migrate;
mod module_types;
mod scan_guarantee;
mod scripts;
