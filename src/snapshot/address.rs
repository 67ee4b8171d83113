//! Addresses replaced so that what the rules ask of them stays true: equal ones stay equal, a network's members stay
//! its members, and link-local or private ones stay what they are.
//!
//! Each bit is flipped or not by a keyed hash of the bits before it, so two addresses share as many leading bits
//! afterwards as before (Xu, Fan, Ammar, Moon: Prefix-preserving IP address anonymization, 2002).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges that map to themselves, each as its bits from the left and their number.
const FIXED_V4: [(u32, u32); 8] = [
    (0x0000_0000, 8),
    (0x0A00_0000, 8),
    (0x6440_0000, 10),
    (0x7F00_0000, 8),
    (0xA9FE_0000, 16),
    (0xAC10_0000, 12),
    (0xC0A8_0000, 16),
    (0xE000_0000, 3),
];
const FIXED_V6: [(u128, u32); 5] =
    [(0, 64), (0x2000 << 112, 3), (0xFC00 << 112, 7), (0xFE80 << 112, 10), (0xFF00 << 112, 8)];

/// A one-to-one map of addresses.
pub(super) struct AddressMap {
    key: u64,
}

impl AddressMap {
    pub(super) fn new(key: u64) -> Self {
        Self { key }
    }

    /// The address in place of this one.
    pub(super) fn map(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(v4) => IpAddr::V4(self.map_v4(v4)),
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(v4) => IpAddr::V6(self.map_v4(v4).to_ipv6_mapped()),
                None if v6.is_unspecified() || v6.is_loopback() => ip,
                None => {
                    let fixed: Vec<_> = FIXED_V6.into_iter().collect();
                    IpAddr::V6(Ipv6Addr::from_bits(self.flip(v6.to_bits(), 128, &fixed)))
                }
            },
        }
    }

    fn map_v4(&self, v4: Ipv4Addr) -> Ipv4Addr {
        if v4.is_unspecified() || v4.is_loopback() {
            return v4;
        }
        let fixed: Vec<_> = FIXED_V4.into_iter().map(|(bits, len)| (u128::from(bits) << 96, len)).collect();
        let bits = self.flip(u128::from(v4.to_bits()) << 96, 32, &fixed);
        Ipv4Addr::from_bits(u32::try_from(bits >> 96).unwrap_or_default())
    }

    /// The network in place of this one, with the same length of its prefix.
    pub(super) fn map_network(&self, ip: IpAddr, len: u32) -> IpAddr {
        let mask = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => {
                let ones = u32::MAX.checked_shl(32 - len.min(32)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & ones))
            }
            IpAddr::V6(v6) => {
                let ones = u128::MAX.checked_shl(128 - len.min(128)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & ones))
            }
        };
        if mask(ip) == ip { mask(self.map(ip)) } else { self.map(ip) }
    }

    /// `bits` from the left; the first `len` of them count.
    fn flip(&self, bits: u128, len: u32, fixed: &[(u128, u32)]) -> u128 {
        let mut out = bits;
        for at in 0..len {
            let prefix = if at == 0 { 0 } else { bits >> (128 - at) };
            // On the way to a range that stays in its place nothing may be swapped.
            let on_the_way =
                |&(range, size): &(u128, u32)| at < size && (at == 0 || range >> (128 - at) == prefix);
            if !fixed.iter().any(on_the_way) && self.coin(len, at, prefix) {
                out ^= 1 << (127 - at);
            }
        }
        out
    }

    fn coin(&self, family: u32, at: u32, prefix: u128) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.key, family, at, prefix).hash(&mut hasher);
        hasher.finish() & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use ipnet::IpNet;
    use proptest::prelude::*;

    use super::*;
    use crate::domain::is_link_local;

    fn shared_bits(a: IpAddr, b: IpAddr) -> u32 {
        match (a, b) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
            _ => 0,
        }
    }

    fn plain(ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_unspecified(),
            IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unspecified() && v6.to_ipv4_mapped().is_none(),
        }
    }

    proptest! {
        #[test]
        fn two_addresses_share_as_many_leading_bits_as_before(
            key: u64, a: u32, b: u32, c: u128, d: u128, near in 0_u32..128
        ) {
            let map = AddressMap::new(key);
            let v4 = [Ipv4Addr::from_bits(a), Ipv4Addr::from_bits(b), Ipv4Addr::from_bits(a ^ (1 << (near % 32)))];
            let v6 = [Ipv6Addr::from_bits(c), Ipv6Addr::from_bits(d), Ipv6Addr::from_bits(c ^ (1 << near))];
            for (x, y) in [(0, 1), (0, 2), (1, 2)] {
                for (a, b) in [(IpAddr::V4(v4[x]), IpAddr::V4(v4[y])), (IpAddr::V6(v6[x]), IpAddr::V6(v6[y]))] {
                    prop_assume!(plain(a) && plain(b));
                    prop_assert_eq!(shared_bits(a, b), shared_bits(map.map(a), map.map(b)));
                    prop_assert_eq!(is_link_local(a), is_link_local(map.map(a)));
                }
            }
        }

        #[test]
        fn members_of_a_network_stay_its_members(key: u64, a: u32, len in 0_u8..=32, host: u32) {
            let map = AddressMap::new(key);
            let net = IpNet::new(IpAddr::V4(a.into()), len).unwrap().trunc();
            let mapped = IpNet::new(map.map_network(net.network(), len.into()), len).unwrap();
            prop_assert_eq!(mapped, mapped.trunc());
            let member = IpAddr::V4(Ipv4Addr::from_bits(host));
            prop_assume!(plain(member) && len > 7);
            prop_assert_eq!(net.contains(&member), mapped.contains(&map.map(member)));
        }
    }
}
