//! The file that the lock protects: a counter, and the fence of its last writer.
//!
//! It is read and written as naively as can be. Two holders at once would overwrite each other's number.

use std::fs;
use std::path::Path;

/// The content of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter {
    /// How often it was increased.
    pub(crate) count: u64,
    /// With which fence it was written last.
    pub(crate) fence: u64,
}

impl Counter {
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(file).map_err(|error| format!("cannot read the file: {error}"))?;
        // The last line is not closed: another worker is writing the file at this moment.
        let parse = || {
            let (count, fence) = text.strip_suffix('\n')?.split_once(' ')?;
            Some(Self { count: count.parse().ok()?, fence: fence.parse().ok()? })
        };
        parse().ok_or_else(|| format!("found the file half written: {text:?}"))
    }

    pub(crate) fn write(self, file: &Path) -> Result<(), String> {
        let text = format!("{} {}\n", self.count, self.fence);
        fs::write(file, text).map_err(|error| format!("cannot write the file: {error}"))
    }
}
