//! JSON as policies are read: a member given twice is an error, never one of the two.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// A JSON value; numbers and booleans are kept as their texts, which is how policies compare them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Text(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Text(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Text(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Text(value.to_string()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = seq.next_element()? {
            list.push(value);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut members: Vec<(String, Json)> = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Json>()? {
            if members.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format_args!("{name:?} is given twice")));
            }
            members.push((name, value));
        }
        Ok(Json::Object(members))
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

impl Json {
    /// A text, or a list of texts.
    pub(super) fn texts(&self) -> Option<Vec<&str>> {
        match self {
            Self::Text(text) => Some(vec![text]),
            Self::List(list) => list
                .iter()
                .map(|value| match value {
                    Self::Text(text) => Some(text.as_str()),
                    _ => None,
                })
                .collect(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Json, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn values() {
        assert_eq!(read("[1, true, \"a\"]").unwrap().texts().unwrap(), ["1", "true", "a"]);
        assert_eq!(read("\"a\"").unwrap().texts().unwrap(), ["a"]);
        assert_eq!(read("[[1]]").unwrap().texts(), None);
        assert_eq!(read("{}").unwrap().texts(), None);
        assert_eq!(read("null").unwrap(), Json::Null);
        assert!(read("{\"a\": 1, \"a\": 2}").unwrap_err().contains("given twice"));
    }
}
