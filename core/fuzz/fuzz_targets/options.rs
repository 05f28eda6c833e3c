//! Options as the bindings give them: each value is converted, or refused with `invalid_argument`.

use proptest::prelude::*;
use proptest::sample::select;
use redlock::bindings::options::{self, Kind, OPTIONS, Options, Scope, Unit, Value};
use redlock::{Error, ErrorKind, Redlock};
use redlock_fuzz::play;

#[derive(Clone, Debug)]
enum Given {
    Amount(f64, Unit),
    BuiltIn,
    Flag(bool),
    Text(String),
}

fn given() -> impl Strategy<Value = Given> {
    let amounts =
        prop_oneof![any::<f64>(), 0.0..100_000.0, select(vec![0.0, -0.0, -1.0, 1e-9, 1e18, f64::NAN, f64::INFINITY])];
    prop_oneof![
        4 => (amounts, select(vec![Unit::Seconds, Unit::Millis])).prop_map(|(amount, unit)| Given::Amount(amount, unit)),
        1 => Just(Given::BuiltIn),
        1 => any::<bool>().prop_map(Given::Flag),
        1 => prop_oneof![any::<String>(), Just("setnx".to_owned()), Just("plain".to_owned())].prop_map(Given::Text),
    ]
}

fn named() -> impl Strategy<Value = String> {
    let known: Vec<_> = OPTIONS.iter().map(|row| row.name.to_owned()).collect();
    prop_oneof![8 => select(known), 1 => any::<String>(), 1 => "[a-zA-Z_]{1,20}"]
}

fn apply(all: &mut Options, option: &str, given: Given) -> Result<(), Error> {
    let row = options::find(option, Scope::Client)?;
    let value = match (row.kind, given) {
        (_, Given::BuiltIn) => Value::BuiltIn,
        (Kind::Duration, Given::Amount(amount, unit)) => Value::Duration(unit.duration(row.name, amount)?),
        (Kind::Timeout, Given::Amount(amount, unit)) => Value::Timeout(unit.timeout(row.name, amount)?),
        (Kind::Timeout, _) => Value::Timeout(None),
        (Kind::Flag, Given::Flag(flag)) => Value::Flag(flag),
        (Kind::Text, Given::Text(text)) => Value::Text(text),
        // The bindings check the kind.
        _ => return Ok(()),
    };
    (row.set)(all, value)
}

#[test]
fn options() {
    play("options", &prop::collection::vec((named(), given()), 0..6), |pairs| {
        let mut all = Options::default();
        let applied = pairs.into_iter().try_for_each(|(option, given)| apply(&mut all, &option, given));
        let built = applied.and_then(|()| Redlock::builder().nodes("memory://fuzz").options(all).build());
        if let Err(error) = built {
            prop_assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{}", error);
            prop_assert!(error.option().is_some(), "{} does not name an option", error);
        }
        Ok(())
    });
}
