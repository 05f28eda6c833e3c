//! What a worker writes to its standard output, one JSON document in a line.

use history::Record;
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// A call that came back.
    Call(Record),
    /// A call that failed, in the words of the library. It comes after its record.
    Failed(String),
    /// The file was not as the holder of the lock has a right to find it.
    Damage(String),
    /// The file was increased once more.
    Increased,
}
