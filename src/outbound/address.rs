//! Which addresses the outbound client may connect to.
//!
//! The lists are IANA's special-purpose registries (RFC 6890 and its updates): whatever is not plain public unicast is
//! refused, so a range that is handed out for inside use tomorrow need not be added in IPv6, where only 2000::/3 is let through.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use reqwest::Url;

/// What the configured host entitles a client to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The host is this machine by name or number: nothing but this machine.
    Loopback,
    Public,
    /// This machine and the private network it is in.
    Near,
    /// A party of our own, wherever it is.
    Anywhere,
}

impl Reach {
    pub(super) fn allows(self, ip: IpAddr) -> bool {
        match self {
            Self::Loopback => ip.to_canonical().is_loopback(),
            Self::Public => is_public(ip),
            Self::Near => is_near(ip),
            Self::Anywhere => is_near(ip) || is_public(ip),
        }
    }
}

/// Judges the configured address. A host given as a number is judged here and only here, because the HTTP library asks no
/// resolver about numbers.
pub(super) fn reach(base: &Url) -> Result<Reach, &'static str> {
    if !base.username().is_empty() || base.password().is_some() {
        return Err("an address with credentials in it");
    }
    let host = base.host_str().unwrap_or_default().trim_end_matches('.');
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    let reach = match literal {
        Some(ip) if Reach::Loopback.allows(ip) => Reach::Loopback,
        Some(ip) if Reach::Public.allows(ip) => Reach::Public,
        Some(_) => return Err("an address inside a private or reserved network"),
        None if host == "localhost" || host.ends_with(".localhost") => Reach::Loopback,
        None => Reach::Public,
    };
    match (base.scheme(), reach) {
        ("https", _) | ("http", Reach::Loopback) => Ok(reach),
        ("http", Reach::Public) => Err("plain http is for this machine only"),
        _ => Err("neither https nor http"),
    }
}

/// As [`reach`], for a party of our own: in plain http it is near, by https it may be anywhere. Where clouds keep their metadata
/// is neither.
pub(super) fn reach_of_ours(base: &Url) -> Result<Reach, &'static str> {
    if !base.username().is_empty() || base.password().is_some() {
        return Err("an address with credentials in it");
    }
    let reach = match base.scheme() {
        "https" => Reach::Anywhere,
        "http" => Reach::Near,
        _ => return Err("neither https nor http"),
    };
    let host = base.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(ip) if !reach.allows(ip) && reach == Reach::Near => Err("plain http is for this machine and its private network only"),
        Ok(ip) if !reach.allows(ip) => Err("an address inside a reserved network"),
        _ => Ok(reach),
    }
}

fn is_near(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        // Carrier-grade NAT's range is also what some clouds give to containers.
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_loopback() || ip.is_private() || (a == 100 && (64..128).contains(&b))
        }
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local(),
    }
}

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let special = match a {
        0 | 10 | 127 => true,
        100 => (64..128).contains(&b), // carrier-grade NAT
        169 => b == 254,               // link-local, and where clouds keep their metadata
        172 => (16..32).contains(&b),
        192 => matches!((b, c), (0, 0 | 2) | (88, 99) | (168, _)),
        198 => matches!(b, 18 | 19) || (b, c) == (51, 100),
        203 => (b, c) == (0, 113),
        _ => a >= 224, // multicast, reserved, broadcast
    };
    !special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    if let Some(inner) = ip.to_ipv4_mapped() {
        return is_public_v4(inner);
    }
    match ip.segments() {
        // NAT64: what counts is the IPv4 address inside. Networks without IPv4 reach everything through it.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            is_public_v4(Ipv4Addr::new(a, b, c, d))
        }
        [0x2001, second, ..] => second >= 0x200 && second != 0xdb8, // below: Teredo, ORCHID and other tunnels
        [0x2002, ..] => false,                                      // 6to4 may lead to any IPv4 address
        [0x3fff, second, ..] => second >= 0x1000,                   // documentation
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_public_addresses_are_public() {
        let inside = "0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.8.8.8 169.254.169.254 \
            172.16.0.1 172.31.255.255 192.0.0.1 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.7 \
            203.0.113.9 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 :: ::1 ::10.0.0.1 ::ffff:10.0.0.1 ::ffff:127.0.0.1 \
            64:ff9b::10.0.0.1 64:ff9b:1::8.8.8.8 100::1 2001::1 2001:db8::1 2002:808:808::1 3fff::1 fc00::1 fd12:3456::1 \
            fe80::1 fec0::1 ff02::1 5f00::1";
        for ip in inside.split_whitespace() {
            assert!(!Reach::Public.allows(ip.parse().unwrap()), "{ip}");
        }
        let outside = "1.1.1.1 9.255.255.255 100.63.255.255 100.128.0.1 172.15.0.1 172.32.0.1 192.0.1.1 198.17.0.1 223.255.255.254 \
            ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2001:4860:4860::8888 2606:4700::1111 2a00:1450::1";
        for ip in outside.split_whitespace() {
            assert!(Reach::Public.allows(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn a_local_client_reaches_this_machine_only() {
        for ip in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(Reach::Loopback.allows(ip.parse().unwrap()), "{ip}");
        }
        for ip in ["10.0.0.1", "8.8.8.8", "fe80::1"] {
            assert!(!Reach::Loopback.allows(ip.parse().unwrap()), "{ip}");
        }
    }
}
