//! The servers of a cluster, each asked one question over a connection of its own.
//!
//! What may interrupt a question: it is dropped, which closes its connection. Questions change nothing.

use std::sync::Arc;

use redis::Value;
use tokio::runtime::Handle;

use crate::address::{Address, Target};
use crate::error::Error;
use crate::node::identity::Role;
use crate::node::info::{former_replid, server_info};
use crate::node::pipeline::{Answer, Pipeline};
use crate::node::refusal::unrefused;
use crate::node::scripts::text;
use crate::node::setup::{authentication, command_of};
use crate::node::simulated::answers::SimulatedServers;
use crate::protocol::cluster::{Standing, Told};
use crate::protocol::place::Place;
use crate::sys::clock::Clock;
use crate::sys::future::join_all;
use crate::texts::opaque;
use crate::transport::dial::Dialer;
use crate::transport::failure::Failure;
use crate::transport::logins::{LoginSource, Logins};
use crate::transport::progress::{Phase, Progress};
use crate::transport::tls::Tls;

/// The way to ask the servers of a cluster.
pub(crate) enum ServerAccess {
    /// Redis or Valkey servers.
    Dialed(Box<Dialed>),
    /// Those of a simulation.
    Simulated(Arc<dyn SimulatedServers>),
}

impl ServerAccess {
    /// Returns the way to the servers of the cluster at `address`; `None` if that is not one.
    pub(crate) fn dialed(address: &Address, logins: Option<&Arc<Logins>>) -> Result<Option<Self>, Error> {
        let Target::Cluster { seeds, .. } = &address.target else { return Ok(None) };
        let tls = address.tls().map(|options| Tls::new(options, &seeds[0].0)).transpose()?;
        let login = LoginSource::of(address, logins);
        Ok(Some(Self::Dialed(Box::new(Dialed { address: address.clone(), tls, login }))))
    }

    /// Returns which server has which slots, as the one at `place` tells.
    pub(super) async fn slots(&self, place: &Place, at: (&Clock, &Progress)) -> Result<Vec<Told>, Failure> {
        match self {
            Self::Dialed(servers) => {
                let answer = servers.ask(place, &["CLUSTER", "SLOTS"], at).await?;
                told_in(&answer, &place.host).ok_or(Failure::UnexpectedReply)
            }
            Self::Simulated(servers) => {
                at.1.enter(Phase::SetUp);
                servers.slots(place).await
            }
        }
    }

    /// Returns what the server at `place` says of its data.
    pub(super) async fn standing(&self, place: &Place, clock: &Clock) -> Result<Standing, Failure> {
        match self {
            Self::Dialed(servers) => {
                let answer = servers.ask(place, &["INFO"], (clock, &Progress::default())).await?;
                let info = text(&answer).ok_or(Failure::UnexpectedReply)?;
                let told = server_info(info);
                Ok(Standing {
                    is_primary: told.identity.role == Role::Master,
                    uptime: told.uptime,
                    replid: told.identity.replid,
                    former_replid: former_replid(info).to_owned(),
                })
            }
            Self::Simulated(servers) => servers.standing(place).await,
        }
    }

    /// Returns what TLS connections to a server need, with the files in force.
    pub(super) fn tls_to(&self, host: &str) -> Result<Option<Arc<Tls>>, Error> {
        match self {
            Self::Dialed(servers) => servers.tls_to(host),
            Self::Simulated(_) => Ok(None),
        }
    }
}

opaque!(ServerAccess);

/// Redis or Valkey servers.
pub(crate) struct Dialed {
    /// That of their cluster.
    address: Address,
    tls: Option<Tls>,
    login: LoginSource,
}

impl Dialed {
    fn tls_to(&self, host: &str) -> Result<Option<Arc<Tls>>, Error> {
        Ok(self.tls.as_ref().map(|tls| tls.to(host)).transpose()?.map(Arc::new))
    }

    /// Asks the server at `place` one question, and says in `progress` how far it is.
    async fn ask(
        &self,
        place: &Place,
        words: &[&str],
        (clock, progress): (&Clock, &Progress),
    ) -> Result<Value, Failure> {
        let login = self.login.login().await.map_err(Failure::NoLogin)?;
        let tls = self.tls_to(&place.host).map_err(|error| Failure::Tls(error.to_string().into()))?;
        let target = self.address.of_server(&place.host, place.port).target.clone();
        let stream = Dialer::new(target, tls, self.address.keepalive).dial(clock, progress).await?;
        progress.enter(Phase::SetUp);
        let line = Pipeline::open(&Handle::current(), stream, false, Box::new(|_| {}));
        let commands: Vec<_> = authentication(&login.login).into_iter().chain([command_of(words)]).collect();
        let mut answers = join_all(line.ask_all(&commands)).await;
        let last = answers.pop().unwrap_or(Err(Failure::Closed));
        let answer =
            answers.into_iter().try_for_each(|answer| answered(answer).map(drop)).and_then(|()| answered(last));
        if let (Some(logins), Err(Failure::Forbidden(code))) = (self.login.logins(), &answer)
            && matches!(&**code, "WRONGPASS" | "NOAUTH")
        {
            drop(logins.rejected(login.number));
        }
        answer
    }
}

/// Checks an answer of a server that may not be one of a cluster.
fn answered(answer: Answer) -> Result<Value, Failure> {
    match &answer {
        Ok(Value::ServerError(error))
            if error.details().is_some_and(|text| text.contains("cluster support disabled")) =>
        {
            Err(Failure::Unreachable("it is not a server of a cluster; list it as redis://".into()))
        }
        _ => unrefused(answer),
    }
}

/// Reads the answer to CLUSTER SLOTS of the server at `host`. Leaves out slots if the address of their primary is not
/// known: the port of a server that lost its file of the cluster is 0, until it is met again.
fn told_in(answer: &Value, host: &str) -> Option<Vec<Told>> {
    let Value::Array(ranges) = answer else { return None };
    let mut all = Vec::new();
    for range in ranges {
        let Value::Array(items) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = items.as_slice() else { return None };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        let [named, Value::Int(port), ..] = primary.as_slice() else { return None };
        let named = match named {
            Value::Nil => "",
            named => text(named)?,
        };
        let host = match named {
            "?" => continue,
            _ if *port == 0 => continue,
            // Its own, as this client reached it.
            "" => host,
            named => named,
        };
        all.push(Told {
            slots: first..=last,
            primary: Place { host: host.to_owned(), port: u16::try_from(*port).ok()? },
        });
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let primary = Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![])]);
        Value::Array(vec![Value::Int(first), Value::Int(last), primary])
    }

    #[test]
    fn a_map_as_servers_tell_it() {
        let told = |ranges: Vec<Value>| {
            let told = told_in(&Value::Array(ranges), "seed")?;
            Some(told.into_iter().map(|told| (told.slots, told.primary.to_string())).collect::<Vec<_>>())
        };
        for (host, shown) in [
            (text("10.0.0.1"), "10.0.0.1:7"),
            (text("redis.internal"), "redis.internal:7"),
            (text("::1"), "[::1]:7"),
            (text(""), "seed:7"),
            (Value::Nil, "seed:7"),
        ] {
            assert_eq!(told(vec![range(0, 99, host, 7)]), Some(vec![(0..=99, shown.to_owned())]));
        }
        let unknown = vec![range(0, 99, text("?"), 7), range(100, 199, text("a"), 8)];
        assert_eq!(told(unknown), Some(vec![(100..=199, "a:8".to_owned())]), "nobody knows its host");
        for host in [text(""), text("10.0.0.1"), Value::Nil] {
            let lost = vec![range(0, 99, host, 0), range(100, 199, text("a"), 8)];
            assert_eq!(told(lost), Some(vec![(100..=199, "a:8".to_owned())]), "nobody knows its port");
        }
        assert_eq!(told(vec![]), Some(vec![]), "no slot is assigned");
        for odd in [range(-1, 99, text("a"), 7), range(0, 99, text("a"), 70_000), Value::Int(1)] {
            assert_eq!(told(vec![odd]), None);
        }
        assert_eq!(told_in(&Value::Okay, "seed"), None);
    }
}
