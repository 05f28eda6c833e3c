//! PURE: which server is the primary, by the answers of sentinels.
//!
//! A failover gives its result a number, the configuration epoch, which a majority of the sentinels has granted. A
//! sentinel that was cut off tells an older one. See "Sentinel client spec" and "Configuration epochs" in the Redis
//! documentation.

use crate::protocol::place::Place;

/// The answer of one sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The primary, with the epoch of the last failover if this user may ask for it.
    Primary { place: Place, epoch: Option<u64> },
    /// It monitors no primary of this name.
    Unmonitored,
    /// There was none in time.
    Silent,
}

/// A primary and its epoch; `None` if no sentinel told one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Primary {
    pub(crate) place: Place,
    pub(crate) epoch: Option<u64>,
}

/// Returns the primary by the answers of all listed sentinels; `None` if they do not decide. Then the one `in_use`
/// stays.
///
/// The newest epoch decides. One that is older than the one in use never does, unless all of them tell an older one:
/// then the sentinels were set up anew. Without epochs, a majority of those listed decides.
pub(crate) fn primary(told: &[Told], in_use: Option<&Primary>) -> Option<Primary> {
    let named = || {
        told.iter().filter_map(|told| match told {
            Told::Primary { place, epoch } => Some((place, *epoch)),
            _ => None,
        })
    };
    let newest = named().filter_map(|(_, epoch)| epoch).max();
    let (place, votes) = most_named(named().filter(|(_, epoch)| *epoch == newest).map(|(place, _)| place), in_use)?;
    let decides = match (newest, in_use.and_then(|in_use| in_use.epoch)) {
        (Some(newest), Some(used)) if newest < used => {
            named().filter(|(_, epoch)| epoch.is_some()).count() == told.len()
        }
        (Some(_), _) => true,
        (None, _) => votes > told.len() / 2,
    };
    // A majority that may not tell epochs does not make older ones count again.
    decides.then(|| Primary { place: place.clone(), epoch: newest.or(in_use.and_then(|in_use| in_use.epoch)) })
}

/// Returns the place that is named most often, and how often. Of several, the one in use stays.
fn most_named<'a>(places: impl Iterator<Item = &'a Place>, in_use: Option<&Primary>) -> Option<(&'a Place, usize)> {
    let places: Vec<_> = places.collect();
    let votes = |place: &Place| places.iter().filter(|other| **other == place).count();
    let is_used = |place: &Place| in_use.is_some_and(|in_use| in_use.place == *place);
    // The last of equals wins, and the first one listed is meant to.
    let most = places.iter().rev().max_by_key(|place| (votes(place), is_used(place)))?;
    Some((most, votes(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str) -> Place {
        Place { host: host.to_owned(), port: 6379 }
    }

    fn tells(host: &str, epoch: impl Into<Option<u64>>) -> Told {
        Told::Primary { place: place(host), epoch: epoch.into() }
    }

    fn is(host: &str, epoch: impl Into<Option<u64>>) -> Primary {
        Primary { place: place(host), epoch: epoch.into() }
    }

    #[test]
    fn the_newest_epoch_decides_whoever_tells_it() {
        let cut_off = [tells("old", 3), tells("old", 3), tells("new", 4)];
        assert_eq!(primary(&cut_off, None), Some(is("new", 4)));
        assert_eq!(primary(&[Told::Silent, Told::Silent, tells("a", 0)], None), Some(is("a", 0)));
        assert_eq!(primary(&[Told::Silent, Told::Unmonitored], None), None);
    }

    #[test]
    fn an_older_epoch_than_the_one_in_use_is_never_taken() {
        let used = is("new", 4);
        assert_eq!(primary(&[tells("old", 3), tells("old", 3), Told::Silent], Some(&used)), None);
        assert_eq!(primary(&[tells("other", 4), Told::Silent, Told::Silent], Some(&used)), Some(is("other", 4)));
    }

    #[test]
    fn sentinels_that_were_all_set_up_anew_are_believed() {
        let used = is("new", 4);
        assert_eq!(primary(&[tells("again", 0), tells("again", 0)], Some(&used)), Some(is("again", 0)));
        assert_eq!(primary(&[tells("again", 0), tells("again", None)], Some(&used)), None);
    }

    #[test]
    fn without_epochs_a_majority_of_those_listed_decides() {
        let used = is("a", 2);
        assert_eq!(primary(&[tells("b", None), tells("b", None), Told::Silent], Some(&used)), Some(is("b", 2)));
        assert_eq!(primary(&[tells("b", None), Told::Silent, Told::Silent], Some(&used)), None);
        assert_eq!(primary(&[tells("b", None), tells("a", None)], None), None);
    }

    #[test]
    fn the_same_epoch_in_two_places_leaves_the_one_in_use() {
        let used = is("b", 1);
        assert_eq!(primary(&[tells("a", 1), tells("b", 1)], Some(&used)), Some(is("b", 1)));
        assert_eq!(primary(&[tells("a", 1), tells("b", 1)], None), Some(is("a", 1)));
        assert_eq!(primary(&[tells("b", 1), tells("a", 1), tells("a", 1)], Some(&used)), Some(is("a", 1)));
    }
}
