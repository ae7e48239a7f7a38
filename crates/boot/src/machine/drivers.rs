//! Drivers that the kernel has as modules. They lie in the image in the order to load them.

use crate::system;
use std::path::Path;

/// Loads the modules of a folder by the order of their names. Descriptions of devices that QEMU
/// adds to the command line (`virtio_mmio.device=…`) go to their module, which reads no command
/// line once the kernel runs.
pub fn load_all(folder: &Path, command_line: &str) -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        let name = file.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        // `02-virtio_mmio` is the module virtio_mmio.
        let name = name.split_once('-').map_or(name, |(_, name)| name);
        let parameters = parameters(name, command_line);
        match system::load_module(&file, &parameters) {
            Err(error) if error.raw_os_error() != Some(libc::EEXIST) => {
                return Err(format!("the driver {name} cannot be loaded: {error}"));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The parameters of a module that the command line has.
fn parameters(module: &str, command_line: &str) -> String {
    let prefix = format!("{module}.");
    let words = command_line.split_whitespace();
    words.filter_map(|word| word.strip_prefix(&prefix)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_module_are_found() {
        let line = "quiet virtio_mmio.device=512@0x1:5 x.y=1 virtio_mmio.device=512@0x2:6";
        assert_eq!(parameters("virtio_mmio", line), "device=512@0x1:5 device=512@0x2:6");
        assert_eq!(parameters("virtio", line), "");
    }
}
