//! The name of a lock, and the keys derived from it.
//!
//! The lock key is the name, unchanged, so that other libraries with the plain protocol exclude us and we exclude them.
//! A fence key and a waiters key share its Cluster slot, because one script touches all of them.

use std::fmt;
use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::error::Error;

/// The longest name. Keys may be far longer, but a name stands in every command and every error.
const MAX_BYTES: usize = 512;

/// What begins every fence key.
pub(crate) const FENCE: &[u8] = b"redlock:fence:";
const WANT: &[u8] = b"redlock:waiters:";
const SLOT: &[u8] = b"redlock:slot:";

/// The beginnings of keys that are made here, or may be.
const RESERVED: [&[u8]; 4] = [FENCE, WANT, SLOT, b"redlock:shared:"];

/// A name that keys can be made of. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    bytes: Arc<[u8]>,
    tagging: Tagging,
}

/// How a derived key stays in the name's slot. The first byte after the prefix (`{`, `:` or `-`) tells the three apart
/// and each can be undone, so two names never share a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Tagging {
    /// The name contains no `}`, so the whole name can be the hash tag.
    Whole,
    /// The name has its own hash tag.
    Own,
    /// A `}` in the name would end a hash tag too early: this number is a tag of the same slot.
    Number(u32),
}

/// What is wrong with a name, as the rest of a sentence about it.
#[derive(Debug)]
pub(crate) struct WrongName(String);

impl WrongName {
    /// Returns what is wrong with an empty name.
    pub(crate) fn empty() -> Self {
        Self(" is empty; give it 1 to 512 bytes".to_owned())
    }

    /// Returns the error for the only name of a lock.
    pub(crate) fn alone(self) -> Error {
        Error::invalid(format!("the name of a lock{}", self.0)).with_option("name")
    }

    /// Returns the error for the name that is at `index` in the caller's list.
    pub(crate) fn at(self, index: usize) -> Error {
        Error::about("names", format!("[{index}]{}", self.0))
    }
}

impl Name {
    /// Accepts any 1 to 512 bytes, except names that begin like the keys made here.
    pub(crate) fn parse(bytes: impl Into<Arc<[u8]>>) -> Result<Self, WrongName> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Err(WrongName::empty());
        }
        if bytes.len() > MAX_BYTES {
            return Err(WrongName(format!(
                " has {} bytes and at most {MAX_BYTES} are allowed; use a hash of it as the name",
                bytes.len()
            )));
        }
        match reserved(&bytes) {
            Some(reserved) => Err(WrongName(reserved + "; choose another name")),
            None => Ok(Self::of(bytes)),
        }
    }

    fn of(bytes: Arc<[u8]>) -> Self {
        Self { tagging: Tagging::of(&bytes), bytes }
    }

    /// Returns what errors show of several names. Keys are not made of it.
    pub(crate) fn joined(names: &[Self]) -> Self {
        let bytes: Vec<&[u8]> = names.iter().map(Self::bytes).collect();
        Self { tagging: Tagging::Whole, bytes: bytes.join(&b", "[..]).into() }
    }

    /// Refuses a prefix after which no name is right.
    pub(crate) fn check_prefix(prefix: &[u8]) -> Result<(), Error> {
        if prefix.len() >= MAX_BYTES {
            let most = MAX_BYTES - 1;
            let rest = format!(" has {} bytes, but at most {most} are allowed; use a shorter prefix", prefix.len());
            return Err(Error::about("key_prefix", rest));
        }
        let wrong = |reserved| Err(Error::about("key_prefix", reserved + "; choose another prefix"));
        reserved(prefix).map_or(Ok(()), wrong)
    }

    /// Returns the name as given.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the lock key.
    pub(crate) fn lock_key(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Returns the key where a node remembers its last fence for this name.
    pub(crate) fn fence_key(&self) -> Vec<u8> {
        self.key_beside(FENCE)
    }

    /// Returns the waiters key, which denied attempts may count themselves under.
    pub(crate) fn want_key(&self) -> Vec<u8> {
        self.key_beside(WANT)
    }

    /// Returns the name whose lock is permit `slot` of the semaphore with this name.
    pub(crate) fn slot_name(&self, slot: u32) -> Self {
        Self::of(self.key_beside(format!("redlock:slot:{slot}:").as_bytes()).into())
    }

    /// Returns the key that changes when a permit of the semaphore with this name is released to those who wait.
    pub(crate) fn bell_key(&self) -> Vec<u8> {
        self.key_beside(&[SLOT, b"bell:"].concat())
    }

    fn key_beside(&self, prefix: &[u8]) -> Vec<u8> {
        match self.tagging {
            Tagging::Whole => [prefix, b"{", &self.bytes, b"}"].concat(),
            Tagging::Own => [prefix, b":", &self.bytes].concat(),
            Tagging::Number(k) => [prefix, format!("-{{{k}}}").as_bytes(), &self.bytes].concat(),
        }
    }

    /// Returns the name whose fence is under this key, and the slot if the name is a semaphore; `None` for a key that
    /// this library does not make.
    pub(crate) fn of_fence_key(key: &[u8]) -> Option<(Self, Option<u32>)> {
        let lock = Self::of(name_beside(key, FENCE)?.into());
        if lock.fence_key() != key {
            return None;
        }
        let Some(rest) = lock.bytes.strip_prefix(SLOT) else {
            return Self::parse(lock.bytes).ok().map(|name| (name, None));
        };
        let digits = rest.iter().position(|byte| *byte == b':')?;
        let slot = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
        let name = Self::parse(name_beside(&rest[digits + 1..], b"")?).ok()?;
        (name.slot_name(slot) == lock).then_some((name, Some(slot)))
    }
}

/// Undoes `Name::key_beside`, for a key that was made by it.
fn name_beside<'a>(key: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    match key.strip_prefix(prefix)? {
        [b'{', name @ .., b'}'] | [b':', name @ ..] => Some(name),
        numbered => Some(&numbered[numbered.iter().position(|&byte| byte == b'}')? + 1..]),
    }
}

/// Returns that something begins with what is reserved, if it does, as the rest of a sentence about it.
fn reserved(bytes: &[u8]) -> Option<String> {
    let reserved = String::from_utf8_lossy(RESERVED.iter().find(|reserved| bytes.starts_with(reserved))?);
    Some(format!(" begins with {reserved:?}, which is reserved for the lock's own keys"))
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.bytes).escape_debug())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.bytes))
    }
}

impl Tagging {
    fn of(name: &[u8]) -> Self {
        if !name.contains(&b'}') {
            Self::Whole
        } else if hash_tag(name).is_some() {
            Self::Own
        } else {
            // Without a hash tag, the whole name decides its slot.
            Self::Number(number_in_slot(crc16(name) % SLOTS))
        }
    }
}

/// The slots of a Redis Cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// Returns the slot of a key.
pub(crate) fn slot(key: &[u8]) -> u16 {
    crc16(hash_tag(key).unwrap_or(key)) % SLOTS
}

/// Returns the part of a key that alone decides its slot: between the first `{` and the next `}`, unless empty.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let rest = &key[open + 1..];
    let close = rest.iter().position(|&byte| byte == b'}')?;
    (close > 0).then(|| &rest[..close])
}

/// Returns the smallest number whose decimal digits fall into `wanted`.
fn number_in_slot(wanted: u16) -> u32 {
    NUMBERS.get_or_init(|| Box::new(numbers()))[usize::from(wanted)]
}

/// The smallest number of every slot: 64 KiB, made in about 0.3 ms when the process first needs one. Making it takes no
/// lock, because another thread may fork meanwhile.
static NUMBERS: OnceBox<Vec<u32>> = OnceBox::new();

/// Tries every number once, from zero on, until every slot has one. The largest is 109,757.
fn numbers() -> Vec<u32> {
    let mut numbers = vec![u32::MAX; usize::from(SLOTS)];
    let mut missing = numbers.len();
    // The checksum of every number so far: one more digit takes one more step.
    let mut sums: Vec<u16> = Vec::new();
    for tenth in 0.. {
        let before = if tenth == 0 { 0 } else { sums[tenth as usize] };
        for (digit, k) in (b'0'..=b'9').zip(tenth * 10..) {
            let sum = step(before, digit);
            sums.push(sum);
            let number = &mut numbers[usize::from(sum % SLOTS)];
            if *number == u32::MAX {
                *number = k;
                missing -= 1;
            }
        }
        if missing == 0 {
            break;
        }
    }
    numbers
}

/// Computes CRC-16/XMODEM, as Redis Cluster does.
fn crc16(bytes: &[u8]) -> u16 {
    #[cfg(test)]
    tests::CALCULATIONS.set(tests::CALCULATIONS.get() + 1);
    bytes.iter().fold(0, |crc, &byte| step(crc, byte))
}

/// Extends the checksum `crc` by one more byte.
fn step(crc: u16, byte: u8) -> u16 {
    (crc << 8) ^ CRC16[usize::from((crc >> 8) ^ u16::from(byte))]
}

const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut index: u16 = 0;
    while index < 256 {
        let mut crc = index << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use harness::redis::cmd;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    thread_local! {
        /// The number of checksums of whole keys calculated by this thread.
        pub(super) static CALCULATIONS: Cell<u32> = const { Cell::new(0) };
    }

    #[derive(Deserialize)]
    struct Table {
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Case {
        name_hex: String,
        fence_key_hex: Option<String>,
        waiters_key_hex: Option<String>,
        slot: Option<u16>,
        error: Option<Refusal>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Refusal {
        code: String,
        mentions: Vec<String>,
    }

    /// Returns the slot of a key in Redis Cluster, 0 to 16383.
    fn slot(key: &[u8]) -> u16 {
        crc16(hash_tag(key).unwrap_or(key)) % SLOTS
    }

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    }

    /// A real server in cluster mode decides about slots.
    #[test]
    fn a_server_puts_all_keys_of_a_name_in_one_slot() {
        let server = harness::Server::builder().tcp(true).args(["--cluster-enabled", "yes"]).start();
        let mut connection = server.connect();
        let mut slot = |key: &[u8]| -> u16 { cmd("CLUSTER").arg("KEYSLOT").arg(key).query(&mut connection).unwrap() };
        let table: Table = serde_json::from_str(include_str!("../../../tests/conformance/tables/names.json")).unwrap();
        let mut checked = 0;
        for case in table.cases.iter().filter(|case| case.error.is_none()) {
            let name = Name::parse(unhex(&case.name_hex)).unwrap();
            assert_eq!(Some(slot(name.lock_key())), case.slot, "lock key of {name}");
            assert_eq!(Some(slot(&name.fence_key())), case.slot, "fence key of {name}");
            assert_eq!(Some(slot(&name.want_key())), case.slot, "want key of {name}");
            checked += 1;
        }
        assert!(checked > 40, "{checked}");
    }

    #[test]
    fn table() {
        let table: Table = serde_json::from_str(include_str!("../../../tests/conformance/tables/names.json")).unwrap();
        for case in table.cases {
            let bytes = unhex(&case.name_hex);
            match (Name::parse(&*bytes), case.error) {
                (Ok(name), None) => {
                    assert_eq!(name.bytes(), bytes);
                    assert_eq!(**name.lock_key(), *bytes, "the lock key is the name");
                    assert_eq!(Some(name.fence_key()), case.fence_key_hex.as_deref().map(unhex), "fence of {name}");
                    assert_eq!(Some(name.want_key()), case.waiters_key_hex.as_deref().map(unhex), "want of {name}");
                    assert_eq!(Some(slot(name.lock_key())), case.slot, "slot of {name}");
                }
                (Err(wrong), Some(refusal)) => {
                    let error = wrong.alone();
                    assert_eq!(error.code(), refusal.code);
                    for text in refusal.mentions {
                        assert!(error.to_string().contains(&text), "{error} does not mention {text:?}");
                    }
                }
                (result, refusal) => {
                    panic!("{}: {result:?}, should be refused: {}", case.name_hex, refusal.is_some())
                }
            }
        }
    }

    #[test]
    fn a_prefix_leaves_room_for_a_name() {
        for right in ["", "app:", "redlock:", "redlock:fence", "{app}", &"p".repeat(511)] {
            assert!(Name::check_prefix(right.as_bytes()).is_ok(), "{right}");
        }
        for wrong in ["redlock:fence:", "redlock:waiters:{app}", &"p".repeat(512)] {
            assert_eq!(Name::check_prefix(wrong.as_bytes()).unwrap_err().option(), Some("key_prefix"), "{wrong}");
        }
    }

    /// Searches from zero on, by the definition.
    #[test]
    fn the_number_of_every_slot_is_the_smallest() {
        let mut smallest = HashMap::new();
        for k in 0..300_000_u32 {
            smallest.entry(slot(k.to_string().as_bytes())).or_insert(k);
        }
        assert_eq!(smallest.len(), usize::from(SLOTS), "every slot has a small number");
        for (slot, k) in smallest {
            assert_eq!(number_in_slot(slot), k, "slot {slot}");
        }
    }

    #[test]
    fn a_name_costs_one_slot_calculation_at_most() {
        let calculations = |bytes: &[u8]| {
            let before = CALCULATIONS.get();
            let name = Name::parse(bytes).unwrap();
            drop((name.fence_key(), name.want_key(), name.fence_key()));
            CALCULATIONS.get() - before
        };
        for number in 0..20 {
            assert_eq!(calculations(format!("job:{{}}:{number}").as_bytes()), 1);
        }
        for simple in ["job", "{user}:1", "{a"] {
            assert_eq!(calculations(simple.as_bytes()), 0, "{simple}");
        }
    }

    #[test]
    fn shown_without_control_characters() {
        let name = Name::parse(*b"a\n\xff\0b\"").unwrap();
        assert_eq!(name.to_string(), "a\\n\u{fffd}\\0b\\\"");
        assert_eq!(format!("{name:?}"), "\"a\\n\u{fffd}\\0b\\\"\"");
    }

    fn odd_name() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => prop::sample::select(b"{}:-".as_slice()),
            2 => prop::sample::select(b"0123456789".as_slice()),
            1 => prop::sample::select(b"az\0\n\xff".as_slice()),
        ];
        vec(byte, 1..12)
    }

    /// A function from the key back to the name means that two names never share a key.
    fn name_of(key: &[u8]) -> &[u8] {
        name_beside(key, FENCE).unwrap()
    }

    #[test]
    fn a_key_that_is_not_a_fence_is_of_no_name() {
        for key in [
            "",
            "job",
            "redlock:fence:",
            "redlock:fence:{}",
            "redlock:fence:{job",
            "redlock:fence:job",
            "redlock:fence::job",
            "redlock:fence:{a}b}",
            "redlock:fence:-{1}a}b",
            "redlock:fence:{redlock:fence:a}",
            "redlock:fence:{redlock:slot:1}",
            "redlock:fence::redlock:slot:bell:{job}",
            "redlock:fence::redlock:slot:01:{job}",
            "redlock:fence::redlock:slot:+1:{job}",
            "redlock:fence::redlock:slot:99999999999:{job}",
        ] {
            assert_eq!(Name::of_fence_key(key.as_bytes()), None, "{key}");
        }
    }

    proptest! {
        #[test]
        fn keys_stay_in_the_slot_and_lead_back_to_one_name(bytes in odd_name()) {
            let name = Name::parse(&*bytes).unwrap();
            let (fence, want) = (name.fence_key(), name.want_key());
            prop_assert_eq!(slot(&fence), slot(&bytes));
            prop_assert_eq!(slot(&want), slot(&bytes));
            prop_assert_eq!(name_of(&fence), &bytes[..]);
            prop_assert!(Name::parse(&*fence).is_err() && Name::parse(&*want).is_err(), "no lock has this key");
        }

        #[test]
        fn a_fence_key_tells_name_and_slot(bytes in odd_name(), slot in 0_u32..32) {
            let name = Name::parse(&*bytes).unwrap();
            prop_assert_eq!(Name::of_fence_key(&name.slot_name(slot).fence_key()), Some((name.clone(), Some(slot))));
            prop_assert_eq!(Name::of_fence_key(&name.fence_key()), Some((name, None)));
        }

        #[test]
        fn names_never_share_a_fence_key(names in vec(vec(prop::sample::select(b"{}:-05a\0".as_slice()), 1..5), 2..12)) {
            let mut owners = HashMap::new();
            for bytes in names {
                let key = Name::parse(&*bytes).unwrap().fence_key();
                let owner = owners.entry(key).or_insert_with(|| bytes.clone());
                prop_assert_eq!(&*owner, &bytes);
            }
        }
    }
}
