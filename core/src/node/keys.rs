//! Keys, as an operator sees those of one node: which there are.

use redis::Value;

use super::scripts::{refusal, text};
use crate::node::Connection;
use crate::transport::failure::Failure;

/// A part of a node's keys, and where the next part begins.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) keys: Vec<Vec<u8>>,
    /// `None` at the end.
    pub(crate) next: Option<u64>,
}

impl Connection {
    /// Asks for some of the keys that begin with `prefix`, from `cursor` on, and has the server look at about `count`
    /// keys for them.
    pub(crate) async fn scan(&self, prefix: &[u8], cursor: u64, count: u32) -> Result<Step, Failure> {
        let connection = match self {
            Self::Redis(connection) => connection,
            Self::Memory(store) => return store.look(|store, now| Step { keys: store.keys(now, prefix), next: None }),
            Self::Simulated(_) => return Ok(Step { keys: Vec::new(), next: None }),
        };
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg([prefix, b"*"].concat()).arg("COUNT").arg(count);
        let parts = match connection.ask_each(&[command]).await.pop().unwrap_or(Err(Failure::Closed))? {
            Value::Array(parts) => parts,
            Value::ServerError(error) => return Err(refusal(error.code(), error.details())),
            _ => return Err(Failure::UnexpectedReply),
        };
        let [cursor, Value::Array(found)] = &*parts else { return Err(Failure::UnexpectedReply) };
        let next: u64 = text(cursor).and_then(|digits| digits.parse().ok()).ok_or(Failure::UnexpectedReply)?;
        let key = |value: &Value| match value {
            Value::BulkString(key) => Ok(key.clone()),
            _ => Err(Failure::UnexpectedReply),
        };
        let keys = found.iter().map(key).collect::<Result<_, _>>()?;
        Ok(Step { keys, next: (next != 0).then_some(next) })
    }
}
