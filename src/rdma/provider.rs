//! Which cuObject libraries are in this binary.

use std::ffi::{CStr, c_char};
use std::fmt;

use cuobj_sys as sys;

use super::{Result, shim};

/// Who made the libraries behind the safe layer. Chosen when building.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// NVIDIA's cuObject libraries.
    Nvidia,
    /// The software SDK in `sys/soft`.
    Soft,
}

impl Maker {
    /// `nvidia` or `soft`, for metrics and `CUOBJ_PROVIDER`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Soft => "soft",
        }
    }
}

/// One of the two libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library {
    /// File name found when building, `libcuobjserver.so.1.2.0`, or `built in`.
    pub file: &'static str,
    /// What the library says of itself; empty where it does not say.
    pub version: &'static str,
}

/// The libraries in this binary. [`Display`](fmt::Display) gives the form for `--version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Who made them.
    pub maker: Maker,
    /// cuObjServer, in builds with the feature `server`.
    pub server: Option<Library>,
    /// cuObjClient, in builds with the feature `client`.
    pub client: Option<Library>,
    abilities: u32,
}

impl Provider {
    /// The libraries of this binary.
    ///
    /// # Errors
    /// [`Error::Invalid`](super::Error::Invalid) when bindings and shim are of different revisions,
    /// which a build by Cargo does not let happen.
    pub fn current() -> Result<Self> {
        // SAFETY: takes no arguments and returns a number.
        let abi = unsafe { sys::vgw_cuobj_abi_version() };
        if abi != sys::VGW_CUOBJ_ABI_VERSION {
            return Err(super::Error::Invalid {
                operation: "provider",
                what: format!("the shim has ABI {abi}, the bindings {}", sys::VGW_CUOBJ_ABI_VERSION),
            });
        }
        let mut info = sys::vgw_cuobj_provider_info::default();
        // SAFETY: `info` is writable for the call, and the text buffer is `shim::call`'s.
        shim::call("provider", |text| unsafe { sys::vgw_cuobj_provider(&mut info, text) })?;
        let library = |ability, file, version| {
            (info.abilities & ability != 0)
                .then(|| Library { file: static_text(file), version: static_text(version) })
        };
        Ok(Self {
            maker: if static_text(info.name) == "nvidia" { Maker::Nvidia } else { Maker::Soft },
            server: library(sys::VGW_CUOBJ_HAS_SERVER, info.server_library, info.server_version),
            client: library(sys::VGW_CUOBJ_HAS_CLIENT, info.client_library, info.client_version),
            abilities: info.abilities,
        })
    }

    /// Whether the server tells its effective tunables.
    pub fn tells_tunables(&self) -> bool {
        self.abilities & sys::VGW_CUOBJ_HAS_EFFECTIVE_TUNABLES != 0
    }

    /// Whether the server class has the connection base class of its 1.x versions.
    pub fn has_connection_base(&self) -> bool {
        self.abilities & sys::VGW_CUOBJ_HAS_CONNECTION_BASE != 0
    }

    /// Whether a token can be given back with the error that made it useless.
    pub fn has_token_reset(&self) -> bool {
        self.abilities & sys::VGW_CUOBJ_HAS_TOKEN_RESET != 0
    }

    /// One line for an error text, which must not fail itself.
    #[cfg(any(feature = "server", feature = "client"))]
    pub(crate) fn describe() -> String {
        Self::current().map_or_else(|error| error.to_string(), |provider| provider.to_string())
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.maker {
            Maker::Nvidia => "NVIDIA cuObject",
            Maker::Soft => "software cuObject SDK",
        })?;
        let parts = [("server", self.server), ("client", self.client)];
        for (i, (name, library)) in parts.iter().filter_map(|(n, l)| l.map(|l| (n, l))).enumerate() {
            f.write_str(if i == 0 { ": " } else { ", " })?;
            write!(f, "{name} {}", library.file)?;
            if !library.version.is_empty() {
                write!(f, " {}", library.version)?;
            }
        }
        Ok(())
    }
}

/// Text that the shim promises to be static; empty for null.
fn static_text(text: *const c_char) -> &'static str {
    if text.is_null() {
        return "";
    }
    // SAFETY: `vgw_cuobj_provider_info` holds static text that ends in NUL (wrapper.h).
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_knows_its_libraries() {
        let provider = Provider::current().unwrap();
        assert_eq!(provider.server.is_some(), cfg!(feature = "server"));
        assert_eq!(provider.client.is_some(), cfg!(feature = "client"));
        assert_eq!(provider.maker.label(), if cfg!(cuobj_provider = "nvidia") { "nvidia" } else { "soft" });
    }

    #[test]
    fn display_names_maker_files_and_versions() {
        let provider = Provider {
            maker: Maker::Nvidia,
            server: Some(Library { file: "libcuobjserver.so.1.2.0", version: "" }),
            client: Some(Library { file: "libcuobjclient.so.1.4.0", version: "1.4.0" }),
            abilities: 0,
        };
        assert_eq!(
            provider.to_string(),
            "NVIDIA cuObject: server libcuobjserver.so.1.2.0, client libcuobjclient.so.1.4.0 1.4.0"
        );
        assert_eq!(Provider { server: None, client: None, ..provider }.to_string(), "NVIDIA cuObject");
    }
}
