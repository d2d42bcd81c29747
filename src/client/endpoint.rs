//! Where the gateway listens: scheme, host and port of an endpoint URL.

use std::fmt;
use std::str::FromStr;

use super::{Error, Result};

/// A gateway's address, from a URL such as `http://gateway:7070` or `https://[2001:db8::1]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    text: String,
    tls: bool,
    host: String,
    port: u16,
}

impl Endpoint {
    /// True for `https`.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Host name or address literal, without the brackets of IPv6.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 80 or 443 where the URL names none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Scheme and authority, `http://gateway:7070`.
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority())
    }

    /// The value of the `Host` header: without the port where it is the scheme's own.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port(self.tls) { host } else { format!("{host}:{}", self.port) }
    }
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |reason: &str| Error::Endpoint { text: text.to_owned(), reason: reason.to_owned() };
        let uri: http::Uri = text.trim().parse().map_err(|e| wrong(&format!("not a URL ({e})")))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(wrong("the scheme must be http or https")),
            None => return Err(wrong("the scheme is missing")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("the host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("credentials do not belong in the URL"));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(wrong("a path is not supported; S3 is served at the root"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        let rest = authority.as_str().rsplit(']').next().unwrap_or_default();
        let port = match rest.rsplit_once(':') {
            Some((_, digits)) => {
                let port = digits.parse().ok().filter(|&port: &u16| port != 0);
                port.ok_or_else(|| wrong("the port must be 1 to 65535"))?
            }
            None => default_port(tls),
        };
        Ok(Self { text: text.to_owned(), tls, host: host.to_owned(), port })
    }
}

/// Writes the URL as it was given.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("http://localhost:7070", "localhost", 7070, "localhost:7070")]
    #[test_case("http://gateway", "gateway", 80, "gateway")]
    #[test_case("https://gateway/", "gateway", 443, "gateway")]
    #[test_case("https://gateway:443", "gateway", 443, "gateway")]
    #[test_case("http://[2001:db8::1]:7070", "2001:db8::1", 7070, "[2001:db8::1]:7070")]
    #[test_case("http://[::1]", "::1", 80, "[::1]")]
    fn parts(text: &str, host: &str, port: u16, authority: &str) {
        let endpoint: Endpoint = text.parse().unwrap();
        assert_eq!((endpoint.host(), endpoint.port()), (host, port));
        assert_eq!(endpoint.authority(), authority);
        assert_eq!(endpoint.to_string(), text);
    }

    #[test_case("gateway:7070")]
    #[test_case("/path")]
    #[test_case("ftp://gateway")]
    #[test_case("http://")]
    #[test_case("http://user:secret@gateway")]
    #[test_case("http://gateway/s3")]
    #[test_case("http://gateway:0")]
    #[test_case("http://gateway:99999")]
    #[test_case("")]
    fn refused(text: &str) {
        assert!(text.parse::<Endpoint>().is_err());
    }
}
