//! A sorted set, as a server keeps it: members in the order of their scores, and of their bytes where those are alike.

/// A score: a whole number. The largest is what a server calls `inf`, and the smallest `-inf`.
pub(crate) type Score = i64;

/// The members with their scores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SortedSet(Vec<(Score, Vec<u8>)>);

impl FromIterator<(Score, Vec<u8>)> for SortedSet {
    fn from_iter<T: IntoIterator<Item = (Score, Vec<u8>)>>(members: T) -> Self {
        let mut set = Self::default();
        members.into_iter().for_each(|(score, member)| set.put(score, &member));
        set
    }
}

impl SortedSet {
    /// Returns the members, the highest ones last.
    pub(crate) fn members(&self) -> impl DoubleEndedIterator<Item = (Score, &[u8])> {
        self.0.iter().map(|(score, member)| (*score, member.as_slice()))
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<Score> {
        self.0.iter().find(|(_, other)| other == member).map(|(score, _)| *score)
    }

    /// Gives a member this score, whether it was there or not.
    pub(super) fn put(&mut self, score: Score, member: &[u8]) {
        self.remove(member);
        let place = self.0.partition_point(|(other, bytes)| (*other, bytes.as_slice()) < (score, member));
        self.0.insert(place, (score, member.to_vec()));
    }

    pub(super) fn remove(&mut self, member: &[u8]) {
        self.0.retain(|(_, other)| other != member);
    }

    /// Removes every member whose score is not larger.
    pub(super) fn remove_up_to(&mut self, score: Score) {
        self.0.retain(|(other, _)| *other > score);
    }
}
