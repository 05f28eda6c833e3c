//! Node lists: the lists of nodes that this process uses, and whether one name is locked over lists that differ.
//!
//! Clients whose lists differ may each find a quorum, and then they do not exclude each other. The library cannot
//! notice that between processes. Within one it warns, once for each pair of lists. Lists without a common server and
//! database differ on purpose, and the order of a list does not matter.
//!
//! States of a list:
//!
//! - *plain*: no overlapping list is left to warn about, and a call on it costs one relaxed load;
//! - *watched*: names acquired or renewed over it are remembered, until a name of the other list is among them.
//!
//! Lists are remembered after their clients have gone, because a program may make a client for each call. Memory is
//! bounded: the oldest lists without clients are forgotten, and so are the least recently used names. This file awaits
//! nothing. It logs warnings outside the lock.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::address::{Address, Target};
use crate::protocol::name::Name;
use crate::sys::log::log;
use crate::sys::mutex::Mutex;

/// The most lists remembered. Only those with clients may be more.
const LISTS_MAX: usize = 64;

/// Half of the names remembered of one list.
const NAMES_MAX: usize = 512;

/// The lists of one process.
#[derive(Debug, Default)]
pub(crate) struct NodeLists(Mutex<Vec<Entry>>);

/// The nodes that some clients list, in any order.
pub(crate) struct NodeList {
    /// Sorted: server and database.
    positions: Vec<(Target, i64)>,
    /// For messages: without credentials.
    shown: String,
    watched: AtomicBool,
}

#[derive(Debug)]
struct Entry {
    list: Arc<NodeList>,
    /// The lists that overlap with this one but differ, and whose pair was not warned about.
    rivals: Vec<Arc<NodeList>>,
    names: RecentNames,
}

/// The last used names, as hashes.
#[derive(Debug, Default)]
struct RecentNames {
    recent: HashSet<u64>,
    former: HashSet<u64>,
}

impl NodeLists {
    /// Returns the list of these nodes, which a node set has from now on.
    pub(crate) fn of<'a>(&self, nodes: impl Iterator<Item = &'a Address>) -> Arc<NodeList> {
        let mut nodes: Vec<&Address> = nodes.collect();
        nodes.sort_unstable_by_key(|address| (&address.target, address.db));
        let positions = nodes.iter().map(|address| (address.target.clone(), address.db)).collect::<Vec<_>>();
        let mut entries = self.0.lock();
        if let Some(index) = entries.iter().position(|entry| entry.list.positions == positions) {
            // The oldest come first.
            let entry = entries.remove(index);
            let list = Arc::clone(&entry.list);
            entries.push(entry);
            return list;
        }
        while entries.len() >= LISTS_MAX
            && let Some(oldest) = entries.iter().position(|entry| !entry.is_in_use())
        {
            let oldest = entries.remove(oldest);
            entries.iter_mut().for_each(|other| other.leave(&oldest.list));
        }
        let shown = nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let list = Arc::new(NodeList { positions, shown, watched: AtomicBool::new(false) });
        let mut rivals = Vec::new();
        for other in entries.iter_mut().filter(|other| other.list.overlaps(&list)) {
            other.rivals.push(Arc::clone(&list));
            rivals.push(Arc::clone(&other.list));
            other.watch();
        }
        let entry = Entry { list: Arc::clone(&list), rivals, names: RecentNames::default() };
        entry.watch();
        entries.push(entry);
        list
    }

    /// Records that `names` are acquired or renewed over `list`.
    pub(crate) fn used(&self, list: &Arc<NodeList>, names: &[Name]) {
        if !list.watched.load(Ordering::Relaxed) {
            return;
        }
        for name in names {
            for other in self.rivals(list, name) {
                log!(LISTS_DIFFER, %name, nodes = %list.shown, other_nodes = %other.shown,
                    "one name is locked over different node lists, which may not exclude each other; \
                     list the same nodes everywhere"
                );
            }
        }
    }

    /// Returns the lists that used `name` too, each pair once.
    fn rivals(&self, list: &Arc<NodeList>, name: &Name) -> Vec<Arc<NodeList>> {
        let mut entries = self.0.lock();
        let Some(own) = entries.iter().position(|entry| Arc::ptr_eq(&entry.list, list)) else { return Vec::new() };
        let name = hash(name);
        entries[own].names.add(name);
        let (met, rest) = std::mem::take(&mut entries[own].rivals)
            .into_iter()
            .partition(|rival| entries.iter().any(|entry| Arc::ptr_eq(&entry.list, rival) && entry.names.has(name)));
        entries[own].rivals = rest;
        entries[own].watch();
        let met: Vec<_> = met;
        for entry in entries.iter_mut().filter(|entry| met.iter().any(|rival| Arc::ptr_eq(&entry.list, rival))) {
            entry.leave(list);
        }
        met
    }
}

impl Entry {
    /// Whether a node set has its list. Each of its rivals has it too, once.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.list) > 1 + self.rivals.len()
    }

    /// Watches its list while it has rivals.
    fn watch(&self) {
        self.list.watched.store(!self.rivals.is_empty(), Ordering::Relaxed);
    }

    /// Removes the rival `list`.
    fn leave(&mut self, list: &Arc<NodeList>) {
        self.rivals.retain(|rival| !Arc::ptr_eq(rival, list));
        self.watch();
    }
}

impl NodeList {
    fn overlaps(&self, other: &Self) -> bool {
        self.positions.iter().any(|position| other.positions.binary_search(position).is_ok())
    }
}

impl fmt::Debug for NodeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeList({})", self.shown)
    }
}

impl RecentNames {
    fn has(&self, name: u64) -> bool {
        self.recent.contains(&name) || self.former.contains(&name)
    }

    fn add(&mut self, name: u64) {
        if self.recent.len() >= NAMES_MAX && !self.recent.contains(&name) {
            self.former = std::mem::take(&mut self.recent);
        }
        self.recent.insert(name);
    }
}

fn hash(name: &Name) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.bytes().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Addresses;

    fn list(lists: &NodeLists, urls: &[&str]) -> Arc<NodeList> {
        lists.of(Addresses::parse(urls).unwrap().iter())
    }

    fn name(text: &str) -> Name {
        Name::parse(text.as_bytes()).unwrap()
    }

    fn is_watched(list: &NodeList) -> bool {
        list.watched.load(Ordering::Relaxed)
    }

    /// Returns how many other lists used it too, each reported once.
    fn met(lists: &NodeLists, list: &Arc<NodeList>, text: &str) -> usize {
        lists.rivals(list, &name(text)).len()
    }

    #[test]
    fn lists_that_overlap_but_differ_are_rivals() {
        let cases: [(&[&str], &[&str], bool); 8] = [
            (&["redis://a"], &["redis://b"], false),
            (&["redis://a"], &["redis://u:p@a?protocol=2"], false),
            (&["redis://a", "redis://b"], &["redis://b", "redis://a"], false),
            (&["redis://a"], &["redis://a/1"], false),
            (&["redis://a"], &["rediss://a"], false),
            (&["redis://a"], &["redis://a", "redis://b"], true),
            (&["redis://a", "redis://b", "redis://c"], &["redis://c", "redis://d", "redis://e"], true),
            (&["redis://a/1", "unix:///s?db=2"], &["redis://a/2", "unix:///s?db=2&user=u&pass=p"], true),
        ];
        for (one, other, differ) in cases {
            let lists = NodeLists::default();
            let pair = [list(&lists, one), list(&lists, other)];
            assert!(pair.iter().all(|list| is_watched(list) == differ), "{one:?} and {other:?}");
        }
    }

    #[test]
    fn each_pair_is_met_once() {
        let lists = NodeLists::default();
        let one = list(&lists, &["redis://a", "redis://b"]);
        assert_eq!(met(&lists, &one, "foo"), 0);
        let [two, three] = ["redis://a", "redis://b"].map(|url| list(&lists, &[url, "redis://c"]));
        assert_eq!((met(&lists, &two, "foo"), met(&lists, &one, "bar"), met(&lists, &three, "other")), (1, 0, 0));
        // Once the pair was met, neither looks for the other any more.
        assert_eq!((met(&lists, &one, "foo"), met(&lists, &two, "foo")), (0, 0));
        assert_eq!(met(&lists, &three, "foo"), 2);
        assert!(![one, two, three].iter().any(|list| is_watched(list)), "nothing is left to be found");
    }

    #[test]
    fn a_list_is_remembered_without_clients_within_bounds() {
        let lists = NodeLists::default();
        let live = list(&lists, &["redis://a", "redis://live"]);
        drop(list(&lists, &["redis://a", "redis://gone"]));
        met(&lists, &live, "foo");
        for number in 0..2 * NAMES_MAX {
            met(&lists, &live, &format!("name {number}"));
        }
        assert_eq!(met(&lists, &list(&lists, &["redis://a", "redis://gone"]), "foo"), 0, "too long ago");
        let last = format!("name {}", 2 * NAMES_MAX - 1);
        assert_eq!(met(&lists, &list(&lists, &["redis://gone", "redis://a"]), &last), 1);
        let numbered = |number| list(&lists, &["redis://a", &format!("redis://number-{number}")]);
        // Each new one looks at every other, and not at the rivals of each, which are as many.
        drop((0..6 * LISTS_MAX).map(numbered).collect::<Vec<_>>());
        for number in 6 * LISTS_MAX..8 * LISTS_MAX {
            drop(numbered(number));
        }
        let entries = lists.0.lock();
        assert_eq!(entries.len(), LISTS_MAX);
        assert!(entries.iter().any(|entry| Arc::ptr_eq(&entry.list, &live)), "its client lives");
        assert!(entries.iter().all(|entry| entry.rivals.len() < LISTS_MAX));
        let names = entries.iter().map(|entry| entry.names.recent.len() + entry.names.former.len());
        assert!(names.max().unwrap() <= 2 * NAMES_MAX);
    }
}
