//! Has a file changed since it was read?

use std::fs;
use std::path::Path;

/// What changes with a file: its inode, its size and its times of change.
pub(crate) type FileVersion = [u64; 7];

/// Returns the version of a file as it is now; `None` for one that cannot be looked at.
#[cfg(unix)]
pub(crate) fn of(path: &Path) -> Option<FileVersion> {
    use std::os::unix::fs::MetadataExt;

    let metadata = fs::metadata(path).ok()?;
    let unsigned = |number: i64| number.cast_unsigned();
    Some([
        metadata.dev(),
        metadata.ino(),
        metadata.size(),
        unsigned(metadata.mtime()),
        unsigned(metadata.mtime_nsec()),
        unsigned(metadata.ctime()),
        unsigned(metadata.ctime_nsec()),
    ])
}

/// Returns the version of a file as it is now, without an inode and the time at which that changed.
#[cfg(not(unix))]
pub(crate) fn of(path: &Path) -> Option<FileVersion> {
    use std::time::SystemTime;

    let metadata = fs::metadata(path).ok()?;
    let changed = metadata.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Some([0, 0, metadata.len(), changed.as_secs(), changed.subsec_nanos().into(), 0, 0])
}
