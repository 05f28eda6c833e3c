//! PURE: the shape of a lock, which selects its keys and scripts: one name, one name shared, several names, or a
//! semaphore.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;
use crate::options::{Options, Protocol};
use crate::protocol::detached::Detached;
use crate::protocol::name::{Name, WrongName, slot};
use crate::protocol::request::Keys;

/// The most names of one lock. A script that touches more would keep a server from others for too long.
const NAMES_MOST: usize = 16;

/// The most permits of a semaphore. To find a free one among them takes up to eight looks.
pub const PERMITS_MOST: u32 = 1_000;

/// The most slots that a server looks at in one request. It does nothing else meanwhile, for 0.1 to 0.2 ms.
pub(crate) const LOOK_MOST: u32 = 128;

/// What a lock is on, as the caller gave it, without the client's prefix.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    One(Arc<[u8]>),
    /// The same, as the term of an election.
    Term(Arc<[u8]>),
    /// All of these names, in their order and each once, and what is shown of them.
    All(Arc<[Listed]>, Arc<[u8]>),
    /// One of the permits of the semaphore with this name.
    Semaphore(Arc<[u8]>, u32),
    /// The same, to be shared. Only one name can be.
    Shared(Box<Self>),
    /// A detached lock of this shape, or what is wrong with its text.
    Detached(Box<Self>, Result<Arc<Detached>, &'static str>),
}

/// One of several names, and where it is in the caller's list for the first time.
type Listed = (Arc<[u8]>, usize);

impl From<&[u8]> for Shape {
    fn from(name: &[u8]) -> Self {
        Self::One(name.into())
    }
}

/// The names of a lock, checked, with the client's prefix.
#[derive(Clone, Debug)]
pub(crate) enum Names {
    One(Name),
    /// At least two, sorted and distinct, and what is shown of them without the prefix.
    All(Box<[Name]>, Arc<[u8]>),
    /// A semaphore and its permits.
    Semaphore(Name, u32),
    /// One name, of which there may be many holders at once.
    Shared(Name),
}

impl Shape {
    /// Returns the shape of a lock of all these names.
    pub(crate) fn all<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut names: Vec<Listed> = names.into_iter().map(Into::into).zip(0..).collect();
        // Of equal names the first one remains.
        names.sort_unstable();
        names.dedup_by(|later, earlier| later.0 == earlier.0);
        let joined = names.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(&b", "[..]).into();
        Self::All(names.into(), joined)
    }

    /// Returns the shape of the same lock, to be shared.
    pub(crate) fn shared(self) -> Self {
        if self.is_shared() { self } else { Self::Shared(Box::new(self)) }
    }

    /// Returns whether the lock is the term of an election.
    pub(crate) fn is_term(&self) -> bool {
        matches!(self, Self::Term(_))
    }

    /// Returns the shape of the detached lock with this text, for a client with this `prefix`.
    pub(crate) fn of_detached(text: &str, prefix: &[u8]) -> Self {
        const FOREIGN: &str = " is of a client with another prefix of names; attach it with one that has the same";
        let found =
            Detached::parse(text).and_then(|found| Ok((Self::detached_as(&found, prefix).ok_or(FOREIGN)?, found)));
        match found {
            Ok((shape, detached)) => Self::Detached(Box::new(shape), Ok(Arc::new(detached))),
            Err(wrong) => Self::Detached(Box::new(Self::from(&b""[..])), Err(wrong)),
        }
    }

    /// Returns the shape of a detached lock that is attached with the token that it has.
    pub(crate) fn keeping_token(mut self) -> Self {
        if let Self::Detached(_, Ok(detached)) = &mut self {
            Arc::make_mut(detached).keeps_token = true;
        }
        self
    }

    /// Returns the shape of a detached lock for a client with this `prefix`; `None` if its names begin otherwise.
    fn detached_as(detached: &Detached, prefix: &[u8]) -> Option<Self> {
        let names = detached.names.iter().map(|name| name.strip_prefix(prefix));
        let names: Vec<&[u8]> = names.collect::<Option<_>>()?;
        Some(match (&names[..], detached.seat) {
            ([name], Some((permits, _))) => Self::Semaphore((*name).into(), permits),
            ([name], None) if detached.is_shared => Self::from(*name).shared(),
            ([name], None) => Self::from(*name),
            _ => Self::all(names),
        })
    }

    /// Returns the detached lock that is to be attached.
    pub(crate) fn detached(&self) -> Option<&Arc<Detached>> {
        if let Self::Detached(_, Ok(detached)) = self { Some(detached) } else { None }
    }

    /// Returns the shape of the same lock when it is acquired again.
    pub(crate) fn anew(&self) -> Self {
        if let Self::Detached(shape, _) = self { Self::clone(shape) } else { self.clone() }
    }

    /// Returns whether the lock is to be shared.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Shared(_) => true,
            Self::Detached(shape, _) => shape.is_shared(),
            Self::One(_) | Self::Term(_) | Self::All(..) | Self::Semaphore(..) => false,
        }
    }

    /// Returns the names, as given.
    pub(crate) fn names(&self) -> Vec<&[u8]> {
        match self {
            Self::One(name) | Self::Term(name) | Self::Semaphore(name, _) => vec![name],
            Self::All(names, _) => names.iter().map(|(name, _)| &**name).collect(),
            Self::Shared(shape) | Self::Detached(shape, _) => shape.names(),
        }
    }

    /// Returns the name, or the names joined.
    pub(crate) fn name(&self) -> &[u8] {
        match self {
            Self::One(name) | Self::Term(name) | Self::Semaphore(name, _) => name,
            Self::All(_, joined) => joined,
            Self::Shared(shape) | Self::Detached(shape, _) => shape.name(),
        }
    }

    /// Returns the shape of a lock of another name, which is a semaphore or shared if this is.
    pub(crate) fn named(&self, name: Arc<[u8]>) -> Self {
        match self {
            Self::Semaphore(_, permits) => Self::Semaphore(name, *permits),
            Self::One(_) | Self::All(..) => Self::One(name),
            Self::Term(_) => Self::Term(name),
            Self::Shared(shape) => shape.named(name).shared(),
            Self::Detached(shape, detached) => Self::Detached(Box::new(shape.named(name)), detached.clone()),
        }
    }

    /// Does as [`Shape::named`] for several names.
    pub(crate) fn named_all(&self, names: &[&[u8]]) -> Self {
        let all = Self::all(names.iter().copied());
        if let Self::Detached(_, detached) = self { Self::Detached(Box::new(all), detached.clone()) } else { all }
    }

    /// Checks the names behind `prefix`. Those of one lock are in one slot of a cluster, if it `is_routed`.
    pub(crate) fn check(&self, prefix: &[u8], is_routed: bool) -> Result<Names, Error> {
        let checked = |name: &Arc<[u8]>| {
            if name.is_empty() {
                return Err(WrongName::empty());
            }
            Name::parse(if prefix.is_empty() { Arc::clone(name) } else { [prefix, name].concat().into() })
        };
        match self {
            Self::One(name) | Self::Term(name) => checked(name).map(Names::One).map_err(WrongName::alone),
            Self::Semaphore(name, permits) => {
                if !(1..=PERMITS_MOST).contains(permits) {
                    let rest = format!(" is {permits}, but must be from 1 to {PERMITS_MOST}");
                    return Err(Error::about("permits", rest));
                }
                Ok(Names::Semaphore(checked(name).map_err(WrongName::alone)?, *permits))
            }
            Self::All(names, joined) => {
                if !(1..=NAMES_MOST).contains(&names.len()) {
                    let rest = format!(" has {} different names, but must have from 1 to {NAMES_MOST}", names.len());
                    return Err(Error::about("names", rest));
                }
                let checked = |(name, index): &Listed| checked(name).map_err(|wrong| wrong.at(*index));
                let mut names = names.iter().map(checked).collect::<Result<Vec<Name>, Error>>()?;
                if names.len() == 1 {
                    // The ordinary lock.
                    return Ok(Names::One(names.remove(0)));
                }
                check_slot(&names, is_routed)?;
                Ok(Names::All(names.into(), Arc::clone(joined)))
            }
            Self::Shared(shape) => match &**shape {
                Self::One(name) => checked(name).map(Names::Shared).map_err(WrongName::alone),
                Self::Semaphore(..) => Err(unshared("a semaphore; remove it")),
                Self::Term(_) => Err(unshared("an election; remove it")),
                Self::All(..) | Self::Shared(_) => Err(unshared("several names; remove it, or lock one name")),
                Self::Detached(..) => Err(unshared("attach: it is in the text; remove it")),
            },
            Self::Detached(_, Err(wrong)) => Err(Error::about("text", wrong)),
            Self::Detached(shape, Ok(_)) => shape.check(prefix, is_routed),
        }
    }
}

/// Returns the error for a lock that cannot be shared.
fn unshared(shape: &str) -> Error {
    Error::about("shared", format!(" does not go with {shape}"))
}

/// Refuses names that no script can touch together.
fn check_slot(names: &[Name], is_routed: bool) -> Result<(), Error> {
    let slot_of = |name: &Name| slot(name.lock_key());
    let other = names.iter().find(|name| slot_of(name) != slot_of(&names[0]));
    match other.filter(|_| is_routed) {
        None => Ok(()),
        Some(other) => {
            let rest = format!(
                " has \"{}\" and \"{other}\", which are in different slots of the cluster; give all of them the same hash \
                 tag, as in \"{{user:7}}:cart\" and \"{{user:7}}:stock\"",
                names[0]
            );
            Err(Error::about("names", rest))
        }
    }
}

impl Names {
    /// Returns what errors and logs show.
    pub(crate) fn shown(&self) -> Name {
        match self {
            Self::One(name) | Self::Semaphore(name, _) | Self::Shared(name) => name.clone(),
            Self::All(names, _) => Name::joined(names),
        }
    }

    /// Returns each name.
    pub(crate) fn each(&self) -> &[Name] {
        match self {
            Self::One(name) | Self::Semaphore(name, _) | Self::Shared(name) => std::slice::from_ref(name),
            Self::All(names, _) => names,
        }
    }

    /// Returns the names without the first `prefix` bytes, joined.
    pub(crate) fn given(&self, prefix: usize) -> &[u8] {
        match self {
            Self::One(name) | Self::Semaphore(name, _) | Self::Shared(name) => &name.bytes()[prefix..],
            Self::All(_, joined) => joined,
        }
    }

    /// Returns the number of permits of a semaphore.
    pub(crate) fn permits(&self) -> Option<u32> {
        match self {
            Self::Semaphore(_, permits) => Some(*permits),
            Self::One(_) | Self::All(..) | Self::Shared(_) => None,
        }
    }

    /// Returns whether one owner of a lock of these names may keep another off one of the `others`.
    pub(crate) fn meet(&self, others: &Self) -> bool {
        let is_other = |name: &Name| others.each().iter().any(|other| other.bytes() == name.bytes());
        self.permits().is_some() == others.permits().is_some() && self.each().iter().any(is_other)
    }

    /// Returns whether the lock is shared.
    pub(crate) fn are_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Returns whether several calls of one process may have the lock at the same time.
    pub(crate) fn has_room(&self) -> bool {
        matches!(self, Self::Semaphore(..) | Self::Shared(_))
    }

    /// Refuses options of the lock itself, and a protocol, that do not go with its names.
    pub(crate) fn check_options(&self, own: &Options, in_force: &Options) -> Result<(), Error> {
        if matches!(self, Self::One(_)) {
            return Ok(());
        }
        if in_force.protocol == Some(Protocol::Setnx) {
            let rest = " is \"setnx\", which has neither several names nor semaphores nor shared locks";
            return Err(Error::about("protocol", rest));
        }
        let advice = match self {
            Self::All(..) => "several names; remove it, or lock one name",
            Self::Shared(_) => "a shared lock; remove it",
            Self::One(_) | Self::Semaphore(..) => return Ok(()),
        };
        if own.at_least.is_some_and(|at_least| !at_least.is_zero()) {
            return Err(Error::about("at_least", format!(" does not go with {advice}")));
        }
        Ok(())
    }

    /// Returns the least time for which a lock of this shape is kept: no such time is kept for several names, and for
    /// shared locks.
    pub(crate) fn kept(&self, at_least: Duration) -> Duration {
        if matches!(self, Self::All(..) | Self::Shared(_)) { Duration::ZERO } else { at_least }
    }

    /// Returns the keys of the lock; of a semaphore, those of its first slot. The `label` is part of those that are shared.
    pub(crate) fn keys(&self, label: &Arc<str>) -> Arc<Keys> {
        match self {
            Self::One(name) => Keys::of(name),
            Self::All(names, _) => Keys::of_all(names),
            Self::Semaphore(name, permits) => Keys::of_slot(name, *permits, 0),
            Self::Shared(name) => Keys::of_shared(name, Arc::clone(label)),
        }
    }

    /// Returns the keys of a slot of a semaphore.
    pub(crate) fn slot_keys(&self, slot: u32) -> Arc<Keys> {
        match self {
            Self::Semaphore(name, permits) => Keys::of_slot(name, *permits, slot),
            Self::One(_) | Self::All(..) | Self::Shared(_) => self.keys(&Arc::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(shape: &Shape) -> Result<Names, Error> {
        shape.check(b"p:", false)
    }

    fn refusal(shape: &Shape) -> Error {
        shape.check(b"", false).unwrap_err()
    }

    fn all(names: &[&str]) -> Shape {
        Shape::all(names.iter().map(|name| name.as_bytes()))
    }

    #[test]
    fn names_are_sorted_and_each_counts_once() {
        let names = checked(&all(&["b", "a", "b"])).unwrap();
        assert_eq!(names.given(2), b"a, b");
        assert_eq!(names.shown().to_string(), "p:a, p:b");
        let locks: Vec<_> = names.keys(&Arc::default()).each().map(|keys| keys.lock.to_vec()).collect();
        assert_eq!(locks, [b"p:a".to_vec(), b"p:b".to_vec()]);
        let one = checked(&all(&["a", "a"])).unwrap();
        assert!(matches!(one, Names::One(_)), "one name is the ordinary lock");
        assert_eq!((one.given(2), all(&["a", "a"]).name()), (&b"a"[..], &b"a"[..]));
    }

    #[test]
    fn sets_of_names_never_share_a_line() {
        let line = |names: &[&str]| checked(&all(names)).unwrap().keys(&Arc::default()).line().to_vec();
        assert_eq!(line(&["a", "b"]), line(&["b", "a"]));
        assert_ne!(line(&["a", "b:1:c"]), line(&["a", "b", "c"]));
        assert_ne!(line(&["ab", "c"]), line(&["a", "bc"]));
        assert!(Name::parse(line(&["a", "b"])).is_err(), "no lock of one name has it");
    }

    /// Who allows fewer permits does not see every free slot.
    #[test]
    fn semaphores_of_different_permits_do_not_share_a_line() {
        let names = |permits| checked(&Shape::Semaphore(b"a"[..].into(), permits)).unwrap();
        let line = |permits| names(permits).keys(&Arc::default()).line().to_vec();
        assert_ne!(line(3), line(5));
        assert!(Name::parse(line(3)).is_err(), "no lock of one name has it");
    }

    /// Readers do not queue behind a writer of their process, whom another process may keep waiting for longer.
    #[test]
    fn a_shared_lock_has_the_keys_of_its_name_and_a_line_of_its_own() {
        let shape = Shape::from(&b"a"[..]);
        let [exclusive, shared] = [shape.clone(), shape.clone().shared()].map(|shape| checked(&shape).unwrap());
        let [one, other]: [Arc<Keys>; 2] = [&exclusive, &shared].map(|names| names.keys(&"me".into()));
        assert_eq!((&one.lock, &one.fence, &one.want), (&other.lock, &other.fence, &other.want));
        assert!(other.are_shared() && !one.are_shared());
        assert_ne!(one.line(), other.line());
        assert!(Name::parse(other.line().to_vec()).is_err(), "no lock of one name has it");
        assert_eq!((shared.given(2), shared.shown().to_string()), (&b"a"[..], "p:a".to_owned()));
        let other = shape.shared().shared().named(b"b"[..].into());
        assert_eq!((other.name(), checked(&other).unwrap().are_shared()), (&b"b"[..], true));
    }

    #[test]
    fn a_detached_lock_is_for_clients_of_its_prefix() {
        let kind = |names: &Names| (names.permits().zip(Some(1)), names.are_shared());
        for shape in [all(&["a", "b"]), Shape::Semaphore(b"a"[..].into(), 2), Shape::from(&b"a"[..]).shared()] {
            let checked = checked(&shape).unwrap();
            let text = Detached::of(kind(&checked), checked.each()).to_text();
            let found = Shape::of_detached(&text, b"p:");
            assert_eq!((found.name(), found.is_shared()), (shape.name(), shape.is_shared()));
            assert_eq!(kind(&found.check(b"p:", false).unwrap()), kind(&checked));
            assert!(found.detached().is_some() && found.anew().detached().is_none());
            assert_eq!(Shape::of_detached(&text, b"").names()[0], b"p:a");
            for wrong in [Shape::of_detached(&text, b"q:"), Shape::of_detached(&text[1..], b"p:")] {
                assert_eq!(wrong.check(b"q:", false).unwrap_err().option(), Some("text"));
            }
        }
    }

    #[test]
    fn only_one_name_is_shared_and_not_for_a_least_time() {
        for shape in [all(&["a"]), all(&["a", "b"]), Shape::Semaphore(b"a"[..].into(), 2)] {
            let error = refusal(&shape.shared());
            assert_eq!((error.code(), error.option()), ("invalid_argument", Some("shared")), "{error}");
        }
        let shared = checked(&Shape::from(&b"a"[..]).shared()).unwrap();
        let (second, none) = (Duration::from_secs(1), Options::default());
        let with = |at_least| Options { at_least: Some(at_least), ..Options::default() };
        let error = shared.check_options(&with(second), &with(second)).unwrap_err();
        assert_eq!(error.option(), Some("at_least"), "{error}");
        assert!(shared.check_options(&with(Duration::ZERO), &with(Duration::ZERO)).is_ok());
        assert!(shared.check_options(&none, &with(second)).is_ok(), "that of the client is for its other locks");
        assert_eq!(shared.kept(second), Duration::ZERO);
        let setnx = Options { protocol: Some(Protocol::Setnx), ..Options::default() };
        assert_eq!(shared.check_options(&setnx, &setnx).unwrap_err().option(), Some("protocol"));
    }

    #[test]
    fn too_few_and_too_many_names_and_permits_are_refused() {
        let many: Vec<String> = (0..17).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(checked(&all(&many[..16])).is_ok());
        for (shape, option) in [
            (all(&[]), "names"),
            (all(&many), "names"),
            (all(&["a", ""]), "names"),
            (all(&[""]), "names"),
            (all(&["", ""]), "names"),
            (all(&["redlock:slot:1:{a}"]), "names"),
            (all(&["a", "redlock:slot:1:{a}"]), "names"),
            (Shape::Semaphore(b"a"[..].into(), 0), "permits"),
            (Shape::Semaphore(b"a"[..].into(), 1_001), "permits"),
            (Shape::Semaphore(b""[..].into(), 1), "name"),
        ] {
            assert_eq!(refusal(&shape).option(), Some(option), "{shape:?}");
        }
    }

    #[test]
    fn the_wrong_one_of_several_names_is_told() {
        let long = "x".repeat(513);
        for (names, told) in [
            (&["b", "a", ""][..], "names[2] is empty"),
            (&["", "a", ""], "names[0] is empty"),
            (&[""], "names[0] is empty"),
            (&["z", &long, "a"], "names[1] has 513 bytes"),
            (&["z", "a", "redlock:fence:{a}"], "names[2] begins with \"redlock:fence:\""),
        ] {
            let error = refusal(&all(names)).to_string();
            assert!(error.starts_with(told), "{error}");
        }
    }

    #[test]
    fn names_in_different_slots_of_a_cluster_are_refused() {
        let error = all(&["a", "b"]).check(b"", true).unwrap_err();
        assert!(error.to_string().contains("hash tag"), "{error}");
        assert!(all(&["{t}a", "{t}b"]).check(b"", true).is_ok());
        assert!(all(&["a", "b"]).check(b"", false).is_ok());
    }

    #[test]
    fn every_key_of_a_semaphore_is_in_one_slot_of_a_cluster() {
        for name in ["pool", "{pool}", "a}b", "x{pool}y", "{}pool"] {
            let names = Shape::Semaphore(name.as_bytes().into(), 3).check(b"", true).unwrap();
            let first = names.keys(&Arc::default());
            for number in 0..3 {
                let keys = names.slot_keys(number);
                for key in [&*keys.lock, &*keys.fence, &*keys.want, keys.bell().unwrap()] {
                    assert_eq!(slot(key), slot(&first.lock), "{name} {number}");
                }
                assert_eq!((&keys.want, keys.line()), (&first.want, first.line()));
            }
        }
        let keys = Shape::Semaphore(b"pool"[..].into(), 3).check(b"", true).unwrap().slot_keys(2);
        assert_eq!(&*keys.lock, b"redlock:slot:2:{pool}");
        assert_eq!(&*keys.fence, b"redlock:fence::redlock:slot:2:{pool}");
        assert_eq!(&*keys.want, b"redlock:waiters::redlock:slot:0:{pool}");
        assert_eq!(keys.bell(), Some(&b"redlock:slot:bell:{pool}"[..]));
    }
}
