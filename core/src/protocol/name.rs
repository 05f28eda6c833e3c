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

const FENCE: &[u8] = b"redlock:fence:";
const WANT: &[u8] = b"redlock:waiters:";

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

impl Name {
    /// Accepts any 1 to 512 bytes, except names that begin like the keys made here.
    pub(crate) fn parse(bytes: impl Into<Arc<[u8]>>) -> Result<Self, Error> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Err(Self::empty());
        }
        if bytes.len() > MAX_BYTES {
            return Err(Error::invalid(format!(
                "the name of a lock has {} bytes and at most {MAX_BYTES} are allowed; use a hash of it as the name",
                bytes.len()
            )));
        }
        for reserved in [FENCE, WANT] {
            if bytes.starts_with(reserved) {
                return Err(Error::invalid(format!(
                    "names that begin with {:?} are reserved for the lock's own keys; choose another name",
                    String::from_utf8_lossy(reserved)
                )));
            }
        }
        Ok(Self { tagging: Tagging::of(&bytes), bytes })
    }

    /// Returns the error for an empty name.
    pub(crate) fn empty() -> Error {
        Error::invalid("the name of a lock is empty; give it 1 to 512 bytes")
    }

    /// Refuses a prefix after which no name is right.
    pub(crate) fn check_prefix(prefix: &[u8]) -> Result<(), Error> {
        if prefix.len() >= MAX_BYTES {
            let most = MAX_BYTES - 1;
            let rest = format!(" has {} bytes, but at most {most} are allowed; use a shorter prefix", prefix.len());
            return Err(Error::about("key_prefix", rest));
        }
        for reserved in [FENCE, WANT] {
            if prefix.starts_with(reserved) {
                let rest = format!(" begins with {:?}, which is reserved", String::from_utf8_lossy(reserved));
                return Err(Error::about("key_prefix", rest + " for the lock's own keys; choose another prefix"));
            }
        }
        Ok(())
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

    fn key_beside(&self, prefix: &[u8]) -> Vec<u8> {
        match self.tagging {
            Tagging::Whole => [prefix, b"{", &self.bytes, b"}"].concat(),
            Tagging::Own => [prefix, b":", &self.bytes].concat(),
            Tagging::Number(k) => [prefix, format!("-{{{k}}}").as_bytes(), &self.bytes].concat(),
        }
    }
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
                (Err(error), Some(refusal)) => {
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

    /// Undoes `key_beside`: a function from the key back to the name means that two names never share a key.
    fn name_of(key: &[u8]) -> &[u8] {
        match key.strip_prefix(FENCE).unwrap() {
            [b'{', name @ .., b'}'] | [b':', name @ ..] => name,
            numbered => &numbered[numbered.iter().position(|&byte| byte == b'}').unwrap() + 1..],
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
