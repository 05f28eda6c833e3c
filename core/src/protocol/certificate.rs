//! PURE: from when until when a certificate is valid, and its public key. Whoever checks a certificate refuses it outside
//! of this time, and does not say how near its end is.

use std::cmp::Ordering;
use std::time::Duration;

/// The tags of DER that a certificate has up to its public key.
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xA0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

const DAY: u64 = 86_400;

/// The time in which a certificate is valid, in Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    from: u64,
    until: u64,
}

impl Validity {
    /// Reads it from a certificate in DER form (RFC 5280, section 4.1).
    pub(crate) fn of(certificate: &[u8]) -> Option<Self> {
        let mut validity = Fields(Fields::from_validity(certificate)?.next_of(SEQUENCE)?);
        Some(Self { from: instant(validity.next()?)?, until: instant(validity.next()?)? })
    }

    /// Returns how this Unix second lies to it if it is outside.
    pub(crate) fn covers(self, now: u64) -> Result<(), Ordering> {
        match now {
            _ if now < self.from => Err(Ordering::Less),
            _ if now > self.until => Err(Ordering::Greater),
            _ => Ok(()),
        }
    }

    /// Returns how long it lasts as a whole.
    pub(crate) fn lifetime(self) -> Duration {
        Duration::from_secs(self.until.saturating_sub(self.from))
    }

    /// Returns how long it lasts yet, at this Unix second.
    pub(crate) fn left(self, now: u64) -> Duration {
        Duration::from_secs(self.until.saturating_sub(now))
    }
}

/// The public key of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey<'a> {
    /// The whole `SubjectPublicKeyInfo` in DER form.
    pub(crate) info: &'a [u8],
    /// What is in its `AlgorithmIdentifier`.
    pub(crate) algorithm: &'a [u8],
    /// The key itself.
    pub(crate) bits: &'a [u8],
}

impl<'a> PublicKey<'a> {
    /// Reads it from a certificate in DER form.
    pub(crate) fn of(certificate: &'a [u8]) -> Option<Self> {
        let mut body = Fields::from_validity(certificate)?;
        // Validity and subject.
        for _ in 0..2 {
            body.next_of(SEQUENCE)?;
        }
        let before = body.0;
        let mut fields = Fields(body.next_of(SEQUENCE)?);
        let info = &before[..before.len() - body.0.len()];
        let algorithm = fields.next_of(SEQUENCE)?;
        // A key has whole bytes: no bit is unused.
        let bits = fields.next_of(BIT_STRING)?.strip_prefix(&[0])?;
        Some(Self { info, algorithm, bits })
    }
}

/// The fields of a sequence that are not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the fields of a certificate from its validity on.
    fn from_validity(certificate: &'a [u8]) -> Option<Self> {
        let mut certificate = Self(certificate);
        let mut signed = Self(certificate.next_of(SEQUENCE)?);
        let mut body = Self(signed.next_of(SEQUENCE)?);
        let (tag, _) = body.next()?;
        // Behind the version, which may be left out: serial number, algorithm, issuer.
        for _ in 0..if tag == VERSION { 3 } else { 2 } {
            body.next()?;
        }
        Some(body)
    }

    /// Returns the tag and the content of the next field.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            0..=0x7F => (usize::from(first), rest),
            // The number of bytes that the length has. None of a certificate is longer.
            0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7F))?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// Returns the content of the next field if it has this tag.
    fn next_of(&mut self, wanted: u8) -> Option<&'a [u8]> {
        self.next().filter(|(tag, _)| *tag == wanted).map(|(_, content)| content)
    }
}

/// Returns the Unix second of a time: `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`. Years before 1970 count as 1970.
fn instant((tag, text): (u8, &[u8])) -> Option<u64> {
    let digits = std::str::from_utf8(text.strip_suffix(b"Z")?).ok()?;
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let number = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
    let days = days_before(year, number(0)?, number(2)?)?;
    Some((days * DAY).saturating_add(number(4)? * 3_600 + number(6)? * 60 + number(8)?))
}

/// Returns the days from 1970 to this date of the Gregorian calendar.
fn days_before(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years begin in March here, so that a leap day is the last of its year.
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let march_month = (month + 9) % 12;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * march_month + 2) / 5 + day - 1;
    Some(days.saturating_sub(719_468))
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn times_are_read() {
        // By `date -u -d … +%s`.
        for (tag, text, second) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "000229235959Z", 951_868_799),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (UTC_TIME, "650101000000Z", 0),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
            (GENERALIZED_TIME, "21000301000000Z", 4_107_542_400),
        ] {
            assert_eq!(instant((tag, text.as_bytes())), Some(second), "{text}");
        }
        for text in ["", "Z", "7001010000Z", "701301000000Z", "700100000000Z", "70010100000xZ", "700101000000"] {
            assert_eq!(instant((UTC_TIME, text.as_bytes())), None, "{text}");
        }
    }

    #[test]
    fn the_validity_and_the_key_of_a_certificate_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let authority = harness::Authority::make(dir.path());
        for path in [authority.ca(), authority.certificate()] {
            let certificate = CertificateDer::from_pem_file(path).unwrap();
            let validity = Validity::of(&certificate).unwrap();
            // As the authority writes them.
            assert_eq!(validity, Validity { from: 157_766_400, until: 67_090_118_400 });
            for length in 0..certificate.len() {
                assert_eq!(Validity::of(&certificate[..length]), None, "{length} of {}", certificate.len());
                assert_eq!(PublicKey::of(&certificate[..length]), None, "{length} of {}", certificate.len());
            }
            let key = PublicKey::of(&certificate).unwrap();
            assert!(key.info.ends_with(key.bits) && key.info[0] == SEQUENCE, "{key:?}");
            assert_eq!((key.bits.len(), key.bits[0]), (65, 4), "a point of P-256");
        }
        let validity = Validity { from: 100, until: 150 };
        assert_eq!((validity.lifetime(), validity.left(140)), (Duration::from_secs(50), Duration::from_secs(10)));
        assert_eq!(validity.left(151), Duration::ZERO);
        assert_eq!((validity.covers(100), validity.covers(150)), (Ok(()), Ok(())));
        assert_eq!((validity.covers(99), validity.covers(151)), (Err(Ordering::Less), Err(Ordering::Greater)));
    }
}
