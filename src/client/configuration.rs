//! The configuration file of the cuObject client library: which NIC it uses, and its DC key.
//!
//! The library reads JSON, with `//` comments, from the file named by `CUOBJ_ENV_PATH_JSON` or
//! `CUFILE_ENV_PATH_JSON`, else from `/etc/cuobj.json` or `/etc/cufile.json` (NVIDIA, "cuObjClient API
//! Specification"). Here the file in force is read, two properties are set, and the result is what
//! the library is given in its place; every other setting of the user's stays.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{Error, Result};

/// Names the configuration, for cuObjClient from 1.4 on.
pub const CUOBJ_PATH: &str = "CUOBJ_ENV_PATH_JSON";
/// Names the configuration, for all versions.
pub const CUFILE_PATH: &str = "CUFILE_ENV_PATH_JSON";

/// A configuration of the library, as far as it matters here.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    root: Map<String, Value>,
    source: Option<PathBuf>,
}

impl Configuration {
    /// The configuration in force: named by the environment, or in its usual place, or empty.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a file is named and cannot be read, or is no JSON.
    pub fn in_force(lookup: impl Fn(&str) -> Option<String>, root: &Path) -> Result<Self> {
        let named = [CUOBJ_PATH, CUFILE_PATH].into_iter().find_map(|name| {
            lookup(name).filter(|path| !path.is_empty()).map(|path| (name, PathBuf::from(path)))
        });
        if let Some((name, path)) = named {
            let text = std::fs::read_to_string(&path).map_err(|e| Error::Invalid {
                what: format!("{name} names {}, which cannot be read: {e}", path.display()),
            })?;
            return Self::parse(&text, Some(path));
        }
        for usual in ["etc/cuobj.json", "etc/cufile.json"] {
            let path = root.join(usual);
            if let Ok(text) = std::fs::read_to_string(&path) {
                return Self::parse(&text, Some(path));
            }
        }
        Ok(Self { root: Map::new(), source: None })
    }

    fn parse(text: &str, source: Option<PathBuf>) -> Result<Self> {
        let place = source.as_deref().map(|p| p.display().to_string()).unwrap_or_default();
        let invalid = |why: String| Error::Invalid { what: format!("{place}: {why}") };
        let root = serde_json::from_str(&without_comments(text)).map_err(|e| invalid(e.to_string()))?;
        Ok(Self { root, source })
    }

    /// The file it was read from.
    pub fn source(&self) -> Option<&Path> {
        self.source.as_deref()
    }

    /// Addresses of the NICs to use. Empty: none is named.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let list = self.root.get("properties").and_then(|p| p.get("rdma_dev_addr_list"));
        let entries = list.and_then(Value::as_array).into_iter().flatten();
        entries.filter_map(|entry| entry.as_str()?.parse().ok()).collect()
    }

    /// Uses the NIC with this address and no other.
    pub fn set_address(&mut self, address: IpAddr) {
        self.property("rdma_dev_addr_list", json!([address.to_string()]));
    }

    /// Uses this DC key. The gateway must use the same.
    pub fn set_dc_key(&mut self, key: u64) {
        self.property("rdma_dc_key", json!(format!("0x{key:x}")));
    }

    fn property(&mut self, name: &str, value: Value) {
        let properties = self.root.entry("properties").or_insert_with(|| json!({}));
        if !properties.is_object() {
            *properties = json!({});
        }
        if let Some(properties) = properties.as_object_mut() {
            properties.insert(name.to_owned(), value);
        }
    }

    /// The text for the library.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(&self.root).unwrap_or_else(|_| "{}".to_owned());
        text.push('\n');
        text
    }
}

/// Blanks `//` comments and commas before a closing bracket, both of which the vendor's own file has.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '"' => in_string = !in_string,
            '\\' if in_string => {
                out.push(c);
                out.extend(chars.next());
                continue;
            }
            '/' if !in_string && chars.peek() == Some(&'/') => {
                while chars.next_if(|&c| c != '\n').is_some() {}
                continue;
            }
            '}' | ']' if !in_string => {
                let kept = out.trim_end();
                if kept.ends_with(',') {
                    out.truncate(kept.len() - 1);
                }
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const VENDOR_STYLE: &str = r#"{
    // NOTE : a comment with "quotes" and a // inside
    "logging": { "level": "ERROR", /* not a comment to us */ },
    "properties": {
            // list of NICs, [ "10.0.0.1" ]
            "rdma_dev_addr_list": [ ],
            "url": "http://not/a/comment\\",
            "allow_compat_mode": true,
    }
}"#;

    fn lookup(path: &Path) -> impl Fn(&str) -> Option<String> {
        move |name| (name == CUFILE_PATH).then(|| path.to_str().unwrap().to_owned())
    }

    fn written(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn other_settings_stay() {
        let file = written(&VENDOR_STYLE.replace("/* not a comment to us */", ""));
        let mut configuration =
            Configuration::in_force(lookup(file.path()), Path::new("/nonexistent")).unwrap();
        assert!(configuration.addresses().is_empty());
        configuration.set_address("10.0.0.5".parse().unwrap());
        configuration.set_dc_key(0xffee_ddcc);
        assert_eq!(configuration.addresses(), ["10.0.0.5".parse::<IpAddr>().unwrap()]);
        let again: Value = serde_json::from_str(&configuration.to_text()).unwrap();
        assert_eq!(again["properties"]["rdma_dc_key"], "0xffeeddcc");
        assert_eq!(again["properties"]["allow_compat_mode"], true);
        assert_eq!(again["properties"]["url"], "http://not/a/comment\\");
        assert_eq!(again["logging"]["level"], "ERROR");
    }

    #[test]
    fn the_usual_places_are_looked_at() {
        let root = tempfile::tempdir().unwrap();
        let none = Configuration::in_force(|_| None, root.path()).unwrap();
        assert_eq!((none.source(), none.addresses()), (None, Vec::new()));
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let text = r#"{"properties": {"rdma_dev_addr_list": ["10.0.0.1", "2001:db8::1", "<nic>"]}}"#;
        std::fs::write(root.path().join("etc/cufile.json"), text).unwrap();
        let found = Configuration::in_force(|_| None, root.path()).unwrap();
        assert_eq!(found.addresses().len(), 2);
        assert_eq!(found.source().unwrap(), root.path().join("etc/cufile.json"));
    }

    #[test]
    fn a_named_file_must_be_there_and_be_json() {
        let missing = Configuration::in_force(lookup(Path::new("/nonexistent.json")), Path::new("/"));
        assert!(missing.unwrap_err().to_string().contains(CUFILE_PATH));
        let broken = written("{");
        assert!(Configuration::in_force(lookup(broken.path()), Path::new("/")).is_err());
    }

    #[test]
    fn properties_of_a_wrong_kind_are_replaced() {
        let file = written(r#"{"properties": 5}"#);
        let mut configuration = Configuration::in_force(lookup(file.path()), Path::new("/")).unwrap();
        configuration.set_dc_key(1);
        assert!(configuration.to_text().contains("\"0x1\""));
    }
}
