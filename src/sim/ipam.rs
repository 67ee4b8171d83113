//! The agent's address management: which address of the node's range belongs to whom.
//!
//! It knows nothing of endpoints: an address that is free here may still be held by one, and that is the wedge.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// An IPv4 range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    network: u32,
    prefix: u32,
}

/// A text is no IPv4 range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid CIDR address: {0}")]
pub struct InvalidCidr(String);

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, InvalidCidr> {
        let invalid = || InvalidCidr(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: Ipv4Addr = address.parse().map_err(|_| invalid())?;
        let prefix: u32 = prefix.parse().ok().filter(|prefix| *prefix <= 32).ok_or_else(invalid)?;
        Ok(Self { network: u32::from(address) & mask(prefix), prefix })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.network), self.prefix)
    }
}

fn mask(prefix: u32) -> u32 {
    u32::MAX.checked_shl(32 - prefix).unwrap_or_default()
}

impl Cidr {
    /// The /24 around an address.
    #[must_use]
    pub fn slash_24(address: Ipv4Addr) -> Self {
        Self { network: u32::from(address) & mask(24), prefix: 24 }
    }

    /// Whether the address lies in the range.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        u32::from(address) & mask(self.prefix) == self.network
    }

    /// The address at an offset from the network's own; `None` beyond the range.
    #[must_use]
    pub fn at(self, offset: u32) -> Option<Ipv4Addr> {
        let address = Ipv4Addr::from(self.network.checked_add(offset)?);
        self.contains(address).then_some(address)
    }
}

/// The allocations of one node.
#[derive(Debug)]
pub(crate) struct Ipam {
    pub cidr: Cidr,
    pub allocations: BTreeMap<IpAddr, String>,
}

impl Ipam {
    pub(crate) fn new(cidr: Cidr) -> Self {
        Self { cidr, allocations: BTreeMap::new() }
    }

    /// Gives the lowest free address to an owner; not the network's and not the last one.
    pub(crate) fn allocate(&mut self, owner: &str) -> Option<Ipv4Addr> {
        let address = (1..).map_while(|offset| {
            self.cidr.at(offset + 1)?;
            self.cidr.at(offset)
        });
        let free =
            address.into_iter().find(|address| !self.allocations.contains_key(&IpAddr::V4(*address)))?;
        self.allocations.insert(IpAddr::V4(free), owner.to_owned());
        Some(free)
    }

    /// Gives this address to an owner, unless somebody has it: another IPAM may hand out the same range.
    pub(crate) fn claim(&mut self, address: IpAddr, owner: &str) {
        self.allocations.entry(address).or_insert_with(|| owner.to_owned());
    }

    /// Frees an address of this owner.
    pub(crate) fn release(&mut self, address: IpAddr, owner: &str) {
        if self.allocations.get(&address).is_some_and(|present| present == owner) {
            self.allocations.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_address_is_given_out() {
        let mut ipam = Ipam::new("10.244.1.0/30".parse().unwrap());
        ipam.claim("10.244.1.1".parse().unwrap(), "router");
        assert_eq!(ipam.allocate("a/b"), Some(Ipv4Addr::new(10, 244, 1, 2)));
        assert_eq!(ipam.allocate("a/c"), None);
        ipam.release("10.244.1.1".parse().unwrap(), "a/b");
        assert_eq!(ipam.allocate("a/c"), None);
    }

    #[test]
    fn only_ranges_are_ranges() {
        for text in ["", "10.0.0.0", "10.0.0.0/33", "x/8", "fd00::/8"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
        assert_eq!("10.1.2.3/0".parse::<Cidr>().unwrap().to_string(), "0.0.0.0/0");
    }
}
