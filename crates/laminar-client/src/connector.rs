//! How a client finds the node.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use laminar_crew::Crew;
use laminar_rpc::{ErrorClass, Failure};

use crate::transport::Transport;

/// Tells one connection of a connector from the others. What it says is the connector's business.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub String);

/// A node that was found.
pub struct Connected {
    /// How to call it.
    pub transport: Transport,
    /// Which connection this is.
    pub id: ConnectionId,
    /// Where the node is, for people.
    pub address: String,
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected").field("id", &self.id).field("address", &self.address).finish()
    }
}

/// Finds the node, now and again whenever a connection is lost.
pub trait Connector: Send + Sync + 'static {
    /// The node as it is now. `seen` is the connection that just failed, if any: the connector looks for another, and may
    /// return the same if there is none. `cluster` is the id of the one that was connected to before, if any: whoever
    /// could make a new one does not. An error of a class that is not retryable ends the calls that wait; with any other
    /// they ask again until their deadline.
    fn connect<'a>(
        &'a self,
        seen: Option<&ConnectionId>,
        cluster: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Connected, Failure>>;

    /// What is connected to: a folder or addresses.
    fn describe(&self) -> String;

    /// The process that holds the folder, where that is known.
    fn holder_pid(&self) -> Option<u32>;
}

/// Connects to a running cluster by its addresses.
#[derive(Debug)]
pub struct RemoteConnector {
    addresses: Vec<String>,
    secret: Option<String>,
    crew: Option<Crew>,
    next: AtomicUsize,
}

impl RemoteConnector {
    /// Takes addresses as users write them: `host1:7400,host2:7400`.
    ///
    /// # Errors
    /// Invalid: no address, or one without a host or port.
    pub fn parse(addresses: &str, secret: Option<String>) -> Result<Self, Failure> {
        let parts = addresses.split(',').map(str::trim).filter(|part| !part.is_empty());
        let addresses: Vec<String> = parts.map(str::to_owned).collect();
        Self::new(addresses, secret)
    }

    /// Takes a list of `host:port`.
    ///
    /// # Errors
    /// Invalid: no address, or one without a host or port.
    pub fn new(addresses: Vec<String>, secret: Option<String>) -> Result<Self, Failure> {
        if addresses.is_empty() {
            return Err(Failure::invalid("no address to connect to; give host:port, or several with commas"));
        }
        addresses.iter().try_for_each(|address| check_address(address))?;
        Ok(RemoteConnector { addresses, secret, crew: None, next: AtomicUsize::new(0) })
    }

    /// Has connections run by a crew, which callers that wait help.
    #[must_use]
    pub fn with_crew(self, crew: Crew) -> Self {
        RemoteConnector { crew: Some(crew), ..self }
    }
}

fn check_address(address: &str) -> Result<(), Failure> {
    let parts = address.rsplit_once(':');
    let good = parts.is_some_and(|(host, port)| {
        let bracketed = host.starts_with('[') && host.ends_with(']');
        let host_good =
            !host.is_empty() && !host.contains(['/', ' ', '@']) && (bracketed || !host.contains(':'));
        host_good && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if good {
        return Ok(());
    }
    Err(Failure::invalid(format!("address {address:?} is not host:port with a port from 1 to 65535")))
}

impl Connector for RemoteConnector {
    fn connect<'a>(
        &'a self,
        seen: Option<&ConnectionId>,
        _cluster: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Connected, Failure>> {
        let count = self.addresses.len();
        // The one that failed is asked last.
        let first = match seen.and_then(|seen| self.addresses.iter().position(|address| *address == seen.0)) {
            Some(position) => position + 1,
            None => self.next.load(Ordering::Relaxed),
        };
        Box::pin(async move {
            let mut last = None;
            for position in (first..first + count).map(|position| position % count) {
                let address = &self.addresses[position];
                match Transport::remote(address, self.secret.as_deref(), self.crew.as_ref()).await {
                    Ok(transport) => {
                        self.next.store(position, Ordering::Relaxed);
                        let id = ConnectionId(address.clone());
                        return Ok(Connected { transport, id, address: address.clone() });
                    }
                    Err(failure) => last = Some(failure),
                }
            }
            Err(last.unwrap_or_else(|| Failure::new(ErrorClass::Network, "no address to connect to")))
        })
    }

    fn describe(&self) -> String {
        self.addresses.join(",")
    }

    fn holder_pid(&self) -> Option<u32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_users_write_them() {
        let connector = RemoteConnector::parse("host1:7400, [::1]:7400,", None).unwrap();
        assert_eq!(connector.describe(), "host1:7400,[::1]:7400");
    }

    #[test]
    fn addresses_that_cannot_be_are_refused_by_name() {
        for address in
            ["", "host", "host:", ":7400", "host:0", "host:70000", "http://host:7400", "a b:1", "::1:7400"]
        {
            let failure = RemoteConnector::parse(address, None).unwrap_err();
            assert_eq!(failure.class, ErrorClass::Invalid, "{address}");
            assert!(failure.message.contains(address), "{}", failure.message);
        }
    }
}
