//! One record for each lock that a call was about.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::record::{Kind, Record};

/// The records of single locks.
///
/// A record of several names becomes one for each of them. An acquire of a semaphore asks for every slot below its permits:
/// of those that it did not get it becomes one that was denied.
pub(crate) fn singles<'a>(records: &[&'a Record]) -> Vec<Cow<'a, Record>> {
    let mut singles = Vec::with_capacity(records.len());
    for &record in records {
        let permits = record.permits.filter(|_| record.kind == Kind::Acquire);
        if !record.names.is_empty() {
            let names: BTreeSet<&String> = record.names.iter().collect();
            singles.extend(names.into_iter().map(|name| Cow::Owned(Record { name: name.clone(), ..record.clone() })));
        } else if let Some(permits) = permits {
            let denied = |slot| Record { slot: Some(slot), ok: false, fence: None, ..record.clone() };
            let others = (0..permits).filter(|slot| !record.ok || record.slot != Some(*slot));
            singles.extend(record.ok.then_some(Cow::Borrowed(record)));
            singles.extend(others.map(|slot| {
                let denied = denied(slot);
                // What the winner may rely on says nothing of the slots that it did not get.
                let valid_until_ns = if record.ok { None } else { denied.valid_until_ns };
                Cow::Owned(Record { valid_until_ns, ..denied })
            }));
        } else {
            singles.push(Cow::Borrowed(record));
        }
    }
    singles
}

/// Whether this is the record of the first of its names, for what is judged once for all of them.
pub(crate) fn is_first(record: &Record) -> bool {
    record.names.iter().min().is_none_or(|first| *first == record.name)
}
