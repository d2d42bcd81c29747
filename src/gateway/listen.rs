//! Addresses to listen on, and listeners on them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::str::FromStr;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Where to listen: `ip:port`, `:port`, `/path/of/a/socket` or `@abstract-name`. Port 0 is any free one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// All addresses of the machine, on a port.
    AnyAddress(u16),
    /// An address or host name, and a port.
    Tcp(String, u16),
    /// A Unix socket in the file system.
    Unix(PathBuf),
    /// A Unix socket in the abstract name space of Linux.
    Abstract(String),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        if let Some(name) = text.strip_prefix('@') {
            return if name.is_empty() {
                Err("an abstract socket needs a name after the @".into())
            } else {
                Ok(Self::Abstract(name.to_owned()))
            };
        }
        let wrong = || {
            format!("{text:?} is no address to listen on; write ip:port, :port, /path/of/a/socket or @name")
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        match host {
            "" | "*" => Ok(Self::AnyAddress(port)),
            // An IPv6 address has brackets, so a colon left in the host means they are missing.
            host if host.starts_with('[') && host.ends_with(']') => {
                let inner = &host[1..host.len() - 1];
                inner.parse::<Ipv6Addr>().map_err(|_| wrong())?;
                Ok(Self::Tcp(inner.to_owned(), port))
            }
            host if host.contains([':', '/', ' ']) => Err(wrong()),
            host => Ok(Self::Tcp(host.to_owned(), port)),
        }
    }
}

impl std::fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AnyAddress(port) => write!(f, ":{port}"),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

/// Ends of an accepted connection; none on Unix sockets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) peer: Option<IpAddr>,
    pub(crate) local: Option<IpAddr>,
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(TcpStream, Ends),
    Unix(UnixStream),
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, Option<PathBuf>),
}

/// A bound socket. A socket file is removed when this drops.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    name: String,
}

impl Listener {
    /// Binds an address; `mode` are the permission bits of a socket file.
    ///
    /// # Errors
    /// When the address is in use or cannot be had.
    pub(crate) async fn bind(address: &ListenAddress, mode: u32) -> io::Result<Self> {
        let socket = match address {
            ListenAddress::AnyAddress(port) => {
                let six = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port))).await;
                match six {
                    // No IPv6 on this machine.
                    Err(error) if error.kind() != io::ErrorKind::AddrInUse => Socket::Tcp(
                        TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, *port))).await?,
                    ),
                    other => Socket::Tcp(other?),
                }
            }
            ListenAddress::Tcp(host, port) => {
                let addresses: Vec<SocketAddr> = (host.as_str(), *port).to_socket_addrs()?.collect();
                Socket::Tcp(TcpListener::bind(&*addresses).await?)
            }
            ListenAddress::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
                Socket::Unix(listener, Some(path.clone()))
            }
            ListenAddress::Abstract(name) => {
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                let listener = std::os::unix::net::UnixListener::bind_addr(&address)?;
                listener.set_nonblocking(true)?;
                Socket::Unix(UnixListener::from_std(listener)?, None)
            }
        };
        let name = match &socket {
            Socket::Tcp(listener) => match listener.local_addr()? {
                // What a client on this machine can write into a URL.
                SocketAddr::V6(v6) if v6.ip().is_unspecified() => format!("0.0.0.0:{}", v6.port()),
                other => other.to_string(),
            },
            Socket::Unix(..) => address.to_string(),
        };
        Ok(Self { socket, name })
    }

    /// Where it listens, with the real port.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for a connection.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Answers are written whole; waiting to fill segments would only delay them.
                let _ = stream.set_nodelay(true);
                let local = stream.local_addr().ok().map(|a| a.ip().to_canonical());
                Ok(Accepted::Tcp(stream, Ends { peer: Some(peer.ip().to_canonical()), local }))
            }
            Socket::Unix(listener, _) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix(_, Some(path)) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes the socket file of a gateway that is gone; one that somebody listens on stays.
fn remove_stale(path: &PathBuf) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is no socket"))
        }
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => std::fs::remove_file(path),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case(":7070" => Ok(":7070".into()))]
    #[test_case("127.0.0.1:0" => Ok("127.0.0.1:0".into()))]
    #[test_case("[::1]:80" => Ok("[::1]:80".into()))]
    #[test_case("localhost:80" => Ok("localhost:80".into()))]
    #[test_case("/run/s3.sock" => Ok("/run/s3.sock".into()))]
    #[test_case("@s3" => Ok("@s3".into()))]
    #[test_case("7070" => Err(()))]
    #[test_case(":70700" => Err(()))]
    #[test_case("::1:80" => Err(()); "IPv6 without brackets")]
    #[test_case("@" => Err(()))]
    #[test_case("" => Err(()))]
    fn addresses(text: &str) -> Result<String, ()> {
        text.parse::<ListenAddress>().map(|a| a.to_string()).map_err(|_| ())
    }

    #[tokio::test]
    async fn binds_reports_and_cleans_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s3.sock");
        let unix = ListenAddress::Unix(path.clone());
        let listener = Listener::bind(&unix, 0o600).await.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Listener::bind(&unix, 0o600).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(Listener::bind(&unix, 0o600).await.is_err());

        let tcp = Listener::bind(&"127.0.0.1:0".parse().unwrap(), 0).await.unwrap();
        let taken: ListenAddress = tcp.name().parse().unwrap();
        assert_eq!(Listener::bind(&taken, 0).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
